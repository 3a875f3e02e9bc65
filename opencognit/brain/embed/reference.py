"""The proof that a backend gives the published model's vectors: one stored text, and the vector of it that torch computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from opencognit.brain.embed.port import Vectors

COSINE = 0.9999
"""Nearer than this, or the vectors are others."""
_STORED = Path(__file__).with_name("reference.json")


def nearness(encode: Callable[[Sequence[str]], Vectors]) -> float:
    """Return the cosine between the stored vector and the one that `encode` gives; the lower of two ways to ask.

    Alone, and beside a longer text that pads it: a mask that does not hide the padding shows in the second only. NaN for NaN.
    """
    stored = json.loads(_STORED.read_text(encoding="utf-8"))
    text, vector = stored["text"], np.array(stored["vector"], np.float32)
    alone, beside = encode([text]), encode([text, f"{text} {text}"])
    return float(np.min(np.stack([alone[0], beside[0]]) @ vector))
