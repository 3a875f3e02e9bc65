"""A room in brief: the newest memory of each thing that it names, put together without a model when somebody asks for it.

A summary is a fact that derives from its sources, so it is trusted no more than the weakest of them. It sums up one scope
alone, and takes the place of the room's former summary; `restore` brings that back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain import relations, store
from opencognit.brain.names import digest, room_name
from opencognit.brain.visibility import enter
from opencognit.contracts import MemoryDraft, Viewer
from opencognit.errors import NotFound
from opencognit.models import Memory, MemoryEntity
from opencognit.states import IN_FORCE, MemoryType, Scope, Trust

SOURCES = 40
LINE_CHARS = 300
"""Of each source, on one line."""
CHARS = 8000
FORMER = 20
"""Summaries of one room that a new one takes the place of: more than one only where some were restored."""


@dataclass(frozen=True, slots=True)
class Summary:
    """`sources`: what it derives from, newest first; `replaced`: summaries that were in force; `made`: not there before."""

    id: int
    sources: tuple[int, ...]
    replaced: tuple[int, ...]
    made: bool
    note: str | None = None


async def summarise(session: AsyncSession, room: str, *, viewer: Viewer, trust: Trust, scope: Scope = Scope.ORG) -> Summary:
    """Sum up what the room has in one scope: the viewer's own team's, its own, or everyone's.

    Where nothing has changed since the last summary, that one is returned. Raises NotFound where no memory of the room names
    anything.
    """
    await enter(session, viewer)
    room = room_name(room)
    scope, owner, note = store.place(scope, viewer)
    here = and_(Memory.room == room, Memory.scope == scope, Memory.owner == owner, Memory.lifecycle.in_(IN_FORCE))
    content, sources = _written(room, await _newest(session, room, here))
    if not sources:
        raise NotFound("room", room, "or none of its memories names anything: `memory write --entity` says what one is about")
    idents = tuple(one.id for one in sources)
    former = await _former(session, room, here)
    if former and former[0].content_hash == digest(content):
        return Summary(former[0].id, idents, (), made=False, note=note)
    draft = MemoryDraft(
        content=content,
        type=MemoryType.FACT,
        room=room,
        scope=scope,
        confidence=min(one.confidence for one in sources),
        context=_mark(room),
        derives_from=idents,
        supersedes=tuple(one.id for one in former),
    )
    stored = await store.write(session, draft, viewer=viewer, trust=trust)
    if viewer.is_board:  # also where a source is trusted less than those of the former one: the board has asked for it
        await relations.mark_superseded(session, draft.supersedes)
        return Summary(stored.id, idents, draft.supersedes, made=True)
    notes = "; ".join(part for part in (note, stored.note) if part)
    return Summary(stored.id, idents, draft.supersedes, made=True, note=notes or None)


def _mark(room: str) -> str:
    return f"summary of the room {room}"


async def _newest(session: AsyncSession, room: str, here: ColumnElement[bool]) -> Sequence[Memory]:
    """Return the newest memory of each entity, newest first, and one more than is used; nothing that is over or a summary."""
    valid = or_(Memory.valid_to.is_(None), Memory.valid_to > func.now())
    of_each = (
        select(func.max(Memory.id))
        .join(MemoryEntity, MemoryEntity.memory_id == Memory.id)
        .where(here, valid, Memory.context != _mark(room))
        .group_by(MemoryEntity.entity_id)
    )
    query = select(Memory).where(Memory.id.in_(of_each)).order_by(Memory.id.desc()).limit(SOURCES + 1)
    return (await session.scalars(query)).all()


async def _former(session: AsyncSession, room: str, here: ColumnElement[bool]) -> Sequence[Memory]:
    query = select(Memory).where(here, Memory.context == _mark(room)).order_by(Memory.id.desc()).limit(FORMER)
    return (await session.scalars(query)).all()


def _written(room: str, found: Sequence[Memory]) -> tuple[str, Sequence[Memory]]:
    """Return the summary's text and what of `found` is in it."""
    lines = [f"The room {room}, the newest of each thing that it names:"]
    used: list[Memory] = []
    for memory in found[:SOURCES]:
        line = " ".join(memory.content.split())
        line = f"- {line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 1] + '…'}"
        if sum(map(len, lines)) + len(line) > CHARS:
            break
        lines.append(line)
        used.append(memory)
    if len(used) < len(found):
        lines.append("(older ones are left out)")
    return "\n".join(lines), used
