"""Which `<think>` and `<thinking>` tags are reasoning and which are words. Owns their pairing, removes nothing itself.

A tag is *a word* inside code, or between words of a sentence, in quotes or in brackets. It *opens* reasoning at the
start or the end of a line, after the end of a sentence, or glued to what follows. It *closes* at the start or the end
of a line, after the end of a sentence, or glued to what it closes. Where the two confuse, less is shown rather than
more: reasoning on the board is worse than a sentence with a hole in it.
"""

from __future__ import annotations

import re

from opencognit.protocol.fences import SPACES

_TAG = re.compile(r"<(/?)think(?:ing)?[ \t]*+>", re.IGNORECASE | re.ASCII)
_SENTENCE_ENDS = frozenset(".!?…。！？")
_BEFORE_A_WORD = frozenset("\"'“„‘«(/[{<*_`|=,")
_BEHIND_A_WORD = frozenset(",.;:!?…)]}>\"'”’“»`/|-*_<")


class Pairs:
    """Every reasoning tag of a text and where the reasoning that it opens ends.

    Pairs nest. An opener that is never closed while a later one is ends with that later one: of two openers before one
    closer, both belong to it. Nothing is left out but a tag tight between backticks.
    """

    def __init__(self, text: str) -> None:
        self._ends: dict[int, int] = {}
        self._closers: set[int] = set()
        self._borrowed: dict[int, int] = {}
        openers: list[int] = []
        waiting: list[int] = []
        for match in _TAG.finditer(text):
            start, end = match.span()
            if start and text[start - 1] == "`" and text[end : end + 1] == "`":
                continue
            if not match[1]:
                openers.append(start)
                waiting.append(start)
            elif waiting:
                self._ends[waiting.pop()] = end
                self._closers.add(start)
        following: int | None = None
        for opener in reversed(openers):
            following = self._ends.get(opener, following)
            if following is not None:
                self._borrowed[opener] = following

    def end(self, opener: int) -> int | None:
        """Return where the reasoning opened at `opener` ends; None: never."""
        return self._ends.get(opener, self._borrowed.get(opener))

    def is_paired(self, tag: int) -> bool:
        """Return whether the tag at this position has a partner of its own."""
        return tag in self._ends or tag in self._closers


def opens(text: str, tag: re.Match[str], line: tuple[int, int]) -> bool:
    """Return whether this opening tag begins reasoning; `line` is what is left of its line (first character, end)."""
    first, end = line
    behind = text[tag.end() : tag.end() + 1]
    if tag.start() == first or _blank(text, tag.end(), end) or _before(text, tag.start()) == ".":
        return True
    return not behind.isspace() and behind not in _BEHIND_A_WORD


def closes(text: str, tag: re.Match[str], line: tuple[int, int]) -> bool:
    """Return whether this closing tag ends reasoning whose opener was never sent, going by its place in the line."""
    return tag.start() == line[0] or _blank(text, tag.end(), line[1]) or _before(text, tag.start()) in (".", "glued")


def stands_alone(text: str, tag: re.Match[str], line: tuple[int, int]) -> bool:
    """Return whether the tag has its line to itself."""
    return tag.start() == line[0] and _blank(text, tag.end(), line[1])


def _blank(text: str, start: int, end: int) -> bool:
    match = SPACES.match(text, start, end)
    return match is not None and match.end() == end


def _before(text: str, start: int) -> str:
    """Say what stands before a tag in its line: the end of a sentence ".", something "glued" to it, or a "word"."""
    at = start
    while at and text[at - 1] in " \t":
        at -= 1
    char = text[at - 1 : at]
    if char in _SENTENCE_ENDS and char:
        return "."
    return "glued" if at == start and char not in _BEFORE_A_WORD else "word"
