"""What a reader of hits must know beside them: who contradicts one, and who was proposed to take its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import ColumnElement, Select, cast, func, literal, select, union
from sqlalchemy.dialects.postgresql import ARRAY, BIGINT
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain.hits import Hit, Recalled
from opencognit.brain.visibility import Asked
from opencognit.models import Memory, MemoryEdge
from opencognit.states import Relation

NAMED = 3
"""Memories that a warning names, the newest first, of each relation."""


@dataclass(slots=True)
class _Against:
    """What stands against one hit, newest first."""

    contradicting: list[Memory] = field(default_factory=list)
    proposed: list[Memory] = field(default_factory=list)

    @property
    def warning(self) -> str:
        parts = [f"contradicts {_names(self.contradicting)}"] if self.contradicting else []
        parts += [f"is proposed to be superseded by {_names(self.proposed)}"] if self.proposed else []
        return "; ".join(parts)


async def add(session: AsyncSession, found: Recalled, asked: Asked, *, limit: int) -> Recalled:
    """Return the hits with their warnings; each that is contradicted has the newest that does so directly behind it.

    That one counts within the limit, in place of the weakest hits. Where no place is left behind a hit, its warning alone says
    it. Only memories in force that the asker sees are named or shown. One statement, whatever the number of hits.
    """
    if not found:
        return found
    against = await _against(session, [hit.memory.id for hit in found], asked)
    if not against:
        return found
    warned = Recalled(_arranged(found, against, limit))
    warned.incomplete = found.incomplete
    return warned


async def _against(session: AsyncSession, idents: Sequence[int], asked: Asked) -> dict[int, _Against]:
    rows = await session.execute(_query(cast(list(idents), ARRAY(BIGINT)), asked))
    found: dict[int, _Against] = {}
    for hit, relation, memory in rows:
        against = found.setdefault(hit, _Against())
        (against.contradicting if relation == Relation.CONTRADICTS else against.proposed).append(memory)
    return found


def _query(idents: ColumnElement[Sequence[int]], asked: Asked) -> Select[int, str, Memory]:
    """Return (hit, relation, memory) of what stands against each; either arm has an index of its own."""
    edge, drawn = MemoryEdge, MemoryEdge.created_at <= asked.as_of if asked.as_of is not None else literal(True)
    both_ways = union(
        select(edge.source_id.label("hit"), edge.relation, edge.target_id.label("other")).where(
            edge.source_id == func.any(idents), edge.relation == Relation.CONTRADICTS, drawn
        ),
        select(edge.target_id, edge.relation, edge.source_id).where(
            edge.target_id == func.any(idents), edge.relation.in_([Relation.CONTRADICTS, Relation.SUPERSEDES]), drawn
        ),
    ).subquery()
    newest = func.row_number().over(partition_by=(both_ways.c.hit, both_ways.c.relation), order_by=Memory.id.desc())
    in_force = Asked(asked.viewer, as_of=asked.as_of).matches()
    seen = (
        select(both_ways.c.hit, both_ways.c.relation, Memory.id.label("other"), newest.label("place"))
        .join(Memory, Memory.id == both_ways.c.other)
        .where(in_force)
        .subquery()
    )
    query = select(seen.c.hit, seen.c.relation, Memory).join(Memory, Memory.id == seen.c.other)
    return query.where(seen.c.place <= NAMED).order_by(seen.c.hit, seen.c.place)


def _arranged(found: Sequence[Hit], against: Mapping[int, _Against], limit: int) -> list[Hit]:
    own = {hit.memory.id: hit for hit in found}
    shown: dict[int, Hit] = {}
    for hit in found:
        if len(shown) >= limit:
            break
        if hit.memory.id in shown:
            continue
        told = against.get(hit.memory.id)
        shown[hit.memory.id] = replace(hit, warning=told.warning) if told else hit
        if told and told.contradicting and len(shown) < limit:
            other = told.contradicting[0]
            if other.id not in shown:
                shown[other.id] = _beside(hit, other, own.get(other.id), against.get(other.id))
    return list(shown.values())


def _beside(hit: Hit, other: Memory, own: Hit | None, told: _Against | None) -> Hit:
    why = {**(own.why if own else {}), "beside": float(hit.memory.id)}
    warning = told.warning if told else f"contradicts {_names([hit.memory])}"
    return Hit(other, hit.score, hit.mode, why, warning)


def _names(memories: Sequence[Memory]) -> str:
    listed = ", ".join(f"{memory.id} ({memory.trust})" for memory in memories)
    return f"{'memory' if len(memories) == 1 else 'memories'} {listed}"
