"""LISTEN and NOTIFY: how a commit in one process wakes another. A hint only: everything works without it, later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import psycopg
import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

log = structlog.get_logger(__name__)

CHANNEL = "opencognit"
"""One channel for all; the payload says what happened: `wakeup`, `cancel`, `pause`, `event`."""


async def notify(session: AsyncSession, payload: str) -> None:
    """Send `payload` when the caller's transaction commits; equal ones within it are sent once."""
    await session.execute(text("SELECT pg_notify(:channel, :payload)"), {"channel": CHANNEL, "payload": payload})


class Listener:
    """Calls `heard(payload)` for each notification, and `heard("reconnected")` after every (re)connect.

    A connection that an idle firewall dropped says nothing by itself, so every `probe_s` seconds a round
    trip must be answered within `answer_s`.
    """

    def __init__(self, url: str, heard: Callable[[str], None], *, probe_s: float = 20.0, answer_s: float = 10.0) -> None:
        self._url, self._heard, self._probe_s, self._answer_s = url, heard, probe_s, answer_s

    async def run(self) -> None:
        """Listen until cancelled; reconnects for ever."""
        wait_s = 0.1
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(self._url, autocommit=True, connect_timeout=10) as conn:
                    async with asyncio.timeout(self._answer_s):
                        await conn.execute(f"LISTEN {CHANNEL}")
                    self._heard("reconnected")
                    wait_s = 0.1
                    await self._follow(conn)
            except (psycopg.Error, OSError, TimeoutError) as error:
                log.warning("listener.lost", error=str(error).strip().splitlines()[:1], wait_s=wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, 2.0)

    async def _follow(self, conn: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        while True:
            async with contextlib.aclosing(conn.notifies(timeout=self._probe_s)) as notes:
                async for note in notes:
                    self._heard(note.payload)
            async with asyncio.timeout(self._answer_s):
                await conn.execute("SELECT 1")
