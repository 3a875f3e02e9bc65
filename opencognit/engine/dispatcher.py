"""Claims what the node has room for and starts it. One loop; wakes on a notification, a free place, or the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.db import Database
from opencognit.engine.runner import Active, Runner
from opencognit.errors import OpenCognitError
from opencognit.work import claims, wakeups

log = structlog.get_logger(__name__)

GATHER_S = 0.003
"""How long places that come free are gathered, so that runs which end together are followed by one claim."""
POLL_S = 5.0
"""How late a wakeup may be noticed when its notification got lost."""
PASSED_OVER_S = 0.05
"""How soon to look again for work that another claimer was at; each time twice as late, as long as nothing comes of it."""


class Dispatcher:
    """Owns the node's active runs."""

    def __init__(
        self,
        db: Database,
        runner: Runner,
        group: asyncio.TaskGroup,
        node_id: str,
        *,
        capacity: int,
        lease_s: float,
        ttl_s: float,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self._db, self._runner, self._group, self._node_id = db, runner, group, node_id
        self._limits = limits or {}
        self._capacity, self._lease_s, self._ttl_s = capacity, lease_s, ttl_s
        self.active: dict[int, Active] = {}
        self._woken = asyncio.Event()
        self._draining = self._gathering = False
        self._again_s = PASSED_OVER_S
        self.idle = asyncio.Event()
        self.idle.set()

    def wake(self) -> None:
        self._woken.set()

    def _gathered(self) -> None:
        self._gathering = False
        self.wake()

    def drain(self) -> None:
        """Claim nothing more."""
        self._draining = True
        self.wake()

    async def keep(self) -> None:
        """Claim and start until drained or cancelled."""
        while not self._draining:
            self._woken.clear()
            pause_s = POLL_S
            try:
                pause_s = await self._claim()
            except (OpenCognitError, SQLAlchemyError, OSError, RuntimeError) as error:
                log.warning("claim.failed", error=str(error)[:300])
                pause_s = 0.5
            if pause_s > 0:
                await _wait(self._woken, pause_s)

    async def _claim(self) -> float:
        """Claim once; return how long to wait for the next reason to look."""
        room = self._capacity - len(self.active)
        if room < 1:
            return POLL_S
        async with self._db.transaction() as session:
            claimed = await claims.claim(
                session, self._node_id, capacity=room, lease_s=self._lease_s, ttl_s=self._ttl_s, limits=self._limits
            )
            due_s = None if claimed else await self._due_s(session)
        if claimed:
            self._again_s = PASSED_OVER_S
            await self._start([Active(one) for one in claimed])
            return 0.0
        return POLL_S if due_s is None else min(max(due_s, 0.01), POLL_S)

    async def _due_s(self, session: AsyncSession) -> float | None:
        """Return after how many seconds a claim that got nothing is worth another, None when nothing is known to come."""
        if await claims.is_something_left(session, limits=self._limits):
            again_s, self._again_s = self._again_s, min(self._again_s * 2, POLL_S)
            return again_s
        self._again_s = PASSED_OVER_S
        return await wakeups.seconds_to_next(session)

    async def _start(self, batch: Sequence[Active]) -> None:
        """Take the runs over, brief them together, and let each go its way; one that cannot be briefed so tries by itself."""
        self.idle.clear()
        self.active.update({active.claimed.run_id: active for active in batch})
        try:
            await self._runner.prepare(batch)
        except Exception:  # whatever it is, the runs are claimed: each must get its task, and its end
            log.exception("briefing.alone")
        for active in batch:
            run_id = active.claimed.run_id
            active.task = self._group.create_task(self._runner.run_once(active), name=f"run-{run_id}")
            active.task.add_done_callback(self._ended(run_id))

    def _ended(self, run_id: int) -> Callable[[asyncio.Task[None]], None]:
        def forget(_task: asyncio.Task[None]) -> None:
            self.active.pop(run_id, None)
            if not self.active:
                self.idle.set()
            if not self._gathering:
                self._gathering = True
                asyncio.get_running_loop().call_later(GATHER_S, self._gathered)

        return forget


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
