"""What follows a write: counts are exact, each vector is made once, and no text and no model can bring it down."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray
from sqlalchemy import text
from structlog.testing import capture_logs

from opencognit import brain
from opencognit.brain import Brain, Indexer, Vector, backlog
from opencognit.brain.embed.hashing import HashEmbedder
from opencognit.brain.store import INDEX_VERSION
from opencognit.brain.vectors import index_name
from opencognit.contracts import BOARD, MemoryDraft
from opencognit.db import Database, application_role, libpq_url
from opencognit.errors import ModelUnavailable
from opencognit.states import Scope, Trust
from opencognit.testing import until
from tests.integration.brain_kit import ANN, BEA, CAI, settle, value, write

Vectors = NDArray[np.float32]


class Watched(HashEmbedder):
    """Keeps what it was given, and lets a test change what comes of it."""

    def __init__(self, name: str = "hash-v1", dimensions: int = 384) -> None:
        self.name, self.dimensions = name, dimensions
        self.given: Counter[str] = Counter()
        self.on_text: Callable[[str], None] = lambda _: None
        self.instead: dict[str, float] = {}
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str]) -> Vectors:
        for one in texts:
            self.on_text(one)
            with self._lock:
                self.given[one] += 1
        vectors = super().encode(texts)
        for row, one in zip(vectors, texts, strict=True):
            if one in self.instead:
                row[:] = self.instead[one]
        return vectors


async def _written(db: Database, *contents: str, **fields: Any) -> list[int]:
    async with db.transaction() as session:
        return [(await write(session, content, **fields)).id for content in contents]


async def _rows(db: Database, query: str, **parameters: Any) -> list[Any]:
    async with db.reading() as session:
        return [tuple(row) for row in await session.execute(text(query), parameters)]


async def _embedded(db: Database, model: str = "hash-v1") -> list[int]:
    found = await _rows(db, "SELECT memory_id FROM memory_embeddings WHERE model = :m ORDER BY 1", m=model)
    return [ident for (ident,) in found]


async def _let_go(db: Database) -> None:
    """Let the time be over for which whoever died or failed holds what it took."""
    async with db.transaction() as session:
        await session.execute(text("UPDATE memory_backlog SET taken_until = '-infinity'"))


# --- counting ---------------------------------------------------------------------------------------------------


async def _assert_counts_are_exact(db: Database) -> None:
    """Compare the statistics with what stands in the memories' own terms."""
    frequencies: Counter[int] = Counter()
    tallies: dict[tuple[str, str], Counter[str]] = {}
    for scope, owner, terms, inside in await _rows(db, "SELECT scope, owner, terms, content_terms FROM memories"):
        numbers = np.frombuffer(terms, dtype="<u4").tolist()
        frequencies.update(set(numbers))
        tallies.setdefault((scope, owner), Counter()).update(memories=1, content_terms=inside, all_terms=len(numbers))
    assert dict(await _rows(db, "SELECT term, memories FROM memory_terms")) == frequencies
    counted = await _rows(db, "SELECT scope, owner, memories, content_terms, all_terms FROM memory_counts")
    assert {(scope, owner): tuple(numbers) for scope, owner, *numbers in counted} == {
        place: (tally["memories"], tally["content_terms"], tally["all_terms"]) for place, tally in tallies.items()
    }


async def _writes(db: Database, amount: int) -> None:
    """Write in every scope, some of it twice, with and without context."""
    places = [(BOARD, Scope.ORG), (ANN, Scope.TEAM), (CAI, Scope.TEAM), (BEA, Scope.AGENT_PRIVATE)]
    for number in range(amount):
        viewer, scope = places[number % 4]
        content = f"memory {number - number % 3} about port {number % 7}"
        async with db.transaction() as session:
            await write(session, content, viewer=viewer, scope=scope, context="ann, nightly" if number % 2 else "")


async def test_counts_are_exact_with_three_indexers_and_writers_at_once(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """In small steps that collide: each memory is counted once, whoever does it, and vectors are made once."""
    monkeypatch.setattr(backlog, "COUNTED", 7)
    monkeypatch.setattr(backlog.count, "__kwdefaults__", {"limit": 7})
    monkeypatch.setattr(backlog, "EMBEDDED", 5)
    embedder = Watched()
    indexers = [Indexer(db, embedder) for _ in range(3)]
    await indexers[0].adopt()
    writers = asyncio.gather(*(_writes(db, 40) for _ in range(2)))
    finished = 0
    while not writers.done():
        finished += sum(await asyncio.gather(*(one.catch_up() for one in indexers)))
    await writers
    finished += sum(await asyncio.gather(*(one.catch_up() for one in indexers)))
    finished += await indexers[0].catch_up()
    await _assert_counts_are_exact(db)
    ids = [ident for (ident,) in await _rows(db, "SELECT id FROM memories ORDER BY id")]
    assert len(ids) > 20
    assert finished == len(ids)
    assert await _embedded(db) == ids
    assert await _rows(db, "SELECT * FROM memory_backlog") == []
    contents = await _rows(db, "SELECT content, count(*) FROM memories GROUP BY content")
    assert {content: embedder.given[content] for content, _ in contents} == dict(contents)


async def test_while_one_counts_another_neither_waits_nor_counts_the_same(db: Database) -> None:
    """What the first has read but not committed is its own; what is left is counted afterwards."""
    await _writes(db, 24)
    async with db.transaction() as first:
        assert await backlog.count(first, limit=10) == 10
        async with asyncio.timeout(20), db.transaction() as second:
            assert await backlog.count(second) == 0
    await settle(db)
    await _assert_counts_are_exact(db)


async def test_as_the_applications_own_role_everybodys_memories_are_counted_and_embedded(database_url: str, db: Database) -> None:
    """Row-level security binds it: what belongs to teams and agents is indexed all the same, and found by them."""
    await _writes(db, 12)
    bound = Database(database_url, role=application_role(database_url))
    assert await settle(bound, HashEmbedder()) == await _count(db)
    hits = await Brain(bound, HashEmbedder()).recall("memory about a port", limit=50, viewer=BEA)
    await bound.close()
    await _assert_counts_are_exact(db)
    assert len(await _embedded(db)) == await _count(db)
    assert {hit.memory.scope for hit in hits} == set(Scope)
    assert all("similarity" in hit.why for hit in hits)


async def _count(db: Database) -> int:
    ((number,),) = await _rows(db, "SELECT count(*) FROM memories")
    return int(number)


async def test_without_an_embedder_words_are_counted(db: Database) -> None:
    await _writes(db, 12)
    assert await _rows(db, "SELECT * FROM memory_terms") == []
    await settle(db)
    await _assert_counts_are_exact(db)
    assert await _embedded(db) == []


async def test_a_node_without_a_model_leaves_vectors_to_one_that_has_it(db: Database) -> None:
    """Two nodes on one database, one of them text-only: whoever counts first, each memory gets its vector."""
    with_model, without = Indexer(db, HashEmbedder()), Indexer(db, None)
    await with_model.adopt()
    ids = await _written(db, "one", "two")
    await without.catch_up()
    await with_model.catch_up()
    assert await _embedded(db) == ids


async def test_what_is_not_counted_or_embedded_yet_is_found_by_its_words(db: Database) -> None:
    """A write waits for no model; a question with a vector finds it too, beside what has one."""
    old, new = "the proxy listens on port 8080", "the printer listens on port 9100"
    await _written(db, old)
    await settle(db, HashEmbedder())
    await _written(db, new)
    knowing = Brain(db, HashEmbedder())
    hits = await knowing.recall("Which port does the printer listen on?", viewer=BOARD)
    assert [(hit.memory.content, hit.mode, "similarity" in hit.why) for hit in hits] == [
        (new, "hybrid", False),
        (old, "hybrid", True),
    ]


async def test_memories_read_by_older_rules_are_read_again(db: Database) -> None:
    """Language, words and terms are this version's once the loop has passed."""
    (ident,) = await _written(db, "Die Häuser der Straße")
    async with db.transaction() as session:
        forgotten = (
            "UPDATE memories SET index_version = 0, language = 'english', search_text = 'x', terms = '', content_terms = 0"
        )
        await session.execute(text(forgotten))
    await settle(db)
    await _assert_counts_are_exact(db)
    async with db.transaction() as session:
        (hit,) = await brain.recall(session, "Welches Haus?", viewer=BOARD)
        assert hit.memory.id == ident
        assert await value(session, "SELECT language || index_version FROM memories") == f"german{INDEX_VERSION}"


async def test_many_that_are_read_again_are_counted_step_by_step(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction has its time: a store of an earlier version is not read within one."""
    monkeypatch.setattr(backlog, "READ_AT_ONCE", 2)
    await _written(db, "the plan of ann", "the plan of bea", "the plan of cai")
    async with db.transaction() as session:
        await session.execute(text("UPDATE memories SET index_version = 0, terms = '', content_terms = 0"))
    for expected in (2, 1, 0):
        async with db.transaction() as session:
            assert await backlog.count(session) == expected
    await _assert_counts_are_exact(db)


# --- vectors ----------------------------------------------------------------------------------------------------


async def test_a_memorys_vector_is_of_its_content_mixed_with_its_context(db: Database) -> None:
    """Of length 1, nearest to its content; without context it is the content's very vector."""
    plain, mixed = await _written(db, "it takes long"), await _written(db, "it takes forever", context="nightly migration")
    await settle(db, HashEmbedder())
    stored = dict(await _rows(db, "SELECT memory_id, embedding::text FROM memory_embeddings"))
    vectors = {ident: np.fromstring(written.strip("[]"), sep=",") for ident, written in stored.items()}
    alone, around, about = HashEmbedder().encode(["it takes long", "it takes forever", "nightly migration"])
    assert vectors[plain[0]] == pytest.approx(alone, abs=1e-6)
    assert np.linalg.norm(vectors[mixed[0]]) == pytest.approx(1)
    assert vectors[mixed[0]] @ around > 0.7
    assert vectors[mixed[0]] @ about > around @ about


async def test_a_text_that_fails_leaves_the_others_embedded_and_is_found_by_words(db: Database) -> None:
    """It is tried a few times more, alone, and then left; those beside it are not made again."""
    contents = [f"memory number {number}" for number in range(20)]
    ids = await _written(db, *contents, "poison apple")
    embedder = Watched()

    def refuse(content: str) -> None:
        if content == "poison apple":
            embedder.given[content] += 1
            raise RuntimeError("the tokenizer fell over")

    embedder.on_text = refuse
    with capture_logs() as logs:
        assert await settle(db, embedder) == 20
    assert await _embedded(db) == ids[:20]
    assert {"memories.not_embedded"} == {entry["event"] for entry in logs if entry["log_level"] == "error"}
    assert "poison" not in str([{**entry, "exc_info": None} for entry in logs])
    hits = await Brain(db, HashEmbedder()).recall("apple", viewer=BOARD)
    assert hits[0].memory.content == "poison apple"
    made = Counter(embedder.given)
    for _ in range(backlog.TRIES + 2):
        await _let_go(db)
        assert await Indexer(db, embedder).catch_up() == 0
    again = embedder.given - made
    assert set(again) == {"poison apple"}
    assert again["poison apple"] == backlog.TRIES - 1


async def test_without_its_model_nothing_is_lost_and_no_try_is_used(db: Database) -> None:
    """ModelUnavailable gives what was taken back at once: when the model is there, the next pass makes the vectors."""
    ids = await _written(db, "one", "two")
    embedder = Watched()

    def away(_: str) -> None:
        raise ModelUnavailable("the model is not there: run `opencognit model pull`")

    embedder.on_text = away
    await Indexer(db, embedder).adopt()
    for _ in range(backlog.TRIES + 1):
        with pytest.raises(ModelUnavailable):
            await Indexer(db, embedder).catch_up()
    assert await _rows(db, "SELECT tries, counted, taken_until = '-infinity' FROM memory_backlog") == [(0, True, True)] * 2
    embedder.on_text = lambda _: None
    assert await Indexer(db, embedder).catch_up() == 2
    assert await _embedded(db) == ids


async def test_what_a_dead_node_took_is_taken_again_and_only_once_its_time_is_over(db: Database) -> None:
    """A process that dies with memories in hand keeps nobody from them for long."""
    ids = await _written(db, "one", "two")
    indexer = Indexer(db, Watched())
    await indexer.adopt()
    async with db.transaction() as session:
        await backlog.count(session)
        assert len((await session.execute(backlog.TAKE, {"limit": 9, "tries": 9, "taken_s": 600})).all()) == 2
    assert await indexer.catch_up() == 0
    await _let_go(db)
    assert await indexer.catch_up() == 2
    assert await _embedded(db) == ids


@pytest.mark.parametrize("number", [0.0, np.nan, np.inf, -np.inf])
async def test_a_vector_without_a_direction_is_not_stored(db: Database, number: float) -> None:
    """All zeros, NaN, infinity (F12-07): the text is found by its words, ranked by them, and the others have their vectors."""
    odd, good = await _written(db, "odd apple", "good apple")
    embedder = Watched()
    embedder.instead["odd apple"] = number
    await settle(db, embedder)
    assert await _embedded(db) == [good]
    assert await _rows(db, "SELECT * FROM memory_backlog") == []
    hits = await Brain(db, HashEmbedder()).recall("odd apple", viewer=BOARD)
    assert [hit.memory.id for hit in hits] == [odd, good]
    assert all(np.isfinite(hit.score) and np.isfinite(list(hit.why.values())).all() for hit in hits)


@pytest.mark.parametrize("number", [0.0, np.nan, np.inf])
async def test_a_question_without_a_direction_is_asked_by_its_words(db: Database, number: float) -> None:
    """Whether the embedder or the caller gives such a vector; with nothing but it, nothing is found."""
    await _written(db, "red apple", "blue plum")
    await settle(db, HashEmbedder())
    embedder = Watched()
    embedder.instead["apple"] = number
    hits = await Brain(db, embedder).recall("apple", viewer=BOARD)
    assert [(hit.memory.content, hit.mode) for hit in hits] == [("red apple", "text")]
    aimless = Vector("hash-v1", np.full(384, number, np.float32))
    hits = await Brain(db, None).recall("apple", embedding=aimless, viewer=BOARD)
    assert [(hit.memory.content, hit.mode) for hit in hits] == [("red apple", "text")]
    assert await Brain(db, None).recall(embedding=aimless, viewer=BOARD) == []


async def test_no_vector_is_made_within_a_transaction(db: Database) -> None:
    """While the model works, no connection of the pool is in one: neither the indexer's nor a question's."""
    await _written(db, *(f"memory {number}" for number in range(5)))
    url, open_ones = libpq_url(db.url), []

    def look(_: str) -> None:
        query = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
                      AND application_name = 'opencognit' AND xact_start IS NOT NULL"""
        with psycopg.connect(url, autocommit=True) as aside:
            (found,) = aside.execute(query).fetchone() or (None,)
        open_ones.append(found)

    embedder = Watched()
    embedder.on_text = look
    await settle(db, embedder)
    await Brain(db, embedder).recall("memory", viewer=BOARD)
    assert open_ones == [0] * 6


# --- another model ----------------------------------------------------------------------------------------------


async def test_another_model_embeds_everything_anew_while_recall_goes_on(db: Database) -> None:
    """With other dimensions too (F12-08): at every point every memory is found, and at the end by the new vectors."""
    contents = [f"memory number {number}" for number in range(8)]
    ids = await _written(db, *contents)
    await settle(db, HashEmbedder())
    newer = Watched("other model: v2'", 384)
    newer.dimensions = 96
    knowing = Brain(db, newer)
    found: list[tuple[int, int]] = []

    async def look() -> None:
        hits = await knowing.recall("memory number", viewer=BOARD)
        found.append((len(hits), sum("similarity" in hit.why for hit in hits)))

    await look()
    indexer = Indexer(db, newer)
    await indexer.adopt()
    await look()
    await indexer._embed((await indexer._take())[:3])
    await look()
    await _let_go(db)
    await indexer.catch_up()
    await look()
    assert found == [(8, 0), (8, 0), (8, 3), (8, 8)]
    assert await _embedded(db) == await _embedded(db, newer.name) == ids
    await indexer.adopt()
    assert await _rows(db, "SELECT * FROM memory_backlog") == []


async def _index(db: Database, model: str) -> list[Any]:
    query = """SELECT indisvalid, pg_get_expr(indpred, indrelid) FROM pg_index WHERE indexrelid = to_regclass(:name)"""
    return await _rows(db, query, name=index_name(model))


async def test_each_model_has_an_index_of_its_own_and_a_broken_one_is_made_anew(db: Database) -> None:
    """Whatever characters its name has; three nodes that start at once make one."""
    names = ["hash-v1", "a model's: name (2)", "x" * 200]
    for name in names:
        await asyncio.gather(*(Indexer(db, Watched(name)).adopt() for _ in range(3)))
        ((valid, predicate),) = await _index(db, name)
        assert valid
        assert name.replace("'", "''") in predicate
    async with db.transaction() as session:
        broken = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = to_regclass(:name)"
        await session.execute(text(broken), {"name": index_name(names[1])})
    await Indexer(db, Watched(names[1])).adopt()
    assert [(await _index(db, name))[0][0] for name in names] == [True] * 3


# --- the loop ---------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _kept(indexer: Indexer) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(indexer.keep())
        yield
        assert not keeping.done()
        keeping.cancel()


async def _until_embedded(db: Database, ids: list[int]) -> None:
    while await _embedded(db) != ids:  # noqa: ASYNC110 - another process could be the one that does it
        await asyncio.sleep(0.01)


async def test_the_loop_indexes_what_is_written_and_survives_a_model_that_is_away(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so and goes on when the model is back; what was there before it began is embedded too."""
    monkeypatch.setattr(backlog, "PAUSE_S", 0.02)
    monkeypatch.setattr(backlog, "RETRY_S", 0.02)
    ids = await _written(db, "before")
    embedder = Watched()
    tried = threading.Event()

    def away(_: str) -> None:
        tried.set()
        raise ModelUnavailable("the model is not there")

    async with asyncio.timeout(30):
        with capture_logs() as logs:
            async with _kept(Indexer(db, embedder)):
                await _until_embedded(db, ids)
                embedder.on_text = away
                ids += await _written(db, "after")
                await asyncio.to_thread(tried.wait)
                embedder.on_text = lambda _: None
                await _until_embedded(db, ids)
    assert "brain.not_indexed" in {entry["event"] for entry in logs}
    assert await _rows(db, "SELECT * FROM memory_backlog") == []


async def test_a_row_that_nobody_foresaw_does_not_end_the_loop(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is one of a node's: if it ended, so would the node."""
    monkeypatch.setattr(backlog, "PAUSE_S", 0.02)
    monkeypatch.setattr(backlog, "RETRY_S", 0.02)
    ids = await _written(db, "the plan of ann")
    async with db.transaction() as session:
        whole = await value(session, "SELECT terms FROM memories")
        await session.execute(text("UPDATE memories SET terms = substr(terms, 2)"))
    with capture_logs() as logs:

        async def broke() -> bool:
            return any("exc_info" in entry for entry in logs)

        async with _kept(Indexer(db, HashEmbedder())):
            await until(broke)
            async with db.transaction() as session:
                await session.execute(text("UPDATE memories SET terms = :whole"), {"whole": whole})
            async with asyncio.timeout(30):
                await _until_embedded(db, ids)


async def test_a_cancel_while_an_index_is_built_is_a_cancel(db: Database, bound: Database) -> None:
    """It must not come out as the error of the session that it broke: whoever waits for the loop's end would wait for ever."""
    (ident,) = await _written(db, "the plan of ann")
    async with db.transaction() as holding:
        await holding.execute(text("LOCK TABLE memory_embeddings IN ROW EXCLUSIVE MODE"))
        adopting = asyncio.create_task(Indexer(bound, HashEmbedder()).adopt())

        async def builds() -> bool:
            waits = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%CREATE INDEX CONCURRENTLY%' AND wait_event_type = 'Lock'"
            return bool(await _rows(db, waits))

        await until(builds)
        adopting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adopting
    await settle(bound, HashEmbedder())
    assert await _rows(db, "SELECT memory_id FROM memory_embeddings") == [(ident,)]
    assert await _rows(db, "SELECT 1 FROM pg_index WHERE NOT indisvalid") == []


async def test_a_model_whose_vectors_no_index_takes_is_compared_one_by_one(db: Database) -> None:
    """pgvector indexes 2,000 dimensions at most: that must stop neither counting nor embedding."""

    class Wide:
        name, dimensions = "wide", 2100

        def encode(self, texts: Sequence[str]) -> Any:
            made = np.zeros((len(texts), self.dimensions), np.float32)
            made[:, 0] = 1.0
            return made

    knowing = brain.Brain(db, Wide())
    stored = await knowing.write(MemoryDraft(content="the plan of ann"), viewer=BOARD, trust=Trust.OBSERVED)
    assert await settle(db, Wide()) == 1
    hits = await knowing.recall("something else", viewer=BOARD)
    assert [hit.memory.id for hit in hits] == [stored.id]
