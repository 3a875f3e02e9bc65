"""Asking for an agent, and taking what was asked for. Owns the wakeups table and the claim."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, literal, select, text, update
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.db import notify
from opencognit.events import BOARD
from opencognit.models import Wakeup
from opencognit.states import Priority, WakeupSource, WakeupState

TALK = frozenset({WakeupSource.COMMENT, WakeupSource.MENTION, WakeupSource.BOARD, WakeupSource.APPROVAL})
"""Sources that are worth a run even when the task has ended."""
REASONS_KEPT = 20


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run that has just started: what the runner needs to do it. `token` fences every write of it."""

    run_id: int
    token: int
    agent: str
    adapter: str
    task_id: int | None
    attempt: int
    depth: int
    reason: str


async def request(
    session: AsyncSession,
    agent: str,
    source: WakeupSource,
    *,
    task_id: int | None = None,
    note: str = "",
    by: str = "system",
    priority: Priority = Priority.MEDIUM,
    delay_s: float = 0.0,
    cause_run_id: int | None = None,
    depth: int = 0,
) -> int:
    """Wish that `agent` runs, `delay_s` seconds from now; return the wakeup's id.

    A second wish for the same agent and subject joins the queued one: it adds its reason, and the higher priority holds.
    Only the board's wish makes it earlier: a retry's wait is not cut short by colleagues. Wakes the dispatchers when the
    caller's transaction commits.
    """
    reason = {"source": source.value, "by": by, "note": note}
    due = func.now() + func.make_interval(0, 0, 0, 0, 0, 0, float(delay_s))
    row = insert(Wakeup).values(
        agent=agent,
        task_id=task_id,
        subject=f"task:{task_id}" if task_id is not None else source.value,
        source=source.value,
        reasons=literal([reason], JSONB),
        rank=priority.rank,
        depth=depth,
        cause_run_id=cause_run_id,
        not_before=due,
        talk=source in TALK,
    )
    old, new = Wakeup.__table__.c, row.excluded
    joined = row.on_conflict_do_update(
        index_elements=["agent", "subject"],
        index_where=text("status = 'queued'"),
        set_={
            "count": old.count + 1,
            "reasons": func.jsonb_path_query_array(
                old.reasons.op("||")(new.reasons), text(f"'$[last - {REASONS_KEPT - 1} to last]'::jsonpath")
            ),
            "rank": func.least(old.rank, new.rank),
            "depth": func.least(old.depth, new.depth),
            "not_before": func.least(old.not_before, new.not_before) if by == BOARD else old.not_before,
            "talk": old.talk | new.talk,
        },
    ).returning(Wakeup.id)
    wakeup_id = (await session.execute(joined)).scalar_one()
    await notify(session, "wakeup")
    return wakeup_id


async def skip(session: AsyncSession, task_id: int, outcome: str, *, talk: bool = False) -> None:
    """Close the queued wakeups of a task that no longer needs a run.

    What was said stays queued; with `talk` it is just that which is closed, except what the board said.
    """
    which = Wakeup.reasons.contains([{"by": BOARD}]).is_(False) if talk else Wakeup.talk.is_(False)
    await session.execute(
        update(Wakeup)
        .where(Wakeup.task_id == task_id, Wakeup.status == WakeupState.QUEUED, Wakeup.talk.is_(talk), which)
        .values(status=WakeupState.SKIPPED, ended_at=func.now(), outcome=outcome)
        .execution_options(synchronize_session=False)
    )


async def hand_over(session: AsyncSession, task_id: int, agent: str) -> None:
    """Close what is queued for others on a task that is `agent`'s now; what they were told stands in its comments."""
    await session.execute(
        update(Wakeup)
        .where(Wakeup.task_id == task_id, Wakeup.status == WakeupState.QUEUED, Wakeup.agent != agent)
        .values(status=WakeupState.SKIPPED, ended_at=func.now(), outcome=f"assigned to {agent}")
    )


async def has_word_of(session: AsyncSession, task_id: int, who: str) -> bool:
    """Return whether something that `who` said about a task waits for its agent."""
    waits = (Wakeup.task_id == task_id, Wakeup.status == WakeupState.QUEUED, Wakeup.talk)
    query = select(Wakeup.id).where(*waits, Wakeup.reasons.contains([{"by": who}])).limit(1)
    return (await session.scalars(query)).first() is not None


async def close(session: AsyncSession, run_id: int, outcome: str) -> None:
    """Mark the wakeup that a run answered as done."""
    await session.execute(
        update(Wakeup)
        .where(Wakeup.run_id == run_id, Wakeup.status == WakeupState.CLAIMED)
        .values(status=WakeupState.DONE, ended_at=func.now(), outcome=outcome)
    )


async def seconds_to_next(session: AsyncSession) -> float | None:
    """Return how long until the next queued wakeup becomes due; None when none waits for a later time."""
    query = text(
        "SELECT extract(epoch FROM min(not_before) - now())::float8 FROM wakeups WHERE status = 'queued' AND not_before > now()"
    )
    seconds: float | None = (await session.execute(query)).scalar_one()
    return seconds


CLAIM = text("""
-- One statement takes wakeups, starts their runs and locks their tasks. Invariants, each held by a unique index and only
-- proposed here: one running run per task (uq_runs_task), at most max_concurrent_runs per agent (uq_runs_agent_slot), at
-- most its limit per adapter (uq_runs_adapter_slot). A row that another claimer holds is skipped, never waited for;
-- whoever loses an index keeps its wakeup queued.
WITH limits AS (
  SELECT key AS adapter, value::int AS most FROM jsonb_each_text(CAST(:limits AS jsonb))
), due AS (
  SELECT w.id, w.agent, w.task_id, w.rank, w.depth, w.reasons, w.talk, a.adapter, a.max_concurrent_runs
    FROM wakeups w JOIN agents a ON a.name = w.agent
   WHERE w.status = 'queued' AND w.not_before <= now()
     AND a.status = 'idle' AND a.present
     AND NOT EXISTS (SELECT 1 FROM company WHERE paused)
     AND (SELECT count(*) FROM runs r WHERE r.agent = w.agent AND r.status = 'running') < a.max_concurrent_runs
     AND NOT EXISTS (SELECT 1 FROM limits l WHERE l.adapter = a.adapter AND l.most <=
           (SELECT count(*) FROM runs r WHERE r.adapter = l.adapter AND r.status = 'running'))
     AND (w.task_id IS NULL OR EXISTS (
           SELECT 1 FROM tasks t WHERE t.id = w.task_id AND t.execution_run_id IS NULL
              AND ((t.status = 'todo' AND t.assignee = w.agent)
                   OR (w.talk AND t.status IN ('done', 'in_review', 'blocked', 'cancelled')))))
   ORDER BY w.rank, w.id LIMIT :capacity
     FOR UPDATE OF w SKIP LOCKED
), free_task AS (
  SELECT t.id, t.status, t.attempt, t.assignee FROM tasks t
   WHERE t.id IN (SELECT task_id FROM due) AND t.execution_run_id IS NULL
     AND t.status IN ('todo', 'done', 'in_review', 'blocked', 'cancelled')
     FOR UPDATE SKIP LOCKED
), placed AS (
  SELECT d.id AS wakeup_id, d.agent, d.adapter, d.task_id, d.rank, d.depth, d.reasons, t.status AS task_status, t.attempt,
         free.slot, row_number() OVER (PARTITION BY d.adapter ORDER BY d.rank, d.id) AS nth_of_adapter
    FROM (SELECT *, row_number() OVER (PARTITION BY agent ORDER BY rank, id) AS nth FROM due) d
    LEFT JOIN free_task t ON t.id = d.task_id
    JOIN LATERAL (
      SELECT s AS slot, row_number() OVER (ORDER BY s) AS nth FROM generate_series(1, d.max_concurrent_runs) s
       WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.agent = d.agent AND r.slot = s AND r.status = 'running')
    ) free ON free.nth = d.nth
   WHERE d.task_id IS NULL OR (t.status = 'todo' AND t.assignee = d.agent) OR (t.status <> 'todo' AND d.talk)
), seated AS (
  SELECT p.*, seat.adapter_slot
    FROM placed p LEFT JOIN limits l ON l.adapter = p.adapter
    LEFT JOIN LATERAL (
      SELECT s AS adapter_slot, row_number() OVER (ORDER BY s) AS nth FROM generate_series(1, l.most) s
       WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.adapter = p.adapter AND r.adapter_slot = s AND r.status = 'running')
    ) seat ON seat.nth = p.nth_of_adapter
   WHERE l.adapter IS NULL OR seat.adapter_slot IS NOT NULL
), started AS (
  INSERT INTO runs (task_id, agent, adapter, attempt, depth, node_id, slot, adapter_slot, token, lease_expires_at,
                    resumes_status, reason)
  SELECT task_id, agent, adapter, coalesce(attempt, 0) + 1, depth, :node_id, slot, adapter_slot, nextval('fencing_token'),
         now() + make_interval(secs => :lease_s), nullif(task_status, 'todo'),
         (SELECT string_agg(DISTINCT r->>'source' || coalesce(': ' || nullif(r->>'note', ''), ''), '; ')
            FROM jsonb_array_elements(reasons) r)
    FROM seated ORDER BY adapter, agent, slot  -- one order for all claimers: two batches seldom wait for each other crosswise
  ON CONFLICT DO NOTHING
  RETURNING id, task_id, agent, adapter, attempt, depth, slot, token, resumes_status, reason
), locked AS (
  UPDATE tasks t SET execution_run_id = s.id, execution_agent_key = s.agent, execution_locked_at = now(),
         lock_token = s.token, lock_expires_at = now() + make_interval(secs => :ttl_s), attempt = s.attempt, updated_at = now(),
         status = CASE WHEN t.status = 'todo' THEN 'in_progress' ELSE t.status END
    FROM started s WHERE t.id = s.task_id AND t.execution_run_id IS NULL
  RETURNING t.id
), claimed AS (
  UPDATE wakeups w SET status = 'claimed', run_id = s.id
    FROM started s JOIN seated p ON p.agent = s.agent AND p.slot = s.slot
   WHERE w.id = p.wakeup_id
  RETURNING w.id
), told AS (
  INSERT INTO events (type, subject_kind, subject_id, subject_title, actor, data)
  SELECT 'run.started', 'run', s.id::text, s.agent, s.agent,
         jsonb_build_object('task_id', s.task_id::text, 'reason', s.reason, 'attempt', s.attempt) FROM started s ORDER BY s.id
)
SELECT s.id AS run_id, s.token, s.agent, s.adapter, s.task_id, s.attempt, s.depth, coalesce(s.reason, '') AS reason,
       (s.task_id IS NULL OR s.task_id IN (SELECT id FROM locked)) AS whole
  FROM started s ORDER BY s.id
""")


async def claim(
    session: AsyncSession,
    node_id: str,
    *,
    capacity: int,
    lease_s: float,
    ttl_s: float,
    limits: Mapping[str, int] | None = None,
) -> Sequence[Claimed]:
    """Start up to `capacity` due wakeups as runs of this node: priority first, then age. Commit before running them.

    `limits` bounds the running runs of an adapter over all nodes; every node must be given the same.
    """
    if capacity < 1:
        return []
    parameters = {
        "node_id": node_id,
        "capacity": capacity,
        "lease_s": float(lease_s),
        "ttl_s": float(ttl_s),
        "limits": json.dumps(dict(limits or {})),
    }
    claimed: list[Claimed] = []
    for row in (await session.execute(CLAIM, parameters)).mappings():
        fields: dict[str, Any] = dict(row)
        if not fields.pop("whole"):
            raise RuntimeError(f"run {fields['run_id']} started without its task's lock: the claim is rolled back")
        claimed.append(Claimed(**fields))
    return claimed


STALE = text("""
-- A queued wakeup whose task is no longer waiting for a run means nothing any more.
UPDATE wakeups w SET status = 'skipped', ended_at = now(), outcome = 'the task needs no run'
  FROM tasks t
 WHERE w.status = 'queued' AND w.task_id = t.id AND NOT w.talk AND t.execution_run_id IS NULL
   AND t.status NOT IN ('todo', 'in_progress')
RETURNING w.id
""")

AGE = text("""
-- What has waited a quarter of an hour at its urgency moves up one, so that a stream of urgent work starves nothing.
UPDATE wakeups SET rank = rank - 1, aged_at = now()
 WHERE status = 'queued' AND rank > 0 AND greatest(not_before, coalesce(aged_at, not_before)) < now() - make_interval(mins => 15)
""")

EXPIRE = text("""
-- A wake without a task means nothing a day later; a task's wakeup lives as long as the task is ready.
UPDATE wakeups SET status = 'expired', ended_at = now(), outcome = 'nobody could be woken for a day'
 WHERE status = 'queued' AND task_id IS NULL AND not_before < now() - make_interval(days => 1)
""")

MISSING = text("""
-- Safety net of the heartbeat: a ready task whose assignee's beat is due, without wakeup and without run, is asked for again.
-- Driven from the ready tasks: an agent without work is neither read nor written. One statement, however many there are;
-- what another node's beat holds at this moment is that one's.
WITH found AS (
  SELECT t.id AS task_id, t.assignee AS agent, array_position(CAST(:priorities AS text[]), t.priority) - 1 AS rank
    FROM tasks t JOIN agents a ON a.name = t.assignee
   WHERE t.status = 'todo' AND t.execution_run_id IS NULL
     AND a.status = 'idle' AND a.present AND a.heartbeat_interval_s > 0 AND a.next_beat_at <= now()
     AND NOT EXISTS (SELECT 1 FROM wakeups w WHERE w.task_id = t.id AND w.status = 'queued')
   ORDER BY t.id LIMIT :limit
     FOR NO KEY UPDATE OF a SKIP LOCKED
), beat AS (
  UPDATE agents SET next_beat_at = now() + make_interval(secs => heartbeat_interval_s)
   WHERE name IN (SELECT agent FROM found)
)
INSERT INTO wakeups (agent, task_id, subject, source, reasons, rank)
SELECT agent, task_id, 'task:' || task_id, 'timer',
       jsonb_build_array(jsonb_build_object('source', 'timer', 'by', 'system', 'note', 'heartbeat')), rank
  FROM found ORDER BY task_id
ON CONFLICT (agent, subject) WHERE status = 'queued' DO NOTHING
RETURNING id
""")
PRIORITIES = [priority.value for priority in sorted(Priority, key=lambda one: one.rank)]


async def beat(session: AsyncSession, *, limit: int = 1000) -> int:
    """One heartbeat, decided in SQL before anything is launched; return how many wakeups it asked for."""
    for statement in (STALE, AGE, EXPIRE):
        await session.execute(statement)
    asked = (await session.execute(MISSING, {"limit": limit, "priorities": PRIORITIES})).all()
    if asked:
        await notify(session, "wakeup")
    return len(asked)
