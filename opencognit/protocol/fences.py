"""Where Markdown says that text is code: lines, list items, fences, inline code. Owns no meaning of what it finds.

After CommonMark 0.31 (sections 4.5 and 6.1), with one leniency that model output needs: a fence that begins in a list
item ends at its closing fence, however that one is indented, and not where the item's indentation ends.
Everything is linear: no part of the text is looked at again for each thing found in it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

SPACES = re.compile(r"[^\S\r\n]*+")
_LINE = re.compile(r"[^\r\n]*+(?:\r\n|[\r\n])|[^\r\n]++")
_RUN = re.compile(r"`+")
_MARKER = re.compile(r"(?:[-+*]|[0-9]{1,9}[.)])(?=[ \t]|\Z)")
_INDENT = re.compile(r"[ \t]*+")
_FENCE = re.compile(r"(?P<ticks>`{3,}+)[^`\r\n]*+\Z|(?P<tildes>~{3,}+)[^\r\n]*+\Z")
_STARTS_A_BLOCK = re.compile(
    r"[^\S\r\n]*+(?:(?=[\r\n])|\Z|>|[-+*][ \t]|[0-9]{1,9}[.)][ \t]|`{3,}+[^`\r\n]*+(?:[\r\n]|\Z)|~~~|\#{1,6}[ \t]|</?think)",
    re.IGNORECASE | re.ASCII,
)


class Lines:
    """A text's lines: `starts[i]` to `ends[i]` without the line ending (LF, CRLF or CR)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts: list[int] = []
        self.ends: list[int] = []
        for match in _LINE.finditer(text):
            start, end = match.span()
            if text[end - 1] == "\n":
                end -= 1
            if end > start and text[end - 1] == "\r":
                end -= 1
            self.starts.append(start)
            self.ends.append(end)

    def __len__(self) -> int:
        return len(self.starts)

    def at(self, position: int) -> int:
        """Return the index of the line that holds `position`."""
        return max(0, bisect_right(self.starts, position) - 1)

    def number(self, position: int) -> int:
        """Return the line number that a person would give: from 1."""
        return self.at(position) + 1

    def paragraph_ends(self) -> list[int]:
        """Return for each line where its paragraph ends: no inline code reaches past that."""
        ends = list(self.ends)
        for index in range(len(ends) - 2, -1, -1):
            if not _STARTS_A_BLOCK.match(self.text, self.starts[index + 1]):
                ends[index] = ends[index + 1]
        return ends


class ListItems:
    """The list items that are open while lines go by, as the columns at which their text begins."""

    def __init__(self) -> None:
        self._columns: list[int] = []

    def place(self, text: str, start: int, end: int) -> tuple[int, int]:
        """Return where the line's own text begins, behind any list markers, and its indentation within its item."""
        position, column = _skip_indent(text, start, end, 0)
        while self._columns and self._columns[-1] > column:
            self._columns.pop()
        base = self._columns[-1] if self._columns else 0
        while column - base <= 3 and (marker := _MARKER.match(text, position, end)):
            behind = column + len(marker.group())
            position, column = _skip_indent(text, marker.end(), end, behind)
            base = column if position < end and column - behind <= 4 else behind + 1
            self._columns.append(base)
        return position, column - base


def _skip_indent(text: str, start: int, end: int, column: int) -> tuple[int, int]:
    match = _INDENT.match(text, start, end)
    assert match is not None  # it matches the empty string
    for char in match.group():
        column += 4 - column % 4 if char == "\t" else 1
    return match.end(), column


class Opening(NamedTuple):
    """An opening fence: its characters, where the info string begins, and the line."""

    fence: str
    info: int
    line: int

    def closed_by(self, text: str, start: int, end: int) -> bool:
        """Return whether this line (without indentation) closes the fence: as many of the same, nothing else."""
        line = text[start:end].rstrip(" \t")
        return len(line) >= len(self.fence) and line == self.fence[0] * len(line)


def opening(text: str, start: int, end: int, line: int) -> Opening | None:
    """Return the fence that opens at `start`, a line's own text, if one does."""
    match = _FENCE.match(text, start, end)
    if match is None:
        return None
    fence = match["ticks"] or match["tildes"]
    return Opening(fence, start + len(fence), line)


class InlineCode:
    """Backtick runs by length, so that the run which closes another is found without a search."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._runs: dict[int, list[int]] = {}
        for match in _RUN.finditer(text):
            self._runs.setdefault(len(match.group()), []).append(match.start())

    def end(self, start: int, stop: int, limit: int) -> int | None:
        """Return where the code ends that the run from `start` to `stop` opens; None if it opens none before `limit`."""
        backslashes = start
        while backslashes and self._text[backslashes - 1] == "\\":
            backslashes -= 1
        length = stop - start - (start - backslashes) % 2
        runs = self._runs.get(length, [])
        following = bisect_right(runs, start)
        if length == 0 or following == len(runs) or runs[following] >= limit:
            return None
        return runs[following] + length
