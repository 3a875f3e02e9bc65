"""The graph as a picture has it: the newest memories, the newest edges, what both hang on. Bounded; writes nothing.

Memories and edges are chosen apart, each over the whole store: an old memory that somebody ties to another today is in the
picture, as a node from outside the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from opencognit import shapes
from opencognit.brain.visibility import enter, visible
from opencognit.contracts import Viewer
from opencognit.errors import InvalidInput
from opencognit.models import Entity, Memory, MemoryEdge, MemoryEntity
from opencognit.shapes import Shape
from opencognit.states import Scope

MOST = 2000
"""Memories, and edges, that one picture holds."""
LINKS = 5000
"""Mentions of entities that it holds; those of the newest memories come first."""
LABEL = 200
"""Characters of a memory's content."""


@dataclass(frozen=True, slots=True)
class Node:
    """A memory. `content` is its beginning; `external`: it is here for its edge, not being among the newest."""

    id: int
    type: str
    room: str
    scope: str
    team: str | None
    trust: str
    lifecycle: str
    content: str
    agent: str | None
    created_at: datetime
    external: bool

    def shape(self) -> Shape:
        told = {name: getattr(self, name) for name in ("type", "room", "scope", "team", "trust", "lifecycle", "content", "agent")}
        return {"id": str(self.id), **told, "created_at": shapes.time(self.created_at), "external": self.external}


@dataclass(frozen=True, slots=True)
class Edge:
    id: int
    source_id: int
    relation: str
    target_id: int
    created_by: str
    created_at: datetime

    def shape(self) -> Shape:
        ends = {"source_id": str(self.source_id), "relation": self.relation, "target_id": str(self.target_id)}
        return {"id": str(self.id), **ends, "created_by": self.created_by, "created_at": shapes.time(self.created_at)}


@dataclass(frozen=True, slots=True)
class EntityNode:
    """An entity that memories of the picture name, with (memory, role) of each mention."""

    kind: str
    key: str
    mentions: tuple[tuple[int, str], ...]

    def shape(self) -> Shape:
        mentions = [{"memory_id": str(memory), "role": role} for memory, role in self.mentions]
        return {"kind": self.kind, "key": self.key, "mentions": mentions}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Newest first. `incomplete` says what there was no room for; None: it is all here."""

    memories: tuple[Node, ...]
    edges: tuple[Edge, ...]
    entities: tuple[EntityNode, ...]
    incomplete: str | None = None

    def shape(self) -> Shape:
        return {
            "memories": [one.shape() for one in self.memories],
            "edges": [one.shape() for one in self.edges],
            "entities": [one.shape() for one in self.entities],
            "incomplete": self.incomplete,
        }


async def snapshot(session: AsyncSession, *, viewer: Viewer, memories: int = 200, edges: int = 400) -> Snapshot:
    """Return the newest `memories` and the newest `edges` of what the viewer may see, retired memories too.

    Every edge has both its ends here; one with an end that the viewer may not see is not here. Expects a transaction; raises
    InvalidInput for a bad number.
    """
    for name, number in (("memories", memories), ("edges", edges)):
        if not 0 <= number <= MOST:
            raise InvalidInput(name, f"is {number}: give 0 to {MOST}")
    await enter(session, viewer)
    newest = await _nodes(session, visible(viewer), limit=memories, external=False)
    drawn = await _edges(session, viewer, edges)
    missing = {end for edge in drawn for end in (edge.source_id, edge.target_id)} - {node.id for node in newest}
    outside = await _nodes(session, Memory.id.in_(missing) & visible(viewer), limit=len(missing), external=True)
    nodes = (*newest, *outside)
    here = {node.id for node in nodes}
    mentions = await _mentions(session, viewer, here)
    left_out = f"more than {LINKS} mentions of entities: those of the oldest memories are not here"
    return Snapshot(
        memories=nodes,
        edges=tuple(edge for edge in drawn if {edge.source_id, edge.target_id} <= here),
        entities=_entities(mentions[:LINKS]),
        incomplete=left_out if len(mentions) > LINKS else None,
    )


async def _nodes(session: AsyncSession, which: ColumnElement[bool], *, limit: int, external: bool) -> list[Node]:
    if not limit:
        return []
    columns = (Memory.id, Memory.type, Memory.room, Memory.scope, Memory.owner, Memory.trust, Memory.lifecycle)
    begun = func.left(Memory.content, LABEL).label("begun")
    query = select(*columns, begun, Memory.source_agent, Memory.created_at).where(which).order_by(Memory.id.desc()).limit(limit)
    return [
        Node(
            id=row.id,
            type=row.type,
            room=row.room,
            scope=row.scope,
            team=row.owner if row.scope == Scope.TEAM else None,
            trust=row.trust,
            lifecycle=row.lifecycle,
            content=row.begun,
            agent=row.source_agent,
            created_at=row.created_at,
            external=external,
        )
        for row in await session.execute(query)
    ]


async def _edges(session: AsyncSession, viewer: Viewer, limit: int) -> list[Edge]:
    source, target = aliased(Memory), aliased(Memory)
    query = select(MemoryEdge).order_by(MemoryEdge.id.desc()).limit(limit)
    if not viewer.is_board:
        query = query.join(source, source.id == MemoryEdge.source_id).join(target, target.id == MemoryEdge.target_id)
        query = query.where(visible(viewer, source), visible(viewer, target))
    return [
        Edge(one.id, one.source_id, one.relation, one.target_id, one.created_by, one.created_at)
        for one in await session.scalars(query)
    ]


async def _mentions(session: AsyncSession, viewer: Viewer, memories: set[int]) -> Sequence[Any]:
    """Return (memory_id, kind, key, role), one more than there is room for."""
    query = (
        select(MemoryEntity.memory_id, Entity.kind, Entity.key, MemoryEntity.role)
        .join(Entity, Entity.id == MemoryEntity.entity_id)
        .join(Memory, Memory.id == MemoryEntity.memory_id)
        .where(MemoryEntity.memory_id.in_(memories), visible(viewer))
        .order_by(MemoryEntity.memory_id.desc(), Entity.kind, Entity.key, MemoryEntity.role)
        .limit(LINKS + 1)
    )
    return (await session.execute(query)).all()


def _entities(mentions: Sequence[Any]) -> tuple[EntityNode, ...]:
    by_name: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for row in mentions:
        by_name.setdefault((row.kind, row.key), []).append((row.memory_id, row.role))
    return tuple(EntityNode(kind, key, tuple(named)) for (kind, key), named in sorted(by_name.items()))
