"""The company as a whole: its switch, its living nodes, how much is on and how much waits. Owns the company's one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import events
from opencognit.db import notify
from opencognit.events import Happened
from opencognit.models import Company, Node, Run, Wakeup
from opencognit.states import RunState, WakeupState


@dataclass(frozen=True, slots=True)
class Stuck:
    """Something that does not go on by itself. `kind` and `ident` name it, `why` says what is wrong."""

    kind: str
    ident: str
    why: str


async def get(session: AsyncSession) -> Company:
    """Return the company's row."""
    return (await session.scalars(select(Company))).one()


async def pause(session: AsyncSession, *, by: str) -> bool:
    """Stop every claim in the company; runs that are on finish. Return False if it was paused already."""
    return await _switch(session, True, by)


async def resume(session: AsyncSession, *, by: str) -> bool:
    """Let the company claim again; what was queued meanwhile starts at once. Return False if it was not paused."""
    if not await _switch(session, False, by):
        return False
    queued = (Wakeup.status == WakeupState.QUEUED, Wakeup.task_id.is_(None), Wakeup.not_before < func.now())
    await session.execute(update(Wakeup).where(*queued).values(not_before=func.now()))  # their day begins anew
    return True


async def _switch(session: AsyncSession, paused: bool, by: str) -> bool:
    changed = (
        update(Company)
        .where(Company.paused.is_not(paused))
        .values(paused=paused, paused_at=func.now() if paused else None, paused_by=by if paused else None)
        .returning(Company.id)
    )
    if (await session.execute(changed)).scalar_one_or_none() is None:
        return False
    verb = "company.paused" if paused else "company.resumed"
    await events.record(session, Happened(verb, "company", 1, actor=by))
    await notify(session, "pause" if paused else "wakeup")
    return True


async def nodes(session: AsyncSession, *, lease_s: float) -> Sequence[tuple[Node, int]]:
    """Return the nodes that renewed within `lease_s`, each with the number of its runs that are on."""
    running = select(func.count()).where(Run.node_id == Node.id, Run.status == RunState.RUNNING).scalar_subquery()
    alive = Node.seen_at > func.now() - func.make_interval(0, 0, 0, 0, 0, 0, float(lease_s))
    query = select(Node, running).where(Node.ended_at.is_(None), alive).order_by(Node.started_at, Node.id)
    return [(node, count) for node, count in await session.execute(query)]


async def waiting(session: AsyncSession) -> int:
    """Return how many wakeups are queued."""
    return (await session.scalars(select(func.count()).where(Wakeup.status == WakeupState.QUEUED))).one()


STUCK = text("""
SELECT 'goal' AS kind, id::text AS ident, 'blocked: ' || left(reason, 300) AS why FROM goals WHERE status = 'blocked'
UNION ALL
SELECT 'task', t.id::text, 'its assignee ' || t.assignee || ' does not work here any more'
  FROM tasks t JOIN agents a ON a.name = t.assignee WHERE t.status IN ('todo', 'backlog') AND NOT a.present
UNION ALL
SELECT 'run', r.id::text, 'its lease ran out ' || floor(extract(epoch FROM now() - r.lease_expires_at))::bigint || ' s ago'
  FROM runs r WHERE r.status = 'running' AND r.lease_expires_at <= now()
UNION ALL
SELECT 'task', t.id::text, 'its lock by run ' || t.execution_run_id || ' has run out'
  FROM tasks t WHERE t.execution_run_id IS NOT NULL AND t.lock_expires_at <= now()
UNION ALL
SELECT 'agent', name, status || ': ' || status_reason FROM agents WHERE present AND status IN ('paused', 'error')
LIMIT :limit
""")


async def stuck(session: AsyncSession, *, limit: int = 50) -> Sequence[Stuck]:
    """Return what somebody should look at: blocked goals, lapsed runs and locks, agents that take nothing."""
    return [Stuck(**row) for row in (await session.execute(STUCK, {"limit": limit})).mappings()]
