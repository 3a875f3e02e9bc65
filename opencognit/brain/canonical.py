"""The one spelling of each kind of entity's key. Pure: text in, text or None out, with the pattern set's word lists.

Owns what two spellings of one thing have in common; knows no pattern and finds nothing in a text. A function returns None
for what is not a thing of its kind. What it returns it returns again when asked for that (entities.py sees to it).
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from opencognit.brain.addresses import coin_address
from opencognit.brain.fingerprints import fingerprint
from opencognit.brain.quantities import Words, amount, date
from opencognit.textclean import clean

Canonicaliser = Callable[[str, Words], str | None]

_DEFAULT_PORTS = {
    "http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21, "ssh": 22, "postgres": 5432, "postgresql": 5432, "redis": 6379,
}  # fmt: skip
_DRIVE = re.compile(r"([A-Za-z]):(?=[/\\])")
_LINE_NUMBERS = re.compile(r"(?::[0-9]+)+:?\Z")
_VERSION = re.compile(r"(?:v|version|release)?[ .]?([0-9]++(?:[-.+]?[a-z0-9]++)*+)")
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+")
_HASH_TICKET = re.compile(r"(?:gh-|((?:[\w.-]+/)[\w.-]+)?#)0*([0-9]+)")
_KEYED_TICKET = re.compile(r"[a-z][a-z0-9_]*-[0-9]+(?:-[0-9]+)?")
_TICKER = re.compile(r"(?:\$|([a-z]+):\s?)?([a-z0-9]{1,6}(?:[.-][a-z]{1,2})?)")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def plain(text: str) -> str:
    """Return `text` in one form of each character and with single blanks; case is kept."""
    return " ".join(unicodedata.normalize("NFKC", clean(text)).split())


def folded(text: str) -> str:
    """Return `text` as keys are compared: compatibility forms and case are one, blanks are single (Unicode D146, composed)."""
    if text.isascii() and "\0" not in text:
        return " ".join(text.lower().split())
    once = unicodedata.normalize("NFKD", unicodedata.normalize("NFD", clean(text)).casefold())
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKD", once.casefold())).split())


def _url(text: str, words: Words) -> str | None:
    """Host in lower case; no user, default port, fragment, final slash or parameter that only tracks or lets in."""
    try:
        parts = urlsplit(f"https://{text}" if text[:4].lower() == "www." else text)
        port = parts.port
    except ValueError:
        return None
    host = (parts.hostname or "").rstrip(".").casefold()
    if not parts.scheme or not host or "{" in text:  # a template is no address
        return None
    host = f"[{host}]" if ":" in host else host
    shown = "" if port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f":{port}"
    query = "&".join(each for each in parts.query.split("&") if each and not _is_dropped(each, words["dropped_parameter"]))
    return f"{parts.scheme}://{host}{shown}{parts.path.rstrip('/')}{'?' + query if query else ''}"


def _is_dropped(parameter: str, dropped: Mapping[str, str]) -> bool:
    name = parameter.partition("=")[0].casefold()
    return name in dropped or name.partition("_")[0] + "_*" in dropped


def _email(text: str, words: Words) -> str | None:
    address = text.removeprefix("mailto:").rstrip(".")
    return address if re.fullmatch(r"[^\s@]+@[^\s@]+", address) else None


def _user(text: str, words: Words) -> str | None:
    return text.lstrip("@").strip() or None


def _file(text: str, words: Words) -> str | None:
    """Forward slashes, no `.` or inner `..`, no line number behind it."""
    if _DRIVE.match(text) or ("\\" in text and "/" not in text):
        text = _DRIVE.sub(lambda match: f"{match[1].upper()}:", text.replace("\\", "/"), count=1)
    path = _LINE_NUMBERS.sub("", text)
    path = posixpath.normpath(path) if path else ""
    return re.sub(r"\A//+", "/", path) if path.strip("./") else None


def _version(text: str, words: Words) -> str | None:
    match = _VERSION.fullmatch(text)
    if match is None or _THOUSANDS.fullmatch(text):  # 10.000.000 is a number
        return None
    return match[1]


def _ip(text: str, words: Words) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def _uuid(text: str, words: Words) -> str | None:
    return text if _UUID.fullmatch(text) else None


def _ticket(text: str, words: Words) -> str | None:
    """`GH-12` and `#12` are one; a tracker's key is in capitals."""
    if match := _HASH_TICKET.fullmatch(text):
        return f"{match[1] or ''}#{match[2]}"
    return text.upper() if _KEYED_TICKET.fullmatch(text) else None


def _ticker(text: str, words: Words) -> str | None:
    """A symbol alone is one of the exchanges whose meaning is `home`; any other exchange is a part of the key."""
    match = _TICKER.fullmatch(text)
    if match is None:
        return None
    exchange = match[1]
    is_home = exchange is None or words["exchange"].get(exchange) == "home"
    return (match[2] if is_home else f"{exchange}:{match[2]}").upper()


def _coin_address(text: str, words: Words) -> str | None:
    return coin_address(text)


def _error(text: str, words: Words) -> str | None:
    return fingerprint(text)


CANONICALISERS: Final[Mapping[str, Canonicaliser]] = {
    "amount": amount,
    "coin_address": _coin_address,
    "date": date,
    "email": _email,
    "error": _error,
    "file": _file,
    "ip": _ip,
    "ticker": _ticker,
    "ticket": _ticket,
    "url": _url,
    "user": _user,
    "uuid": _uuid,
    "version": _version,
}
CASE_MATTERS: Final = frozenset({"coin_address", "error", "file", "url"})
"""These get `plain` text; all others get `folded` text."""
