"""Which memories were given to somebody. A recall only notes it here; it is written down later, for many recalls at once.

Bounded. What a crash loses is not missed: it only says how long a memory was not wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain.visibility import enter
from opencognit.contracts import BOARD
from opencognit.db import Database

MOST = 10_000
"""Memories noted at a time; more are not counted until these are written down."""

USED = text("""
-- What was given to somebody is in use, also where it had grown stale.
WITH given AS (
  SELECT g.id, g.uses FROM unnest(CAST(:ids AS bigint[]), CAST(:uses AS bigint[])) AS g (id, uses)
), revived AS (
  UPDATE memories SET lifecycle = 'active' WHERE id IN (SELECT id FROM given) AND lifecycle = 'stale'
)
INSERT INTO memory_uses (memory_id, uses, used_at)
SELECT m.id, g.uses, now() FROM given g JOIN memories m ON m.id = g.id ORDER BY m.id
ON CONFLICT (memory_id) DO UPDATE SET uses = memory_uses.uses + excluded.uses, used_at = now()
""")


@dataclass(slots=True)
class Uses:
    """Those of one process, noted on its event loop."""

    _noted: dict[int, int] = field(default_factory=dict)

    def note(self, idents: Iterable[int]) -> None:
        """Note that these memories were given to somebody; never waits."""
        for ident in idents:
            if ident in self._noted or len(self._noted) < MOST:
                self._noted[ident] = self._noted.get(ident, 0) + 1

    async def flush(self, db: Database) -> None:
        """Write down what was noted, in one statement; where that fails it is noted again."""
        taken, self._noted = self._noted, {}
        if not taken:
            return
        try:
            async with db.transaction() as session:
                await used(session, taken)
        except BaseException:
            for ident, uses in taken.items():
                self._noted[ident] = self._noted.get(ident, 0) + uses
            raise


async def used(session: AsyncSession, uses: Mapping[int, int]) -> None:
    """Write down how often each of these memories was given to somebody just now."""
    await enter(session, BOARD)
    await session.execute(USED, {"ids": list(uses), "uses": list(uses.values())})
