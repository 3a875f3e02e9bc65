"""A large brain made up: texts of words as common as words are, vectors near those of real sentences. Owns how it is loaded.

Rows are copied in as the brain itself would have written, counted and embedded them; only the vectors are not a model's.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from opencognit.brain.folding import Reading, read
from opencognit.brain.store import INDEX_VERSION
from opencognit.db import libpq_url

MODEL = "synthetic"
DIMENSIONS = 384
VOCABULARY = 40_000
NOISE = 0.6
"""Length of what is added to a real vector of length 1: two memories of one origin are as alike as two that say the same."""
SMALL_TEAM = 100
"""One memory in so many belongs to the small team, the rest to the large one."""

_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeio"]


@dataclass(frozen=True, slots=True)
class World:
    """What texts and vectors are drawn from."""

    words: Sequence[str]
    weights: Sequence[float]
    origins: NDArray[np.float32]

    @classmethod
    def make(cls, origins: NDArray[np.float32], seed: int = 7) -> World:
        chance = random.Random(seed)
        words = sorted({"".join(chance.choices(_SYLLABLES, k=chance.randint(2, 5))) for _ in range(VOCABULARY * 2)})
        chance.shuffle(words)
        words = words[:VOCABULARY]
        return cls(words, [1 / (rank + 10) for rank in range(len(words))], origins)

    def texts(self, count: int, length: tuple[int, int], seed: int) -> Iterator[str]:
        """Yield texts of `length` (least, most) words; word frequencies follow Zipf."""
        chance = random.Random(seed)
        pool = chance.choices(self.words, self.weights, k=min(count * length[1], 2_000_000))
        for _ in range(count):
            start, size = chance.randrange(len(pool) - length[1]), chance.randint(*length)
            yield " ".join(pool[start : start + size])

    def vectors(self, count: int, seed: int) -> NDArray[np.float32]:
        """Return (count, DIMENSIONS), each near one of the origins."""
        generator = np.random.default_rng(seed)
        near = self.origins[generator.integers(0, len(self.origins), count)]
        away = generator.standard_normal((count, DIMENSIONS), dtype=np.float32)
        mixed = near + NOISE * away / np.linalg.norm(away, axis=1, keepdims=True)
        found: NDArray[np.float32] = (mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).astype(np.float32)
        return found


def team(number: int) -> str:
    return "small" if number % SMALL_TEAM == 0 else "large"


def load(url: str, world: World, count: int) -> None:
    """Fill an empty brain with `count` memories, their vectors and statistics."""
    with psycopg.connect(libpq_url(url), autocommit=True) as connection:
        found_in: Counter[int] = Counter()
        totals: dict[str, list[int]] = {"small": [0, 0], "large": [0, 0]}
        columns = (
            "type, room, scope, owner, trust, confidence, content, content_hash, language, search_text, terms, content_terms,"
            " index_version"
        )
        with connection.cursor().copy(f"COPY memories ({columns}) FROM STDIN") as copy:
            for number, text in enumerate(world.texts(count, (12, 45), seed=1)):
                content = f"{text} {number}"
                reading = read(content)
                numbers = np.frombuffer(reading.terms, "<u4")
                found_in.update(set(numbers.tolist()))
                totals[team(number)][0] += 1
                totals[team(number)][1] += len(numbers)
                copy.write_row(_row(number, content, reading))
        rows = [("team", name, many, terms, terms) for name, (many, terms) in totals.items()]
        connection.cursor().executemany("INSERT INTO memory_counts VALUES (%s, %s, %s, %s, %s)", rows)
        with connection.cursor().copy("COPY memory_terms (term, memories) FROM STDIN") as copy:
            for pair in found_in.items():
                copy.write_row(pair)
        _load_vectors(connection, world, count)
        connection.execute("SET maintenance_work_mem = '1GB'")
        connection.execute("ANALYZE")


def _row(number: int, content: str, reading: Reading) -> tuple[Any, ...]:
    digest = hashlib.sha256(content.encode()).digest()
    about = ("fact", "general", "team", team(number), "observed", 0.7, content, digest)
    return (*about, reading.language, reading.search_text, reading.terms, reading.content_terms, INDEX_VERSION)


def _load_vectors(connection: psycopg.Connection[Any], world: World, count: int, piece: int = 20_000) -> None:
    """Copy in binary: a million vectors as text are four gigabytes."""
    first = connection.execute("SELECT min(id) FROM memories").fetchone()
    assert first is not None
    with connection.cursor().copy(
        "COPY memory_embeddings (memory_id, model, scope, owner, embedding) FROM STDIN (FORMAT binary)"
    ) as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0))
        for start in range(0, count, piece):
            made = world.vectors(min(piece, count - start), seed=start + 1).astype(">f4")
            for at, vector in enumerate(made):
                number = start + at
                fields = (struct.pack(">q", first[0] + number), MODEL.encode(), b"team", team(number).encode())
                body = b"".join(struct.pack(">i", len(field)) + field for field in fields)
                value = struct.pack(">HH", DIMENSIONS, 0) + vector.tobytes()
                copy.write(struct.pack(">h", 5) + body + struct.pack(">i", len(value)) + value)
        copy.write(struct.pack(">h", -1))
