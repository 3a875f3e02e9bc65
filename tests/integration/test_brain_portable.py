"""Memories as JSON Lines on real PostgreSQL: what goes out comes in again, whole, merged, or not at all."""

from __future__ import annotations

import asyncio
import graphlib
import io
import json
import re
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import brain
from opencognit.brain import portable, portable_lines, portable_merge
from opencognit.contracts import BOARD, EntityRef, MemoryDraft, Viewer
from opencognit.db import Database, application_role
from opencognit.errors import InvalidInput, Refused
from opencognit.states import EntityRole, Lifecycle, MemoryType, Relation, Scope, Trust
from opencognit.work import shapes

ANN, CAI = Viewer(agent="ann", team="red", run_id=7, task_id=8), Viewer(agent="cai", team="blue")
Line = dict[str, Any]


@pytest.fixture(scope="module")
def urls(server: str, template: str) -> Iterator[list[str]]:
    """Two migrated databases for all tests that roll back what they do."""
    names = ["portable_from", "portable_to"]
    with psycopg.connect(server, autocommit=True) as admin:
        for name in names:
            admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        yield [re.sub(r"/opencognit\?", f"/{name}?", server) for name in names]
        for name in names:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def _rolled_back(url: str) -> AsyncIterator[AsyncSession]:
    db = Database(url)
    async with db.transaction() as session:
        yield session
        await session.rollback()
    await db.close()


@pytest.fixture
async def session(urls: list[str]) -> AsyncIterator[AsyncSession]:
    """A transaction in a brain that is rolled back at the end."""
    async for one in _rolled_back(urls[0]):
        yield one


@pytest.fixture
async def other(urls: list[str]) -> AsyncIterator[AsyncSession]:
    """The same in another brain."""
    async for one in _rolled_back(urls[1]):
        yield one


async def _export(session: AsyncSession, viewer: Viewer = BOARD) -> list[Line]:
    return [json.loads(line) async for line in brain.export(session, viewer=viewer)]


def _source(*lines: Line | bytes) -> io.BytesIO:
    return io.BytesIO(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))


async def _import(session: AsyncSession, *lines: Line | bytes, viewer: Viewer = BOARD) -> brain.Imported:
    return await brain.import_(session, _source(*lines), viewer=viewer)


async def _contents(session: AsyncSession) -> list[tuple[str, str]]:
    rows = await session.execute(text("SELECT content, lifecycle FROM memories ORDER BY id"))
    return [(row.content, row.lifecycle) for row in rows]


def _renamed(lines: list[Line]) -> list[Line]:
    """The lines with the places of memories in the file instead of their numbers."""
    places = {line["id"]: f"#{at}" for at, line in enumerate(lines)}
    drawn = [[{**one, "target_id": places[one["target_id"]]} for one in line["relations"]] for line in lines]
    return [{**line, "id": places[line["id"]], "relations": told} for line, told in zip(lines, drawn, strict=True)]


async def _fill(session: AsyncSession) -> list[int]:
    """A brain with everything that a brain can hold; return its memories."""
    about = (EntityRef(kind="Person", key="Köhler  Ada", role=EntityRole.SUBJECT), EntityRef(kind="url", key="https://x/ß?a=1"))
    then = datetime(2020, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
    drafts: list[tuple[MemoryDraft, Viewer, Trust]] = [
        (MemoryDraft("Köhler trinkt Tee\n\n  im \u2028 Büro\x9b[31m"), BOARD, Trust.VERIFIED),
        (MemoryDraft("a NUL \x00 and half a pair \ud800", scope=Scope.TEAM, entities=about), ANN, Trust.OBSERVED),
        (MemoryDraft('mine "quoted" \\ \U0001f600', scope=Scope.AGENT_PRIVATE, room="Tagebuch"), CAI, Trust.ASSERTED),
        (MemoryDraft("valid once", valid_from=then, valid_to=then + timedelta(days=1), context="ann, 2020"), ANN, Trust.OBSERVED),
        *((MemoryDraft(f"of type {kind}", type=kind, confidence=0.1 + 0.2), ANN, Trust.OBSERVED) for kind in MemoryType),
    ]
    idents = [(await brain.write(session, draft, viewer=viewer, trust=trust)).id for draft, viewer, trust in drafts]
    for _ in range(3):
        await brain.write(session, drafts[0][0], viewer=ANN, trust=Trust.OBSERVED)
    for source, relation in enumerate(Relation, 4):
        await brain.relate(session, idents[source], relation, idents[source + 1], viewer=BOARD)
    await brain.relate(session, idents[0], Relation.SUPPORTS, idents[11], viewer=BOARD)  # further down in the file
    await brain.relate(session, idents[5], Relation.DERIVES_FROM, idents[10], viewer=BOARD)
    await brain.relate(session, idents[2], Relation.SUPERSEDES, idents[0], viewer=BOARD)  # a proposal: it is weaker
    await brain.archive(session, idents[3], viewer=BOARD)
    await session.execute(text("UPDATE memories SET lifecycle = 'stale' WHERE id = :id"), {"id": idents[6]})
    shift = "UPDATE memories SET created_at = created_at - id * interval '1 day', updated_at = updated_at - interval '1 hour'"
    await session.execute(text(shift))
    await session.execute(text("INSERT INTO memory_uses VALUES (:id, 4, now() - interval '3 days')"), {"id": idents[6]})
    return idents


async def test_a_brain_comes_out_of_a_file_as_it_went_in(session: AsyncSession, other: AsyncSession) -> None:
    """Export, import into an empty brain, export: the same lines but for the memories' numbers, and the same index of words."""
    idents = await _fill(session)
    first = await _export(session)
    assert [line["id"] for line in first] == [str(ident) for ident in idents]
    assert {line["lifecycle"] for line in first} == set(Lifecycle)
    assert {one["relation"] for line in first for one in line["relations"]} == set(Relation)
    imported = await _import(other, *first)
    edges = sum(len(line["relations"]) for line in first)
    assert (imported.stored, imported.known, imported.edges, imported.loose, imported.unknown) == (len(first), 0, edges, 0, {})
    second = await _export(other)
    assert _renamed(second) == _renamed(first)
    indexed = text("SELECT content_hash, language, search_text, terms, content_terms, index_version FROM memories ORDER BY id")
    assert [tuple(row) for row in await other.execute(indexed)] == [tuple(row) for row in await session.execute(indexed)]


async def test_a_line_is_the_contracts_memory_and_more(session: AsyncSession) -> None:
    """Whatever reads memories from HTTP or the CLI reads an export: the shape is the same one."""
    await _fill(session)
    for line in await _export(session):
        memory = await brain.get(session, int(line["id"]), viewer=BOARD)
        entities = (await brain.entities_of(session, [memory.id], viewer=BOARD))[memory.id]
        told = shapes.memory(memory, entities)
        assert {key: line[key] for key in told} == told
        assert set(line) - set(told) == {"updated_at", "retired_at", "owner", "evidence", "uses", "used_at", "relations"}


async def test_a_line_is_one_line_for_every_reader_and_safe_on_a_terminal(session: AsyncSession) -> None:
    await _fill(session)
    lines = [line async for line in brain.export(session, viewer=BOARD)]
    assert all(line.splitlines() == [line] for line in lines)
    assert not any("\x9b" in line or "\x1b" in line for line in lines)
    assert "Köhler" in lines[0]


async def test_an_export_has_only_what_its_viewer_sees(session: AsyncSession) -> None:
    """Neither a memory nor an edge to one that is not the viewer's."""
    secret = await brain.write(session, MemoryDraft("secret", scope=Scope.AGENT_PRIVATE), viewer=CAI, trust=Trust.OBSERVED)
    shared = await brain.write(session, MemoryDraft("shared"), viewer=BOARD, trust=Trust.VERIFIED)
    for ends in ((secret.id, shared.id), (shared.id, secret.id)):
        await brain.relate(session, ends[0], Relation.SUPPORTS, ends[1], viewer=BOARD)
    [line] = await _export(session, ANN)
    assert (line["id"], line["relations"]) == (str(shared.id), [])
    assert [len(line["relations"]) for line in await _export(session, CAI)] == [1, 1]


async def test_importing_a_file_twice_changes_nothing(session: AsyncSession) -> None:
    """The brain's own export says nothing new, not even of what was put away: the very same lines come out again."""
    await _fill(session)
    again = MemoryDraft("said again")  # twice at the same instant: put away, and in force
    first = (await brain.write(session, again, viewer=BOARD, trust=Trust.VERIFIED)).id
    await brain.archive(session, first, viewer=BOARD)
    second = (await brain.write(session, again, viewer=BOARD, trust=Trust.VERIFIED)).id
    third = (await brain.write(session, MemoryDraft("third"), viewer=BOARD, trust=Trust.VERIFIED)).id
    await brain.relate(session, third, Relation.SUPPORTS, second, viewer=BOARD)
    before = await _export(session)
    imported = await _import(session, *before)
    assert (imported.stored, imported.known, imported.edges) == (0, len(before), 0)
    assert await _export(session) == before


async def test_an_old_export_brings_nothing_back_that_was_put_away_since(session: AsyncSession) -> None:
    old = await brain.write(session, MemoryDraft("the sky is green"), viewer=BOARD, trust=Trust.VERIFIED)
    file = await _export(session)
    await brain.archive(session, old.id, viewer=BOARD)
    assert (await _import(session, *file)).known == 1
    assert await _contents(session) == [("the sky is green", "archived")]


async def test_the_same_content_in_the_same_scope_merges(session: AsyncSession) -> None:
    """One memory with the stronger trust and evidence of both, all entities, and what had grown stale is wanted again."""
    here = await brain.write(session, MemoryDraft("Ada drinks tea"), viewer=ANN, trust=Trust.OBSERVED)
    await session.execute(text("UPDATE memories SET lifecycle = 'stale', evidence = 2"))
    about = [{"kind": "person", "key": "ada", "role": "subject"}]
    lines: list[Line] = [
        {"id": "1", "content": "ada  drinks TEA", "evidence": 5, "trust": "verified", "entities": about},
        {"id": "2", "content": "Ada drinks tea", "scope": "team", "team": "red"},
        {"id": "3", "content": "so she wants a kettle", "relations": [{"relation": "derives_from", "target_id": 1}]},
        {"id": "4", "content": "So she wants a kettle", "evidence": 7},
    ]
    imported = await _import(session, *lines)
    assert (imported.stored, imported.known, imported.edges) == (2, 2, 1)
    told = {line["content"]: line for line in await _export(session) if line["scope"] == "org"}
    assert set(told) == {"Ada drinks tea", "so she wants a kettle"}
    tea, kettle = told["Ada drinks tea"], told["so she wants a kettle"]
    assert (tea["id"], tea["trust"], tea["lifecycle"], tea["evidence"]) == (str(here.id), "verified", "active", 5)
    assert (tea["entities"], kettle["evidence"], kettle["relations"][0]["target_id"]) == (about, 7, tea["id"])
    weaker = await _import(session, {"content": "Ada drinks tea", "trust": "asserted", "evidence": 1, "lifecycle": "stale"})
    assert (weaker.known, (await brain.get(session, here.id, viewer=BOARD)).trust) == (1, "verified")


async def test_what_was_known_already_does_not_come_to_derive_from_the_files_sources(session: AsyncSession) -> None:
    known = await brain.write(session, MemoryDraft("water boils"), viewer=BOARD, trust=Trust.VERIFIED)
    leads = [{"relation": "derives_from", "target_id": "b"}, {"relation": "supports", "target_id": "b"}]
    await _import(session, {"id": "a", "content": "water boils", "relations": leads}, {"id": "b", "content": "hearsay"})
    edges = await brain.edges_of(session, known.id, viewer=BOARD)
    assert [relation for _, relation, _ in edges] == ["supports"]


async def test_a_line_needs_its_content_alone(session: AsyncSession) -> None:
    """Without a word on it, a memory is of the company, in force, of now, and trusted least."""
    await _import(
        session, b"\xef\xbb\xbf", {"content": "  bare  ", "type": None}, b"\r\n  \n", {"content": "two"}, b'{"content":"3"}'
    )
    first, *rest = await _export(session)
    assert [line["content"] for line in (first, *rest)] == ["bare", "two", "3"]
    now = shapes.time((await session.execute(text("SELECT now()"))).scalar_one())
    assert (first["type"], first["room"], first["scope"], first["trust"]) == ("fact", "general", "org", "asserted")
    assert (first["created_at"], first["updated_at"], first["lifecycle"], first["retired_at"]) == (now, now, "active", None)
    await _import(session, {"content": "gone", "lifecycle": "archived", "created_at": "2020-01-01T00:00:00+02:00"})
    gone = (await _export(session))[-1]
    assert gone["created_at"] == gone["retired_at"] == "2019-12-31T22:00:00.000000Z"


async def test_unknown_keys_are_named_once_with_their_lines_and_stop_nothing(session: AsyncSession) -> None:
    lines: list[Line] = [
        {"content": "one"},
        {"content": "two", "colour": "red", "source": {"agent": "ann", "mood": 1}},
        {
            "content": "three",
            "colour": "blue",
            "entities": [{"kind": "a", "key": "b", "x": 1}, {"kind": "a", "key": "c", "x": 1}],
        },
    ]
    imported = await _import(session, *lines)
    told = {key: (one.lines, one.first) for key, one in imported.unknown.items()}
    assert told == {"colour": (2, 2), "source.mood": (1, 2), "entities.x": (1, 3)}
    assert imported.stored == 3
    many = await _import(session, *({"content": f"m{at}", f"key{at}": 1} for at in range(portable.NAMED + 5)))
    assert (len(many.unknown), many.more_unknown) == (portable.NAMED, 5)


BROKEN: list[tuple[bytes, str]] = [
    (b"{", "is no JSON"),
    (b'{"content": "a"} {"content": "b"}', "is no JSON"),
    (b"[1]", "is list, no JSON object"),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"content": "gr\xfcn"}', "is not UTF-8 (byte 16)"),
    (b'{"content": "a"}'.decode().encode("utf-16"), "is not UTF-8 (byte 1)"),
    (b"{}", "content: is missing: give it"),
    (b'{"content": null}', "content: is missing"),
    (b'{"content": 7}', "content: 7: input should be a valid string"),
    (b'{"content": " \\u0085 "}', "content: is empty"),
    (json.dumps({"content": "x" * 1_000_001}).encode(), "content: has 1000001 characters"),
    (b'{"content": "a", "type": "rumour"}', "type: 'rumour': input should be 'fact', 'episode'"),
    (b'{"content": "a", "confidence": 1.5}', "confidence: 1.5: input should be less than or equal to 1"),
    (b'{"content": "a", "confidence": NaN}', "confidence: nan: input should be"),
    (b'{"content": "a", "evidence": 0}', "evidence: 0: input should be greater than or equal to 1"),
    (b'{"content": "a", "evidence": 1e400}', "evidence: inf: input should be"),
    (b'{"content": "a", "id": ' + b"9" * 5000 + b"}", "is no JSON"),
    (b'{"content": "a", "room": "' + b"r" * 101 + b'"}', "room: has 101 characters"),
    (b'{"content": "a", "created_at": "yesterday"}', "created_at: 'yesterday': input should be a valid datetime"),
    (b'{"content": "a", "created_at": "2026-01-01T00:00:00"}', "input should have timezone info"),
    (b'{"content": "a", "created_at": "0001-01-01T00:00:00+14:00"}', "is outside of the years 2 to 9997"),
    (b'{"content": "a", "valid_from": "2026-01-02T00:00:00Z", "valid_to": "2026-01-01T00:00:00Z"}', "valid_to: is not after"),
    (b'{"content": "a", "retired_at": "2026-01-02T00:00:00Z"}', "retired_at: is given, but the memory is active"),
    (b'{"content": "a", "scope": "team"}', "owner: is missing, and so is team: say whose"),
    (b'{"content": "a", "scope": "team", "team": "red", "owner": "blue"}', "owner: is 'blue', but the team is 'red'"),
    (b'{"content": "a", "team": "red"}', "team: is 'red', but the scope is org"),
    (b'{"content": "a", "owner": "ann"}', "owner: is 'ann', but what the scope org has is everybody's"),
    (b'{"content": "a", "scope": "agent_private"}', "owner: is missing, and so is source.agent"),
    (b'{"content": "a", "source": {"run_id": "x"}}', "source.run_id: 'x': input should be a valid integer"),
    (b'{"content": "a", "entities": [{"kind": "a"}]}', "entities.0.key: is missing"),
    (b'{"content": "a", "entities": [{"kind": " ", "key": "b"}]}', "entity: ' ':'b' is blank"),
    (
        b'{"content": "a", "relations": [{"relation": "likes", "target_id": "1"}]}',
        "relations.0.relation: 'likes': input should be",
    ),
    (b'{"content": "a", "id": 2, "relations": [{"relation": "supports", "target_id": "2"}]}', "is the memory itself"),
    (b'{"content": "a", "id": "first"}', "id: 'first' is line 1's too: give each line its own"),
]


@pytest.mark.parametrize(("line", "told"), BROKEN)
async def test_a_broken_line_is_told_and_nothing_comes_in(db: Database, line: bytes, told: str) -> None:
    """The number, what is wrong, how to mend it; of the good lines around it none is stored."""
    with pytest.raises(InvalidInput, match=r"^line 3: ") as caught:
        async with db.transaction() as session:
            await _import(session, {"id": "first", "content": "good"}, b"\n", line + b"\n", {"content": "good too"})
    assert told in str(caught.value)
    async with db.reading() as session:
        assert await _contents(session) == []


async def test_a_line_without_end_is_not_read_to_its_end(session: AsyncSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a file of one line nor a device that never ends may fill the memory."""
    for module in (portable, portable_lines):
        monkeypatch.setattr(module, "LINE_LIMIT", 1_000_000)

    class Endless(io.RawIOBase):
        given = 0

        def readline(self, limit: int | None = -1, /) -> bytes:
            assert limit is not None
            assert limit > 0
            self.given += limit
            return b"x" * limit

    endless = Endless()
    with pytest.raises(InvalidInput, match="line 1: is longer than 1 MB"):
        await brain.import_(session, endless, viewer=BOARD)
    assert endless.given < 2_000_000


async def test_only_the_board_imports(session: AsyncSession) -> None:
    """A line brings its own trust and scope: nobody else may say those."""
    with pytest.raises(Refused, match="agent 'ann' may not import"):
        await _import(session, {"content": "I am verified", "trust": "verified"}, viewer=ANN)
    assert await _contents(session) == []


def _chain(*ends: tuple[str, str], relation: str = "supersedes") -> list[Line]:
    names = dict.fromkeys(name for pair in ends for name in pair)
    return [
        {
            "id": name,
            "content": f"memory {name}",
            "relations": [{"relation": relation, "target_id": target} for source, target in ends if source == name],
        }
        for name in names
    ]


@pytest.mark.parametrize("relation", ["supersedes", "derives_from"])
async def test_a_circle_does_not_come_in(session: AsyncSession, relation: str) -> None:
    lines = _chain(("a", "b"), ("b", "c"), ("x", "b"), ("c", "d"), ("d", "b"), relation=relation)
    with pytest.raises(InvalidInput, match=rf"^line 2: relations: its memory {relation} one that {relation} it.*a circle"):
        async with session.begin_nested():
            await _import(session, *lines)
    assert await _contents(session) == []
    await _import(session, *_chain(("a", "b"), ("b", "a"), relation="supports"))


async def test_a_circle_with_what_is_here_does_not_come_in_either(session: AsyncSession) -> None:
    """The file alone has none, and neither has the brain: together they would."""
    await _import(session, *_chain(("a", "b"), ("b", "c")))
    with pytest.raises(InvalidInput, match=r"^line 1: relations: its memory supersedes"):
        async with session.begin_nested():
            await _import(session, *_chain(("c", "z"), ("z", "a")))
    assert len(await _contents(session)) == 3


async def test_a_circle_that_two_close_at_the_same_time_does_not_come_in(db: Database) -> None:
    """The import waits for whoever is drawing an edge, and sees it then."""
    async with db.transaction() as session:
        old = await brain.write(session, MemoryDraft("old"), viewer=BOARD, trust=Trust.VERIFIED)
        new = await brain.write(session, MemoryDraft("new"), viewer=BOARD, trust=Trust.VERIFIED)
    leads = [{"relation": "supersedes", "target_id": "new"}]

    async def bring() -> brain.Imported:
        async with db.transaction() as session:
            lines: list[Line] = [{"id": "old", "content": "old", "relations": leads}, {"id": "new", "content": "new"}]
            return await _import(session, *lines)

    async with db.transaction() as drawing:
        await portable_merge.draw_alone(drawing)
        await drawing.execute(
            text("INSERT INTO memory_edges (source_id, relation, target_id, created_by) VALUES (:s, 'supersedes', :t, 'board')"),
            {"s": new.id, "t": old.id},
        )
        importing = asyncio.create_task(bring())
        await _until_somebody_waits(db, importing)
    with pytest.raises(InvalidInput, match=r"^line 1: relations: its memory supersedes"):
        await importing


async def _until_somebody_waits(db: Database, task: asyncio.Task[Any]) -> None:
    waits = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
    async with db.reading() as looking, asyncio.timeout(30):
        while not (await looking.execute(waits)).scalar_one():
            assert not task.done()
            await asyncio.sleep(0.01)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda ends: ends[0] != ends[1]), max_size=25))
def test_a_circle_is_found_where_there_is_one(edges: list[tuple[int, int]]) -> None:
    """What is found is a circle of the graph; nothing is found only where the nodes can be put in an order."""
    found = portable_merge.circle(np.asarray(edges, dtype=np.int64).reshape(-1, 2))
    sorter: graphlib.TopologicalSorter[int] = graphlib.TopologicalSorter()
    for source, target in edges:
        sorter.add(source, target)
    if found:
        # Found backwards: each has an edge to the one before it.
        assert all((now, before) in edges for before, now in zip(found, [*found[1:], found[0]], strict=True))
    else:
        sorter.prepare()


async def test_an_edge_that_leads_out_of_the_file_is_left_out_and_counted(session: AsyncSession) -> None:
    """A number means nothing in another brain: a part of an export does not tie itself to strangers."""
    stranger = await brain.write(session, MemoryDraft("stranger"), viewer=BOARD, trust=Trust.VERIFIED)
    leads = [{"relation": "supports", "target_id": str(stranger.id)}]
    imported = await _import(session, {"content": "one"}, {"id": "5", "content": "two", "relations": leads})
    assert (imported.edges, imported.loose, imported.loose_line) == (0, 1, 2)
    assert await brain.edges_of(session, stranger.id, viewer=BOARD) == []


async def test_two_imports_in_one_transaction(session: AsyncSession) -> None:
    await _import(session, {"id": "1", "content": "one"})
    await _import(session, {"id": "1", "content": "two"})
    assert len(await _contents(session)) == 2


async def test_a_write_at_the_same_time_becomes_one_with_what_is_imported(db: Database) -> None:
    """The import waits for who was first to write the same content, and merges with it."""
    async with db.transaction() as writing:
        await brain.write(writing, MemoryDraft("at once"), viewer=ANN, trust=Trust.OBSERVED)

        async def bring() -> brain.Imported:
            async with db.transaction() as session:
                return await _import(session, {"content": "at once", "trust": "verified"}, {"content": "alone"})

        importing = asyncio.create_task(bring())
        await _until_somebody_waits(db, importing)
    imported = await importing
    assert (imported.stored, imported.known) == (1, 1)
    async with db.transaction() as session:
        assert [(line["content"], line["trust"]) for line in await _export(session)] == [
            ("at once", "verified"),
            ("alone", "asserted"),
        ]


async def test_a_role_that_owns_nothing_exports_and_imports(db: Database, database_url: str) -> None:
    """Row-level security binds the application: it says who asks, and may do no more than it needs."""
    role = application_role(database_url)
    if role is None:
        pytest.skip("this server gives one role only")
    bound = Database(database_url, role=role)
    async with db.transaction() as session:
        idents = await _fill(session)
    async with bound.transaction() as session:
        before = await _export(session)
    assert len(before) == len(idents)
    async with bound.transaction() as session:
        assert {line["scope"] for line in await _export(session, Viewer(agent="don"))} == {"org"}
    async with bound.transaction() as session:
        leads = [{"relation": "supersedes", "target_id": before[0]["id"]}]
        imported = await _import(session, *before, {"content": "new", "relations": leads})
    assert (imported.stored, imported.known, imported.edges) == (1, len(before), 1)
    async with bound.transaction() as session:
        assert (await brain.stats(session, viewer=BOARD)).memories == len(before) + 1
    async with bound.transaction() as session:
        assert len((await brain.snapshot(session, viewer=BOARD)).memories) == len(before) + 1
    await bound.close()


async def test_what_was_imported_is_counted_and_found(db: Database) -> None:
    """Full text finds it at once; the backlog's loop counts each once, those that merged not again."""
    async with db.transaction() as session:
        await brain.write(session, MemoryDraft("Ada drinks tea"), viewer=BOARD, trust=Trust.VERIFIED)
    await brain.Indexer(db, None).catch_up()
    async with db.transaction() as session:
        await _import(session, {"content": "ada drinks tea"}, {"content": "Bob brews coffee"})
        [hit] = await brain.recall(session, "who brews?", viewer=BOARD)
        assert hit.memory.content == "Bob brews coffee"
        waiting = (await session.execute(text("SELECT memory_id FROM memory_backlog WHERE NOT counted"))).scalars().all()
        assert waiting == [hit.memory.id]
    await brain.Indexer(db, None).catch_up()
    async with db.reading() as session:
        assert (await session.execute(text("SELECT memories FROM memory_counts"))).scalars().all() == [2]


def _texts(count: int) -> io.BytesIO:
    return _source(*({"id": at, "content": f"memory {at} " + "many words " * 300} for at in range(count)))


async def test_neither_way_holds_the_whole_file(session: AsyncSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the lines take hardly more memory, in and out."""
    monkeypatch.setattr(portable, "BATCH_LINES", 50)

    async def peak(count: int) -> float:
        source = _texts(count)
        tracemalloc.start()
        try:
            await brain.import_(session, source, viewer=BOARD)
            lines = 0
            async for _ in brain.export(session, viewer=BOARD):
                lines += 1
            assert lines == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    await peak(100)  # what is loaded and cached once
    await session.execute(text("DELETE FROM memories"))
    few = await peak(200)
    await session.execute(text("DELETE FROM memories"))
    assert await peak(800) < 1.5 * few
