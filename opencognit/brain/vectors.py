"""Vectors as PostgreSQL has them: one table for all models, an index of its own for each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pgvector.sqlalchemy import VECTOR
from sqlalchemy import ColumnElement, cast, literal

from opencognit.models import MemoryEmbedding


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """The vector of a question under a model, (dimensions,), L2-normalised."""

    model: str
    values: NDArray[np.float32]

    @property
    def dimensions(self) -> int:
        return len(self.values)


def has_direction(values: NDArray[np.float32]) -> bool:
    """Whether it points anywhere: zeros, NaN and infinity are like nothing, and PostgreSQL takes neither of the latter."""
    return bool(np.isfinite(values).all() and values.any())


def distance(vector: Vector) -> ColumnElement[float]:
    """Return the cosine distance, by the expression that the model's index has."""
    column: Any = cast(MemoryEmbedding.embedding, VECTOR(vector.dimensions))
    found: ColumnElement[float] = column.cosine_distance(vector.values)
    return found


def of_model(model: str) -> ColumnElement[bool]:
    """The predicate of the model's index; written out, since a parameter would hide from the planner that it is the same."""
    return MemoryEmbedding.model == literal(model, literal_execute=True)


def index_name(model: str) -> str:
    """Return a name for the model's index, whatever characters the model's has."""
    return f"ix_memory_embeddings_{hashlib.sha256(model.encode()).hexdigest()[:12]}"
