"""An agent's diary: its runs, told as what it did, how it ended and what it learned. A view; nothing of it is stored.

What a run remembered is found by run, agent and time together: the run's number alone may come from another company's export.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import shapes
from opencognit.brain.visibility import enter, visible
from opencognit.contracts import Viewer
from opencognit.errors import InvalidInput, NotFound
from opencognit.models import Agent, Memory, Run, Task
from opencognit.shapes import Shape

MOST = 200
"""Runs that one reading returns."""
READ, LINES, CHARS = 2000, 3, 300
"""Characters of a text that are read, and lines and characters of it that are told."""
NOTED = 10
"""Memories that are shown of one run."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A memory that a run made; `content` is its beginning."""

    id: int
    type: str
    room: str
    content: str

    def shape(self) -> Shape:
        return {"id": str(self.id), "type": self.type, "room": self.room, "content": self.content}


@dataclass(frozen=True, slots=True)
class Entry:
    """One run. `result` and `error` are their first lines; `remembered` counts its memories, `memories` are the first of them."""

    run_id: int
    task_id: int | None
    task: str | None
    kind: str | None
    status: str
    reason: str
    started_at: datetime
    ended_at: datetime | None
    result: str | None
    error: str | None
    remembered: int = 0
    memories: tuple[Noted, ...] = ()

    def shape(self) -> Shape:
        return {
            "run_id": str(self.run_id),
            "task": None if self.task_id is None else {"id": str(self.task_id), "title": self.task, "kind": self.kind},
            "status": self.status,
            "reason": self.reason,
            "started_at": shapes.time(self.started_at),
            "ended_at": shapes.time(self.ended_at),
            "result": self.result,
            "error": self.error,
            "remembered": self.remembered,
            "memories": [one.shape() for one in self.memories],
        }


async def diary(session: AsyncSession, agent: str, *, viewer: Viewer, limit: int = 20, before: int | None = None) -> list[Entry]:
    """Return an agent's runs, newest first, from below the run `before`.

    An agent reads its own, the board everybody's; for anyone else, and for a name that nobody has, raises NotFound. Expects a
    transaction.
    """
    if not 1 <= limit <= MOST:
        raise InvalidInput("limit", f"is {limit}: give 1 to {MOST}")
    if not viewer.is_board and viewer.agent != agent:
        raise NotFound("diary", agent, f"agent {viewer.agent!r} may read its own")
    if (await session.execute(select(Agent.name).where(Agent.name == agent))).first() is None:
        raise NotFound("agent", agent[:80], "`opencognit agent list` names all")
    await enter(session, viewer)
    runs = await _runs(session, agent, limit, before)
    noted = await _noted(session, agent, viewer, [row.id for row in runs])
    return [_entry(row, noted.get(row.id, [])) for row in runs]


async def _runs(session: AsyncSession, agent: str, limit: int, before: int | None) -> Sequence[Any]:
    query = (
        select(
            Run.id,
            Run.task_id,
            Task.title,
            Task.kind,
            Run.status,
            func.left(Run.reason, READ).label("reason"),
            Run.started_at,
            Run.ended_at,
            func.left(Run.result, READ).label("result"),
            func.left(Run.error, READ).label("error"),
        )
        .outerjoin(Task, Task.id == Run.task_id)
        .where(Run.agent == agent)
        .order_by(Run.id.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(Run.id < before)
    return (await session.execute(query)).all()


async def _noted(session: AsyncSession, agent: str, viewer: Viewer, runs: Sequence[int]) -> dict[int, list[Any]]:
    """Return the first NOTED memories of each run, each with how many there are."""
    numbered = (
        select(
            Memory.id,
            Memory.type,
            Memory.room,
            func.left(Memory.content, READ).label("content"),
            Memory.source_run_id.label("run_id"),
            func.row_number().over(partition_by=Memory.source_run_id, order_by=Memory.id).label("place"),
            func.count().over(partition_by=Memory.source_run_id).label("remembered"),
        )
        .join(Run, Run.id == Memory.source_run_id)
        .where(Memory.source_run_id.in_(runs), Memory.source_agent == agent, visible(viewer))
        .where(Memory.created_at >= Run.started_at, or_(Run.ended_at.is_(None), Memory.created_at <= Run.ended_at))
        .subquery()
    )
    found: dict[int, list[Any]] = {}
    for row in await session.execute(select(numbered).where(numbered.c.place <= NOTED).order_by(numbered.c.id)):
        found.setdefault(row.run_id, []).append(row)
    return found


def _entry(row: Any, noted: Sequence[Any]) -> Entry:
    return Entry(
        run_id=row.id,
        task_id=row.task_id,
        task=row.title,
        kind=row.kind,
        status=row.status,
        reason=row.reason,
        started_at=row.started_at,
        ended_at=row.ended_at,
        result=_first_lines(row.result),
        error=_first_lines(row.error),
        remembered=noted[0].remembered if noted else 0,
        memories=tuple(Noted(one.id, one.type, one.room, _first_lines(one.content) or "") for one in noted),
    )


def _first_lines(text: str | None) -> str | None:
    """Return what a text begins with; None where it says nothing."""
    if text is None or not text.strip():
        return None
    lines = text.strip().splitlines()
    told = "\n".join(line.rstrip() for line in lines[:LINES])
    if len(told) > CHARS:
        return told[: CHARS - 1] + "…"
    return told + " …" if len(lines) > LINES or len(text) == READ else told
