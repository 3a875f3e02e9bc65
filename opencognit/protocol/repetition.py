"""What an agent was told in its run, so that it does not come back as a memory of its own. Owns what counts as equal.

Told is the briefing, and what tools answered. Equal is equal after case-folding and collapsing white space: the content of a
tag in it (wherever it stands there, in code and quotes too), its first line, any whole line with or without a quote or list
marker, a whole text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_TAG = re.compile(r'\[remember:(?:[^\]\[\r\n"]|"[^"\r\n]*+")*+\]', re.IGNORECASE | re.ASCII)
_TAG_END = re.compile(r"\[remember:|(?:\r\n|\r|\n)[ \t]*+(?=[\r\n]|\Z|```|~~~)", re.IGNORECASE | re.ASCII)
_LEAD = re.compile(r"[\s>]*+(?:[-+*]\s|[0-9]{1,9}[.)]\s)?[\s>]*+")


def normal(text: str) -> str:
    """Return the form in which two texts are compared."""
    return " ".join(text.casefold().split())


class Told:
    """All that the briefing said. The texts are read when somebody first asks: most answers remember nothing."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._unread = list(texts)
        self._said: set[str] = set()
        self._tagged: set[str] = set()

    def _add(self, text: str) -> None:
        self._said.add(normal(text))
        for line in text.splitlines():
            self._said.add(normal(line))
            self._said.add(normal(_LEAD.sub("", line, count=1)))
        ends = [match.start() for match in _TAG_END.finditer(text)]
        ends.append(len(text))
        following = 0
        for match in _TAG.finditer(text):
            while ends[following] < match.end():
                following += 1
            content = text[match.end() : ends[following]]
            self._tagged.update((normal(content), normal(first_line(content))))
        self._said.discard("")
        self._tagged.discard("")

    def repeats(self, content: str) -> bool:
        """Return whether a tag's content was in the briefing already."""
        while self._unread:
            self._add(self._unread.pop())
        whole = normal(content)
        return whole in self._said or whole in self._tagged or normal(first_line(content)) in self._tagged


def first_line(content: str) -> str:
    """Return the first line of a text that has something on it."""
    return next(iter(content.strip().splitlines()), "")
