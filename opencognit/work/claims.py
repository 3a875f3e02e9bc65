"""Taking what was asked for: due wakeups become running runs that hold their tasks' locks. Owns the claim."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession


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


CLAIMABLE = """w.status = 'queued' AND w.not_before <= now()
     AND a.status = 'idle' AND a.present
     AND NOT EXISTS (SELECT 1 FROM company WHERE paused)
     AND (SELECT count(*) FROM runs r WHERE r.agent = w.agent AND r.status = 'running') < a.max_concurrent_runs
     AND NOT EXISTS (SELECT 1 FROM limits l WHERE l.adapter = a.adapter AND l.most <=
           (SELECT count(*) FROM runs r WHERE r.adapter = l.adapter AND r.status = 'running'))
     AND (w.task_id IS NULL OR EXISTS (
           SELECT 1 FROM tasks t WHERE t.id = w.task_id AND t.execution_run_id IS NULL
              AND ((t.status = 'todo' AND t.assignee = w.agent)
                   OR (w.talk AND t.status IN ('done', 'in_review', 'blocked', 'cancelled')))))"""
"""Which wakeups may start now, of `wakeups w JOIN agents a` and `limits`."""

CLAIM = text(f"""
-- One statement takes wakeups, starts their runs and locks their tasks. Invariants, each held by a unique index and only
-- proposed here: one running run per task (uq_runs_task), at most max_concurrent_runs per agent (uq_runs_agent_slot), at
-- most its limit per adapter (uq_runs_adapter_slot). A row that another claimer holds is skipped, never waited for;
-- whoever loses an index keeps its wakeup queued.
WITH limits AS (
  SELECT key AS adapter, value::int AS most FROM jsonb_each_text(CAST(:limits AS jsonb))
), due AS (
  SELECT w.id, w.agent, w.task_id, w.rank, w.depth, w.reasons, w.talk, a.adapter, a.max_concurrent_runs,
         (SELECT count(*) FROM runs r WHERE r.agent = w.agent AND r.status = 'running') AS running
    FROM wakeups w JOIN agents a ON a.name = w.agent
   WHERE {CLAIMABLE}
   ORDER BY w.rank, w.id LIMIT :capacity
     FOR UPDATE OF w SKIP LOCKED
), free_task AS (
  SELECT t.id, t.status, t.attempt, t.assignee FROM tasks t
   WHERE t.id IN (SELECT task_id FROM due) AND t.execution_run_id IS NULL
     AND t.status IN ('todo', 'done', 'in_review', 'blocked', 'cancelled')
     FOR NO KEY UPDATE SKIP LOCKED
), placed AS (
  SELECT d.id AS wakeup_id, d.agent, d.adapter, d.task_id, d.rank, d.depth, d.reasons, t.status AS task_status, t.attempt,
         free.slot, row_number() OVER (PARTITION BY d.adapter ORDER BY d.rank, d.id) AS nth_of_adapter
    FROM (SELECT *, row_number() OVER (PARTITION BY agent ORDER BY rank, id) AS nth FROM due) d
    LEFT JOIN free_task t ON t.id = d.task_id
    JOIN LATERAL (
      SELECT s AS slot, row_number() OVER (ORDER BY s) AS nth FROM generate_series(1, d.max_concurrent_runs) s
       WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.agent = d.agent AND r.slot = s AND r.status = 'running')
    ) free ON free.nth = d.nth
   WHERE (d.task_id IS NULL OR (t.status = 'todo' AND t.assignee = d.agent) OR (t.status <> 'todo' AND d.talk))
     AND d.nth <= d.max_concurrent_runs - d.running
), seated AS (
  SELECT p.*, seat.adapter_slot
    FROM placed p LEFT JOIN limits l ON l.adapter = p.adapter
    LEFT JOIN LATERAL (
      SELECT s AS adapter_slot, row_number() OVER (ORDER BY s) AS nth FROM generate_series(1, l.most) s
       WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.adapter = p.adapter AND r.adapter_slot = s AND r.status = 'running')
    ) seat ON seat.nth = p.nth_of_adapter
   WHERE l.adapter IS NULL OR (seat.adapter_slot IS NOT NULL AND p.nth_of_adapter <= l.most -
           (SELECT count(*) FROM runs r WHERE r.adapter = p.adapter AND r.status = 'running'))
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


LEFT = text(f"""
-- Whoever claims takes what no other claimer holds, and may so come away with nothing although there is work.
WITH limits AS (
  SELECT key AS adapter, value::int AS most FROM jsonb_each_text(CAST(:limits AS jsonb))
)
SELECT EXISTS (SELECT 1 FROM wakeups w JOIN agents a ON a.name = w.agent WHERE {CLAIMABLE})
""")


async def is_something_left(session: AsyncSession, *, limits: Mapping[str, int] | None = None) -> bool:
    """Return whether a wakeup may start now that a claim just before has passed over: others were at it."""
    return bool((await session.execute(LEFT, {"limits": json.dumps(dict(limits or {}))})).scalar_one())
