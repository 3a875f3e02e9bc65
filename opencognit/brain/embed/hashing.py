"""An embedder without a model: feature hashing of words and their parts. For tests, and where nothing else can be had.

It knows spelling, not meaning: inflected words and compounds come near each other, synonyms do not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from opencognit.brain.embed.port import readable, unit
from opencognit.brain.folding import fold

if TYPE_CHECKING:
    from opencognit.brain.embed.port import Vectors

_WORD = re.compile(r"[^\W_]+")
_LONGEST = 64
"""Characters of a word that are cut into parts: past that it is no word but data."""
_SIZES = (3, 4, 5)


class HashEmbedder:
    """Deterministic on every machine. Signed hashing (Weinberger et al. 2009), counts dampened by their square root."""

    name = "hash-v1"
    dimensions = 384

    def encode(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for feature, count in Counter(_features(readable(text))).items():
                hashed = crc32(feature.encode())
                row[(hashed >> 1) % self.dimensions] += count**0.5 * (1 if hashed & 1 else -1)
        return unit(vectors)


def _features(text: str) -> Iterator[str]:
    """Yield each word, and the parts of the word with its ends marked. A text without words has one feature all the same."""
    yield ""
    for word in _WORD.findall(fold(text)):
        yield word
        marked = f"<{word[:_LONGEST]}>"
        for size in _SIZES:
            yield from (marked[start : start + size] for start in range(len(marked) - size + 1))
