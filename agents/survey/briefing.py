"""What a run is told, read from its JSON, and how a survey script starts and ends.

Imports nothing but the standard library: these scripts run wherever Python 3.11 does. Knows only the few keys of the
briefing that a survey needs, ignores the others, and must not look at the surveyed tree.
"""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PATH_LINE = re.compile(r"^[ \t]*path:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE | re.IGNORECASE)
PLACEHOLDER = "{path}"
"""Stands in goal.md until the command line fills it in; a goal posted with it as it is means the default."""


class Trouble(Exception):
    """What stops a survey, in words for the person who has to mend it."""


@dataclass(frozen=True, slots=True)
class Input:
    """The result of a task that this one comes after."""

    title: str
    status: str
    result: str


@dataclass(frozen=True, slots=True)
class Memory:
    id: str
    room: str
    content: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Briefing:
    goal: str
    """The goal's description; empty for a task without a goal."""
    inputs: tuple[Input, ...]
    memories: tuple[Memory, ...]


def parse(raw: bytes, source: str) -> Briefing:
    """Read a briefing's JSON; raises Trouble that names `source` and the key that is wrong."""
    try:
        data = json.loads(raw)
    except ValueError as error:
        raise Trouble(
            f"the briefing in {source} is not JSON ({error}); give one JSON object, as the bash adapter does"
        ) from error
    try:
        return Briefing(
            goal=_text(data["goal"], "description") if data["goal"] else "",
            inputs=tuple(_input(item) for item in data.get("inputs", [])),
            memories=tuple(_memory(item) for item in data.get("memories", [])),
        )
    except KeyError as error:
        raise Trouble(
            f"the briefing in {source} lacks the key {error}, which every briefing has: run this as an agent's command"
        ) from error
    except (AttributeError, TypeError, ValueError) as error:
        raise Trouble(f"the briefing in {source} has another shape than expected ({error}); give a JSON object") from error


def _text(item: dict[str, Any], key: str) -> str:
    value = item[key]
    if not isinstance(value, str):
        raise TypeError(f"{key!r} is no text")
    return value


def _input(item: dict[str, Any]) -> Input:
    return Input(_text(item, "title"), str(item.get("status", "done")), _text(item, "result"))


def _memory(item: dict[str, Any]) -> Memory:
    created_at = datetime.fromisoformat(_text(item, "created_at"))
    aware = created_at if created_at.tzinfo else created_at.replace(tzinfo=UTC)
    return Memory(_text(item, "id"), _text(item, "room"), _text(item, "content"), aware)


def read() -> Briefing:
    """Read the briefing of this run: the file named by $OPENCOGNIT_BRIEFING, else standard input."""
    file = os.environ.get("OPENCOGNIT_BRIEFING")
    if not file:
        return parse(sys.stdin.buffer.read(), "standard input")
    try:
        return parse(Path(file).read_bytes(), repr(file))
    except OSError as error:
        why = error.strerror or error
        raise Trouble(f"cannot read the briefing {file!r}: {why}; $OPENCOGNIT_BRIEFING must name a readable file") from error


def surveyed_path(briefing: Briefing) -> str:
    """Return the absolute path of the tree to survey: the goal's `path:` line, else this interpreter's library."""
    match = PATH_LINE.search(briefing.goal)
    named = match.group(1).strip("`'\"") if match else PLACEHOLDER
    if named == PLACEHOLDER:
        return sysconfig.get_path("stdlib")
    path = Path(named).expanduser()
    if not path.is_absolute():
        raise Trouble(f"the goal's line 'path: {named}' is relative, and a run has a folder of its own; write the full path")
    return os.path.normpath(path)


def progress(text: str) -> None:
    """Say something in the run's log."""
    print(text, file=sys.stderr, flush=True)


def run(name: str, work: Callable[[Briefing, datetime], str]) -> int:
    """Do `work`, print what it gives as the task's result, and return the exit code.

    UTF-8 whatever the locale is, since the result is stored as text.
    """
    try:
        result = work(read(), datetime.now(UTC))
    except Trouble as trouble:
        progress(f"{name}: {trouble}")
        return 1
    sys.stdout.buffer.write(result.encode())
    return 0
