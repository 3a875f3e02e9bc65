"""Closes many plain runs at once: those that ended well with a text and nothing else to do. One statement, all fenced.

What it does to each run is what runs.end, tasks.change and flow.move do one by one; a test holds the two together. It
exists because most of a run's booking is waiting for the database's answers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.work import flow


@dataclass(frozen=True, slots=True)
class Plain:
    """A run that ended well: what it said and what is kept of it."""

    run_id: int
    token: int
    said: str
    exit_code: int | None
    soul_hash: str | None
    notes: tuple[str, ...]


LOCKS = text("""
-- The lock order of all verbs: goals, then tasks, then runs, each by rising id. A statement of its own: the one that closes
-- must see what was committed while this one waited, above all who has begun to wait for these tasks.
WITH held AS MATERIALIZED (
  SELECT g.id FROM goals g
   WHERE g.id IN (SELECT t.goal_id FROM tasks t JOIN runs r ON r.task_id = t.id WHERE r.id = ANY(CAST(:run_ids AS bigint[])))
   ORDER BY g.id FOR NO KEY UPDATE
)
SELECT t.id FROM tasks t
 WHERE t.execution_run_id = ANY(CAST(:run_ids AS bigint[])) AND (SELECT count(*) FROM held) >= 0
 ORDER BY t.id FOR NO KEY UPDATE
""")

CLOSE = text("""
-- Only runs that still run under their own token, whose task they hold and found ready: all others match no row.
WITH given AS (
  SELECT * FROM jsonb_to_recordset(CAST(:given AS jsonb))
    AS x(run_id bigint, token bigint, said text, exit_code bigint, soul_hash text, notes jsonb)
), mine AS (
  SELECT r.id, r.agent, r.task_id, given.* FROM runs r JOIN given ON r.id = given.run_id
   WHERE r.token = given.token AND r.status = 'running' AND r.resumes_status IS NULL
     AND (r.task_id IS NULL OR EXISTS (SELECT 1 FROM tasks t WHERE t.id = r.task_id AND t.execution_run_id = r.id))
     -- an escalation's end asks the board, a question goes with its task, and what was tried before has failures to forget
     -- and may have been escalated: those are booked one by one
     AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = r.task_id AND (t.about_id IS NOT NULL OR t.attempt > 1))
     AND NOT EXISTS (SELECT 1 FROM approvals a WHERE a.task_id = r.task_id AND a.status = 'pending')
   ORDER BY r.id FOR UPDATE OF r
), ended AS (
  UPDATE runs r SET status = 'succeeded', result = m.said, exit_code = m.exit_code, soul_hash = m.soul_hash, notes = m.notes,
         ended_at = clock_timestamp()
    FROM mine m WHERE r.id = m.id
  RETURNING r.id, r.agent, r.task_id
), done AS (
  UPDATE tasks t SET status = 'done', result = m.said, ended_at = now(), updated_at = now(),
         execution_run_id = NULL, execution_agent_key = NULL, execution_locked_at = NULL, lock_expires_at = NULL
    FROM mine m WHERE t.id = m.task_id
  RETURNING t.id, t.title, t.goal_id, t.parent_id, t.kind, t.reason, m.agent
), said AS (
  INSERT INTO comments (task_id, author, text, run_id)
  SELECT task_id, agent, said, id FROM mine WHERE task_id IS NOT NULL AND btrim(said, E' \\n\\r\\t') <> ''
  RETURNING id, task_id, author, text
), closed AS (
  UPDATE wakeups w SET status = 'done', ended_at = now(), outcome = 'succeeded'
    FROM mine m WHERE w.run_id = m.id AND w.status = 'claimed'
), skipped AS (
  UPDATE wakeups w SET status = 'skipped', ended_at = now(), outcome = 'the task is done'
    FROM mine m WHERE w.task_id = m.task_id AND w.status = 'queued' AND NOT w.talk
), told AS (
  INSERT INTO events (type, subject_kind, subject_id, subject_title, actor, data)
  SELECT 'run.succeeded', 'run', m.id::text, m.agent, m.agent,
         jsonb_build_object('task_id', m.task_id::text, 'error', NULL) FROM mine m
  UNION ALL
  SELECT 'task.commented', 'task', s.task_id::text, d.title, s.author,
         jsonb_build_object('comment_id', s.id::text, 'text', left(s.text, 500)) FROM said s JOIN done d ON d.id = s.task_id
  UNION ALL
  SELECT 'task.status_changed', 'task', d.id::text, d.title, d.agent,
         jsonb_build_object('from', 'in_progress', 'to', 'done', 'reason', d.reason, 'goal_id', d.goal_id::text) FROM done d
)
SELECT e.id AS run_id, d.id AS task_id, d.goal_id, d.parent_id, d.kind, d.agent,
       d.parent_id IS NOT NULL OR EXISTS (SELECT 1 FROM task_dependencies x WHERE x.after_id = d.id) AS waited_for
  FROM ended e LEFT JOIN done d ON d.id = e.task_id
""")


async def close(session: AsyncSession, given: Sequence[Plain]) -> set[int]:
    """End these runs as succeeded and their tasks as done, with all that follows; return the ids of those it closed.

    The others are lost, ended already, or not plain (on an ended task, a second attempt): book them one by one.
    """
    if not given:
        return set()
    await session.execute(LOCKS, {"run_ids": [one.run_id for one in given]})
    rows = (await session.execute(CLOSE, {"given": json.dumps([asdict(one) for one in given])})).all()
    for row in rows:
        if row.waited_for:
            await flow.release_waiting(session, row.task_id, row.parent_id, by=row.agent, cause_run_id=row.run_id)
    for goal_id in sorted({row.goal_id for row in rows if row.goal_id is not None}):
        await flow.settle_goal(session, goal_id)
    return {row.run_id for row in rows}
