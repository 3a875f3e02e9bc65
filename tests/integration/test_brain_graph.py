"""Views over the store on real PostgreSQL: the graph's picture, an agent's diary, the counts and timings."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, insert, text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import brain
from opencognit.brain import graph, timings
from opencognit.contracts import BOARD, Answer, EntityRef, MemoryDraft, Remember, Viewer
from opencognit.db import Database
from opencognit.errors import InvalidInput, NotFound
from opencognit.models import MemoryEmbedding
from opencognit.states import EntityRole, MemoryType, Relation, RunState, Scope, Trust
from tests.integration.company import claim, finish, give, hire, spec

ANN, BEA, CAI = Viewer(agent="ann", team="red"), Viewer(agent="bea", team="red"), Viewer(agent="cai", team="blue")


@pytest.fixture(scope="module")
def url(server: str, template: str) -> Iterator[str]:
    """One migrated database for all tests that roll back what they do."""
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE brain_graph TEMPLATE {template}")
        yield re.sub(r"/opencognit\?", "/brain_graph?", server)
        admin.execute("DROP DATABASE brain_graph WITH (FORCE)")


@pytest.fixture
async def session(url: str) -> AsyncIterator[AsyncSession]:
    """A transaction that is rolled back at the end."""
    db = Database(url)
    async with db.transaction() as session:
        yield session
        await session.rollback()
    await db.close()


async def _write(session: AsyncSession, content: str, *, viewer: Viewer = BOARD, **fields: Any) -> int:
    stored = await brain.write(session, MemoryDraft(content=content, **fields), viewer=viewer, trust=Trust.OBSERVED)
    return stored.id


async def _tie(session: AsyncSession, source: int, target: int) -> None:
    await brain.relate(session, source, Relation.SUPPORTS, target, viewer=BOARD)


def _ends(picture: brain.Snapshot) -> list[tuple[int, int]]:
    return [(edge.source_id, edge.target_id) for edge in picture.edges]


def _nodes(picture: brain.Snapshot) -> dict[int, bool]:
    return {node.id: node.external for node in picture.memories}


# --- graph --------------------------------------------------------------------------------------------------------


async def test_an_old_memory_that_is_tied_today_is_in_the_picture_as_external(session: AsyncSession) -> None:
    """Memories and edges are chosen apart, over the whole store: both ends of each edge are there, the old ones marked."""
    old, older, new, newest = [await _write(session, f"memory {at}") for at in range(4)]
    await _tie(session, old, older)
    await _tie(session, older, newest)
    picture = await brain.snapshot(session, viewer=BOARD, memories=2, edges=1)
    assert _nodes(picture) == {newest: False, new: False, older: True}
    assert _ends(picture) == [(older, newest)]
    both = await brain.snapshot(session, viewer=BOARD, memories=2, edges=2)
    assert _nodes(both) == {newest: False, new: False, old: True, older: True}
    assert _ends(both) == [(older, newest), (old, older)]
    assert _nodes(await brain.snapshot(session, viewer=BOARD, memories=0, edges=1)) == {newest: True, older: True}
    assert _nodes(await brain.snapshot(session, viewer=BOARD, memories=1, edges=0)) == {newest: False}


async def test_an_edge_with_an_end_that_is_not_the_viewers_is_not_there(session: AsyncSession) -> None:
    """Nor does it take the place of one that is: the newest edges are those that the viewer may see."""
    shared, other = await _write(session, "shared"), await _write(session, "other")
    private = await _write(session, "private", viewer=CAI, scope=Scope.AGENT_PRIVATE)
    team = await _write(session, "for red", viewer=ANN, scope=Scope.TEAM)
    await _tie(session, shared, other)
    for ends in ((shared, private), (private, shared), (private, other), (team, shared)):
        await _tie(session, *ends)
    seen = await brain.snapshot(session, viewer=BEA, edges=2)
    assert _nodes(seen) == {team: False, other: False, shared: False}
    assert _ends(seen) == [(team, shared), (shared, other)]
    assert _ends(await brain.snapshot(session, viewer=CAI)) == [
        (private, other),
        (private, shared),
        (shared, private),
        (shared, other),
    ]
    assert len((await brain.snapshot(session, viewer=BOARD)).edges) == 5


async def test_entities_are_nodes_with_their_mentions(session: AsyncSession) -> None:
    """Those of external memories too; of a memory that is not the viewer's none, though others name the entity."""
    ada = EntityRef(kind="person", key="Ada", role=EntityRole.SUBJECT)
    kettle = EntityRef(kind="tool", key="kettle")
    await _write(session, "not in the picture", entities=(kettle, EntityRef(kind="tool", key="saw")))
    old = await _write(session, "old", entities=(kettle,))
    await _write(session, "private", viewer=CAI, scope=Scope.AGENT_PRIVATE, entities=(ada, EntityRef(kind="secret", key="x")))
    new = await _write(session, "new", entities=(ada, EntityRef(kind="tool", key="kettle", role=EntityRole.OBJECT)))
    await _tie(session, new, old)
    picture = await brain.snapshot(session, viewer=ANN, memories=1)
    told = {(one.kind, one.key): one.mentions for one in picture.entities}
    assert told == {("person", "ada"): ((new, "subject"),), ("tool", "kettle"): ((new, "object"), (old, "mentioned"))}


async def test_a_picture_is_bounded_and_says_what_it_left_out(session: AsyncSession, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(4):
        await _write(session, f"{at} " + "x" * 5000, entities=(EntityRef(kind="number", key=str(at)),))
    whole = await brain.snapshot(session, viewer=BOARD)
    assert whole.incomplete is None
    assert {len(node.content) for node in whole.memories} == {graph.LABEL}
    monkeypatch.setattr(graph, "LINKS", 3)
    cut = await brain.snapshot(session, viewer=BOARD)
    assert [one.key for one in cut.entities] == ["1", "2", "3"]
    assert cut.incomplete == "more than 3 mentions of entities: those of the oldest memories are not here"
    for wrong in ({"memories": -1}, {"edges": graph.MOST + 1}):
        with pytest.raises(InvalidInput, match=r"give 0 to 2000"):
            await brain.snapshot(session, viewer=BOARD, **wrong)


async def test_a_picture_takes_as_many_statements_however_large_it_is(url: str, session: AsyncSession) -> None:
    ids = [await _write(session, f"memory {at}", entities=(EntityRef(kind="n", key=str(at)),)) for at in range(12)]
    for source, target in itertools.pairwise(ids):
        await _tie(session, source, target)
    engine = (await session.connection()).sync_engine
    said: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda _c, _u, statement, *_: said.append(statement))
    await brain.snapshot(session, viewer=ANN, memories=1, edges=1)
    few = len(said)
    await brain.snapshot(session, viewer=ANN, memories=4, edges=12)
    assert len(said) == 2 * few


async def test_the_shape_is_json_with_ids_as_strings_and_times_in_utc(session: AsyncSession) -> None:
    first = await _write(session, "first", viewer=ANN, scope=Scope.TEAM, entities=(EntityRef(kind="k", key="v"),))
    second = await _write(session, "second", type=MemoryType.RULE)
    await _tie(session, second, first)
    shape = json.loads(json.dumps((await brain.snapshot(session, viewer=BOARD, memories=1)).shape()))
    at = shape["edges"][0]["created_at"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", at)
    common = {"trust": "observed", "room": "general", "lifecycle": "active", "created_at": at}
    assert shape == {
        "memories": [
            {"id": str(second), "type": "rule", "scope": "org", "team": None, "content": "second", "agent": None, **common}
            | {"external": False},
            {"id": str(first), "type": "fact", "scope": "team", "team": "red", "content": "first", "agent": "ann", **common}
            | {"external": True},
        ],
        "edges": [
            {
                "id": shape["edges"][0]["id"],
                "source_id": str(second),
                "relation": "supports",
                "target_id": str(first),
                "created_by": "board",
                "created_at": at,
            }
        ],
        "entities": [{"kind": "k", "key": "v", "mentions": [{"memory_id": str(first), "role": "mentioned"}]}],
        "incomplete": None,
    }


# --- diary --------------------------------------------------------------------------------------------------------


async def _run(db: Database, agent: str, title: str, said: str, **fields: Any) -> int:
    """Give an agent a task and let it end with what it said; return the run."""
    await give(db, agent, title)
    [claimed] = await claim(db)
    viewer = Viewer(agent=agent, run_id=claimed.run_id, task_id=claimed.task_id)
    await finish(db, claimed, fields.pop("answer", said), viewer=viewer, **fields)
    return claimed.run_id


async def test_a_diary_tells_what_an_agent_did_and_learned(db: Database) -> None:
    """Newest first: the task, how it ended, the first lines of what was said, and what was remembered in that very run."""
    await hire(db, spec("ann"), spec("bea"))
    learned = tuple(Remember(content=f"lesson {at}", room="Lab") for at in range(12))
    first = await _run(db, "ann", "dig", "", answer=Answer(text="\n\none\ntwo\nthree\nfour", memories=learned))
    await _run(db, "bea", "other work", "mine")
    second = await _run(db, "ann", "fail", "", answer=Answer(text=""), status=RunState.FAILED, error="no shovel\nat all")
    async with db.transaction() as session:
        newest, oldest = await brain.diary(session, "ann", viewer=BOARD)
        assert await brain.diary(session, "ann", viewer=BOARD, limit=1) == [newest]
        assert await brain.diary(session, "ann", viewer=BOARD, before=second) == [oldest]
        assert await brain.diary(session, "ann", viewer=Viewer(agent="ann")) == [newest, oldest]
    assert (newest.run_id, newest.task, newest.status) == (second, "fail", "failed")
    assert (newest.result, newest.error, newest.memories) == (None, "no shovel\nat all", ())
    assert (oldest.run_id, oldest.task, oldest.kind, oldest.status) == (first, "dig", "work", "succeeded")
    assert (oldest.result, oldest.remembered) == ("one\ntwo\nthree …", 12)
    assert [(one.room, one.content) for one in oldest.memories] == [("lab", f"lesson {at}") for at in range(10)]
    shape = json.loads(json.dumps(oldest.shape()))
    assert shape["run_id"] == str(first)
    assert shape["task"] == {"id": str(oldest.task_id), "title": "dig", "kind": "work"}
    assert shape["memories"][0] == {"id": str(oldest.memories[0].id), "type": "fact", "room": "lab", "content": "lesson 0"}


async def test_a_diary_is_its_agents_own(db: Database) -> None:
    """The board reads all; to another agent it is as if there were none, whether or not the name exists."""
    await hire(db, spec("ann"), spec("bea"))
    async with db.transaction() as session:
        assert await brain.diary(session, "bea", viewer=BOARD) == []
        for name in ("ann", "nobody"):
            with pytest.raises(NotFound, match=f"no diary '{name}': agent 'bea' may read its own"):
                await brain.diary(session, name, viewer=Viewer(agent="bea"))
        with pytest.raises(NotFound, match="no agent 'nobody'"):
            await brain.diary(session, "nobody", viewer=BOARD)
        for limit in (0, 201):
            with pytest.raises(InvalidInput, match="give 1 to 200"):
                await brain.diary(session, "ann", viewer=BOARD, limit=limit)


async def test_what_another_companys_run_of_the_same_number_remembered_is_not_in_the_diary(db: Database) -> None:
    """An import keeps the runs that memories came from, and numbers repeat from company to company."""
    await hire(db, spec("ann"))
    run = await _run(db, "ann", "dig", "done")
    stranger = {"source_agent": "ann", "source_run_id": run, "at": datetime.now(UTC) - timedelta(days=400)}
    async with db.transaction() as session:
        await brain.write(session, MemoryDraft("imported"), viewer=Viewer(agent="ann", run_id=run), trust=Trust.OBSERVED)
        await session.execute(text("UPDATE memories SET created_at = :at"), {"at": stranger["at"]})
        [entry] = await brain.diary(session, "ann", viewer=BOARD)
    assert (entry.remembered, entry.memories) == (0, ())


# --- stats --------------------------------------------------------------------------------------------------------


async def test_counts_are_of_what_the_viewer_sees(session: AsyncSession) -> None:
    await _write(session, "one", type=MemoryType.RULE, room="Lab")
    archived = await _write(session, "two", room="lab")
    await brain.archive(session, archived, viewer=BOARD)
    await _write(session, "three", viewer=ANN, scope=Scope.TEAM)
    mine = await _write(session, "four", viewer=CAI, scope=Scope.AGENT_PRIVATE, room="diary")
    kept = {"memory_id": mine, "model": "m", "scope": "agent_private", "owner": "cai", "embedding": [1.0]}
    await session.execute(insert(MemoryEmbedding), kept)
    board, ann, cai = [await brain.stats(session, viewer=viewer) for viewer in (BOARD, ANN, CAI)]
    assert (board.memories, ann.memories, cai.memories) == (4, 3, 3)
    assert board.scopes == {"agent_private": 1, "org": 2, "team": 1}
    assert ann.scopes == {"org": 2, "team": 1}
    assert (board.types, board.trusts) == ({"fact": 3, "rule": 1}, {"observed": 4})
    assert board.lifecycles == {"active": 3, "archived": 1}
    assert (list(board.rooms.items()), board.more_rooms) == ([("lab", 2), ("diary", 1), ("general", 1)], 0)
    assert ann.rooms == {"general": 1, "lab": 2}
    assert (board.vectors, cai.vectors, ann.vectors) == ({"m": 1}, {"m": 1}, {})
    assert (board.uncounted, ann.uncounted) == (4, 3)
    json.dumps(board.shape())


async def test_many_rooms_are_the_fullest_and_a_count(session: AsyncSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[brain.stats.__module__], "ROOMS", 2)
    for at, room in enumerate("abbccc"):
        await _write(session, f"memory {at}", room=room)
    found = await brain.stats(session, viewer=BOARD)
    assert (list(found.rooms.items()), found.more_rooms, found.memories) == ([("c", 3), ("b", 2)], 1, 6)


async def test_what_waits_is_told_by_what_it_waits_for(session: AsyncSession) -> None:
    for at in range(3):
        await _write(session, f"memory {at}")
    found = await brain.stats(session, viewer=BOARD)
    assert (found.uncounted, found.unembedded, found.given_up) == (3, 3, 0)
    await session.execute(
        text("UPDATE memory_backlog SET counted = true, tries = CASE WHEN memory_id % 3 = 0 THEN 99 ELSE 1 END")
    )
    found = await brain.stats(session, viewer=BOARD)
    assert (found.uncounted, found.unembedded, found.given_up) == (0, 2, 1)
    await session.execute(text("DELETE FROM memory_backlog"))
    found = await brain.stats(session, viewer=BOARD)
    assert (found.uncounted, found.unembedded, found.given_up) == (0, 0, 0)


async def test_an_empty_brain_has_nothing_to_count(session: AsyncSession) -> None:
    found = await brain.stats(session, viewer=ANN)
    assert (found.memories, found.scopes, found.rooms, found.vectors) == (0, {}, {}, {})


async def test_writes_and_recalls_are_counted_and_timed(session: AsyncSession) -> None:
    """Each once, those that fail apart; a recall by way of the Brain is one too."""

    def seen() -> dict[str, tuple[int, int]]:
        return {verb: (one.count, one.failed) for verb, one in brain.TIMINGS.read().items()}

    await _write(session, "warm up")
    await brain.recall(session, "warm", viewer=BOARD)
    before = seen()
    await _write(session, "tea")
    await brain.recall(session, "tea", viewer=BOARD)
    await brain.recall(session, viewer=BOARD)
    with pytest.raises(InvalidInput):
        await _write(session, "  ")
    with pytest.raises(InvalidInput):
        await brain.recall(session, "tea", viewer=BOARD, limit=0)
    after = seen()
    assert {verb: (after[verb][0] - before[verb][0], after[verb][1] - before[verb][1]) for verb in ("write", "recall")} == {
        "write": (1, 1),
        "recall": (2, 1),
    }
    told = (await brain.stats(session, viewer=BOARD)).timings["write"]
    assert sum(told.buckets) == told.count
    assert told.total_s > 0


def test_timings_fall_into_the_bucket_that_ends_at_or_after_them() -> None:
    kept = timings.Timings()
    for took_s in (0.0, 0.001, 0.0011, 5.0, 5.1):
        kept.observe("write", took_s)
    kept.fail("write")
    shape = kept.read()["write"].shape()
    assert {end: count for end, count in shape["buckets"].items() if count} == {"0.001": 2, "0.0025": 1, "5.0": 1, "inf": 1}
    assert (shape["count"], shape["failed"], shape["total_s"]) == (5, 1, 10.1021)


def test_timings_lose_nothing_between_threads() -> None:
    kept = timings.Timings()

    def work() -> None:
        for _ in range(2000):
            kept.observe("write", 0.25)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [timing] = kept.read().values()
    assert (timing.count, timing.total_s) == (8000, 2000.0)


async def test_a_cancelled_verb_has_failed() -> None:
    kept, begun = timings.Timings(), asyncio.Event()

    @timings.timed("recall", kept)
    async def slow() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(slow())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert {verb: (one.count, one.failed) for verb, one in kept.read().items()} == {"recall": (0, 1)}
