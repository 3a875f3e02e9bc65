"""Runs as rows: how one ends, what it cost, what it printed. Starting one is the claim's (wakeups.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import events
from opencognit.contracts import Usage
from opencognit.db import notify
from opencognit.errors import NotFound, Refused
from opencognit.events import Happened
from opencognit.models import Cost, Run, RunLog, Task
from opencognit.states import RUN_STEPS, CancelMode, RunState, step
from opencognit.work import locks, roster, tasks


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended, as it is stored."""

    status: RunState
    result: str | None = None
    error: str | None = None
    exit_code: int | None = None
    soul_hash: str | None = None
    notes: tuple[str, ...] = ()


async def end(session: AsyncSession, run: Run, ending: Ending) -> None:
    """Close a fenced run (locks.fence) with its outcome."""
    run.status = step(RUN_STEPS, RunState(run.status), ending.status, kind="run", ident=run.id)
    run.result, run.error, run.exit_code = ending.result, ending.error, ending.exit_code
    run.soul_hash, run.notes, run.ended_at = ending.soul_hash, list(ending.notes), func.clock_timestamp()
    await session.flush()
    data = {"task_id": str(run.task_id) if run.task_id else None, "error": (ending.error or "")[:500] or None}
    await events.record(session, Happened(f"run.{ending.status}", "run", run.id, run.agent, actor=run.agent, data=data))


async def book(session: AsyncSession, run: Run, task: Task | None, usage: Sequence[Usage]) -> None:
    """Book each provider call once, however often it is reported, and the run's sums from what is booked.

    A sum over an unknown price is unknown, not zero.
    """
    if not usage:
        return
    rows = [
        {
            "run_id": run.id,
            "call_no": one.call_no,
            "agent": run.agent,
            "task_id": run.task_id,
            "goal_id": task.goal_id if task is not None else None,
            "adapter": run.adapter,
            "model": one.model,
            "cost_usd": one.cost_usd,
            "tokens_in": one.tokens_in,
            "tokens_out": one.tokens_out,
        }
        for one in usage
    ]
    await session.execute(upsert(Cost).values(rows).on_conflict_do_nothing(index_elements=["run_id", "call_no"]))
    sums = text(
        "SELECT CASE WHEN bool_or(cost_usd IS NULL) THEN NULL ELSE sum(cost_usd) END, sum(tokens_in), sum(tokens_out)"
        " FROM costs WHERE run_id = :run_id"
    )
    cost, tokens_in, tokens_out = (await session.execute(sums, {"run_id": run.id})).one()
    run.cost_usd, run.tokens_in, run.tokens_out = cost, tokens_in, tokens_out
    await session.flush()


APPEND = text("""
-- Only while the run is on and only under its own token: what a lost attempt still prints is dropped.
INSERT INTO run_log (run_id, seq, token, stream, chunk)
SELECT :run_id, :seq, :token, :stream, :chunk
  FROM runs WHERE id = :run_id AND token = :token AND status = 'running'
ON CONFLICT (run_id, seq) DO UPDATE SET stream = excluded.stream, chunk = excluded.chunk  -- the answer to the first got lost
RETURNING seq
""")


async def append_log(session: AsyncSession, run_id: int, token: int, seq: int, stream: str, chunk: str) -> bool:
    """Store a piece of the run's log; return False when the run is no longer this attempt's."""
    parameters = {"run_id": run_id, "token": token, "seq": seq, "stream": stream, "chunk": chunk}
    return (await session.execute(APPEND, parameters)).scalar_one_or_none() is not None


@dataclass(frozen=True, slots=True)
class Tries:
    """How often a wake without a task went wrong: attempts that failed, and nodes that were lost since the last that failed."""

    failures: int
    lost: int


CHAIN = text("""
-- A wake's runs, the last one first: each was the cause of the retry that the one after it answered.
WITH RECURSIVE chain AS (
  SELECT id, status, 1 AS nth FROM runs WHERE id = :run_id
   UNION ALL
  SELECT r.id, r.status, c.nth + 1
    FROM chain c JOIN wakeups w ON w.run_id = c.id AND w.source = 'retry' AND w.task_id IS NULL
    JOIN runs r ON r.id = w.cause_run_id
)
SELECT status FROM chain ORDER BY nth
""")


async def tries(session: AsyncSession, run_id: int) -> Tries:
    """Count what went wrong on the way to a run without a task, that run included. A person's new wake starts anew."""
    failures = lost = 0
    for status in (await session.execute(CHAIN, {"run_id": run_id})).scalars():
        if status in (RunState.FAILED, RunState.TIMED_OUT):
            failures += 1
        elif status == RunState.LOST and not failures:
            lost += 1
    return Tries(failures, lost)


async def start_goal(session: AsyncSession, run_id: int, token: int) -> None:
    """Say that the CEO looks at a goal: its first plan is being made."""
    query = text("""
        UPDATE goals SET status = 'planning', updated_at = now()
         WHERE status IN ('open', 'blocked') AND id = (SELECT t.goal_id FROM tasks t JOIN runs r ON r.task_id = t.id
               WHERE r.id = :run_id AND r.token = :token AND r.status = 'running' AND t.kind = 'plan')
        RETURNING id, title""")
    row = (await session.execute(query, {"run_id": run_id, "token": token})).one_or_none()
    if row is not None:
        await events.record(session, Happened("goal.planning", "goal", row.id, row.title))


async def get(session: AsyncSession, ident: str | int) -> Run:
    run = await session.get(Run, tasks.parse_id("run", ident))
    if run is None:
        raise NotFound("run", str(ident), "`opencognit run list` shows those there are")
    return run


async def listed(
    session: AsyncSession, *, agent: str | None = None, task_id: int | None = None, running: bool = False, limit: int = 100
) -> Sequence[Run]:
    """Return runs, oldest first."""
    query = select(Run).order_by(Run.id.desc()).limit(limit)
    if agent is not None:
        await roster.get(session, agent)
        query = query.where(Run.agent == agent)
    if task_id is not None:
        query = query.where(Run.task_id == task_id)
    if running:
        query = query.where(Run.status == RunState.RUNNING)
    return list(reversed((await session.scalars(query)).all()))


async def log(session: AsyncSession, run_id: int, *, after_seq: int = -1, limit: int = 1000) -> Sequence[RunLog]:
    """Return pieces of a run's log in order, from `after_seq` on."""
    query = select(RunLog).where(RunLog.run_id == run_id, RunLog.seq > after_seq).order_by(RunLog.seq).limit(limit)
    return (await session.scalars(query)).all()


async def cancel(session: AsyncSession, ident: str | int, *, by: str) -> Run:
    """Ask the run's node to stop it; its task is blocked until somebody retries it."""
    run = await get(session, ident)
    if run.status != RunState.RUNNING:
        raise Refused(f"run {str(run.id)!r} has already ended ({run.status})")
    await locks.cancel(session, run.id, CancelMode.RUN, by)
    await notify(session, "cancel")
    return run


async def spent(session: AsyncSession, goal_id: int) -> tuple[Decimal | None, int]:
    """Return what a goal has cost (None: some price is unknown, or nothing was priced) and how many runs it took."""
    query = text(
        "SELECT CASE WHEN count(*) = 0 OR bool_or(cost_usd IS NULL) THEN NULL ELSE sum(cost_usd) END"
        " FROM costs WHERE goal_id = :id"
    )
    count = text("SELECT count(*) FROM runs r JOIN tasks t ON t.id = r.task_id WHERE t.goal_id = :id")
    cost = (await session.execute(query, {"id": goal_id})).scalar_one()
    return cost, (await session.execute(count, {"id": goal_id})).scalar_one()
