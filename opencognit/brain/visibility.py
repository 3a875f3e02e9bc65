"""Who may see which memory, and which memories a recall considers: the one place of both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Text, and_, cast, func, literal, or_, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain.entities import canonical
from opencognit.brain.names import room_name
from opencognit.contracts import BOARD, Viewer
from opencognit.errors import OpenCognitError
from opencognit.models import Entity, Memory, MemoryCount, MemoryEmbedding, MemoryEntity
from opencognit.states import IN_FORCE, MemoryType

ENTER = text("SELECT set_config('opencognit.agent', :agent, true), set_config('opencognit.team', :team, true)")

Scoped = type[Memory] | type[MemoryEmbedding] | type[MemoryCount]


def visible(viewer: Viewer, of: Scoped = Memory) -> ColumnElement[bool]:
    """The predicate that every read carries: org to all, a team's to the team, an agent's own to it, all to the board.

    It is a function of the database, which the policies of its tables use too; the planner writes it out.
    """
    return func.memory_visible(of.scope, of.owner, *identity(viewer))


def identity(viewer: Viewer) -> tuple[ColumnElement[str], ColumnElement[str], ColumnElement[bool]]:
    """Return (agent, team, whether it is the board) as the database's functions take them."""
    return cast(viewer.agent, Text), cast(viewer.team, Text), literal(viewer.is_board, literal_execute=True)


async def enter(session: AsyncSession, viewer: Viewer) -> None:
    """Say for the rest of the transaction who asks; where row-level security binds the session, nothing is seen without."""
    if session.info.get("role") is None:
        return
    agent, team = "*" if viewer.is_board else viewer.agent or "", viewer.team or ""
    await session.execute(ENTER, {"agent": agent, "team": team})


@asynccontextmanager
async def as_board(session: AsyncSession, viewer: Viewer) -> AsyncIterator[None]:
    """Look at all memories for a moment, where a rule must hold for those too that the viewer does not see."""
    await enter(session, BOARD)
    try:
        yield
    except OpenCognitError:  # of the server's own errors the transaction is over anyway
        await enter(session, viewer)
        raise
    await enter(session, viewer)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a recall is restricted to. `as_of`: what was known, in force and valid then; else now."""

    viewer: Viewer
    entity: tuple[str, str] | None = None
    types: Sequence[MemoryType] | None = None
    room: str | None = None
    as_of: datetime | None = None

    def matches(self) -> ColumnElement[bool]:
        """The predicate on Memory: visible, in force, and what was asked for."""
        parts = [visible(self.viewer), self._in_force()]
        if self.types:
            parts.append(Memory.type.in_([one.value for one in self.types]))
        if self.room is not None:
            parts.append(Memory.room == room_name(self.room))
        if self.entity is not None:
            parts.append(Memory.id.in_(_named(*self.entity)))
        return and_(*parts)

    def _in_force(self) -> ColumnElement[bool]:
        at = func.now() if self.as_of is None else literal(self.as_of)
        valid = and_(
            or_(Memory.valid_from.is_(None), Memory.valid_from <= at), or_(Memory.valid_to.is_(None), Memory.valid_to > at)
        )
        if self.as_of is None:
            return and_(Memory.lifecycle.in_(IN_FORCE), valid)
        known = and_(Memory.created_at <= at, or_(Memory.retired_at.is_(None), Memory.retired_at > at))
        return and_(known, valid)


def _named(kind: str, key: str) -> ColumnElement[int]:
    kind, key = canonical(kind, key)
    query = select(MemoryEntity.memory_id).join(Entity, Entity.id == MemoryEntity.entity_id)
    return query.where(Entity.kind == kind, Entity.key == key).scalar_subquery()
