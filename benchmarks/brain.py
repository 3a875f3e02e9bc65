"""`python -m benchmarks.brain`: what the brain does in a millisecond, small and large, beside what PostgreSQL alone does.

Memories are made up (benchmarks/synthetic.py): quality is measured by benchmarks/recall.py. A query's vector is given; encoding
one is a figure of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import insert, text

from benchmarks import rig, synthetic
from benchmarks.figures import Figure, at_most, line, percentile
from opencognit import brain
from opencognit.brain import Brain, Embedder, Indexer, Vector
from opencognit.config.sections import Brain as Settings
from opencognit.contracts import BOARD, MemoryDraft, Viewer
from opencognit.db import Database, application_role
from opencognit.models import Memory
from opencognit.states import Trust

PARTS = ("encode", "write", "scale")
SMALL, LARGE = Viewer(agent="ann", team="small"), Viewer(agent="bob", team="large")
SENTENCES = 2000
LIMIT = 10


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.brain", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, by commas: {','.join(PARTS)}")
    parser.add_argument("--memories", default="1000,100000", help="sizes, by commas (1000,100000); 1000000 takes half an hour")
    parser.add_argument("--queries", type=int, default=300, help="questions of a figure (300)")
    parser.add_argument("--writes", type=int, default=500, help="writes of a figure (500)")
    options = parser.parse_args(arguments)
    parts = options.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only knows {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as models, rig.server() as server, asyncio.Runner() as runner:
        embedder = brain.open_embedder(Settings(), Path(models))
        assert embedder is not None
        for figures in _measured(server, embedder, parts, options):
            for figure in runner.run(_collected(figures)):
                print(line(figure), flush=True)


async def _collected(figures: AsyncIterator[Figure]) -> list[Figure]:
    return [figure async for figure in figures]


def _measured(server: str, embedder: Embedder, parts: Sequence[str], options: Any) -> Iterator[AsyncIterator[Figure]]:
    if "encode" in parts:
        yield _encoding(embedder, options.queries)
    if "write" in parts:
        with rig.database(server) as url:
            yield _writing(url, embedder, options.writes)
    if "scale" in parts:
        world = synthetic.World.make(embedder.encode(_sentences()))
        for size in map(int, options.memories.split(",")):
            with rig.database(server) as url:
                yield _scale(url, world, size, options.queries)


def _sentences() -> list[str]:
    """Lines that people wrote, as many kinds of them as there are: this project's own."""
    root = Path(__file__).parents[1]
    lines = {line.strip() for pattern in ("*.md", "opencognit/**/*.py", "tests/**/*.py") for path in root.glob(pattern)
             for line in path.read_text().splitlines() if len(line.strip()) > 40}  # fmt: skip
    return sorted(lines)[:: max(len(lines) // SENTENCES, 1)][:SENTENCES]


async def _times(work: Callable[[], Awaitable[object]], count: int) -> list[float]:
    """Return the milliseconds of each call, sorted."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        await work()
        times.append((time.perf_counter() - started) * 1000)
    return sorted(times)


def _percentiles(times: Sequence[float]) -> str:
    return f"p50 {percentile(times, 0.5):.1f} p95 {percentile(times, 0.95):.1f} ms"


# --- encoding and writing ------------------------------------------------------------------------------------------------


async def _encoding(embedder: Embedder, count: int) -> AsyncIterator[Figure]:
    knowing = Brain(None, embedder)  # type: ignore[arg-type]  # encodes and asks nothing
    questions = iter(f"When did the team move the backups to port {number}?" for number in range(count + 10))
    for _ in range(10):
        await knowing.encode(next(questions))
    times = await _times(lambda: knowing.encode(next(questions)), count)
    yield at_most("encoding one short question, p50", percentile(times, 0.5), 12, "ms")
    yield Figure("encoding one short question", _percentiles(times))


async def _writing(url: str, embedder: Embedder, count: int) -> AsyncIterator[Figure]:
    """A write beside the bare INSERT of the same row, commit included, taken in turns; then with the loop that embeds."""
    db, owner = _working(url), Database(url)
    texts = iter(_drafts(count * 4))
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(count):
        ours += await _times(lambda: _write(db, next(texts)), 1)
        row = await _prepared(owner, next(texts))
        bare += await _times(lambda: _insert(owner, row), 1)  # noqa: B023 (called at once)
    ours, bare = sorted(ours), sorted(bare)
    ratio = percentile(ours, 0.5) / percentile(bare, 0.5)
    yield Figure("bare INSERT of a memory's row and its commit", _percentiles(bare))
    yield Figure("write of a memory, p50 beside that", f"{_percentiles(ours)}, {ratio:.2f}x", "< 2x", ratio < 2)
    yield await _written_and_embedded(db, embedder, texts, count)
    await owner.close()
    await db.close()


def _working(url: str) -> Database:
    """Return a pool in the role that a company works as: policies are part of what is measured."""
    return Database(url, role=application_role(url))


def _drafts(count: int) -> Iterator[MemoryDraft]:
    words = [word for sentence in _sentences() for word in sentence.split() if word.isalpha()]
    chance = random.Random(3)
    for number in range(count):
        yield MemoryDraft(content=f"{' '.join(chance.choices(words, k=20))} {number}", context="ann (engineer), task: measure")


async def _write(db: Database, draft: MemoryDraft) -> None:
    async with db.transaction() as session:
        await brain.write(session, draft, viewer=BOARD, trust=Trust.OBSERVED)


async def _prepared(db: Database, draft: MemoryDraft) -> dict[str, Any]:
    """Return a memory's row as a write makes it, taken back out of the table."""
    async with db.transaction() as session:
        stored = await brain.write(session, draft, viewer=BOARD, trust=Trust.OBSERVED)
        columns = [column for column in Memory.__table__.columns if column.name not in ("id", "search")]
        query = Memory.__table__.select().with_only_columns(*columns).where(Memory.id == stored.id)
        row = dict((await session.execute(query)).mappings().one())
        await session.rollback()
    return row


async def _insert(db: Database, row: dict[str, Any]) -> None:
    async with db.transaction() as session:
        await session.execute(insert(Memory).values(row))


async def _written_and_embedded(db: Database, embedder: Embedder, drafts: Iterator[MemoryDraft], count: int) -> Figure:
    indexer = Indexer(db, embedder)
    await indexer.adopt()
    await indexer.catch_up()
    started = time.perf_counter()
    written = 0

    async def write() -> None:
        nonlocal written
        for draft in (next(drafts) for _ in range(count)):
            await _write(db, draft)
        written = count

    writing = asyncio.create_task(write())
    embedded = 0
    while not writing.done():
        embedded += await indexer.catch_up()
        await asyncio.sleep(0.01)
    await writing
    taken = time.perf_counter() - started
    return Figure(
        "writes one after the other while their vectors are made",
        f"{written / taken:.0f} written, {embedded / taken:.0f} embedded /s",
    )


# --- scale ---------------------------------------------------------------------------------------------------------------


async def _scale(url: str, world: synthetic.World, size: int, queries: int) -> AsyncIterator[Figure]:
    started = time.perf_counter()
    await asyncio.to_thread(synthetic.load, url, world, size)
    loaded = time.perf_counter() - started
    db, owner = _working(url), Database(url)
    await Indexer(db, _Synthetic()).adopt()
    yield Figure(
        f"{size} memories: copied in; vectors' index built", f"{loaded:.0f} s; {time.perf_counter() - started - loaded:.0f} s"
    )
    questions = list(world.texts(queries, (4, 9), seed=2))
    vectors = [Vector(synthetic.MODEL, vector) for vector in world.vectors(queries, seed=3)]
    for name, viewer in (("all", BOARD), ("99 %", LARGE), ("1 %", SMALL)):
        for mode in ("text", "vector", "hybrid"):
            yield await _recalls(db, f"{size} memories, {mode}, sees {name}", mode, questions, vectors, viewer, size)
    for name, viewer in (("all", BOARD), ("1 %", SMALL)):
        yield await _exactness(db, owner, f"{size} memories, likeness beside exact search, sees {name}", vectors[:50], viewer)
    for figure in await _sizes(owner, size):
        yield figure
    await owner.close()
    await db.close()


class _Synthetic:
    """The name under which made-up vectors are stored; it encodes nothing."""

    name, dimensions = synthetic.MODEL, synthetic.DIMENSIONS

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise AssertionError(f"{len(texts)} texts were to be embedded: all have their vector")


async def _recalls(
    db: Database, what: str, mode: str, questions: Sequence[str], vectors: Sequence[Vector], viewer: Viewer, size: int
) -> Figure:
    asked = iter([*zip(questions[:20], vectors[:20], strict=True), *zip(questions, vectors, strict=True)])
    short = 0

    async def ask() -> None:
        nonlocal short
        question, vector = next(asked)
        async with db.transaction() as session:
            hits = await brain.recall(
                session,
                question if mode != "vector" else None,
                embedding=vector if mode != "text" else None,
                limit=LIMIT,
                viewer=viewer,
            )
        short += len(hits) < LIMIT

    await _times(ask, 20)
    times = await _times(ask, len(questions))
    value = _percentiles(times) + (f", {short} not full" if short else "")
    if mode != "hybrid" or size > 100_000:
        return Figure(what, value)
    return Figure(what, value, "p95 < 40 ms, full", percentile(times, 0.95) < 40 and not short)


async def _exactness(db: Database, owner: Database, what: str, vectors: Sequence[Vector], viewer: Viewer) -> Figure:
    """The share of the exactly ten nearest that recall by vector finds."""
    found = 0
    exact = text(
        f"""
        SELECT memory_id FROM memory_embeddings
         WHERE model = :model AND (:team = '' OR owner = :team)
         ORDER BY (embedding::vector({synthetic.DIMENSIONS}) <=> CAST(:vector AS vector)) + 0 LIMIT {LIMIT}
    """.replace("::", r"\:\:")
    )
    for vector in vectors:
        async with db.transaction() as session:
            hits = await brain.recall(session, None, embedding=vector, limit=LIMIT, viewer=viewer)
        async with owner.reading() as session:
            parameters = {"model": vector.model, "team": viewer.team or "", "vector": str(vector.values.tolist())}
            nearest = set((await session.execute(exact, parameters)).scalars())
        found += len(nearest & {hit.memory.id for hit in hits})
    return Figure(what, f"{found / (LIMIT * len(vectors)):.3f} of the nearest {LIMIT}")


async def _sizes(db: Database, size: int) -> list[Figure]:
    async with db.transaction() as session:
        query = text("""
            SELECT c.relname AS name, pg_relation_size(c.oid) / 1048576 AS megabytes FROM pg_class c
             WHERE c.relname IN ('memories', 'memory_embeddings', 'ix_memories_search', 'memory_terms')
                OR c.relname LIKE 'ix\\_memory\\_embeddings\\_%' ORDER BY 2 DESC
        """)
        rows = (await session.execute(query)).all()
    return [Figure(f"{size} memories, {row.name}", f"{row.megabytes} MB") for row in rows]


if __name__ == "__main__":
    main()
