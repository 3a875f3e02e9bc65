"""A write: one statement, once per key however often it is sent, and what had grown stale comes back by it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import brain
from opencognit.brain import Brain
from opencognit.brain.embed.hashing import HashEmbedder
from opencognit.contracts import BOARD, EntityRef, MemoryDraft, Viewer
from opencognit.db import Database
from opencognit.errors import InvalidInput, OpenCognitError
from opencognit.states import Lifecycle, MemoryType, Scope, Trust
from tests.integration.brain_kit import ANN, BEA, found, settle, value, write

# --- one statement ----------------------------------------------------------------------------------------------


@contextmanager
def _listening(db: Database) -> Iterator[list[str]]:
    """Keep what is sent to the server, commits too."""
    said: list[str] = []
    engine = db.engine.sync_engine

    def statement(_connection: Any, _cursor: Any, sent: str, *_: Any) -> None:
        said.append(" ".join(sent.split()))

    def commit(_connection: Any) -> None:
        said.append("COMMIT")

    event.listen(engine, "before_cursor_execute", statement)
    event.listen(engine, "commit", commit)
    yield said
    event.remove(engine, "before_cursor_execute", statement)
    event.remove(engine, "commit", commit)


class Unwanted(HashEmbedder):
    def encode(self, texts: Any) -> Any:
        raise AssertionError(f"a write asked the model about {texts}")


async def test_a_write_is_one_insert_and_a_commit_without_a_model(db: Database) -> None:
    """The memory and its place in the backlog; the same content again is one statement too."""
    knowing = Brain(db, Unwanted())
    await knowing.write(MemoryDraft(content="warms the pool"), viewer=ANN, trust=Trust.OBSERVED)
    for content, merged in (("the kettle is slow", False), ("The  kettle is slow", True)):
        with _listening(db) as said:
            stored = await knowing.write(MemoryDraft(content=content, room="kitchen"), viewer=ANN, trust=Trust.OBSERVED)
        assert stored.merged is merged
        assert [one.split()[0] for one in said] == ["WITH", "COMMIT"], said
        assert "INSERT INTO memories" in said[0]
        assert "INSERT INTO memory_backlog" in said[0]
    async with db.reading() as session:
        assert await value(session, "SELECT count(*) FROM memories") == 2
        assert await value(session, "SELECT count(*) FROM memory_backlog") == 2
        assert await value(session, "SELECT count(*) FROM memory_embeddings") == 0


async def test_a_known_memory_is_not_counted_or_embedded_again(db: Database) -> None:
    """Its words are what they were: only its evidence grows."""
    async with db.transaction() as session:
        await write(session, "the kettle is slow")
    assert await settle(db, HashEmbedder()) == 1
    async with db.transaction() as session:
        assert (await write(session, "The Kettle is slow")).merged
        assert await value(session, "SELECT count(*) FROM memory_backlog") == 0


async def test_a_stale_memory_is_active_again_when_it_is_written_again(session: AsyncSession) -> None:
    """It is the same memory, and its evidence grows."""
    old = await write(session, "the kettle is slow")
    await session.execute(text("UPDATE memories SET lifecycle = 'stale'"))
    again = await write(session, "the kettle is slow", viewer=ANN)
    assert (again.id, again.merged) == (old.id, True)
    row = (await session.execute(text("SELECT lifecycle, evidence FROM memories"))).one()
    assert tuple(row) == (Lifecycle.ACTIVE, 2)


# --- idempotency keys -------------------------------------------------------------------------------------------


async def test_a_key_used_again_gives_the_memory_of_its_first_use(session: AsyncSession) -> None:
    """A request sent twice is one write: no evidence, no edge, no entity is added, whatever became of the memory since."""
    source = await write(session, "a source")
    first = await write(session, "the kettle is slow", viewer=ANN, key="request 1")
    again = await write(
        session,
        "The kettle  is slow",
        viewer=ANN,
        key="request 1",
        type=MemoryType.RULE,
        entities=(EntityRef(kind="thing", key="kettle"),),
        supersedes=(source.id,),
    )
    assert (again.id, again.merged) == (first.id, True)
    assert await value(session, "SELECT evidence FROM memories WHERE id = :id", id=first.id) == 1
    assert await value(session, "SELECT count(*) FROM memory_edges") == 0
    await brain.archive(session, first.id, viewer=BOARD)
    assert (await write(session, "the kettle is slow", viewer=ANN, key="request 1")).id == first.id
    assert (await write(session, "the kettle is slow", viewer=ANN, key="request 2")).id != first.id


async def test_a_key_is_its_writers_own(session: AsyncSession) -> None:
    """Another's key, or the board's, is another key, and tells nothing of what that one wrote."""
    own = await write(session, "ann's own", viewer=ANN, scope=Scope.AGENT_PRIVATE, key="k")
    for viewer in (BEA, BOARD, Viewer(agent="an"), Viewer(agent="ann:k")):
        other = await write(session, f"of {viewer.agent}", viewer=viewer, key="k")
        assert (other.merged, other.id == own.id) == (False, False)


async def test_a_key_used_for_another_text_is_refused(session: AsyncSession) -> None:
    """The message names the key and the memory it stands for; nothing is written, also after a merge."""
    first = await write(session, "the kettle is slow", viewer=ANN, key="k")
    await write(session, "the kettle is slow", viewer=ANN, key="merged")
    for key in ("k", "merged"):
        with pytest.raises(
            InvalidInput, match=f"idempotency_key: '{key}' was used for another memory, {first.id}: use a new key"
        ):
            await write(session, "the kettle is fast", viewer=ANN, key=key)
    assert await value(session, "SELECT count(*) FROM memories") == 1


@pytest.mark.parametrize("key", ["", "x" * 201])
async def test_what_can_be_no_key_is_refused_by_name(session: AsyncSession, key: str) -> None:
    with pytest.raises(InvalidInput, match=f"idempotency_key: has {len(key)} characters: give 1 to 200"):
        await write(session, "text", key=key)
    assert await value(session, "SELECT count(*) FROM memories") == 0


@pytest.mark.parametrize("key", ["nul \0", "half \ud83d", " ", "ключ ✓", "x" * 200])
async def test_any_other_key_will_do(session: AsyncSession, key: str) -> None:
    first = await write(session, "text", key=key)
    assert (await write(session, "text", key=key)).id == first.id
    assert await value(session, "SELECT evidence FROM memories") == 1


async def test_of_many_requests_with_one_key_at_once_one_writes(db: Database) -> None:
    """The others wait for it and get its memory; evidence stays 1."""

    async def send(_: int) -> brain.Stored:
        return await Brain(db).write(
            MemoryDraft(content="the kettle is slow"), viewer=ANN, trust=Trust.OBSERVED, idempotency_key="k"
        )

    stored = await asyncio.gather(*map(send, range(12)))
    assert len({one.id for one in stored}) == 1
    assert sorted(one.merged for one in stored) == [False] + [True] * 11
    async with db.transaction() as session:
        assert await value(session, "SELECT evidence FROM memories") == 1


async def test_of_two_texts_with_one_key_at_once_one_is_stored(db: Database) -> None:
    """Whichever came first; the other is refused and leaves nothing behind."""

    async def send(content: str) -> brain.Stored | OpenCognitError:
        try:
            return await Brain(db).write(MemoryDraft(content=content), viewer=ANN, trust=Trust.OBSERVED, idempotency_key="k")
        except InvalidInput as error:
            return error

    said = await asyncio.gather(*(send(f"text {number}") for number in range(6)))
    assert sum(isinstance(one, brain.Stored) for one in said) == 1
    async with db.transaction() as session:
        assert await value(session, "SELECT count(*) FROM memories") == 1


async def test_a_key_whose_write_was_rolled_back_is_free(db: Database) -> None:
    async with db.transaction() as session:
        await write(session, "the kettle is slow", viewer=ANN, key="k")
        await session.rollback()
    async with db.transaction() as session:
        assert not (await write(session, "the kettle is fast", viewer=ANN, key="k")).merged
        assert await found(session, "kettle") == ["the kettle is fast"]
