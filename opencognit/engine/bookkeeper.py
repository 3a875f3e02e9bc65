"""Books the ends of a node's runs: plain successes together, in one transaction for all that wait; the rest one by one.

The database's answers cost more than its work, so what came in while one transaction was under way goes into the next.
A run's end is true only when `book` returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.config import Retry
from opencognit.db import Database
from opencognit.engine import booking
from opencognit.engine.booking import Outcome
from opencognit.states import RunState
from opencognit.work import closing
from opencognit.work.claims import Claimed

log = structlog.get_logger(__name__)

TOGETHER = 64
BOOKING_S = 600.0
"""How long a booking is tried again while the database is away."""


@dataclass(slots=True)
class _Entry:
    claimed: Claimed
    outcome: Outcome
    booked: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Bookkeeper:
    """Owns the order of bookings of one node; `keep` must run while anything is booked."""

    def __init__(self, db: Database, *, retry: Retry) -> None:
        self._db, self._retry = db, retry
        self._waiting: asyncio.Queue[_Entry] = asyncio.Queue()

    async def book(self, claimed: Claimed, outcome: Outcome) -> None:
        """Return when the run's end is stored. Raises StaleToken when another has taken the run over."""
        if _is_plain(outcome):
            entry = _Entry(claimed, outcome)
            self._waiting.put_nowait(entry)
            if await entry.booked:
                return
        await self._db.retrying(lambda session: booking.book(session, claimed, outcome, retry=self._retry), timeout_s=BOOKING_S)

    async def keep(self) -> None:
        """Book what comes in until cancelled."""
        while True:
            entries = [await self._waiting.get()]
            while not self._waiting.empty() and len(entries) < TOGETHER:
                entries.append(self._waiting.get_nowait())
            await self._close(entries)

    async def _close(self, entries: Sequence[_Entry]) -> None:
        """Close what can be closed together; whatever else happens is left to each run's own booking."""
        given = [
            closing.Plain(
                entry.claimed.run_id,
                entry.claimed.token,
                entry.outcome.answer.text,
                entry.outcome.exit_code,
                entry.outcome.soul_hash,
                (*entry.outcome.notes, *entry.outcome.answer.problems),
            )
            for entry in entries
        ]

        async def close(session: AsyncSession) -> set[int]:
            return await closing.close(session, given)

        closed: set[int] = set()
        try:
            closed = await self._db.retrying(close, timeout_s=BOOKING_S)
        except Exception:
            log.exception("runs.not_closed")
        finally:
            for entry in entries:
                if not entry.booked.done():
                    entry.booked.set_result(entry.claimed.run_id in closed)


def _is_plain(outcome: Outcome) -> bool:
    answer = outcome.answer
    return outcome.status is RunState.SUCCEEDED and not (answer.actions or answer.memories or outcome.usage)
