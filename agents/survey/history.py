"""What a survey remembers and what changed since the one before. Pure: the clock and the memories are handed in.

A survey's memory is one line that a person can read and the next survey can parse:
`Inventory of PATH on 2026-01-31 12:00:00 UTC: modules 612; lines 289,123; bytes in json 40,960. Since ...`
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from briefing import Memory
from page import printable

ROOM = "survey"
CONTENT = "content"
"""The figure that is a digest of all files: it tells an edit that leaves every number as it was."""
PACKAGE = "bytes in "
MAX_PACKAGES = 40
"""How many packages a memory names; of more, the largest."""
SAID_CHANGES = 5
_SINCE = ". Since the survey of "
_VALUE = re.compile(r"\d[\d,]*|sha256:[0-9a-f]+")

Figures = Mapping[str, int | str]


@dataclass(frozen=True, slots=True)
class Earlier:
    """The survey before this one, as its memory tells it."""

    id: str
    date: str
    figures: Figures


def newest(memories: Iterable[Memory], kind: str, path: str) -> Earlier | None:
    """Return the newest memory of this kind of survey of this very path; those that cannot be read are passed over."""
    head = re.compile(re.escape(f"{kind} of {printable(path)} on ") + r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC): ")
    for memory in sorted(memories, key=lambda memory: memory.created_at, reverse=True):
        match = head.match(memory.content) if memory.room == ROOM else None
        if match and (figures := _parse(memory.content[match.end() :])):
            return Earlier(memory.id, match.group(1), figures)
    return None


def _parse(text: str) -> Figures:
    figures, since, _ = text.partition(_SINCE)
    entries = figures.removesuffix(".").split("; ")
    if not since and not text.endswith("."):  # cut off in mid-list: the last number cannot be trusted
        entries.pop()
    pairs = [entry.rpartition(" ") for entry in entries]
    return {label: _value(value) for label, _, value in pairs if label and _VALUE.fullmatch(value)}


def _value(text: str) -> int | str:
    return text if text.startswith("sha256:") else int(text.replace(",", ""))


def changes(before: Figures, now: Figures) -> list[str]:
    """Return one line for each figure that differs, in the order of `now`; empty when all are equal.

    A package that only one side names has come or gone only where both sides name all their packages.
    """
    complete = _names_all_packages(before) and _names_all_packages(now)
    labels = [*now, *(label for label in before if label not in now)]
    lines = [_change(label, before.get(label), now.get(label), complete) for label in labels if label != CONTENT]
    told = [line for line in lines if line]
    if not told and CONTENT in before and CONTENT in now and before[CONTENT] != now[CONTENT]:
        return ["no figure differs, but the content of some file does"]
    return told


def _change(label: str, before: int | str | None, now: int | str | None, complete: bool) -> str | None:
    if isinstance(before, int) and isinstance(now, int):
        return f"{label}: {before:,} to {now:,} ({now - before:+,})" if before != now else None
    if not complete or not label.startswith(PACKAGE):
        return None
    name = label.removeprefix(PACKAGE)
    return f"{name} is new, {now:,} bytes" if before is None else f"{name} is gone, it had {before:,} bytes"


def _names_all_packages(figures: Figures) -> bool:
    return figures.get("packages") == sum(label.startswith(PACKAGE) for label in figures)


def remember(kind: str, path: str, now: datetime, figures: Figures, earlier: Earlier | None, *, type: str = "episode") -> str:
    """Return the tagged line that stores this survey and ties it to the one before."""
    derived = f" derives_from={earlier.id}" if earlier else ""
    told = "; ".join(f"{label} {value:,}" if isinstance(value, int) else f"{label} {value}" for label, value in figures.items())
    content = f"{kind} of {printable(path)} on {date_of(now)}: {told}."
    if earlier:
        lines = changes(earlier.figures, figures)
        more = f"; and {len(lines) - SAID_CHANGES} more changes" if len(lines) > SAID_CHANGES else ""
        content += f"{_SINCE[1:]}{earlier.date}: {'; '.join(lines[:SAID_CHANGES]) or 'nothing changed'}{more}."
    return f"[REMEMBER:{ROOM} type={type}{derived}] {content}"


def date_of(now: datetime) -> str:
    return f"{now:%Y-%m-%d %H:%M:%S} UTC"


def told_changes(earlier: Earlier | None, lines: list[str]) -> str:
    """Say what changed since the survey before, as a paragraph or a list."""
    if earlier is None:
        return "This is the first survey of this tree that I remember, so there is nothing to compare it with."
    since = f"the survey of {earlier.date} (memory {earlier.id})"
    if not lines:
        return f"Nothing changed since {since}."
    return f"Since {since}:\n\n" + "\n".join(f"- {line}" for line in lines)
