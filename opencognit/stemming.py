"""The stem of a word in English or German (Snowball, Porter 2001). Pure.

The library imports all of its thirty languages at once; it is loaded where the first word is stemmed.
"""

from __future__ import annotations

from typing import Literal


def stem(word: str, language: Literal["english", "german"]) -> str:
    """Return the stem of a folded word. Each call has a stemmer of its own: one keeps its word in itself."""
    import snowballstemmer

    stemmed: str = snowballstemmer.stemmer(language).stemWord(word)
    return stemmed
