"""TOML with line numbers. Owns parsing (by the standard library) and where each key stands in the text.

`tomllib` says whether a text is TOML; only then the scanner here, which may therefore trust it, notes each key's line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opencognit.config.files import read_text
from opencognit.errors import ConfigError

KeyPath = tuple[str | int, ...]
"""A key's way from the top; an integer counts the tables of an array, or a list's items, from 0."""
SIZE_LIMIT = 1024 * 1024
"""Largest TOML file that is read, in bytes."""

_ERROR_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)")
_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]+")
_STRINGS = tuple(
    re.compile(pattern, re.DOTALL) for pattern in (r'"""(?:\\.|[^\\])*?"{3,5}', r"'''.*?'{3,5}", r'"(?:\\.|[^"\\])*"', r"'[^']*'")
)


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A parsed file; `lines` has the 1-based line where each key first stands."""

    path: Path
    data: dict[str, Any]
    lines: Mapping[KeyPath, int]

    def has(self, key: KeyPath) -> bool:
        """Return whether `key` itself stands in the file."""
        return key in self.lines

    def line(self, key: KeyPath) -> int | None:
        """Return the line of `key`, else of the nearest table around it; None for the file as a whole."""
        while key and key not in self.lines:
            key = key[:-1]
        return self.lines.get(key)

    def problem(self, message: str, *key: str | int) -> ConfigError:
        """Return the error that `message` is true of `key` in this file."""
        return ConfigError(message, path=self.path, line=self.line(key))


def read_toml(path: Path) -> TomlFile:
    """Return the parsed file; ConfigError with its line where it is unreadable, not TOML, or holds a NUL character."""
    return parse_toml(read_text(path, limit=SIZE_LIMIT), path)


def parse_toml(text: str, path: Path) -> TomlFile:
    """Return `text` parsed; `path` is only named in errors."""
    try:
        data = tomllib.loads(text)
        lines = dict(_Scanner(text).lines())
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(str(error), text, path) from error
    except RecursionError as error:
        raise ConfigError("nested too deeply: use plain tables and lists", path=path) from error
    except ValueError as error:  # the one thing left is an integer of more digits than Python converts
        raise ConfigError("holds a number of thousands of digits: shorten it", path=path) from error
    file = TomlFile(path, data, lines)
    for key in _with_nul(data):
        raise file.problem(f"{dotted(key)}: holds a NUL character: remove it", *key)
    return file


def _syntax_error(message: str, text: str, path: Path) -> ConfigError:
    at = _ERROR_PLACE.search(message)
    line = int(at[1]) if at and at[1] else text.rstrip().count("\n") + 1
    what = _ERROR_PLACE.sub("", message)
    mend = "text stands in quotes, and for nothing leave the key out" if what == "Invalid value" else "correct this line"
    return ConfigError(f"not valid TOML ({what}): {mend}", path=path, line=line)


def dotted(key: KeyPath) -> str:
    """Return `key` as people write it: `routines[2].cron`, counting from 1."""
    text = ""
    for part in key:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _with_nul(value: Any, key: KeyPath = ()) -> Iterator[KeyPath]:
    if isinstance(value, str) and "\0" in value:
        yield key
    for part, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(part, str) and "\0" in part:
            yield key
        yield from _with_nul(inner, (*key, part))


class _Scanner:
    """Walks a text that is known to be TOML and gives (key, line) in the order of the text."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._line, self._counted = text, 0, 1, 0
        self._tables: dict[KeyPath, int] = {}  # how many tables each array of tables has so far

    def lines(self) -> Iterator[tuple[KeyPath, int]]:
        seen: dict[KeyPath, int] = {}
        for key, line in self._statements():
            for end in range(1, len(key) + 1):
                seen.setdefault(key[:end], line)
        return iter(seen.items())

    def _statements(self) -> Iterator[tuple[KeyPath, int]]:
        table: KeyPath = ()
        while self._skip() < len(self._text):
            line = self._here()
            if self._take("[["):
                table = self._absolute(self._key(), new=True)
                self._take("]]")
                yield table, line
            elif self._take("["):
                table = self._absolute(self._key(), new=False)
                self._take("]")
                yield table, line
            else:
                yield from self._pair(table)

    def _absolute(self, key: list[str], *, new: bool) -> KeyPath:
        """Return a header's full path: a part that is an array of tables means the newest table of it."""
        path: KeyPath = ()
        for number, part in enumerate(key, 1):
            path = (*path, part)
            if new and number == len(key):
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
        return path

    def _pair(self, table: KeyPath) -> Iterator[tuple[KeyPath, int]]:
        line = self._here()
        key = (*table, *self._key())
        yield key, line
        self._take("=")
        yield from self._value(key)

    def _value(self, key: KeyPath) -> Iterator[tuple[KeyPath, int]]:
        self._skip()
        if self._take("{"):
            while not self._take("}"):
                yield from self._pair(key)
                self._take(",")
        elif self._take("["):
            number = 0
            while not self._take("]"):
                yield (*key, number), self._here()
                yield from self._value((*key, number))
                self._take(",")
                number += 1
        elif self._string() is None:
            self._match(_SCALAR)

    def _key(self) -> list[str]:
        parts = []
        while True:
            self._skip()
            raw = self._string()
            if raw is not None:
                parts.append(str(tomllib.loads(f"k = {raw}")["k"]))
            else:
                parts.append(self._match(_BARE) or "")
            if not self._take("."):
                return parts

    def _string(self) -> str | None:
        return next((raw for pattern in _STRINGS if (raw := self._match(pattern)) is not None), None)

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]

    def _take(self, mark: str) -> bool:
        self._skip()
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _skip(self) -> int:
        self._match(_BLANK)
        return self._at

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line
