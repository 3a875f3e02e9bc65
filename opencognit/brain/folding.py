"""One way of reading words, for what is stored and for what is asked. Pure: no I/O, no clock.

PostgreSQL is given words only, never punctuation, so that its parser and this module agree on what a word is: it takes
`src/main.py` or `ann@example.com` for one token, and nobody asks for a file by its whole path.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from opencognit.stemming import stem

SEARCH_TEXT_LIMIT = 100_000
"""Characters of a memory that are indexed; a tsvector holds at most a megabyte."""

_WORD = re.compile(r"[^\W_]+")
_UMLAUT = re.compile("([aou])\u0308")
_MARKS = re.compile("[\u0300-\u036f]+")
_LONGEST_STEMMED = 64
_GERMAN_WORDS = (
    "der die das und ist nicht ein eine einen einem einer mit für von zu den dem des auf im sich wird werden auch als an es"
    " wir ich sie er haben hat sind war bei nach aus über oder wie wenn nur noch kann keine kein zum zur durch"
)
_ENGLISH_WORDS = (
    "the and is not a an with for of to in on by it we i they he she have has are was at after from over or as if only still"
    " can no this that be been which"
)
_GERMAN, _ENGLISH = frozenset(_GERMAN_WORDS.split()), frozenset(_ENGLISH_WORDS.split())


def fold(text: str) -> str:
    """Return `text` case-folded, umlauts and ß written out, other accents dropped: Köhler, KOEHLER and Ko\\u0308hler are one."""
    if text.isascii():
        return text.lower()
    spelled = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return unicodedata.normalize("NFKC", _MARKS.sub("", _UMLAUT.sub(r"\1e", spelled)))


_STOP = frozenset(fold(word) for word in _GERMAN | _ENGLISH)


def search_text(text: str) -> str:
    """Return the words of `text` as the index gets them: folded, in order, parted by blanks, bounded."""
    return " ".join(_WORD.findall(fold(text[:SEARCH_TEXT_LIMIT])))[:SEARCH_TEXT_LIMIT]


def content_words(text: str) -> list[str]:
    """Return the folded words of a question, each once, without those that stand in every text."""
    return [word for word in dict.fromkeys(_WORD.findall(fold(text))) if word not in _STOP]


def language(text: str) -> str:
    """Guess `german` or `english` by the commoner function words; English when there are none."""
    words = [word.casefold() for word in _WORD.findall(unicodedata.normalize("NFC", text[:5000]))]
    german = sum(word in _GERMAN for word in words) + 2 * sum(any(c in word for c in "äöüß") for word in words)
    return "german" if german > sum(word in _ENGLISH for word in words) else "english"


def terms(text: str) -> list[str]:
    """Return the terms that BM25+ counts: folded words without stop words, each by its English and its German stem.

    A word whose two stems agree counts once, so that neither language outweighs the other.
    """
    found: list[str] = []
    for word in _WORD.findall(fold(text)):
        if word not in _STOP:
            found.extend(_stems(word) if len(word) <= _LONGEST_STEMMED else (word,))
    return found


@lru_cache(maxsize=50_000)
def _stems(word: str) -> tuple[str, ...]:
    """Return the word's English stem, and its German one where that differs. Stemming takes 0.1 ms: a text has few words anew."""
    english, german = stem(word, "english"), stem(word, "german")
    return (english,) if english == german else (english, german)
