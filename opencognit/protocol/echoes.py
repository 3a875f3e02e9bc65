"""What an agent wants remembered and only copied from what it was told in its run. Owns when a text counts as copied.

Copied is what shares LENGTH consecutive words with one text that was told, whatever stands between the words: case, accents,
punctuation, line breaks, marks of emphasis and characters that nobody sees are no difference. In scripts that write no blanks
each character is a word; a path is one, since whoever names a file has not copied a sentence. Pure, and linear in all texts
together.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator

LENGTH = 8

_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_TOKEN = re.compile(r"[\w./~%+-]+")
_UNSEEN = re.compile("[\u00ad\u0300-\u036f\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]+")
_UMLAUT = re.compile("([aou])\u0308")


def copied(contents: Iterable[str], told: Iterable[str]) -> frozenset[str]:
    """Return those of `contents` that share LENGTH consecutive words with one of the `told` texts."""
    numbers: dict[str, int] = {}
    passages: dict[tuple[int, ...], list[str]] = {}
    for content in dict.fromkeys(contents):
        for passage in _passages(numbers.setdefault(word, len(numbers)) for word in _words(content)):
            passages.setdefault(passage, []).append(content)
    if not passages:
        return frozenset()
    found: set[str] = set()
    for text in told:
        for passage in _passages(numbers.get(word) for word in _words(text)):
            found.update(passages.pop(passage, ()))
    return frozenset(found)


def _words(text: str) -> Iterator[str]:
    if not text.isascii():
        spelled = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
        text = unicodedata.normalize("NFC", _UNSEEN.sub("", _UMLAUT.sub(r"\1e", spelled)))
    for token in _TOKEN.finditer(text.lower()):
        if token.group().count("/") >= 2:
            yield token.group()
        else:
            yield from (match.group() for match in _WORD.finditer(token.group()))


def _passages(words: Iterable[int | None]) -> Iterator[tuple[int, ...]]:
    """Yield every run of LENGTH words; None is a word that ends a run."""
    run: deque[int] = deque(maxlen=LENGTH)
    for word in words:
        if word is None:
            run.clear()
            continue
        run.append(word)
        if len(run) == LENGTH:
            yield tuple(run)
