"""Candidates of a recall, in few statements: by words, by likeness of vectors, and what is needed to score them together.

Owns the SQL and its bounds. A text index yields whole posting lists: rarest words first, until they promise enough rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pgvector.sqlalchemy import VECTOR
from sqlalchemy import (
    ColumnElement,
    DateTime,
    Integer,
    LargeBinary,
    Text,
    case,
    cast,
    func,
    literal,
    literal_column,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY, BIGINT
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain.entities import canonical
from opencognit.brain.folding import Language, number, parts, stems
from opencognit.brain.names import room_name
from opencognit.brain.ranking import Corpus
from opencognit.brain.vectors import Vector, distance, of_model
from opencognit.brain.visibility import Asked, identity, visible
from opencognit.models import Entity, Memory, MemoryCount, MemoryEmbedding, MemoryEntity, MemoryTerm
from opencognit.states import Lifecycle

BY_WORDS = 2000
"""Memories whose words are compared with a question: an uncapped OR matches a third of a large store."""
PIECES = 400
"""Parts of a question's long words that are looked up: a hostile question has tens of thousands."""
SMALL = 10_000
"""So many visible memories are compared one by one: an index would mostly find what the asker may not see."""


Terms = tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.bool_]]
"""The terms of all documents, whose each is, and whether it stands in the content rather than in the context."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the store's statistics say about a question: its words with the numbers of their stems, and how common they are."""

    corpus: Corpus
    words: Mapping[str, Sequence[int]]
    compounds: Mapping[str, Sequence[int]]
    """Words that stand within the question's words."""
    visible: int
    """Memories of the scopes that the asker sees, whatever their lifecycle."""

    def common(self, numbers: Sequence[int]) -> int:
        """Return in how many memories a word stands, by the numbers of its stems."""
        return max((self.corpus.found_in.get(one, 0) for one in numbers), default=0)


@dataclass(frozen=True, slots=True)
class Words:
    """Candidates by words, in no order."""

    ids: NDArray[np.int64]
    terms: Terms
    left_out: bool
    """Whether common words found no candidates of their own, or more matched than are compared."""


@dataclass(frozen=True, slots=True)
class Detail:
    """What one candidate is scored by, beside its terms."""

    id: int
    content: str
    context: str
    language: Language
    created_at: datetime
    similarity: float | None
    entities: int
    stale: bool


async def known(session: AsyncSession, words: Sequence[str], asked: Asked) -> Known:
    """Look the words of a question up in the store's statistics."""
    numbered = {word: [number(stem) for stem in stems(word)] for word in words}
    cut = islice((part for word in words for part in parts(word) if part not in numbered), PIECES)
    pieces = {part: [number(stem) for stem in stems(part)] for part in cut}
    sought = {one for numbers in (*numbered.values(), *pieces.values()) for one in numbers}
    counted, found_in = await _statistics(session, sought, asked)
    memories, content_terms, all_terms, visible_ = counted
    return Known(
        corpus=Corpus(memories, content_terms / max(memories, 1), all_terms / max(memories, 1), found_in),
        words=numbered,
        # A part of a long word is a word only where some memory has it as one.
        compounds={part: numbers for part, numbers in pieces.items() if any(found_in.get(one) for one in numbers)},
        visible=visible_,
    )


async def _statistics(session: AsyncSession, terms: set[int], asked: Asked) -> tuple[list[int], dict[int, int]]:
    """Return (memories, terms in content, all terms, visible memories), and in how many memories each term stands.

    One statement: the sums stand under numbers that no term has.
    """
    seen = case((visible(asked.viewer, MemoryCount), MemoryCount.memories), else_=0)
    sums = (MemoryCount.memories, MemoryCount.content_terms, MemoryCount.all_terms, seen)
    rows = [select(cast(-at, BIGINT), cast(func.coalesce(func.sum(one), 0), BIGINT)) for at, one in enumerate(sums, 1)]
    of_terms = select(MemoryTerm.term, MemoryTerm.memories).where(MemoryTerm.term == func.any(cast(list(terms), ARRAY(BIGINT))))
    found: dict[int, int] = {row[0]: row[1] for row in await session.execute(union_all(of_terms, *rows))}
    return [found.pop(-at) for at in range(1, len(sums) + 1)], found


def rarest(known: Known) -> tuple[list[str], bool]:
    """Return the words to look for, rarest first, while they promise at most BY_WORDS rows; and whether any is left out."""
    chosen: list[str] = []
    promised = 0
    sought = {**known.words, **known.compounds}
    for word in sorted(sought, key=lambda word: known.common(sought[word])):
        promised += known.common(sought[word])
        if chosen and promised > BY_WORDS and known.visible > BY_WORDS:
            return chosen, True
        chosen.append(word)
    return chosen, False


async def by_words(session: AsyncSession, known: Known, asked: Asked) -> Words:
    """Return what shares a word with the question. One row comes back, of packed arrays, not thousands of Python objects."""
    chosen, left_out = rarest(known)
    found = func.memories_by_words(" ".join(chosen), *await _asker(session, asked), cast(BY_WORDS, Integer))
    columns = [literal_column(name, LargeBinary) for name in ("ids", "terms", "sizes", "inside")]
    row = (await session.execute(select(*columns).select_from(found.alias("found")))).one()
    ids, terms, sizes, inside = (bytes(part or b"") for part in row)
    idents = np.frombuffer(ids, dtype=">i8").astype(np.int64)
    return Words(idents, _unpack(terms, sizes, inside), left_out or len(idents) >= BY_WORDS)


async def _asker(session: AsyncSession, asked: Asked) -> tuple[ColumnElement[Any], ...]:
    """Return who asks for what, as the database's functions take it."""
    return (
        *identity(asked.viewer),
        cast([one.value for one in asked.types] if asked.types else None, ARRAY(Text)),
        cast(room_name(asked.room) if asked.room is not None else None, Text),
        await _entity_id(session, asked),
        cast(asked.as_of, DateTime(timezone=True)),
    )


async def _entity_id(session: AsyncSession, asked: Asked) -> ColumnElement[int | None]:
    """Return the id of the entity that is asked about; 0, which none has, for one that nobody has named."""
    if asked.entity is None:
        return cast(None, BIGINT)
    kind, key = canonical(*asked.entity)
    found = (await session.scalars(select(Entity.id).where(Entity.kind == kind, Entity.key == key))).first()
    return cast(found or 0, BIGINT)


def _unpack(numbers: bytes, sizes: bytes, inside: bytes) -> Terms:
    lengths = np.frombuffer(sizes, dtype=">i4").astype(np.int64) // 4
    document = np.repeat(np.arange(len(lengths)), lengths)
    position = np.arange(len(document)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    within = np.frombuffer(inside, dtype=">i4").astype(np.int64)
    return np.frombuffer(numbers, dtype="<u4").astype(np.uint32), document, position < within[document]


async def by_likeness(session: AsyncSession, vector: Vector, known_visible: int, asked: Asked, limit: int) -> dict[int, float]:
    """Return the cosine of the likest memories, by id: through the index, or one by one where it could miss some."""
    if known_visible > SMALL:
        found = await _likest(session, vector, asked, limit, exact=False)
        if len(found) >= limit:
            return found
    return await _likest(session, vector, asked, limit, exact=True)


async def _likest(session: AsyncSession, vector: Vector, asked: Asked, limit: int, *, exact: bool) -> dict[int, float]:
    sought = cast(vector.values, VECTOR(vector.dimensions))
    asker = await _asker(session, asked)
    found = func.memories_by_likeness(sought, vector.model, exact, *asker, cast(limit, Integer)).table_valued(
        "memory_id", "similarity"
    )
    rows = await session.execute(select(found.c.memory_id, found.c.similarity))
    return {row.memory_id: float(row.similarity) for row in rows}


async def details(
    session: AsyncSession, idents: Sequence[int], vector: Vector | None, entities: Sequence[int]
) -> tuple[list[Detail], Terms]:
    """Return what the chosen candidates are scored by, and their terms, both in the order of `idents`."""
    similarity: ColumnElement[Any] = literal(None)
    source = Memory.__table__
    named = (
        select(func.count(func.distinct(MemoryEntity.entity_id)))
        .where(MemoryEntity.memory_id == Memory.id, MemoryEntity.entity_id.in_(entities))
        .scalar_subquery()
        if entities
        else literal(0)
    )
    if vector is not None:
        similarity = 1 - distance(vector)
        on = (MemoryEmbedding.memory_id == Memory.id) & of_model(vector.model)
        source = source.outerjoin(MemoryEmbedding, on)
    query = (
        select(
            Memory.id,
            Memory.search_text,
            Memory.language,
            Memory.created_at,
            Memory.terms,
            Memory.content_terms,
            similarity.label("similarity"),
            named.label("entities"),
            (Memory.lifecycle == Lifecycle.STALE).label("stale"),
        )
        .select_from(source)
        .where(Memory.id == func.any(cast(list(idents), ARRAY(BIGINT))))
    )
    rows = {row.id: row for row in await session.execute(query)}
    kept = [rows[ident] for ident in idents if ident in rows]
    terms = _unpack(
        b"".join(row.terms for row in kept),
        np.asarray([len(row.terms) for row in kept], dtype=">i4").tobytes(),
        np.asarray([row.content_terms for row in kept], dtype=">i4").tobytes(),
    )
    return [_detail(row) for row in kept], terms


def _detail(row: Any) -> Detail:
    content, _, rest = row.search_text.partition("\n")
    return Detail(
        id=row.id,
        content=content,
        context=rest.partition("\n")[0],
        language=row.language,
        created_at=row.created_at,
        similarity=row.similarity,
        entities=row.entities,
        stale=row.stale,
    )
