"""The one recall: candidates by words and by likeness, scored together, fused, ordered. Writes nothing.

The inputs pick the mode: `text` (a question without a vector), `vector` (a vector alone), `hybrid` (both), `entity` (an entity
alone), `newest` (neither).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain import candidates, ranking, warnings
from opencognit.brain.candidates import Detail, Known, Terms, Words
from opencognit.brain.folding import content_words, language, meaningful
from opencognit.brain.hits import Hit, Recalled
from opencognit.brain.ranking import Counts, Scores
from opencognit.brain.vectors import Vector, has_direction
from opencognit.brain.visibility import Asked
from opencognit.models import Memory

SCORED = 60
"""Candidates of each leg that are scored by everything."""
RECENCY, RECENCY_DAYS = 0.1, 90.0
"""How much a memory loses with age at most, and the days in which it loses half of that: it orders equals."""
ENTITY_BONUS, ENTITIES_COUNTED = 0.05, 2
QUERY_LIMIT = 20_000
"""Characters of a question that are read."""
WORD_LIMIT = 400
"""Words of a question that are looked for."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question as it is compared: its words, and the vector that its meaning has under a model."""

    text: str
    words: Sequence[str]
    vector: Vector | None

    @classmethod
    def of(cls, text: str | None, vector: Vector | None) -> Question:
        text = (text or "")[:QUERY_LIMIT]
        usable = vector if vector is not None and has_direction(vector.values) else None
        return cls(text, content_words(text)[:WORD_LIMIT], usable)

    @property
    def weights(self) -> ranking.Weights:
        return ranking.GERMAN if language(self.text) == "german" else ranking.ENGLISH

    @property
    def mode(self) -> str:
        if self.vector is None:
            return "text"
        return "hybrid" if self.words else "vector"


async def answer(
    session: AsyncSession, question: Question, asked: Asked, *, entities: Sequence[int] = (), limit: int
) -> Recalled:
    """Return what answers the question best. `entities`: those that it names."""
    known = await candidates.known(session, question.words, asked)
    words = await candidates.by_words(session, known, asked) if question.words else None
    closely = max(limit, SCORED)
    scoring = asyncio.to_thread(_by_stems, question, known, words) if words is not None and len(words.ids) else _nothing()
    likeness = candidates.by_likeness(session, question.vector, known.visible, asked, closely) if question.vector else _nothing()
    stems, likest = await asyncio.gather(scoring, likeness)
    best = sorted(stems, key=lambda ident: (-stems[ident], -ident))[:closely]
    chosen = list(dict.fromkeys([*best, *likest]))
    recalled = Recalled()
    if chosen:
        found, terms = await candidates.details(session, chosen, question.vector, entities)
        ranked = (await asyncio.to_thread(_fuse, question, known, found, terms))[:limit]
        recalled = await _hits(session, ranked, question.mode)
    if len(recalled) < limit and words is not None and words.left_out:
        recalled.incomplete = "the question's common words were not looked for: ask more exactly"
    return await warnings.add(session, recalled, asked, limit=limit)


async def _nothing() -> dict[int, float]:
    return {}


async def newest(session: AsyncSession, asked: Asked, *, limit: int) -> Recalled:
    """Return the newest memories that pass the filters: what an entity or a room is about."""
    query = select(Memory).where(asked.matches()).order_by(Memory.id.desc()).limit(limit)
    mode = "entity" if asked.entity is not None else "newest"
    found = enumerate((await session.scalars(query)).all(), 1)
    recalled = Recalled(Hit(memory, 1.0 / rank, mode, {"age_rank": float(rank)}) for rank, memory in found)
    return await warnings.add(session, recalled, asked, limit=limit)


def _by_stems(question: Question, known: Known, words: Words) -> dict[int, float]:
    """Score all candidates by the stems of their words: enough to choose whom to look at closely."""
    content, context = _stem_scores(known, *_counts(known, words.terms, len(words.ids)))
    weights = question.weights
    scores = weights.content * ranking.share_of_best(content) + weights.context * ranking.share_of_best(context)
    return dict(zip(words.ids.tolist(), scores.tolist(), strict=True))


def _wanted(known: Known) -> list[int]:
    return [one for numbers in known.words.values() for one in numbers]


def _stem_scores(known: Known, inside: Counts, both: Counts) -> tuple[Scores, Scores]:
    corpus = known.corpus
    found_in = np.asarray([corpus.found_in.get(one, 0) for one in np.unique(_wanted(known))], dtype=np.float64)
    means = (corpus.content_terms, corpus.all_terms)
    if not corpus.memories and len(inside.lengths):  # nothing is counted yet: the candidates are all there is to go by
        means = (float(inside.lengths.mean()), float(both.lengths.mean()))
    return (
        ranking.bm25_plus(inside, found_in, corpus.memories, means[0]),
        ranking.bm25_plus(both, found_in, corpus.memories, means[1]),
    )


def _counts(known: Known, terms: Terms, documents: int) -> tuple[Counts, Counts]:
    """Return what was counted in content alone, and with context."""
    numbers, document, within = terms
    inside = ranking.count(_wanted(known), numbers[within], document[within], documents)
    around = ranking.count(_wanted(known), numbers[~within], document[~within], documents)
    return inside, inside + around


def _fuse(question: Question, known: Known, found: Sequence[Detail], terms: Terms) -> list[tuple[int, float, dict[str, float]]]:
    """Return (memory, score, why), best first; of equals the newest."""
    weights = question.weights
    words = _by_words(question, known, found, _counts(known, terms, len(found)))
    likeness = np.asarray([np.nan if one.similarity is None else one.similarity for one in found])
    total = weights.vector * ranking.min_max(likeness) + words
    if question.vector is None or not question.words:  # one leg is all there is
        total = total / (weights.vector if question.vector is not None else 1 - weights.vector)
    matched = np.minimum([one.entities for one in found], ENTITIES_COUNTED)
    total = (total + ENTITY_BONUS * matched) * _freshness(found) * np.where([one.stale for one in found], ranking.STALE, 1.0)
    order = sorted(range(len(found)), key=lambda at: (-total[at], -found[at].id))
    text_rank, vector_rank = _ranks(words), _ranks(np.nan_to_num(likeness, nan=-2.0))
    why = [
        {
            **({"text_rank": text_rank[at], "text_score": round(float(words[at]), 4)} if words[at] > 0 else {}),
            **(
                {"vector_rank": vector_rank[at], "similarity": round(float(likeness[at]), 4)}
                if likeness[at] == likeness[at]
                else {}
            ),
            **({"entity_match": float(matched[at])} if matched[at] else {}),
        }
        for at in range(len(found))
    ]
    return [(found[at].id, float(total[at]), why[at]) for at in order]


def _by_words(question: Question, known: Known, found: Sequence[Detail], counts: tuple[Counts, Counts]) -> Scores:
    """Return both sorts of terms together, over content and with context, in the weights' shares."""
    weights, share = question.weights, ranking.STEMS_SHARE
    stems = _stem_scores(known, *counts)
    contents = [meaningful(one.content, one.language) for one in found]
    contexts = [meaningful(one.context, one.language) for one in found]
    grams = ranking.gram_scores(" ".join(question.words), contents, contexts)
    legs = [share * ranking.share_of_best(a) + (1 - share) * ranking.share_of_best(b) for a, b in zip(stems, grams, strict=True)]
    scores: Scores = weights.content * legs[0] + weights.context * legs[1]
    return scores


def _ranks(scores: Scores) -> list[float]:
    order = np.argsort(-scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    return [float(rank) for rank in ranks]


def _freshness(found: Sequence[Detail]) -> Scores:
    now = datetime.now(UTC)
    days = np.asarray([max((now - one.created_at).total_seconds(), 0.0) / 86400 for one in found])
    fresh: Scores = 1 - RECENCY * (1 - 0.5 ** (days / RECENCY_DAYS))
    return fresh


async def _hits(session: AsyncSession, ranked: Sequence[tuple[int, float, dict[str, float]]], mode: str) -> Recalled:
    query = select(Memory).where(Memory.id.in_([ident for ident, _, _ in ranked]))
    memories = {one.id: one for one in await session.scalars(query)}
    return Recalled(Hit(memories[ident], score, mode, why) for ident, score, why in ranked if ident in memories)
