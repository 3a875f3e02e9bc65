"""What a heartbeat does to the wakeups: stale ones go, waiting ones age, forgotten tasks are asked for. Decided in SQL."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.db import notify
from opencognit.states import Priority

STALE = text("""
-- A queued wakeup whose task is no longer waiting for a run means nothing any more.
-- Both rows are locked: a task that becomes ready at this moment is passed over, not judged by what it was.
WITH stale AS (
  SELECT w.id FROM wakeups w JOIN tasks t ON t.id = w.task_id
   WHERE w.status = 'queued' AND NOT w.talk AND t.execution_run_id IS NULL AND t.status NOT IN ('todo', 'in_progress')
   ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE wakeups w SET status = 'skipped', ended_at = now(), outcome = 'the task needs no run'
  FROM stale WHERE w.id = stale.id
RETURNING w.id
""")

AGE = text("""
-- What has waited a quarter of an hour at its urgency moves up one, so that a stream of urgent work starves nothing.
UPDATE wakeups SET rank = rank - 1, aged_at = now()
 WHERE status = 'queued' AND rank > 0 AND greatest(not_before, coalesce(aged_at, not_before)) < now() - make_interval(mins => 15)
""")

EXPIRE = text("""
-- A wake without a task means nothing a day later; a task's wakeup lives as long as the task is ready. What a person asked
-- for, and the next try of it, waits as long as it must; and while the company is paused nothing grows old.
UPDATE wakeups SET status = 'expired', ended_at = now(), outcome = 'nobody could be woken for a day'
 WHERE status = 'queued' AND task_id IS NULL AND source NOT IN ('board', 'retry')
   AND not_before < now() - make_interval(days => 1) AND NOT EXISTS (SELECT 1 FROM company WHERE paused)
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
