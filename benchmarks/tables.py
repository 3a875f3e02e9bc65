"""Full tables: what a heartbeat costs with many agents, and what a claim costs with many finished runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator, Sequence

import psycopg
from sqlalchemy import text

from benchmarks import rig
from benchmarks.figures import Figure, at_most
from opencognit.db import Database, libpq_url
from opencognit.engine import heartbeat
from opencognit.work import claims, closing

TICKS = 5
BATCH = 8
ROUNDS = 150

AGENTS = """
INSERT INTO agents (name, adapter, max_concurrent_runs, heartbeat_interval_s, next_beat_at, spec, digest)
SELECT 'many-' || n, 'bash', 1, 30, now() - interval '1 s', '{}', 'x' FROM generate_series(1, %s) n"""
WORK = """
INSERT INTO tasks (title, status, assignee, created_by)
SELECT 'forgotten', 'todo', 'many-' || n, 'board' FROM generate_series(1, %s, 100) n"""
FORGET = """
DELETE FROM wakeups;
UPDATE agents SET next_beat_at = now() - interval '1 s' WHERE name IN (SELECT assignee FROM tasks WHERE status = 'todo')"""
FINISHED = """
INSERT INTO tasks (title, status, assignee, result, attempt, created_by, ended_at, lock_token)
SELECT 'finished ' || n, 'done', 'agent-' || n %% 16, 'done', 1, 'board', now(), n FROM generate_series(1, %(count)s) n;
INSERT INTO runs (task_id, agent, adapter, status, attempt, node_id, slot, token, lease_expires_at, ended_at, result)
SELECT id, assignee, 'bash', 'succeeded', 1, 'a-node', 1 + id %% 16, id, now(), now(), 'done' FROM tasks;
INSERT INTO wakeups (agent, task_id, subject, status, source, reasons, run_id, ended_at, outcome)
SELECT r.agent, r.task_id, 'task:' || r.task_id, 'done', 'assignment', '[{"by": "board", "note": "", "source": "assignment"}]',
       r.id, now(), 'succeeded' FROM runs r"""


async def tick(server_url: str, *, sizes: Sequence[int]) -> AsyncIterator[Figure]:
    """Yield what one heartbeat takes where 1 % of the agents have work: forgotten by everybody, then asked for, then not due."""
    for size in sizes:
        async with rig.company(server_url) as db:
            fill(db, AGENTS, size)
            fill(db, WORK, size)
            with_work = -(-size // 100)
            found, asked = [], []
            for _ in range(TICKS):
                fill(db, FORGET)
                found.append(await _timed_beat(db))
                asked.append(await _timed_beat(db))
            if await rig.value(db, "SELECT count(*) FROM wakeups WHERE status = 'queued'") != min(with_work, 1000):
                raise RuntimeError("the heartbeat did not find the forgotten work")
            fill(db, "DELETE FROM wakeups; UPDATE agents SET next_beat_at = now() + interval '1 hour'")
            later = [await _timed_beat(db) for _ in range(TICKS)]
        yield at_most(f"tick, {size} agents, {with_work} with forgotten work", statistics.median(found), 250, "ms")
        yield at_most(f"tick, {size} agents, {with_work} with work that is queued", statistics.median(asked), 250, "ms")
        yield at_most(f"tick, {size} agents, {with_work} with work, no beat due", statistics.median(later), 250, "ms")


async def _timed_beat(db: Database) -> float:
    start = time.perf_counter()
    await heartbeat.beat(db)
    return (time.perf_counter() - start) * 1000


def fill(db: Database, statements: str, *parameters: object, **named: object) -> None:
    """Run plain statements, then let the planner know what is there."""
    with psycopg.connect(libpq_url(db.url), autocommit=True) as connection:
        for statement in statements.split(";"):
            connection.execute(statement, named or parameters or None)
        connection.execute("VACUUM ANALYZE")


async def growth(server_url: str, *, sizes: tuple[int, int]) -> AsyncIterator[Figure]:
    """Yield the time of a claim and of a closing after few and after many finished runs, taken in turns."""
    small, large = sizes
    async with rig.company(server_url) as few, rig.company(server_url) as many:
        for db, size in ((few, small), (many, large)):
            fill(db, FINISHED, count=size)
            await rig.give(db, BATCH * (ROUNDS + 20))
            fill(db, "SELECT 1")
        claims: dict[int, list[float]] = {small: [], large: []}
        closings: dict[int, list[float]] = {small: [], large: []}
        for number in range(ROUNDS + 20):
            for db, size in ((few, small), (many, large)):
                claimed_ms, closed_ms = await _round(db)
                if number >= 20:
                    claims[size].append(claimed_ms)
                    closings[size].append(closed_ms)
    for what, found in (("claim", claims), ("closing", closings)):
        before, after = (statistics.median(found[size]) for size in sizes)
        yield Figure(f"{what} of {BATCH}, {small} finished runs", f"{before:.2f} ms")
        told = f"{after:.2f} ms, {after / before - 1:+.0%}"
        name = f"{what} of {BATCH}, {large} finished runs"
        yield Figure(name, told, "< +20%", after / before < 1.2) if what == "claim" else Figure(name, told)


async def _round(db: Database) -> tuple[float, float]:
    """Claim and close a batch; return the milliseconds of each statement, without its commit."""
    async with db.transaction() as session:
        await session.execute(text("SELECT 1"))
        start = time.perf_counter()
        claimed = await claims.claim(session, "benchmark", capacity=BATCH, lease_s=30, ttl_s=1800)
        claimed_ms = (time.perf_counter() - start) * 1000
    if len(claimed) != BATCH:
        raise RuntimeError(f"{len(claimed)} runs were claimed instead of {BATCH}")
    given = [closing.Plain(run.run_id, run.token, "done", 0, None, ()) for run in claimed]
    async with db.transaction() as session:
        await session.execute(text("SELECT 1"))
        start = time.perf_counter()
        await closing.close(session, given)
        return claimed_ms, (time.perf_counter() - start) * 1000
