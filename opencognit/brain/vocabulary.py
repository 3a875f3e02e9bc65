"""The names that this process looks for in texts: of agents, and of what the company's memories are explicitly about.

A write and a question find them loaded; whoever keeps a process going loads them (caretaker.py). Only what everyone may see
counts: a name out of a private memory would tell others that it is there.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from sqlalchemy import Pool, text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain.known import Known
from opencognit.brain.patterns import default
from opencognit.brain.visibility import enter
from opencognit.contracts import BOARD
from opencognit.db import Database

MOST = 3000
"""Names beside those of agents, the newest."""

NAMES = text("""
-- What has a pattern is found by that. An object of a triple is any word: only what something is said about is a name.
SELECT e.kind, e.key FROM entities e
 WHERE e.kind <> ALL (CAST(:kinds AS text[]))
   AND EXISTS (SELECT 1 FROM memory_entities l JOIN memories m ON m.id = l.memory_id
                WHERE l.entity_id = e.id AND m.scope = 'org' AND m.lifecycle IN ('active', 'stale')
                  AND (e.kind <> 'thing' OR l.role <> 'object'))
 ORDER BY e.id DESC LIMIT :most
""")
AGENTS = text("SELECT name FROM agents WHERE present")

_NOTHING = Known()
_loaded: WeakKeyDictionary[Pool, Known] = WeakKeyDictionary()
"""By the pool of a database: a process may have several, and sessions of one pool have several engines."""


def names(session: AsyncSession) -> Known:
    """Return what was last loaded for the session's database, nothing before that; asks no database."""
    return _loaded.get(session.get_bind().engine.pool, _NOTHING)


async def learn(db: Database) -> None:
    """Load the names, and the patterns that stand beside them."""
    kinds = list((await asyncio.to_thread(default)).canonicalisers)
    async with db.transaction() as session:
        await enter(session, BOARD)
        named = (await session.execute(NAMES, {"kinds": kinds, "most": MOST})).all()
        agents = (await session.scalars(AGENTS)).all()
    aliases = {row.key: (row.kind, row.key) for row in reversed(named)} | {name: ("agent", name) for name in agents}
    pool = db.engine.sync_engine.pool
    if aliases != _loaded.get(pool, _NOTHING).aliases:
        _loaded[pool] = await asyncio.to_thread(Known, aliases)
