"""The clock: APScheduler calls idempotent ticks. No job store and no leader: every tick may run on every node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from sqlalchemy.exc import SQLAlchemyError

from opencognit.db import Database
from opencognit.engine import booking
from opencognit.errors import OpenCognitError
from opencognit.events import SYSTEM
from opencognit.work import beats, flow, locks, routines, tasks

log = structlog.get_logger(__name__)

Tick = Callable[[], Awaitable[None]]


class Heartbeat:
    """Runs ticks at their intervals, one at a time each; late ones are made up for once."""

    def __init__(self) -> None:
        self._scheduler = AsyncIOScheduler(timezone="UTC")

    def every(self, seconds: float, name: str, tick: Tick) -> None:
        self._scheduler.add_job(
            _logged(name, tick),
            "interval",
            seconds=seconds,
            id=name,
            name=name,
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
        )

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> None:
        self._scheduler.shutdown(wait=False)


def _logged(name: str, tick: Tick) -> Tick:
    async def run() -> None:
        try:
            await tick()
        except (OpenCognitError, SQLAlchemyError, OSError) as error:
            log.warning("tick.failed", tick=name, error=str(error)[:300])
        except Exception:
            log.exception("tick.crashed", tick=name)

    return run


async def beat(db: Database) -> None:
    """The 30-second tick: who has work and was not asked? Costs one query when nobody has."""
    async with db.transaction() as session:
        await beats.beat(session)


async def fire(db: Database) -> None:
    """Fire the routines that are due."""
    async with db.transaction() as session:
        await routines.tick(session)


async def reap(db: Database, *, grace_s: float = 0.0) -> int:
    """Take over lapsed runs, each in a transaction of its own; return how many."""
    async with db.transaction() as session:
        found = await locks.lapsed(session, grace_s=grace_s)
        orphans = await locks.orphaned(session)
    for task_id in orphans:
        try:
            async with db.transaction() as session:
                freed = await flow.free(session, await tasks.locked(session, task_id), by=SYSTEM)
        except Exception:  # one that cannot be taken over must not keep the others from it
            log.exception("lock.not_freed", task_id=task_id)
            continue
        if freed:
            log.warning("lock.freed", task_id=task_id)
    count = 0
    for lost in found:
        try:
            async with db.transaction() as session:
                taken = await booking.book_lost(session, lost)
        except Exception:
            log.exception("run.not_taken_over", run_id=lost.run_id)
            continue
        if taken:
            count += 1
            log.warning("run.lost", run_id=lost.run_id, task_id=lost.task_id, agent=lost.agent)
    return count
