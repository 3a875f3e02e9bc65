"""What people type, as values: amounts, instants, spans, entities, long texts. Each raises InvalidInput or ConfigError."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from opencognit.errors import InvalidInput
from opencognit.states import EntityRole

if TYPE_CHECKING:
    from opencognit.contracts import EntityRef

FILE_LIMIT_BYTES = 4_000_000
"""Bytes of a description: more than its characters may be, so that the limit of characters is the one that is told."""

_SPAN = re.compile(r"([0-9]{1,5})([mhdw])")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse what no text can hold: bytes that are not UTF-8 (Python hands them on as surrogates), and NUL."""
    for number, argument in enumerate(arguments, 1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise InvalidInput(f"argument {number}", f"{argument!r:.80} is not UTF-8: type it in UTF-8") from None
        if "\0" in argument:
            raise InvalidInput(f"argument {number}", f"{argument!r:.80} holds a NUL character: remove it")
        if (argument == "" and arguments[number - 2] in ("--home", "--path", "--file")) or argument in (
            "--home=",
            "--path=",
            "--file=",
        ):
            raise InvalidInput(
                argument.rstrip("=") or arguments[number - 2], "is empty: name a folder or file, or leave the option out"
            )


def usd(option: str, text: str | None) -> Decimal | None:
    """Return an amount of money above zero."""
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text.strip()) or not Decimal(text.strip()):
        raise InvalidInput(option, f"{text[:80]!r} is not an amount: give USD above 0 such as 25 or 12.50, at most six decimals")
    return Decimal(text.strip())


def seconds(option: str, number: float | None) -> float | None:
    """Return a span above zero."""
    if number is not None and not (isfinite(number) and number > 0):
        raise InvalidInput(option, f"is {number}: give seconds above 0, or leave it out to wait for as long as it takes")
    return number


def fraction(option: str, number: float) -> float:
    """Return a number from 0 to 1."""
    if not 0 <= number <= 1:
        raise InvalidInput(option, f"is {number}: give a number from 0 to 1")
    return number


def since(option: str, text: str | None, zone: str) -> datetime | None:
    """Return the instant behind a date or time (of `zone` where it names none), or behind a span such as `7d` until now."""
    if text is None:
        return None
    try:
        if span := _SPAN.fullmatch(text.strip()):
            return datetime.now(UTC) - int(span[1]) * _UNITS[span[2]]
        at = datetime.fromisoformat(text.strip())
        return (at if at.tzinfo is not None else at.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC)
    except (ValueError, OverflowError):
        said = f"{text[:80]!r} is no date or time: give 2026-01-31, 2026-01-31T09:30, or a span such as 7d, 24h"
        raise InvalidInput(option, said) from None


def entity(option: str, text: str) -> EntityRef:
    """Return KIND:KEY or KIND:KEY:ROLE; a key may have colons itself, the last part counts as a role only if it is one."""
    from pydantic import ValidationError

    from opencognit.contracts import EntityRef

    kind, _, key = text.partition(":")
    before, _, last = key.rpartition(":")
    role = EntityRole.MENTIONED
    if before and last in frozenset(EntityRole):
        key, role = before, EntityRole(last)
    try:
        return EntityRef(kind=kind.strip(), key=key.strip(), role=role)
    except ValidationError:
        said = f"{text[:80]!r} is no entity: give KIND:KEY such as person:ada, or KIND:KEY:ROLE with a role of "
        raise InvalidInput(option, f"{said}{', '.join(EntityRole)}; a kind has at most 64 characters, a key 512") from None


def long_text(description: str | None, file: Path | None, dash: str | None) -> str:
    """Return the one description that was given: as an option, as a file, or (`-`) on standard input; empty for none."""
    if dash not in (None, "-"):
        raise InvalidInput(f"{dash[:40]!r}", "is one word too many: put the title in quotes, or give `-` to read standard input")
    from_stdin = dash == "-" or str(file) == "-"
    if (description is not None) + (file is not None) + (dash is not None) > 1:
        raise InvalidInput("description", "is given twice: choose one of --description, --file and -")
    if from_stdin:
        return _standard_input()
    if file is not None:
        from opencognit.config.files import read_text

        return read_text(file, limit=FILE_LIMIT_BYTES)
    return description or ""


def _standard_input() -> str:
    if sys.stdin is None:
        raise InvalidInput("standard input", "is closed: send the text into it, or give it with --description")
    raw = sys.stdin.buffer.read(FILE_LIMIT_BYTES + 1)
    if len(raw) > FILE_LIMIT_BYTES:
        raise InvalidInput("standard input", f"is larger than {FILE_LIMIT_BYTES // 1_000_000} MB: shorten it")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput("standard input", f"is not UTF-8 (byte {error.start + 1}): send text in UTF-8") from error
    if "\0" in text:
        raise InvalidInput("standard input", "holds a NUL character: remove it")
    return text
