"""The whole loop with an adapter that does nothing: how soon a wake starts a run, how many runs a second go through."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

from sqlalchemy import text

from benchmarks import raw, rig
from benchmarks.figures import Figure, at_most, percentile
from opencognit.db import Database
from opencognit.states import WakeupSource
from opencognit.work import wakeups

RAW_S = 4.0
WARM_UP = 300
FEED_EVERY_S = 0.02


async def latency(server_url: str, *, samples: int, loaded_per_s: int) -> AsyncIterator[Figure]:
    """Yield the time from the commit of a wake to the adapter's start, idle and while other runs stream through."""
    async with rig.company(server_url) as db:
        with rig.nodes(db.url, 1) as (node,):
            await _probe(db, node, 20)
            idle = sorted(await _probe(db, node, samples))
            yield at_most("wake to start, idle, p50", percentile(idle, 0.5), 10, "ms")
            yield at_most("wake to start, idle, p95", percentile(idle, 0.95), 30, "ms")
            yield Figure("wake to start, idle, p99", f"{percentile(idle, 0.99):.1f} ms")
            feeding = asyncio.create_task(_feed(db, loaded_per_s))
            try:
                await _settled(db, least=loaded_per_s)
                busy = sorted(await _probe(db, node, samples))
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
            for fraction in (0.5, 0.95, 0.99):
                name = f"wake to start, at {loaded_per_s} runs/s, p{fraction * 100:.0f}"
                yield Figure(name, f"{percentile(busy, fraction):.1f} ms")


async def _probe(db: Database, node: rig.NodeProcess, samples: int) -> list[float]:
    """Wake the probe again and again; return the milliseconds from each commit to its start."""
    found = []
    for number in range(samples):
        async with db.transaction() as session:
            await wakeups.request(session, rig.PROBE, WakeupSource.BOARD, by="board")
        committed = time.perf_counter()
        begun = await asyncio.to_thread(_next, node)
        found.append((begun - committed) * 1000)
        await asyncio.sleep(0.02 + 0.001 * (number % 20))  # at no fixed place in anybody's rhythm
    return found


def _next(node: rig.NodeProcess) -> float:
    if not node.begun.poll(rig.START_S):
        raise RuntimeError("a wake was never answered")
    return float(node.begun.recv())


async def _feed(db: Database, per_s: int) -> None:
    """Post work at a steady rate, until cancelled."""
    start, posted = time.perf_counter(), 0
    while True:
        due = round((time.perf_counter() - start) * per_s) - posted
        if due > 0:
            await rig.give(db, due)
            posted += due
        await asyncio.sleep(FEED_EVERY_S)


async def _settled(db: Database, *, least: int) -> None:
    async def streaming() -> bool:
        return bool(await rig.value(db, "SELECT count(*) >= :least FROM runs WHERE status = 'succeeded'", least=least))

    await rig.until(streaming, timeout_s=rig.START_S)


async def throughput(server_url: str, *, runs: int, node_counts: Sequence[int]) -> AsyncIterator[Figure]:
    """Yield runs a second through the whole loop, as a figure and as a share of the raw rate: the better of before and after."""
    for count in node_counts:
        before = await asyncio.to_thread(raw.rate, server_url, seconds=RAW_S, processes=count)
        async with rig.company(server_url) as db:
            with rig.nodes(db.url, count):
                await _drained(db, WARM_UP * count)
                per_s = await _drained(db, runs)
            events = await rig.value(db, "SELECT count(*)::float8 / (SELECT count(*) FROM runs) FROM events")
        limit = max(before, await asyncio.to_thread(raw.rate, server_url, seconds=RAW_S, processes=count))
        yield Figure(f"raw claim and complete, {count} process(es)", f"{limit:.0f} jobs/s")
        share = per_s / limit
        told = f"{per_s:.0f} runs/s, {share:.0%} of raw"
        name = f"whole loop, {count} node(s), {runs} runs, {events:.1f} events each"
        yield Figure(name, told, "> 33% of raw" if count == 1 else "", share > 1 / 3 if count == 1 else None)


async def _drained(db: Database, runs: int) -> float:
    """Post `runs` tasks behind a closed switch, open it, and return how many a second ended, by the database's clock."""
    async with db.transaction() as session:
        await session.execute(text("UPDATE company SET paused = true"))
    last = await rig.value(db, "SELECT coalesce(max(id), 0) FROM runs")
    await rig.give(db, runs)
    async with db.transaction() as session:
        await session.execute(text("UPDATE company SET paused = false"))
        await session.execute(rig.NOTIFY)
        opened = (await session.execute(text("SELECT clock_timestamp()"))).scalar_one()

    async def done() -> bool:
        query = "SELECT count(*) >= :runs FROM runs WHERE id > :last AND status = 'succeeded'"
        return bool(await rig.value(db, query, last=last, runs=runs))

    await rig.until(done, timeout_s=600, every_s=0.1)
    query = "SELECT extract(epoch FROM max(ended_at) - :opened)::float8 FROM runs WHERE id > :last"
    return runs / float(await rig.value(db, query, last=last, opened=opened))
