"""Edges between memories and what they mean: the six relations, and the lifecycle that follows from one of them.

Nothing here deletes a memory. Superseding is an edge and a mark; whoever may not set the mark has made a proposal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import delete, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain.visibility import as_board, enter, visible
from opencognit.contracts import MemoryDraft, Viewer
from opencognit.errors import InvalidInput, Refused
from opencognit.events import BOARD
from opencognit.models import Memory, MemoryEdge
from opencognit.states import IN_FORCE, WEAKEST_FIRST, Lifecycle, Relation, Scope, Trust

ORDERED = frozenset({Relation.SUPERSEDES, Relation.DERIVES_FROM})
"""Relations that say what came first: a circle of them says nothing."""

REACHES = text("""
-- Whether `from_id` leads to `to_id` along edges of one relation.
WITH RECURSIVE beyond (id) AS (
  SELECT CAST(:from_id AS bigint) UNION
  SELECT e.target_id FROM memory_edges e JOIN beyond b ON e.source_id = b.id WHERE e.relation = :relation
)
SELECT EXISTS (SELECT 1 FROM beyond WHERE id = :to_id)
""")

CAP = text("""
-- What derives from a memory is trusted no more than it, however far down.
WITH RECURSIVE derived (id) AS (
  SELECT CAST(:source_id AS bigint) UNION
  SELECT e.source_id FROM memory_edges e JOIN derived d ON e.target_id = d.id WHERE e.relation = 'derives_from'
)
UPDATE memories m SET trust = t.trust, updated_at = now()
  FROM derived d, memories t
 WHERE m.id = d.id AND t.id = :target_id
   AND array_position(CAST(:weakest_first AS text[]), m.trust) > array_position(CAST(:weakest_first AS text[]), t.trust)
""")


def wished(draft: MemoryDraft, *, derived: bool) -> Iterator[tuple[Relation, int]]:
    """Yield the edges that a draft asks for; those to its sources only where it is `derived`."""
    yield from ((Relation.DERIVES_FROM, ident) for ident in dict.fromkeys(draft.derives_from) if derived)
    yield from ((Relation.SUPERSEDES, ident) for ident in dict.fromkeys(draft.supersedes))


async def draw(
    session: AsyncSession, target: Memory, relation: Relation, *, source: int, by: Viewer, word: Trust = Trust.VERIFIED
) -> str | None:
    """Draw `source` RELATION `target` with what it means; return a note where it stays a proposal.

    `word`: how far whoever says so is trusted; the source may be trusted more, where another had written it before. The
    caller has got both as one who may see them. Drawing it again changes nothing. Raises InvalidInput for a circle.
    """
    if source == target.id:
        raise InvalidInput("target", "is the memory itself: name another")
    if relation in ORDERED:
        async with as_board(session, by):
            await _refuse_circle(session, source, relation, target.id)
    row = upsert(MemoryEdge).values(source_id=source, relation=relation.value, target_id=target.id, created_by=by.agent or BOARD)
    await session.execute(row.on_conflict_do_nothing())
    if relation is Relation.DERIVES_FROM:
        names = [tier.value for tier in WEAKEST_FIRST]
        async with as_board(session, by):
            await session.execute(CAP, {"source_id": source, "target_id": target.id, "weakest_first": names})
    return await _supersede(session, source, target, word) if relation is Relation.SUPERSEDES else None


async def _refuse_circle(session: AsyncSession, source: int, relation: Relation, target: int) -> None:
    """One at a time: two edges that close a circle together must not both find it open."""
    await session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(f"edges:{relation.value}", 0))))
    parameters = {"from_id": target, "relation": relation.value, "to_id": source}
    if (await session.execute(REACHES, parameters)).scalar_one():
        raise InvalidInput("target", f"memory {target} already {relation} memory {source}, directly or by others: a circle")


async def _supersede(session: AsyncSession, source: int, target: Memory, word: Trust) -> str | None:
    """Mark the older memory, if all who see it see the newer one too, and that is trusted no less."""
    both = select(Memory).where(Memory.id.in_((source, target.id))).order_by(Memory.id)  # in one order for all
    held = both.with_for_update(key_share=True).execution_options(populate_existing=True)  # trust may just be changing
    newer = {one.id: one for one in await session.scalars(held)}[source]
    if newer.lifecycle not in IN_FORCE:
        return f"memory {newer.id} is {newer.lifecycle} itself: kept as a proposal to supersede memory {target.id}"
    trust = min(Trust(newer.trust), word, key=WEAKEST_FIRST.index)
    if WEAKEST_FIRST.index(trust) < WEAKEST_FIRST.index(Trust(target.trust)):
        return f"memory {target.id} is {target.trust}, this is only {trust}: kept as a proposal to supersede it"
    if newer.scope != Scope.ORG and (newer.scope, newer.owner) != (target.scope, target.owner):
        return f"memory {target.id} is seen by others who do not see this: kept as a proposal to supersede it"
    await mark_superseded(session, [target.id])
    return None


async def mark_superseded(session: AsyncSession, idents: Sequence[int]) -> None:
    """Take memories out of force that a newer one takes the place of; the caller has drawn the edges."""
    await session.execute(
        update(Memory)
        .where(Memory.id.in_(idents), Memory.lifecycle.in_(IN_FORCE))
        .values(lifecycle=Lifecycle.SUPERSEDED, retired_at=func.now(), updated_at=func.now())
    )


def refuse_stranger(source: Memory, relation: Relation, viewer: Viewer) -> None:
    """What a memory supersedes or derives from is for its writer or the board to say."""
    if relation in ORDERED and not viewer.is_board and source.source_agent != viewer.agent:
        raise Refused(f"memory {source.id} is not {viewer.agent}'s: only its writer or the board says what it {relation}")


def refuse_foreign(memory: Memory, verb: str, viewer: Viewer) -> None:
    """What is in force is for a memory's writer or the board to say."""
    if not viewer.is_board and memory.source_agent != viewer.agent:
        raise Refused(f"memory {memory.id} is not {viewer.agent}'s: only its writer or the board can {verb} it")


async def archive(session: AsyncSession, memory: Memory) -> None:
    """Put a memory away; it is kept and no longer recalled."""
    memory.lifecycle = Lifecycle.ARCHIVED
    memory.retired_at = func.coalesce(Memory.retired_at, func.now())
    memory.updated_at = func.now()
    await session.flush()


async def restore(session: AsyncSession, memory: Memory) -> None:
    """Undo archiving and superseding: the memory is in force again, and the edges that superseded it are gone."""
    ident = memory.id
    try:
        async with session.begin_nested():  # which writes what was changed before it: only what is changed within is undone
            memory.lifecycle, memory.retired_at, memory.updated_at = Lifecycle.ACTIVE, None, func.now()
            await session.flush()
    except IntegrityError as error:
        raise Refused(f"memory {ident} cannot be restored: the same content is known and in force") from error
    await session.execute(delete(MemoryEdge).where(MemoryEdge.target_id == ident, MemoryEdge.relation == Relation.SUPERSEDES))


async def edges_of(session: AsyncSession, ident: int, *, viewer: Viewer) -> list[tuple[int, str, int]]:
    """Return (source, relation, target) of every edge whose both ends the viewer may see."""
    await enter(session, viewer)
    query = select(MemoryEdge).where(or_(MemoryEdge.source_id == ident, MemoryEdge.target_id == ident)).order_by(MemoryEdge.id)
    edges = (await session.scalars(query)).all()
    ends = {end for edge in edges for end in (edge.source_id, edge.target_id)}
    seen = set((await session.scalars(select(Memory.id).where(Memory.id.in_(ends), visible(viewer)))).all())
    return [(edge.source_id, edge.relation, edge.target_id) for edge in edges if {edge.source_id, edge.target_id} <= seen]
