"""The names that are known beforehand, and where they stand in a text. Pure; whoever has the names brings them.

A name is found word for word, whatever its case, its umlauts' spelling and the single mark or blank between its words. It
must not be found inside other words, in identifiers, or across a sentence's end.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from opencognit.brain.folding import content_words, fold

SHORTEST = 3
"""Letters of a name that is looked for in a text; a shorter one is known only as a handle."""
MOST_WORDS = 12
"""Words of a name that is looked for: what is read twice at most this often."""

_WORD = re.compile(r"[^\W_]+")
_GLUE_BEFORE = frozenset("_@#$/\\.")
_GLUE_BEHIND = frozenset("_@=/\\.")
_NO_GLUE = frozenset(',;:!?()[]{}<>|"„“”…')
_END = ""

Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Known:
    """Names and aliases with the (kind, key) that each stands for; names that fold alike and mean two things mean none."""

    aliases: Mapping[str, Name] = field(default_factory=dict)
    _handles: dict[tuple[str, ...], Name] = field(init=False, repr=False, compare=False)
    _tree: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        handles: dict[tuple[str, ...], Name] = {}
        doubtful: set[tuple[str, ...]] = set()
        for alias, name in self.aliases.items():
            words = _words(alias)
            if words and handles.setdefault(words, name) != name:
                doubtful.add(words)
        for words in doubtful:
            del handles[words]
        object.__setattr__(self, "_handles", handles)
        object.__setattr__(self, "_tree", _tree(handles))

    def named(self, text: str) -> Name | None:
        """Return what `text` as a whole is the name of."""
        return self._handles.get(_words(text)) if self._handles else None

    def find(self, text: str) -> Iterator[tuple[int, int, Name]]:
        """Give (start, end, name) of each name in composed `text`, the longest at each place; linear in its length."""
        if not self._tree:
            return
        spans = [(match.start(), match.end()) for match in _WORD.finditer(text)]
        index = 0
        while index < len(spans):
            found = self._longest(text, spans, index)
            if found is None:
                index += 1
                continue
            last, name = found
            if _stands_alone(text, spans[index][0], spans[last][1]):
                yield spans[index][0], spans[last][1], name
            index = last + 1

    def _longest(self, text: str, spans: list[tuple[int, int]], index: int) -> tuple[int, Name] | None:
        found: tuple[int, Name] | None = None
        node = self._tree
        for at in range(index, len(spans)):
            start, end = spans[at]
            if at > index and not _is_glue(text[spans[at - 1][1] : start]):
                break
            child = node.get(fold(text[start:end]))
            if child is None:
                break
            node = child
            if _END in node:
                found = at, node[_END]
        return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(fold(word) for word in _WORD.findall(unicodedata.normalize("NFC", text)))


def _tree(names: Mapping[tuple[str, ...], Name]) -> dict[str, Any]:
    """Return the names that may be looked for as a tree of their words."""
    root: dict[str, Any] = {}
    for words, name in names.items():
        letters = "".join(words)
        says_something = any(char.isalpha() for char in letters) and content_words(" ".join(words))
        if len(letters) < SHORTEST or len(words) > MOST_WORDS or not says_something:
            continue
        node = root
        for word in words:
            node = node.setdefault(word, {})
        node[_END] = name
    return root


def _is_glue(gap: str) -> bool:
    """Tell whether what stands between two words lets them be one name: a mark, or white space within a paragraph."""
    return (len(gap) == 1 and gap not in _NO_GLUE) or (len(gap) <= 2 and not gap.strip() and gap.count("\n") < 2)


def _stands_alone(text: str, start: int, end: int) -> bool:
    if start and text[start - 1] in _GLUE_BEFORE:
        return False
    is_glued = end < len(text) and text[end] in _GLUE_BEHIND
    return not is_glued or (text[end] != "_" and (end + 1 == len(text) or not text[end + 1].isalnum()))
