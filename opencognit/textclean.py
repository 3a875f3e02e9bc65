"""Text that PostgreSQL takes and people can read. Owns what happens to bytes and characters from outside.

Pure; changes nothing that is valid. It must not know what a text means: no tags, no Markdown, no limits of a field.
Every function is linear in its input.
"""

from __future__ import annotations

import codecs
import re
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_UNSTORABLE = re.compile(r"[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]|\x00")
_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor moves
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*+(?:\x07|\x1b\\|\x9c)"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*+\x1b\\"  # DCS, SOS, PM, APC: strings for the terminal
    r"|\x1b[ -/]*+[0-~]"  # every other escape, among them the head of an unfinished one
)


def clean(text: str) -> str:
    """Return `text` with NUL and lone surrogates as U+FFFD and surrogate pairs as the character they stand for."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub(_replace, text)


def _replace(match: re.Match[str]) -> str:
    found = match.group()
    if len(found) == 1:
        return REPLACEMENT
    return chr(0x10000 + ((ord(found[0]) - 0xD800) << 10) + (ord(found[1]) - 0xDC00))


def clean_json(value: Any) -> Any:
    """Return a copy of a JSON value with every string and key cleaned; tuples become lists, however deep it is."""
    root = [value]
    todo: list[tuple[Any, Any]] = [(root, 0)]  # a stack of its own: a deep value must not exhaust Python's
    while todo:
        box, key = todo.pop()
        item = box[key]
        if isinstance(item, str):
            box[key] = clean(item)
        elif isinstance(item, dict):
            box[key] = fresh = {clean(k) if isinstance(k, str) else k: v for k, v in item.items()}
            todo.extend((fresh, k) for k in fresh)
        elif isinstance(item, list | tuple):
            box[key] = copied = list(item)
            todo.extend((copied, i) for i in range(len(copied)))
    return root[0]


def decode(raw: bytes) -> str:
    """Return a process's output as clean text: UTF-8, or UTF-16 where a byte order mark says so; CRLF is kept.

    What is not valid becomes U+FFFD; the mark itself is dropped.
    """
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return clean(raw.decode("utf-16", "replace"))
    return clean(raw.decode("utf-8-sig", "replace"))


def strip_ansi(text: str) -> str:
    """Return `text` without terminal escape sequences; of an unfinished one only its head goes."""
    return _ANSI.sub("", text)


def head_and_tail(content: str | bytes, limit_bytes: int) -> str:
    """Return `content` as clean text of at most `limit_bytes` UTF-8 bytes, the middle left out.

    The line that says how much is missing comes on top of the limit.
    """
    if isinstance(content, bytes) and not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raw = content
    else:
        raw = (decode(content) if isinstance(content, bytes) else clean(content)).encode()
    if len(raw) <= limit_bytes:
        return decode(raw) if isinstance(content, bytes) else raw.decode()
    head = (limit_bytes + 1) // 2
    tail = limit_bytes - head
    return join_head_and_tail(raw[:head], raw[len(raw) - tail :], len(raw) - head - tail)


def join_head_and_tail(head: bytes, tail: bytes, left_out: int) -> str:
    """Return the two ends of a long output as clean text, with a line between them that counts the bytes missing.

    For a reader that kept only the ends; `left_out` is what lay between. A character that the cut split is left out too.
    """
    head_end = len(head) - _split_at_end(head)
    tail_start = _split_at_start(tail)
    missing = left_out + len(head) - head_end + tail_start
    first, last = decode(head[:head_end]), clean(tail[tail_start:].decode("utf-8", "replace"))
    return f"{first}\n[... {missing} bytes left out ...]\n{last}"


def _split_at_end(raw: bytes) -> int:
    """Count the bytes at the end that begin a UTF-8 character and do not finish it."""
    for back in range(1, min(4, len(raw) + 1)):
        byte = raw[-back]
        if 0xC2 <= byte <= 0xF4:
            needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < needs else 0
        if byte & 0xC0 != 0x80:
            return 0
    return 0


def _split_at_start(raw: bytes) -> int:
    """Count the bytes at the start that finish a UTF-8 character begun before (at most three)."""
    count = 0
    while count < min(3, len(raw)) and raw[count] & 0xC0 == 0x80:
        count += 1
    return count
