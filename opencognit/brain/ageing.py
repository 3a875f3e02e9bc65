"""What grows stale, and when. Nothing is deleted: a stale memory is still found, behind what is as good."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain.visibility import enter
from opencognit.contracts import BOARD
from opencognit.states import MemoryType

DAYS: Final[Mapping[MemoryType, int | None]] = {
    MemoryType.PLAN: 60,
    MemoryType.EPISODE: 90,
    MemoryType.ACTION: 90,
    MemoryType.OUTCOME: 90,
    MemoryType.FACT: 365,
    MemoryType.DECISION: None,
    MemoryType.RULE: None,
    MemoryType.PREFERENCE: None,
}
"""After so many days in which nobody wrote it again and nobody was given it; None: never."""

BATCH = 1000

ALONE = text("SELECT pg_try_advisory_xact_lock(hashtextextended('memory_ageing', 0))")
AGE = text("""
-- ix_memories_ageing gives what nobody wrote for so long; of that, what nobody was given either. Doing it again finds nothing.
-- An array, so that the rows are always fetched by their keys.
UPDATE memories SET lifecycle = 'stale'
 WHERE id = ANY (ARRAY(
   SELECT m.id FROM unnest(CAST(:types AS text[]), CAST(:days AS int[])) AS after (type, days)
     JOIN memories m ON m.type = after.type AND m.lifecycle = 'active'
                    AND m.updated_at < now() - make_interval(days => after.days)
     LEFT JOIN memory_uses u ON u.memory_id = m.id AND u.used_at >= now() - make_interval(days => after.days)
    WHERE u.memory_id IS NULL
    LIMIT :limit FOR UPDATE OF m SKIP LOCKED))
RETURNING 1
""")


async def age(session: AsyncSession, *, limit: int = BATCH) -> int:
    """Mark what has grown stale, at most `limit` memories; return how many. 0 also while another session does it.

    No row says when this was last done: it may be done at any time by any node, since what it marks it does not find again,
    and what there is to mark it finds by an index.
    """
    if not (await session.execute(ALONE)).scalar_one():
        return 0
    await enter(session, BOARD)
    mortal = {kind.value: days for kind, days in DAYS.items() if days is not None}
    parameters = {"types": list(mortal), "days": list(mortal.values()), "limit": limit}
    return len((await session.execute(AGE, parameters)).all())
