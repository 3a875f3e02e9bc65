"""Who holds what: the fence, the node's lease and the task's execution lock. Decides by the database's clock only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.errors import StaleToken
from opencognit.models import Node, Run, Task
from opencognit.states import CancelMode, RunState


@dataclass(frozen=True, slots=True)
class Lost:
    """A run whose node stopped renewing. Its token is new already, so that nothing of it can be written any more."""

    run_id: int
    agent: str
    task_id: int | None
    goal_id: int | None
    lease_over: bool


async def fence(session: AsyncSession, run_id: int, token: int) -> Run:
    """Lock the run's row for this transaction and return it; raises StaleToken unless it runs under `token`."""
    query = select(Run).where(Run.id == run_id, Run.token == token, Run.status == RunState.RUNNING).with_for_update()
    run = (await session.execute(query)).scalar_one_or_none()
    if run is None:
        raise StaleToken(run_id, token)
    return run


async def was_booked(session: AsyncSession, run_id: int, token: int) -> bool:
    """Return whether this very claim has ended already: a commit whose answer got lost."""
    query = select(Run.id).where(Run.id == run_id, Run.token == token, Run.status != RunState.RUNNING)
    return (await session.execute(query)).scalar_one_or_none() is not None


def clear(task: Task) -> None:
    """Drop the task's lock with the next flush, which must change its state too. `lock_token` stays as the last fence."""
    task.execution_run_id = task.execution_agent_key = task.execution_locked_at = task.lock_expires_at = None


RENEW = text("""
-- Only the owner renews, only what it still owns, and never a lease that has run out: then another may have it already.
-- In the order of ids, as everything that locks several runs.
WITH mine AS (
  SELECT r.id FROM runs r
    JOIN unnest(CAST(:run_ids AS bigint[]), CAST(:tokens AS bigint[])) AS held(run_id, token)
      ON r.id = held.run_id AND r.token = held.token
   WHERE r.node_id = :node_id AND r.status = 'running' AND r.lease_expires_at > now()
   ORDER BY r.id FOR UPDATE OF r
)
UPDATE runs SET lease_expires_at = now() + make_interval(secs => :lease_s) FROM mine WHERE runs.id = mine.id
RETURNING runs.id, runs.cancel_mode, runs.cancel_requested_by
""")

SEEN = text("""
INSERT INTO nodes (id, pid, host, capacity) VALUES (:node_id, :pid, :host, :capacity)
ON CONFLICT (id) DO UPDATE SET seen_at = now(), capacity = excluded.capacity
""")


async def renew(
    session: AsyncSession, node_id: str, held: Sequence[tuple[int, int]], *, lease_s: float
) -> dict[int, tuple[CancelMode, str] | None]:
    """Renew the lease of all (run, token) that the node holds.

    Returns those it still has: run id → how it is to be stopped and by whom, None for one that goes on.
    """
    if not held:
        return {}
    parameters = {"node_id": node_id, "lease_s": float(lease_s), "run_ids": [r for r, _ in held], "tokens": [t for _, t in held]}
    rows = await session.execute(RENEW, parameters)
    return {row.id: (CancelMode(row.cancel_mode), row.cancel_requested_by) if row.cancel_mode else None for row in rows}


async def seen(session: AsyncSession, node_id: str, *, pid: int, host: str, capacity: int) -> None:
    """Say that the node lives."""
    await session.execute(SEEN, {"node_id": node_id, "pid": pid, "host": host, "capacity": capacity})


async def stretch(session: AsyncSession, run_ids: Sequence[int], *, ttl_s: float) -> None:
    """Renew the task locks of runs whose agents may take longer than a lock lasts, in a transaction of its own.

    Tasks are locked before runs everywhere: renewing leases in the same transaction would turn that round.
    """
    if run_ids:
        expires = func.now() + func.make_interval(0, 0, 0, 0, 0, 0, float(ttl_s))
        await session.execute(update(Task).where(Task.execution_run_id.in_(run_ids)).values(lock_expires_at=expires))


LAPSED = text("""
-- A task's 30 minutes count as well as the node's lease: whichever ends first. After a restart of the server nobody is taken
-- over for the length of a lease: what finished meanwhile gets the time to be booked.
SELECT r.id AS run_id, r.agent, r.task_id, t.goal_id, r.lease_expires_at <= now() AS lease_over
  FROM runs r LEFT JOIN tasks t ON t.id = r.task_id
 WHERE r.status = 'running'
   AND (r.lease_expires_at <= now() OR (t.execution_run_id = r.id AND t.lock_expires_at <= now()))
   AND clock_timestamp() > pg_postmaster_start_time() + make_interval(secs => :grace_s)
 ORDER BY r.id LIMIT :limit
""")

ORPHANED = text("""
-- No verb leaves a lock whose run has ended: both end in one statement's transaction. One that came otherwise (a repair by
-- hand, a restored dump) would keep its task for ever.
SELECT t.id FROM tasks t LEFT JOIN runs r ON r.id = t.execution_run_id
 WHERE t.execution_run_id IS NOT NULL AND r.status IS DISTINCT FROM 'running'
 ORDER BY t.id LIMIT :limit
""")

TAKE_OVER = text("""
-- Compare-and-set: whoever takes the row over gives it a new token, so that its late writes match nothing.
UPDATE runs SET status = 'lost', token = nextval('fencing_token'), ended_at = now(), error = :error
 WHERE id = :run_id AND status = 'running'
   AND (lease_expires_at <= now()
        OR EXISTS (SELECT 1 FROM tasks t WHERE t.execution_run_id = runs.id AND t.lock_expires_at <= now()))
RETURNING id
""")


async def lapsed(session: AsyncSession, *, grace_s: float = 0.0, limit: int = 100) -> Sequence[Lost]:
    """Return runs whose lease or lock has run out; none until the server is up for `grace_s`.

    Take each over in a transaction of its own.
    """
    return [Lost(**row) for row in (await session.execute(LAPSED, {"limit": limit, "grace_s": float(grace_s)})).mappings()]


async def orphaned(session: AsyncSession, *, limit: int = 100) -> Sequence[int]:
    """Return the tasks that are locked by a run which is not on."""
    return (await session.execute(ORPHANED, {"limit": limit})).scalars().all()


async def take_over(session: AsyncSession, run_id: int, error: str) -> bool:
    """End a lapsed run as lost under a new token; return False if it was renewed, finished or taken meanwhile."""
    return (await session.execute(TAKE_OVER, {"run_id": run_id, "error": error})).scalar_one_or_none() is not None


OVERRULES = {
    CancelMode.TASK: (CancelMode.RUN, CancelMode.RELEASE),
    CancelMode.RUN: (CancelMode.RELEASE,),
    CancelMode.RELEASE: (),
    CancelMode.DRAIN: (),
}
"""Which earlier wishes a later one takes the place of: what is called off must not start again."""


async def cancel(session: AsyncSession, run_id: int, mode: CancelMode, by: str) -> None:
    """Ask the node that owns the run to stop it; the node books the end. Of two wishes the stronger holds."""
    free = or_(Run.cancel_mode.is_(None), Run.cancel_mode.in_(OVERRULES[mode]))
    await session.execute(
        update(Run)
        .where(Run.id == run_id, Run.status == RunState.RUNNING, free)
        .values(cancel_requested_at=func.now(), cancel_requested_by=by, cancel_mode=mode)
    )


async def left(session: AsyncSession, node_id: str) -> None:
    """Say that the node has stopped in order."""
    await session.execute(update(Node).where(Node.id == node_id).values(ended_at=func.now()))
