"""What an embedder is to the rest of the brain, and what every backend does with its texts and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from opencognit.textclean import clean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

TEXT_LIMIT = 100_000
"""Characters of a text that are read: far more than any model here takes in, and a megabyte would take a second to split."""


class Embedder(Protocol):
    """Turns texts into vectors that lie near each other when the texts mean the same."""

    @property
    def name(self) -> str:
        """The key under which its vectors are stored: another one whenever the vectors would be others."""

    @property
    def dimensions(self) -> int:
        """The length of every vector."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return float32 (n, dimensions), a row per text in their order, each of length 1.

        A row of zeros says that the model has no direction for that text: it must not be stored or compared. Blocks (the
        first call loads the model), so run it off the event loop; several threads may call at once. Memory beyond the
        answer is bounded, however many and long the texts are. Raises ModelUnavailable.
        """


def readable(text: str) -> str:
    """Return the part of a text that is read, without what no tokenizer takes: lone surrogates and NUL."""
    return clean(text[:TEXT_LIMIT])


def unit(vectors: Vectors) -> Vectors:
    """Return each row at length 1; rows of zeros, NaN or infinity as zeros."""
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    usable = np.isfinite(lengths) & (lengths > 0)
    return np.where(usable, vectors / np.where(usable, lengths, 1), 0).astype(np.float32)
