"""What a text is about, found without a model: patterns and known names, each as one canonical (kind, key). Pure.

Owns which of several readings of a piece of text counts, and the form in which entities are stored and compared. What the
patterns are stands in `patterns.toml`, what the names are the caller says. A wrong entity is worse than a missing one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from opencognit.brain.canonical import CANONICALISERS, CASE_MATTERS, folded, plain
from opencognit.brain.known import Known
from opencognit.brain.names import KEY_LIMIT, KIND_LIMIT
from opencognit.brain.patterns import Pattern, PatternSet, default
from opencognit.contracts import EntityRef
from opencognit.textclean import clean, strip_ansi

LIMIT = 50
"""Entities of one text; the first ones count."""
READ_LIMIT = 100_000
"""Characters of a text that are read: as many as the index reads."""

_NO_NAMES: Final = Known()
_ROUNDS = 8
_RAW_LIMIT = 8 * KEY_LIMIT
"""Characters of a match that may still become a key: much of an address may be dropped."""

__all__ = ["LIMIT", "READ_LIMIT", "Known", "canonical", "extract"]


def canonical(kind: str, key: str) -> tuple[str, str]:
    """Return an entity's kind and key as they are stored and compared; doing it again changes nothing.

    A kind without a pattern, and a key that is not what its kind says, are folded only: no key is refused.
    """
    kind, rules = folded(kind), default()
    name = rules.canonicalisers.get(kind)
    if name is None:
        return kind, folded(key)
    whole = plain if name in CASE_MATTERS else folded
    return kind, _settled(name, whole(key), rules) or whole(key)


def _settled(name: str, text: str, rules: PatternSet) -> str | None:
    """Return the key that canonicalising leads to and stays at; None where `text` is no thing of that kind."""
    whole = plain if name in CASE_MATTERS else folded
    found = CANONICALISERS[name](whole(text), rules.words)
    for _ in range(_ROUNDS):
        if found is None:
            return None
        again = CANONICALISERS[name](whole(found), rules.words) or whole(found)
        if again == found:
            return found
        found = again
    return None


def extract(text: str, known: Known = _NO_NAMES, patterns: PatternSet | None = None) -> tuple[EntityRef, ...]:
    """Return the entities that `text` mentions, in the order of their first mention, each once, at most LIMIT.

    Linear in the text, of which READ_LIMIT characters are read. Raises nothing, whatever the text.
    """
    return _Reading(text, known, patterns or default()).entities()


@dataclass(slots=True)
class _Claims:
    """Which characters have been read already, and for whom that matters."""

    size: int
    by_patterns: bytearray = field(init=False)
    by_all: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self.by_patterns, self.by_all = bytearray(self.size), bytearray(self.size)

    def claim(self, pattern: Pattern, start: int, end: int) -> None:
        if pattern.claims != "nothing":
            self.by_patterns[start:end] = b"\1" * (end - start)
        if pattern.claims == "all":
            self.by_all[start:end] = b"\1" * (end - start)


class _Reading:
    """One text on its way to its entities."""

    def __init__(self, text: str, known: Known, rules: PatternSet) -> None:
        is_cut = len(text) > READ_LIMIT
        text = clean(text[:READ_LIMIT])
        if "\x1b" in text:
            text = strip_ansi(text)
        self.text = unicodedata.normalize("NFC", text)
        self.stop = len(self.text) - 1 if is_cut else len(self.text)  # what runs into the cut is half a thing
        self.known, self.rules = known, rules
        self.claims = _Claims(len(self.text))
        self.names: dict[tuple[str, str], tuple[str, str] | None] = {}
        self.first: dict[tuple[str, str], tuple[int, int]] = {}

    def entities(self) -> tuple[EntityRef, ...]:
        for pattern in self.rules.patterns:
            if not pattern.needs or any(each in self.text for each in pattern.needs):
                for regex in pattern.regexes:
                    self._note(self._matches(pattern, regex))
        self._note(self._names())
        ordered = sorted(self.first.items(), key=lambda item: (item[1], item[0]))
        return tuple(EntityRef(kind=kind, key=key) for (kind, key), _ in ordered[:LIMIT])

    def _note(self, found: Iterator[tuple[int, int, tuple[str, str]]]) -> None:
        """Keep where each entity is first mentioned. No more than LIMIT of one source can be among the first LIMIT."""
        own: set[tuple[str, str]] = set()
        for start, end, name in found:
            place = start, -end
            if place < self.first.get(name, (start + 1, 0)):
                self.first[name] = place
            own.add(name)
            if len(own) >= LIMIT:
                return

    def _matches(self, pattern: Pattern, regex: re.Pattern[str]) -> Iterator[tuple[int, int, tuple[str, str]]]:
        """Give what a pattern finds where no earlier one has read. What it matched it claims, also where that is nothing."""
        taken = self.claims.by_patterns
        for match in regex.finditer(self.text):
            start, end = match.span()
            if not pattern.kind:
                self.claims.claim(pattern, start, end)
                continue
            if pattern.claims != "nothing" and taken.find(1, start, end) >= 0:
                continue
            self.claims.claim(pattern, start, end)
            if end > self.stop or _is_refused(pattern, match):
                continue
            if (name := self._name(pattern, _raw_key(pattern, match))) is not None:
                yield start, end, name

    def _name(self, pattern: Pattern, raw: str) -> tuple[str, str] | None:
        """Return the entity of a raw key, None where it is none; the same key is worked out once."""
        if len(raw) > _RAW_LIMIT:
            return None
        if (pattern.kind, raw) not in self.names:
            key = _settled(self.rules.canonicalisers[pattern.kind], raw, self.rules)
            known = self.known.named(key) if key and pattern.by_name else None
            found = _storable(*known) if known else (pattern.kind, key) if key and len(key) <= KEY_LIMIT else None
            self.names[pattern.kind, raw] = found
        return self.names[pattern.kind, raw]

    def _names(self) -> Iterator[tuple[int, int, tuple[str, str]]]:
        stored: dict[tuple[str, str], tuple[str, str] | None] = {}
        for start, end, known in self.known.find(self.text):
            if end > self.stop or self.claims.by_all.find(1, start, end) >= 0:
                continue
            if known not in stored:
                stored[known] = _storable(*known)
            if (name := stored[known]) is not None:
                yield start, end, name


def _storable(kind: str, key: str) -> tuple[str, str] | None:
    """Return a known name as it is stored, None for one that cannot be."""
    kind, key = canonical(kind, key)
    return (kind, key) if 0 < len(kind) <= KIND_LIMIT and 0 < len(key) <= KEY_LIMIT else None


def _is_refused(pattern: Pattern, match: re.Match[str]) -> bool:
    return bool(pattern.refused) and folded(match["word"] or "") in pattern.refused


def _raw_key(pattern: Pattern, match: re.Match[str]) -> str:
    groups = match.groupdict()
    message = groups.get("message")
    return f"{pattern.prefix}{groups.get('key') or match.group()}{': ' + message if message else ''}"
