"""A brain for tests: who looks, and how to write, ask and index in one line each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import brain
from opencognit.brain import Embedder, Indexer
from opencognit.brain.backlog import count, memory_vectors
from opencognit.brain.visibility import enter
from opencognit.contracts import BOARD, MemoryDraft, Viewer
from opencognit.db import Database
from opencognit.models import MemoryEmbedding
from opencognit.states import Trust

ANN, BEA, CAI, DON = (
    Viewer(agent="ann", team="red"),
    Viewer(agent="bea", team="red"),
    Viewer(agent="cai", team="blue"),
    Viewer(agent="don"),
)


async def write(
    session: AsyncSession,
    content: str,
    *,
    viewer: Viewer = BOARD,
    trust: Trust = Trust.OBSERVED,
    key: str | None = None,
    **fields: Any,
) -> brain.Stored:
    draft = MemoryDraft(content=content, **fields)
    return await brain.write(session, draft, viewer=viewer, trust=trust, idempotency_key=key)


async def found(session: AsyncSession, query: str | None = None, *, viewer: Viewer = BOARD, **filters: Any) -> list[str]:
    """Return the contents that a recall gives, best first."""
    return [hit.memory.content for hit in await brain.recall(session, query, viewer=viewer, **filters)]


async def value(session: AsyncSession, query: str, **parameters: Any) -> Any:
    """Return one value, of all that there is."""
    await enter(session, BOARD)
    """Return the one value of a query that looks at everything."""
    await enter(session, BOARD)
    return (await session.execute(text(query), parameters)).scalar_one()


async def settle(db: Database, embedder: Embedder | None = None) -> int:
    """Count and embed what was written; return how many memories were finished."""
    indexer = Indexer(db, embedder)
    await indexer.adopt()
    return await indexer.catch_up()


async def settle_within(session: AsyncSession, embedder: Embedder) -> None:
    """Count and embed within a test's own transaction, which the indexer does not see."""
    await enter(session, BOARD)
    await count(session)
    rows: Sequence[Any] = (await session.execute(text("SELECT id, scope, owner, content, context FROM memories"))).all()
    vectors = memory_vectors(embedder, [(row.content, row.context) for row in rows])
    values = [
        {"memory_id": row.id, "model": embedder.name, "scope": row.scope, "owner": row.owner, "embedding": vector}
        for row, vector in zip(rows, vectors, strict=True)
    ]
    if values:
        await session.execute(insert(MemoryEmbedding), values)


@contextmanager
def rolled_back(url: str, role: str | None = None) -> Iterator[tuple[asyncio.Runner, AsyncSession]]:
    """Open a transaction in an event loop of its own, for properties; what is done in it is undone at the end."""
    with asyncio.Runner() as runner:
        db = Database(url, role=role)
        transaction = db.transaction()
        session = runner.run(transaction.__aenter__())
        try:
            yield runner, session
        finally:
            runner.run(session.rollback())
            runner.run(transaction.__aexit__(None, None, None))
            runner.run(db.close())
