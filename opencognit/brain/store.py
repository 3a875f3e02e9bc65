"""Memories as rows: one INSERT a write, edges and entities beside it, and the one predicate of who may see what."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, ColumnElement, and_, case, func, literal_column, or_, select, text, true
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain.folding import language, search_text
from opencognit.contracts import TEXT_LIMIT, EntityRef, MemoryDraft, Viewer
from opencognit.errors import InvalidInput, NotFound
from opencognit.events import BOARD
from opencognit.models import Entity, Memory, MemoryEdge, MemoryEntity
from opencognit.states import EntityRole, Lifecycle, Relation, Scope, Trust
from opencognit.textclean import clean

WEAKEST_FIRST = (Trust.ASSERTED, Trust.OBSERVED, Trust.VERIFIED)
ROOM_LIMIT, KIND_LIMIT, KEY_LIMIT = 100, 64, 512
"""Characters: all three stand in B-trees, whose rows have a limit."""
LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Stored:
    """`merged`: the same content was known in that scope already; its evidence grew."""

    id: int
    merged: bool
    note: str | None = None


def visible(viewer: Viewer) -> ColumnElement[bool]:
    """The predicate that every read carries: org to all, a team's to the team, an agent's own to it, all to the board."""
    if viewer.is_board:
        return true()
    own = and_(Memory.scope == Scope.AGENT_PRIVATE, Memory.owner == viewer.agent)
    seen = or_(Memory.scope == Scope.ORG, own)
    return or_(seen, and_(Memory.scope == Scope.TEAM, Memory.owner == viewer.team)) if viewer.team else seen


def room_name(room: str) -> str:
    """Return a room as it is stored and compared; without a name it is `general`."""
    return clean(room).strip().casefold() or "general"


def entity_name(kind: str, key: str) -> tuple[str, str]:
    """Return an entity's kind and key as they are stored and compared."""
    folded = (" ".join(unicodedata.normalize("NFKC", clean(part)).split()).casefold() for part in (kind, key))
    return next(folded), next(folded)


async def write(session: AsyncSession, draft: MemoryDraft, *, viewer: Viewer, trust: Trust) -> Stored:
    """Store a memory; identical content in the same scope is one memory whose evidence grows.

    Trust never exceeds that of the weakest memory it derives from; where the content is known already, only the board's
    word raises it. Raises InvalidInput or NotFound before it writes.
    """
    content = _checked(draft)
    sources = await _known(session, (*draft.derives_from, *draft.supersedes), viewer)
    derived = [Trust(sources[ident].trust) for ident in draft.derives_from]
    trust = min([trust, *derived], key=WEAKEST_FIRST.index)
    scope, owner, note = _scope(draft.scope, viewer)
    context = clean(draft.context).strip()
    row = upsert(Memory).values(
        type=draft.type.value,
        room=room_name(draft.room),
        scope=scope.value,
        owner=owner,
        trust=trust.value,
        confidence=draft.confidence,
        content=content,
        content_hash=_digest(content),
        context=context,
        language=language(content),
        search_text=search_text(f"{context}\n{content}"),
        source_agent=viewer.agent,
        source_run_id=viewer.run_id,
        source_task_id=viewer.task_id,
        valid_from=draft.valid_from,
        valid_to=draft.valid_to,
    )
    grown: dict[str, object] = {"evidence": Memory.evidence + 1, "updated_at": func.now()}
    if viewer.is_board:
        grown["trust"] = case((_strength(row.excluded.trust) > _strength(Memory.trust), row.excluded.trust), else_=Memory.trust)
    joined = row.on_conflict_do_update(
        index_elements=["scope", "owner", "content_hash"], index_where=text("lifecycle = 'active'"), set_=grown
    )
    fresh = literal_column("xmax = 0", Boolean).label("fresh")
    returned = (await session.execute(joined.returning(Memory.id, fresh))).one()
    ident = returned.id
    await _link(session, ident, draft, viewer.agent or BOARD)
    return Stored(ident, not returned.fresh, note)


def _checked(draft: MemoryDraft) -> str:
    """Return the content as it is stored; raises InvalidInput for what no memory may have."""
    content = clean(draft.content).strip()
    if not content:
        raise InvalidInput("content", "is empty: say what is to be remembered")
    if len(content) > TEXT_LIMIT:
        raise InvalidInput("content", f"has {len(content)} characters, at most {TEXT_LIMIT}: store the gist and name the source")
    if len(room := room_name(draft.room)) > ROOM_LIMIT:
        raise InvalidInput("room", f"has {len(room)} characters, at most {ROOM_LIMIT}: give it a short name")
    if not 0 <= draft.confidence <= 1:
        raise InvalidInput("confidence", f"is {draft.confidence}: give a number from 0 to 1")
    for entity in draft.entities:
        kind, key = entity_name(entity.kind, entity.key)
        if not (0 < len(kind) <= KIND_LIMIT and 0 < len(key) <= KEY_LIMIT):
            limits = f"a kind of 1 to {KIND_LIMIT} characters and a key of 1 to {KEY_LIMIT}"
            raise InvalidInput("entity", f"{entity.kind[:80]!r}:{entity.key[:80]!r} is blank or too long: give it {limits}")
    return content


def _strength(trust: Any) -> ColumnElement[int]:
    return case({tier.value: rank for rank, tier in enumerate(WEAKEST_FIRST)}, value=trust)


def _digest(content: str) -> bytes:
    return hashlib.sha256(" ".join(content.split()).casefold().encode("utf-8", "surrogatepass")).digest()


def _scope(wanted: Scope, viewer: Viewer) -> tuple[Scope, str, str | None]:
    if wanted is Scope.ORG:
        return wanted, "", None
    if wanted is Scope.TEAM:
        if viewer.team:
            return wanted, viewer.team, None
        if viewer.agent is None:
            raise InvalidInput("scope", "the board has no team: use org")
        return Scope.AGENT_PRIVATE, viewer.agent, f"agent {viewer.agent!r} has no team: stored as agent_private"
    if viewer.agent is None:
        raise InvalidInput("scope", "the board has no private memory: use org")
    return wanted, viewer.agent, None


async def _known(session: AsyncSession, idents: Sequence[int], viewer: Viewer) -> dict[int, Memory]:
    """Return the named memories; raises NotFound for one that is not there or not to be seen."""
    possible = [ident for ident in idents if 0 < ident <= LARGEST_ID]
    query = select(Memory).where(Memory.id.in_(possible), visible(viewer))
    found = {memory.id: memory for memory in (await session.scalars(query)).all()} if possible else {}
    for ident in idents:
        if ident not in found:
            raise NotFound("memory", str(ident), "name one that this agent may see")
    return found


async def _link(session: AsyncSession, ident: int, draft: MemoryDraft, by: str) -> None:
    edges = [
        {"source_id": ident, "relation": relation.value, "target_id": target, "created_by": by}
        for relation, targets in ((Relation.DERIVES_FROM, draft.derives_from), (Relation.SUPERSEDES, draft.supersedes))
        for target in dict.fromkeys(targets)
        if target != ident
    ]
    if edges:
        await session.execute(upsert(MemoryEdge).values(edges).on_conflict_do_nothing())
    # In one order for all writers, so that two who name the same entities never wait for each other crosswise.
    for kind, key, role in sorted((*entity_name(one.kind, one.key), one.role) for one in draft.entities):
        await _mention(session, ident, kind, key, role)


async def _mention(session: AsyncSession, ident: int, kind: str, key: str, role: EntityRole) -> None:
    await session.execute(upsert(Entity).values(kind=kind, key=key).on_conflict_do_nothing())
    entity_id = select(Entity.id).where(Entity.kind == kind, Entity.key == key).scalar_subquery()
    row = upsert(MemoryEntity).values(memory_id=ident, entity_id=entity_id, role=role.value)
    await session.execute(row.on_conflict_do_nothing())


async def relate(session: AsyncSession, source: int, relation: Relation, target: int, *, viewer: Viewer) -> None:
    """Draw an edge between two memories that the viewer may see; drawing it again changes nothing."""
    await _known(session, (source, target), viewer)
    if source == target:
        raise InvalidInput("target", "is the memory itself: name another")
    by = viewer.agent or BOARD
    row = upsert(MemoryEdge).values(source_id=source, relation=relation.value, target_id=target, created_by=by)
    await session.execute(row.on_conflict_do_nothing())


async def get(session: AsyncSession, ident: int, *, viewer: Viewer) -> Memory:
    """Return one memory; raises NotFound also where the viewer may not see it."""
    return (await _known(session, [ident], viewer))[ident]


async def entities_of(session: AsyncSession, idents: Sequence[int]) -> dict[int, list[EntityRef]]:
    """Return the entities of each memory; the caller has got these memories as one who may see them."""
    found: dict[int, list[EntityRef]] = {ident: [] for ident in idents}
    query = (
        select(MemoryEntity.memory_id, Entity.kind, Entity.key, MemoryEntity.role)
        .join(Entity, Entity.id == MemoryEntity.entity_id)
        .where(MemoryEntity.memory_id.in_(idents))
        .order_by(MemoryEntity.memory_id, Entity.kind, Entity.key)
    )
    for row in await session.execute(query):
        found[row.memory_id].append(EntityRef(kind=row.kind, key=row.key, role=row.role))
    return found


async def edges_of(session: AsyncSession, ident: int, *, viewer: Viewer) -> list[tuple[int, str, int]]:
    """Return (source, relation, target) of every edge whose both ends the viewer may see."""
    query = select(MemoryEdge).where(or_(MemoryEdge.source_id == ident, MemoryEdge.target_id == ident)).order_by(MemoryEdge.id)
    edges = (await session.scalars(query)).all()
    ends = {end for edge in edges for end in (edge.source_id, edge.target_id)}
    seen = set((await session.scalars(select(Memory.id).where(Memory.id.in_(ends), visible(viewer)))).all())
    return [(edge.source_id, edge.relation, edge.target_id) for edge in edges if {edge.source_id, edge.target_id} <= seen]


async def archive(session: AsyncSession, ident: int, *, viewer: Viewer) -> Memory:
    """Put a memory away; it is kept and no longer recalled."""
    memory = await get(session, ident, viewer=viewer)
    memory.lifecycle = Lifecycle.ARCHIVED
    memory.updated_at = func.now()
    await session.flush()
    return memory
