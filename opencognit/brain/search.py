"""Finding memories by their words: candidates from the full-text index, ranked by BM25+."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Select, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain.folding import content_words
from opencognit.brain.ranking import bm25_plus
from opencognit.brain.store import entity_name, room_name, visible
from opencognit.contracts import Viewer
from opencognit.models import Entity, Memory, MemoryEntity
from opencognit.states import Lifecycle, MemoryType

CANDIDATES = 200
RECENCY = 0.1
"""How much the newest candidate gains over the oldest: enough to order equals, too little to beat a better answer."""
QUERY_LIMIT = 20_000
"""Characters of a question that are read."""
WORD_LIMIT = 400
"""Words of a question that are looked for."""
RANKED_CHARS = 20_000
"""Characters of a candidate that BM25+ reads."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory found, with how: `why` holds each leg's rank (from 1) and score."""

    memory: Memory
    score: float
    mode: str
    why: dict[str, float] = field(default_factory=dict)


LEXEMES = text("""
-- OR of the lexemes of both languages: AND finds nothing for most natural questions. The question is words only (folding.py),
-- so that no lexeme needs more than its quotes.
SELECT string_agg('''' || lexeme || '''', ' | ')
  FROM (SELECT unnest(tsvector_to_array(to_tsvector('english'::regconfig, :question))) AS lexeme
         UNION SELECT unnest(tsvector_to_array(to_tsvector('german'::regconfig, :question)))) AS both_languages
""")


async def by_text(
    session: AsyncSession,
    query: str,
    *,
    viewer: Viewer,
    types: Sequence[MemoryType] | None = None,
    room: str | None = None,
    entity: tuple[str, str] | None = None,
    as_of: datetime | None = None,
    limit: int = 10,
) -> list[Hit]:
    """Return memories that share words with `query`, best first, of equals the newest."""
    question = " ".join(content_words(query[:QUERY_LIMIT])[:WORD_LIMIT])
    lexemes = (await session.execute(LEXEMES, {"question": question})).scalar_one()
    if not lexemes:
        return []
    matches = text("memories.search @@ CAST(:lexemes AS tsquery)").bindparams(lexemes=lexemes)
    order = text("ts_rank(memories.search, CAST(:lexemes AS tsquery)) DESC, memories.id DESC").bindparams(lexemes=lexemes)
    found = _filtered(viewer, types, room, entity, as_of).where(matches).order_by(order).limit(CANDIDATES)
    beginning = func.left(Memory.search_text, RANKED_CHARS).label("words")
    candidates = {row.id: row.words for row in await session.execute(found.with_only_columns(Memory.id, beginning))}
    scores = await asyncio.to_thread(bm25_plus, question, list(candidates.values()))
    ranked = _fresh_first(dict(zip(candidates, scores, strict=True)))[:limit]
    memories = {one.id: one for one in await session.scalars(select(Memory).where(Memory.id.in_([ident for ident, _ in ranked])))}
    return [
        Hit(memories[ident], score, "text", {"text_rank": float(rank), "text_score": score})
        for rank, (ident, score) in enumerate(ranked, 1)
        if ident in memories
    ]


def _fresh_first(scores: dict[int, float | None]) -> list[tuple[int, float]]:
    """Return (memory, score), best first. What the index found without BM25+ (past what it reads) stands last, not nowhere."""
    ages = {ident: position for position, ident in enumerate(sorted(scores))}
    fresh = {ident: 1 + RECENCY * position / max(len(ages) - 1, 1) for ident, position in ages.items()}
    known = {ident: score or 0.0 for ident, score in scores.items()}
    return sorted(known.items(), key=lambda pair: (-pair[1] * fresh[pair[0]], -pair[0]))


async def newest(
    session: AsyncSession,
    *,
    viewer: Viewer,
    types: Sequence[MemoryType] | None = None,
    room: str | None = None,
    entity: tuple[str, str] | None = None,
    as_of: datetime | None = None,
    limit: int = 10,
) -> list[Hit]:
    """Return the newest memories that pass the filters: what an entity or a room is about."""
    query = _filtered(viewer, types, room, entity, as_of).order_by(Memory.id.desc()).limit(limit)
    mode = "entity" if entity is not None else "newest"
    return [
        Hit(memory, 1.0 / rank, mode, {"age_rank": float(rank)}) for rank, memory in enumerate(await session.scalars(query), 1)
    ]


def _filtered(
    viewer: Viewer,
    types: Sequence[MemoryType] | None,
    room: str | None,
    entity: tuple[str, str] | None,
    as_of: datetime | None,
) -> Select[Memory]:
    query = select(Memory).where(visible(viewer), Memory.lifecycle.in_((Lifecycle.ACTIVE, Lifecycle.STALE)))
    if types:
        query = query.where(Memory.type.in_([one.value for one in types]))
    if room is not None:
        query = query.where(Memory.room == room_name(room))
    if as_of is not None:
        query = query.where(
            Memory.created_at <= as_of,
            (Memory.valid_from.is_(None)) | (Memory.valid_from <= as_of),
            (Memory.valid_to.is_(None)) | (Memory.valid_to > as_of),
        )
    if entity is not None:
        kind, key = entity_name(*entity)
        named = (
            select(MemoryEntity.memory_id)
            .join(Entity, Entity.id == MemoryEntity.entity_id)
            .where(Entity.kind == kind, Entity.key == key)
        )
        query = query.where(Memory.id.in_(named))
    return query
