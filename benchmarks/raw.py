"""The raw limit: how many rows a second can be claimed and completed one by one, with two durable commits each.

Owns a table of its own in a schema that it makes and drops. What the engine does is never measured here.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

import psycopg

CLAIM = """
UPDATE bare.queue SET state = 'taken', owner = %s, until = now() + interval '1 min'
 WHERE id = (SELECT id FROM bare.queue WHERE state = 'waiting' ORDER BY rank, id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id"""
COMPLETE = "UPDATE bare.queue SET state = 'finished' WHERE id = %s AND owner = %s AND state = 'taken'"
TABLE = """
DROP SCHEMA IF EXISTS bare CASCADE;
CREATE SCHEMA bare;
CREATE TABLE bare.queue (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL DEFAULT 'waiting', rank int NOT NULL DEFAULT 0,
  owner text, until timestamptz
) WITH (fillfactor = 85);
CREATE INDEX ON bare.queue (rank, id) WHERE state = 'waiting'"""
ROWS_A_SECOND = 5000
"""More than one process takes, so that none runs dry."""
START_S = 60.0


def rate(dsn: str, *, seconds: float, processes: int = 1) -> float:
    """Return completed rows per second of `processes` that work for `seconds`. Raises RuntimeError on an unsafe server."""
    context = multiprocessing.get_context("spawn")
    with psycopg.connect(dsn, autocommit=True) as admin:
        check_durable(admin)
        admin.execute(TABLE)
        rows = round(ROWS_A_SECOND * seconds * processes)
        admin.execute("INSERT INTO bare.queue (rank) SELECT 0 FROM generate_series(1, %s)", (rows,))
        admin.execute("VACUUM ANALYZE bare.queue")
        try:
            barrier, results = context.Barrier(processes), context.Queue()
            workers = [
                context.Process(target=_work, args=(dsn, f"worker-{number}", seconds, barrier, results), daemon=True)
                for number in range(processes)
            ]
            for worker in workers:
                worker.start()
            done = [results.get(timeout=seconds + START_S) for _ in workers]
            for worker in workers:
                worker.join()
        finally:
            admin.execute("DROP SCHEMA bare CASCADE")
    return float(sum(count for count, _ in done) / max(took for _, took in done))


def check_durable(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Raise RuntimeError unless every commit of this server reaches the disk: other figures would not count."""
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        row = connection.execute(f"SHOW {setting}").fetchone()
        if row is None or row[0] != "on":
            raise RuntimeError(f"{setting} is not on: a figure of this server would not count")


def _work(dsn: str, me: str, seconds: float, barrier: Barrier, results: Queue[tuple[int, float]]) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        done = 0
        barrier.wait(START_S)
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            row = connection.execute(CLAIM, (me,)).fetchone()
            if row is None:
                raise RuntimeError("the queue ran dry: raise ROWS_A_SECOND")
            connection.execute(COMPLETE, (row[0], me))
            done += 1
        results.put((done, time.perf_counter() - start))
