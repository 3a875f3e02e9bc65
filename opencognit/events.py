"""Writes what happened, in the transaction of the change itself. Owns the events table; decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.models import Event

SYSTEM = "system"
BOARD = "board"


@dataclass(frozen=True, slots=True)
class Happened:
    """One event before it is stored. `type` is `noun.verb_past`; `data` is JSON, without secrets."""

    type: str
    kind: str
    ident: object
    title: str = ""
    actor: str = SYSTEM
    data: dict[str, Any] = field(default_factory=dict)


async def record(session: AsyncSession, *happened: Happened) -> None:
    """Store events in order, in one statement."""
    if happened:
        rows = [
            {
                "type": one.type,
                "subject_kind": one.kind,
                "subject_id": str(one.ident),
                "subject_title": one.title,
                "actor": one.actor,
                "data": one.data,
            }
            for one in happened
        ]
        await session.execute(insert(Event), rows)


async def newest(session: AsyncSession, *, after_id: int = 0, limit: int = 50, kind: str | None = None) -> Sequence[Event]:
    """Return up to `limit` events with an id above `after_id`: the newest ones, oldest first."""
    query = select(Event).where(Event.id > after_id).order_by(Event.id.desc()).limit(limit)
    if kind is not None:
        query = query.where(Event.subject_kind == kind)
    return list(reversed((await session.scalars(query)).all()))
