"""What commands print: one JSON document, or tables and text for people. Owns the streams; knows no table of the database.

Whatever others wrote is text: markup is never read in it, control characters and terminal escapes are dropped.
Standard output carries the answer, standard error everything that is said about it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from opencognit.states import AgentState, ApprovalState, GoalState, Lifecycle, Priority, RunState, TaskState

if TYPE_CHECKING:
    from rich.console import Console

    from opencognit.config import Home

Cell = str | None
NONE = "-"
"""How nothing is shown."""
LINE_LIMIT = 500
SHORT = 12
"""Columns up to so wide are not cut on a narrow terminal."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_STYLES: Mapping[str, str] = {
    **dict.fromkeys((GoalState.ACHIEVED, TaskState.DONE, RunState.SUCCEEDED, ApprovalState.APPROVED, "ok"), "green"),
    **dict.fromkeys((GoalState.ACTIVE, GoalState.PLANNING, TaskState.IN_PROGRESS, RunState.RUNNING), "cyan"),
    **dict.fromkeys((TaskState.IN_REVIEW, AgentState.PAUSED, ApprovalState.PENDING, Priority.HIGH, "warn"), "yellow"),
    **dict.fromkeys((GoalState.BLOCKED, RunState.FAILED, RunState.TIMED_OUT, RunState.LOST, AgentState.ERROR), "red"),
    **dict.fromkeys((ApprovalState.REJECTED, Priority.CRITICAL, "fail"), "red"),
    **dict.fromkeys((GoalState.CANCELLED, Lifecycle.ARCHIVED, Lifecycle.SUPERSEDED, Priority.LOW), "dim"),
}


def line(text: str, limit: int = LINE_LIMIT) -> str:
    """Return `text` on one line, safe for a terminal, cut at `limit` characters."""
    one = " ".join(_CONTROL.sub(" ", _plain(text[: 4 * limit])).split())
    return one if len(one) <= limit else one[: limit - 1] + "…"


def block(text: str) -> str:
    """Return `text` with its lines, safe for a terminal."""
    return _CONTROL.sub("", _plain(text.replace("\r\n", "\n"))).rstrip()


def _plain(text: str) -> str:
    from opencognit.textclean import clean, strip_ansi

    return strip_ansi(clean(text))


def when(at: datetime | None, home: Home) -> str:
    """Write an instant in the company's time zone."""
    return NONE if at is None else at.astimezone(ZoneInfo(home.config.company.timezone)).strftime("%Y-%m-%d %H:%M:%S")


def json_document(value: Any) -> None:
    """Print the one JSON document of a command."""
    write(json.dumps(value, ensure_ascii=_is_narrow(), indent=2))


def json_items(items: Iterable[Any]) -> None:
    json_document({"items": list(items)})


def json_line(value: Any) -> None:
    """Print one document of an endless series (`-f`, `--watch`): JSON Lines."""
    write(json.dumps(value, ensure_ascii=_is_narrow()))


def json_text(text: str) -> None:
    """Print a JSON document that is text already, spelled in what standard output can take."""
    write(json.dumps(json.loads(text)) if _is_narrow() else text)


def _is_narrow() -> bool:
    """Whether standard output cannot take every character."""
    return (sys.stdout.encoding or "utf-8").lower().replace("-", "") not in ("utf8", "utf8sig")


def write(text: str) -> None:
    """Print text that is safe already."""
    print(text, flush=True)


def note(text: str) -> None:
    """Say something about the answer, on standard error."""
    print(text, file=sys.stderr, flush=True)


def table(head: Sequence[str], rows: Iterable[Sequence[Cell]], *, empty: str) -> None:
    """Print rows under `head`; a terminal gets them cut to its width, anything else whole. Without rows, say `empty`."""
    cells = [[NONE if cell is None or cell == "" else line(cell) for cell in row] for row in rows]
    if not cells:
        note(empty)
        return
    console = _terminal()
    if console is None:
        write(_aligned([[name.upper() for name in head], *cells]))
        return
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, name in enumerate(head):
        # rich narrows columns that may wrap first: what is short stays whole. No cell wraps all the same.
        short = max(cell_len(row[column]) for row in cells) <= SHORT
        shown.add_column(name, no_wrap=short, overflow="ellipsis")
    for row in cells:
        shown.add_row(*(Text(cell, style=_STYLES.get(cell, ""), no_wrap=True, overflow="ellipsis") for cell in row))
    console.print(shown)


def fields(title: str, pairs: Iterable[tuple[str, Cell]]) -> None:
    """Print one thing: its title, then each field that has a value; a value may have many lines."""
    told = [(name, block(value)) for name, value in pairs if value is not None and value.strip()]
    console = _terminal()
    if console is None:
        width = max((len(name) for name, _ in told), default=0)
        indent = "\n" + " " * (width + 2)
        write("\n".join([line(title), *(f"{name + ':':<{width + 2}}{value.replace(chr(10), indent)}" for name, value in told)]))
        return
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in told:
        grid.add_row(Text(name), Text(value, style=_STYLES.get(value, "")))
    console.print(Panel(grid, title=Text(line(title, 200)), title_align="left", border_style="dim"))


def marked(word: str, text: str) -> None:
    """Print one line that begins with a word in its colour."""
    console = _terminal()
    if console is None:
        write(f"{word}{text}")
        return
    from rich.text import Text

    console.print(Text.assemble((word, _STYLES.get(word.strip(), "")), text), soft_wrap=True)


def section(title: str, head: Sequence[str], rows: Iterable[Sequence[Cell]], *, empty: str) -> None:
    """Print a part of an answer: its heading, then its table, or `empty` in its place."""
    heading(title)
    listed = list(rows)
    if listed:
        table(head, listed, empty=empty)
    else:
        write(empty)


def heading(text: str) -> None:
    """Print a heading between two parts of an answer."""
    write(f"\n{line(text)}")


def clear() -> None:
    """Start a screen afresh, where there is one."""
    console = _terminal()
    if console is not None:
        console.clear()


def _terminal() -> Console | None:
    """Return a console where people look at standard output; rich itself heeds NO_COLOR and TERM."""
    if not sys.stdout.isatty():
        return None
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    from rich.cells import cell_len

    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
