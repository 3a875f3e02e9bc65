"""Keeps the node's claims alive, and kills its own runs when it could not. Decides nothing about work."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping

import structlog
from sqlalchemy.exc import SQLAlchemyError

from opencognit.adapters.warden import Warden
from opencognit.db import Database
from opencognit.engine.runner import Active
from opencognit.errors import OpenCognitError
from opencognit.work import locks

log = structlog.get_logger(__name__)


class Leases:
    """Renews all of a node's leases in one statement.

    The database fences rows, not processes: what it cannot fence is killed here, by the monotonic clock, a margin before
    the lease may have run out on the server. Nobody else starts a run before that. A node that is frozen or whose loop is
    blocked cannot do that either: its warden does.
    """

    def __init__(
        self,
        db: Database,
        node_id: str,
        active: Mapping[int, Active],
        warden: Warden,
        *,
        lease_s: float,
        ttl_s: float,
        capacity: int,
    ) -> None:
        self._db, self._node_id, self._active, self._capacity = db, node_id, active, capacity
        self._warden, self._ttl_s = warden, ttl_s
        self._lease_s = lease_s
        self.every_s = lease_s * 7 / 30
        self._margin_s = max(lease_s * 0.1, 0.2)
        self._renewed_at = asyncio.get_running_loop().time()
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Renew now: somebody asked for a run to be stopped."""
        self._asked.set()

    async def keep(self) -> None:
        """Renew until cancelled."""
        while True:
            started, wait_s = asyncio.get_running_loop().time(), self.every_s
            self._asked.clear()
            try:
                async with asyncio.timeout(self.every_s):
                    await self.renew()
                if not self.valid():
                    self._give_up("the lease was renewed too late")  # the warden has ended what ran
                self._renewed_at = started
                self._warden.keep_until(started + self._lease_s - self._margin_s)
            except (OpenCognitError, SQLAlchemyError, TimeoutError, OSError) as error:
                log.warning("lease.not_renewed", error=str(error)[:200], runs=len(self._active))
                wait_s = self.every_s / 4  # a whole one of waiting would leave room for few more tries
            try:
                async with asyncio.timeout(wait_s):
                    await self._asked.wait()
            except TimeoutError:
                continue

    async def renew(self) -> None:
        """Renew once; stop runs that are lost or that somebody wants stopped."""
        held = {run_id: active for run_id, active in self._active.items() if not active.is_lost}
        async with self._db.transaction() as session:
            await locks.seen(session, self._node_id, pid=os.getpid(), host=socket.gethostname(), capacity=self._capacity)
            pairs = [(run_id, active.claimed.token) for run_id, active in held.items()]
            kept = await locks.renew(session, self._node_id, pairs, lease_s=self._lease_s)
        if long := [run_id for run_id in kept if held[run_id].outlives(self._ttl_s)]:
            async with self._db.transaction() as session:
                await locks.stretch(session, long, ttl_s=self._ttl_s)
        for run_id, active in held.items():
            if run_id not in kept:
                if run_id in self._active:
                    active.stop(None, "another node took it over")
            elif (mode := kept[run_id]) is not None:
                active.stop(mode[0], mode[1])

    def valid(self) -> bool:
        """Return whether the node's leases are surely alive, so that nobody else runs what it runs."""
        return asyncio.get_running_loop().time() < self._renewed_at + self._lease_s - self._margin_s

    async def guard(self) -> None:
        """Kill every run of this node when its lease may be over, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            left_s = self._renewed_at + self._lease_s - self._margin_s - loop.time()
            if left_s <= 0:
                self._give_up("the lease could not be renewed")
            await asyncio.sleep(max(min(left_s, self.every_s), 0.05))

    def _give_up(self, why: str) -> None:
        for active in list(self._active.values()):
            active.stop(None, why)
