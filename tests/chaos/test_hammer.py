"""Four processes on one database: the races that a model of one verb at a time cannot see.

`OPENCOGNIT_LONG=1` claims 12,000 times instead of 2,000.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest

from opencognit.db import Database
from tests.chaos import hammering
from tests.chaos.hammering import LEDGER, LIMITS, Orders
from tests.integration import company
from tests.property import engine_invariants, engine_world

LONG = os.environ.get("OPENCOGNIT_LONG") == "1"
CLAIMS = 12_000 if LONG else 2_000
PROCESSES = 4
PATIENCE_S = 1800 if LONG else 400
LOOK_S = 0.025

# One statement, so one moment: whatever this finds was true for everybody.
VIOLATIONS = f"""
SELECT 'agent ' || r.agent || ' has ' || count(*) FROM runs r JOIN agents a ON a.name = r.agent
 WHERE r.status = 'running' GROUP BY r.agent, a.max_concurrent_runs HAVING count(*) > a.max_concurrent_runs
UNION ALL SELECT 'bash has ' || count(*) FROM runs WHERE status = 'running' AND adapter = 'bash'
 HAVING count(*) > {LIMITS["bash"]}
UNION ALL SELECT 'task ' || task_id || ' has ' || count(*) FROM runs WHERE status = 'running' AND task_id IS NOT NULL
 GROUP BY task_id HAVING count(*) > 1
UNION ALL SELECT 'run ' || r.id || ' does not hold its task' FROM runs r JOIN tasks t ON t.id = r.task_id
 WHERE r.status = 'running' AND (t.execution_run_id, t.lock_token) IS DISTINCT FROM (r.id, r.token)
UNION ALL SELECT 'task ' || t.id || ' is held by nobody' FROM tasks t LEFT JOIN runs r ON r.id = t.execution_run_id
 WHERE t.execution_run_id IS NOT NULL AND r.status IS DISTINCT FROM 'running'
UNION ALL SELECT 'queued twice: ' || agent || ' ' || subject FROM wakeups WHERE status = 'queued'
 GROUP BY agent, subject HAVING count(*) > 1
UNION ALL SELECT 'wakeup ' || w.id || ' is claimed by no live run' FROM wakeups w LEFT JOIN runs r ON r.id = w.run_id
 WHERE w.status = 'claimed' AND r.status IS DISTINCT FROM 'running'
"""
BUSY = """
SELECT EXISTS (SELECT 1 FROM runs WHERE status = 'running') OR EXISTS (
  SELECT 1 FROM wakeups w LEFT JOIN tasks t ON t.id = w.task_id
   WHERE w.status = 'queued' AND t.status IS DISTINCT FROM 'backlog')
"""


@pytest.fixture
def arena(database_url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """The fifth connection, on a database with the ledger in it."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(LEDGER)
        yield connection


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S + 60)
async def test_four_processes_lose_nothing_and_run_nothing_twice(
    db: Database, database_url: str, arena: psycopg.Connection[tuple[object, ...]]
) -> None:
    """Limits, one live run per task, one wakeup per subject: true at every moment; at the end all that came in went out."""
    await company.hire(db, *hammering.specs())
    seen, violations, looks = _hammer(database_url, arena)
    print({**seen, "looks": looks})
    assert violations == []
    assert seen["claims"] >= CLAIMS
    assert looks > 50
    assert seen["fenced"] > 0
    assert seen["reaped"] > 0
    assert seen["forgotten"] == 0, "a heartbeat had to ask for ready work: its wakeup was lost"
    assert seen["deadlocks"] <= seen["transactions"] / 200, "so many deadlocks that the order of locks must be wrong"
    look = await engine_world.look(db)
    engine_invariants.check(look, look)
    assert look.running() == []
    assert look.claimable() == []
    for problem in (ASKED_AND_COUNTED, RUN_AND_EFFECT, DONE_ONCE):
        assert arena.execute(problem).fetchall() == []


# Every committed wish is in a wakeup's count, and every wakeup has an end or waits for what cannot run yet.
ASKED_AND_COUNTED = """
SELECT w.id, w.status, w.count, count(a.wakeup_id) FROM wakeups w LEFT JOIN asked a ON a.wakeup_id = w.id
 GROUP BY w.id HAVING w.count <> count(a.wakeup_id)
"""
# An effect is there exactly where a run has succeeded, under the token that the run ended with.
RUN_AND_EFFECT = """
SELECT r.id, r.status, e.token FROM runs r FULL JOIN effects e ON e.run_id = r.id
 WHERE (r.status = 'succeeded') IS DISTINCT FROM (e.run_id IS NOT NULL) OR (e.token IS NOT NULL AND e.token <> r.token)
"""
# Work is done by exactly one run; later ones only looked at what was said on it.
DONE_ONCE = """
SELECT t.id, t.status, count(r.id) FROM tasks t LEFT JOIN runs r ON r.task_id = t.id AND r.status = 'succeeded'
   AND r.resumes_status IS NULL
 GROUP BY t.id HAVING count(r.id) <> CASE WHEN t.status = 'done' AND NOT bool_or(t.attempt = 0) THEN 1 ELSE 0 END
"""


def _hammer(url: str, arena: psycopg.Connection[tuple[object, ...]]) -> tuple[Counter[str], list[str], int]:
    """Let the processes strike, look at what they do, and tell them when nothing is left."""
    spawn = multiprocessing.get_context("spawn")
    claimed, over, reports = spawn.Value("q", 0), spawn.Event(), spawn.Queue()
    processes = [
        spawn.Process(target=hammering.main, args=(Orders(url, f"node-{n}", n, CLAIMS), claimed, over, reports), daemon=True)
        for n in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    violations: list[str] = []
    looks, deadline = 0, time.monotonic() + PATIENCE_S
    try:
        while claimed.value < CLAIMS or arena.execute(BUSY).fetchone() == (True,):
            violations += [str(row[0]) for row in arena.execute(VIOLATIONS).fetchall()]
            looks += 1
            assert time.monotonic() < deadline, f"{claimed.value} claims, and no end"
            assert all(process.is_alive() for process in processes), "a process has died: its traceback is above"
            arena.execute("UPDATE agents SET status = 'idle' WHERE status = 'paused'") if claimed.value >= CLAIMS else None
            time.sleep(LOOK_S)
        over.set()
        seen: Counter[str] = Counter(claims=claimed.value)
        for _ in processes:
            seen.update(reports.get(timeout=60))
    finally:
        for process in processes:
            process.kill() if not over.is_set() else process.join(60)
            process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    return seen, violations, looks
