"""How figures are written for a reader: numbers, shares, tables, safe names, and the block of data at the end. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

TABLE_ROWS = 25
DATA_PACKAGES = 60
"""How many packages the block of data names, so that a result stays far below the 64 KB that are kept of it."""
_DATA = re.compile(r"^```json\n(.*)\n```$", re.MULTILINE)
_UNSAFE = re.compile(r"[`|;]|\[(?=\s*\w)|<(?=/?\w)|~(?=~~)")
"""What would end a table cell or an entry of a memory, or begin a tag, a code fence or a model's reasoning."""


def printable(name: str) -> str:
    """Spell a name from the file system so that it is one harmless word of text, whatever bytes it is made of."""
    shown = "".join(char if char.isprintable() else _escape(char) for char in name)
    return _UNSAFE.sub(lambda match: _escape(match.group()), shown)


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # PEP 383: a byte that was not UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def share(part: int, whole: int) -> str:
    """Return a percentage; `-` where there is nothing to have a share of."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def size(count: int) -> str:
    """Return a number of bytes in the unit that a person would say it in."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"


def count(number: int, one: str, many: str = "") -> str:
    """Return `1 module` or `2,000 modules`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def table(headers: Sequence[str], rows: Sequence[Sequence[str | int]], *, left: int = 1) -> str:
    """Return an aligned Markdown table: the first `left` columns to the left, the others to the right."""
    cells = [list(headers)] + [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(headers))]
    rule = ["-" * width if column < left else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return "\n".join(_table_line(row, widths, left) for row in [cells[0], rule, *cells[1:]])


def _table_line(row: Sequence[str], widths: Sequence[int], left: int) -> str:
    padded = [
        cell.ljust(width) if column < left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |"


def section(heading: str, *paragraphs: str) -> str:
    """Return a section; nothing where it would be empty."""
    body = "\n\n".join(paragraph for paragraph in paragraphs if paragraph)
    return f"## {heading}\n\n{body}" if body else ""


def page(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def data_block(data: dict[str, Any]) -> str:
    """Return the figures for the next program: one line of JSON in a fence, ASCII only."""
    return f"```json\n{json.dumps(data, separators=(',', ':'))}\n```"


def data_of(result: str) -> dict[str, Any] | None:
    """Return the last block of data in a result; None where there is none that can be read."""
    for text in reversed(_DATA.findall(result)):
        try:
            data = json.loads(text)
        except ValueError:
            continue
        if isinstance(data, dict):
            return data
    return None
