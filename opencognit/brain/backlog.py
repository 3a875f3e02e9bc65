"""What follows a write: words are counted, vectors are made. Owns the backlog and the statistics; a write waits for neither.

Several nodes may do this at once: counting is one's at a time, of the vectors each takes what no other has in hand. No vector
is made within a transaction.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray
from sqlalchemy import Row, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from opencognit.brain.embed import Embedder
from opencognit.brain.folding import read
from opencognit.brain.ranking import CONTENT_SHARE
from opencognit.brain.store import INDEX_VERSION
from opencognit.brain.vectors import has_direction, index_name
from opencognit.brain.visibility import enter
from opencognit.contracts import BOARD
from opencognit.db import Database
from opencognit.db.session import first_line, is_lost
from opencognit.errors import ModelUnavailable, OpenCognitError
from opencognit.models import MemoryEmbedding

log = structlog.get_logger(__name__)

COUNTED, EMBEDDED = 2000, 64
"""Memories that one step takes."""
READ_AT_ONCE = 50
"""Of those that are to be read again first: the longest take a fifth of a second each, and a transaction has its time."""
INDEX_LOCK = 0x6272_6169_6E  # "brain"
TRIES = 5
"""So often a vector is begun: a text that brings the model down every time is found by its words alone."""
TAKEN_S = 120
PAUSE_S = 5.0
RETRY_S = 60.0

UNCOUNTED = text("""
SELECT m.id, m.scope, m.owner, m.terms, m.content_terms, m.index_version,
       CASE WHEN m.index_version <> :version THEN left(m.content, 100000) END AS content,
       CASE WHEN m.index_version <> :version THEN left(m.context, 100000) END AS context
  FROM memory_backlog b JOIN memories m ON m.id = b.memory_id
 WHERE NOT b.counted ORDER BY b.memory_id LIMIT :limit
""")
READ_AGAIN = text("""
UPDATE memories SET language = :language, search_text = :search_text, terms = :terms, content_terms = :content_terms,
       index_version = :version
 WHERE id = :id
""")
ADD_TERMS = text("""
INSERT INTO memory_terms (term, memories) SELECT * FROM unnest(CAST(:terms AS bigint[]), CAST(:memories AS bigint[]))
ON CONFLICT (term) DO UPDATE SET memories = memory_terms.memories + excluded.memories
""")
ADD_COUNT = text("""
INSERT INTO memory_counts AS c (scope, owner, memories, content_terms, all_terms)
VALUES (:scope, :owner, :memories, :content_terms, :all_terms)
ON CONFLICT (scope, owner) DO UPDATE
   SET memories = c.memories + excluded.memories, content_terms = c.content_terms + excluded.content_terms,
       all_terms = c.all_terms + excluded.all_terms
""")
TAKE = text("""
-- Each memory is in one hand at a time; a hand that lets it fall loses it two minutes later.
UPDATE memory_backlog SET tries = tries + 1, taken_until = now() + make_interval(secs => :taken_s)
 WHERE memory_id IN (SELECT memory_id FROM memory_backlog
                      WHERE counted AND taken_until < now() AND tries < :tries
                      ORDER BY memory_id LIMIT :limit FOR UPDATE SKIP LOCKED)
RETURNING memory_id
""")
WAITING = text("""
SELECT EXISTS (SELECT 1 FROM memory_backlog WHERE NOT counted)
    OR EXISTS (SELECT 1 FROM memory_backlog WHERE taken_until < now() AND tries < :tries)
""")
ADOPT = text("""
-- Whatever has no vector under this model is to get one.
INSERT INTO memory_backlog (memory_id, counted)
SELECT id, true FROM memories m
 WHERE NOT EXISTS (SELECT 1 FROM memory_embeddings e WHERE e.memory_id = m.id AND e.model = :model)
ON CONFLICT (memory_id) DO UPDATE SET tries = 0
""")


TEXTS = text("""
SELECT id, scope, owner, left(content, 100000) AS content, left(context, 100000) AS context
  FROM memories WHERE id = ANY(CAST(:ids AS bigint[])) ORDER BY id
""")
FINISHED = text("DELETE FROM memory_backlog WHERE memory_id = ANY(CAST(:ids AS bigint[]))")
GIVE_BACK = text("""
UPDATE memory_backlog SET tries = tries - 1, taken_until = '-infinity' WHERE memory_id = ANY(CAST(:ids AS bigint[]))
""")


@dataclass(slots=True)
class _Tally:
    memories: int = 0
    content_terms: int = 0
    all_terms: int = 0


async def count(session: AsyncSession, *, limit: int = COUNTED) -> int:
    """Add uncounted memories to the statistics; return how many. 0 also while another session counts."""
    alone = text("SELECT pg_try_advisory_xact_lock(hashtextextended('memory_counts', 0))")
    if not (await session.execute(alone)).scalar_one():
        return 0
    await enter(session, BOARD)
    rows = (await session.execute(UNCOUNTED, {"limit": limit, "version": INDEX_VERSION})).all()
    if not rows:
        return 0
    if any(row.index_version != INDEX_VERSION for row in rows):
        rows = rows[:READ_AT_ONCE]
    frequencies: Counter[int] = Counter()
    tallies: dict[tuple[str, str], _Tally] = {}
    for row in rows:
        terms, content_terms = await _terms(session, row)
        frequencies.update(set(terms))
        tally = tallies.setdefault((row.scope, row.owner), _Tally())
        tally.memories += 1
        tally.content_terms += content_terms
        tally.all_terms += len(terms)
    if frequencies:
        await session.execute(ADD_TERMS, {"terms": list(frequencies), "memories": list(frequencies.values())})
    for (scope, owner), tally in tallies.items():
        values = {"memories": tally.memories, "content_terms": tally.content_terms, "all_terms": tally.all_terms}
        await session.execute(ADD_COUNT, {"scope": scope, "owner": owner, **values})
    marked = text("UPDATE memory_backlog SET counted = true WHERE memory_id = ANY(CAST(:ids AS bigint[]))")
    await session.execute(marked, {"ids": [row.id for row in rows]})
    return len(rows)


async def _terms(session: AsyncSession, row: Row[Any]) -> tuple[list[int], int]:
    """Return a memory's terms, read again where they were read by an older version."""
    if row.index_version == INDEX_VERSION:
        return np.frombuffer(row.terms, dtype="<u4").tolist(), row.content_terms
    reading = await asyncio.to_thread(read, row.content, row.context)
    values = {"language": reading.language, "search_text": reading.search_text, "terms": reading.terms}
    again = {"id": row.id, "content_terms": reading.content_terms, "version": INDEX_VERSION}
    await session.execute(READ_AGAIN, {**values, **again})
    return np.frombuffer(reading.terms, dtype="<u4").tolist(), reading.content_terms


def memory_vectors(embedder: Embedder, texts: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
    """Return (n, dimensions) for (content, context) pairs: of content, mixed with content as its context shows it. Blocking."""
    inside = embedder.encode([content for content, _ in texts])
    around = [at for at, (_, context) in enumerate(texts) if context]
    if around:
        read_with = embedder.encode([f"{texts[at][1]}\n{texts[at][0]}" for at in around])
        mixed = CONTENT_SHARE * inside[around] + (1 - CONTENT_SHARE) * read_with
        inside[around] = mixed / np.maximum(np.linalg.norm(mixed, axis=1, keepdims=True), 1e-12)
    return inside


@dataclass(slots=True)
class Indexer:
    """Keeps counts and vectors in step with what is written. `embedder` None: counts only."""

    db: Database
    embedder: Embedder | None

    async def keep(self) -> None:
        """Catch up whenever there is something to do, until cancelled."""
        wait_s = 0.0
        adopted = False
        while True:
            await asyncio.sleep(wait_s)
            try:
                if not adopted:
                    await self.adopt()
                    adopted = True
                if await self._something_waits():
                    await self.catch_up()
                wait_s = PAUSE_S
            except (OpenCognitError, SQLAlchemyError, OSError) as error:
                wait_s = RETRY_S if adopted else PAUSE_S
                log.warning("brain.not_indexed", error=str(error)[:300], wait_s=wait_s)
            except Exception:  # a row that nobody foresaw must not end the node
                wait_s = RETRY_S
                log.exception("brain.not_indexed", wait_s=wait_s)

    async def _something_waits(self) -> bool:
        async with self.db.reading() as session:
            tries = TRIES if self.embedder is not None else 0
            return bool((await session.execute(WAITING, {"tries": tries})).scalar_one())

    async def adopt(self) -> None:
        """Make the embedder's model the one that memories have vectors of: give it an index, and note what lacks one."""
        if self.embedder is None:
            return
        try:
            await _build_index(self.db, self.embedder.name, self.embedder.dimensions)
        except DBAPIError as error:  # without an index likeness is compared one by one
            if is_lost(error):
                raise
            log.warning("brain.no_vector_index", error=first_line(error)[:300])
        async with self.db.transaction() as session:
            await enter(session, BOARD)
            await session.execute(ADOPT, {"model": self.embedder.name})

    async def catch_up(self) -> int:
        """Work until nothing waits; return how many memories were finished: counted and embedded."""
        await self._count()
        done = 0
        # Without a model here, the counted ones stay for a node that has it, or for the day when it is there.
        while self.embedder is not None and (taken := await self._take()):
            done += await self._embed(taken)
            await self._count()  # a whole store that gets another model takes hours, and its words are wanted at once
        return done

    async def _count(self) -> None:
        while await self.db.retrying(count):
            continue

    async def _take(self) -> list[int]:
        async with self.db.transaction() as session:
            parameters = {"limit": EMBEDDED, "tries": TRIES, "taken_s": TAKEN_S}
            return sorted((await session.execute(TAKE, parameters)).scalars())

    async def _embed(self, taken: Sequence[int]) -> int:
        async with self.db.transaction() as session:
            await enter(session, BOARD)
            rows = (await session.execute(TEXTS, {"ids": taken})).all()
        try:
            made = await self._vectors(rows)
        except ModelUnavailable:
            async with self.db.transaction() as session:
                await session.execute(GIVE_BACK, {"ids": taken})
            raise
        finished = [row.id for row in made]
        await self.db.retrying(lambda session: self._keep(session, made, taken))
        return len(finished)

    async def _vectors(self, rows: Sequence[Row[Any]]) -> dict[Row[Any], NDArray[np.float32]]:
        """Return the vectors of a batch; where it fails, those of each text that does not."""
        assert self.embedder is not None
        try:
            made = await asyncio.to_thread(memory_vectors, self.embedder, [(row.content, row.context) for row in rows])
            return dict(zip(rows, made, strict=True))
        except ModelUnavailable:
            raise
        except Exception:
            log.exception("memories.not_embedded", memories=len(rows), memory_id=rows[0].id)
            if len(rows) == 1:
                return {}
        half = len(rows) // 2
        return {**await self._vectors(rows[:half]), **await self._vectors(rows[half:])}

    async def _keep(self, session: AsyncSession, made: dict[Row[Any], NDArray[np.float32]], taken: Sequence[int]) -> None:
        """Store what was made. A vector without a direction says that the model has nothing to say about that text."""
        assert self.embedder is not None
        values = [
            {"memory_id": row.id, "model": self.embedder.name, "scope": row.scope, "owner": row.owner, "embedding": vector}
            for row, vector in made.items()
            if has_direction(vector)
        ]
        await enter(session, BOARD)
        if values:
            await session.execute(upsert(MemoryEmbedding).on_conflict_do_nothing(), values)
        gone = {row.id for row in made}
        await session.execute(FINISHED, {"ids": [ident for ident in taken if ident in gone]})


async def _build_index(db: Database, model: str, dimensions: int) -> None:
    """Give a model's vectors an index, keeping nobody waiting; one that was broken off is made anew. One node does it."""
    name, quoted = index_name(model), model.replace("'", "''")
    create = f"""
        CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON memory_embeddings
         USING hnsw ((embedding::vector({dimensions})) vector_cosine_ops) WHERE model = '{quoted}'
    """
    async with db.engine.connect() as plain:  # on a large table it takes longer than any transaction may
        try:
            connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text("SET ROLE NONE"))  # an index is the tables' owner's to make
            if (await connection.execute(text(f"SELECT pg_try_advisory_lock({INDEX_LOCK})"))).scalar_one():
                await _build_alone(connection, name, create)
        finally:
            await plain.invalidate()  # the role and the lock go with the connection, however this ends


async def _build_alone(connection: AsyncConnection, name: str, create: str) -> None:
    query = text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)")
    state = (await connection.execute(query, {"name": name})).scalar_one_or_none()
    if state is False:
        await connection.execute(text(f"DROP INDEX CONCURRENTLY IF EXISTS {name}"))
    if not state:
        await connection.execute(text(create.replace(":", r"\:")))
