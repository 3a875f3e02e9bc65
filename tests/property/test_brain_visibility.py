"""Nobody is ever shown another's memory, by whatever way he reads: not the row, not its number, not a word of it.

Who may see what is said here once more, apart from the code. `OPENCOGNIT_LONG=1` runs 10,000 random recalls and more worlds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import brain
from opencognit.brain import Brain, Recalled, Vector, candidates
from opencognit.brain.embed.hashing import HashEmbedder
from opencognit.brain.visibility import enter
from opencognit.contracts import BOARD, EntityRef, Viewer
from opencognit.db import Database, application_role
from opencognit.db.roles import ROLE
from opencognit.errors import NotFound, OpenCognitError
from opencognit.states import IN_FORCE, Lifecycle, MemoryType, Relation, Scope
from tests.integration.brain_kit import ANN, BEA, CAI, DON, rolled_back, settle, settle_within, write

LONG = bool(os.environ.get("OPENCOGNIT_LONG"))
EMBEDDER = HashEmbedder()
WRITERS = {"ann": ANN, "bea": BEA, "cai": CAI, "don": DON}
VIEWERS = [BOARD, *WRITERS.values(), Viewer(agent="red"), Viewer(agent="eve", team="ann"), Viewer(agent="fay", team="red")]
"""An agent that is named like a team, a team that is named like an agent, one that has written nothing."""
PLACES = [
    (Scope.ORG, "ann"),
    (Scope.ORG, "don"),
    *((scope, who) for scope in (Scope.TEAM, Scope.AGENT_PRIVATE) for who in WRITERS),
]
FAR = timedelta(days=400)


@dataclass(frozen=True)
class Sketch:
    """A memory to be written. `marks` stand in nothing else: whoever reads one has been shown this memory."""

    number: int
    scope: Scope
    writer: str
    lifecycle: Lifecycle
    type: MemoryType
    shares_words: bool

    def mark(self, of: str) -> str:
        return f"{of}{'abcdefghijklmnopqrst'[self.number]}zz"

    @property
    def content(self) -> str:
        return f"{self.mark('content')} common knowledge" if self.shares_words else self.mark("content")


@dataclass
class World:
    """What was written, by id, with whom it is for: (scope, owner)."""

    sketches: dict[int, Sketch] = field(default_factory=dict)
    whose: dict[int, tuple[str, str]] = field(default_factory=dict)
    edges: set[tuple[int, str, int]] = field(default_factory=set)

    def seen(self, viewer: Viewer) -> set[int]:
        return {ident for ident, place in self.whose.items() if may_see(viewer, place)}

    def in_force(self, viewer: Viewer) -> set[int]:
        return {ident for ident in self.seen(viewer) if self.sketches[ident].lifecycle in IN_FORCE}

    def edges_seen(self, viewer: Viewer) -> set[tuple[int, str, int]]:
        seen = self.seen(viewer)
        return {edge for edge in self.edges if edge[0] in seen and edge[2] in seen}


def may_see(viewer: Viewer, place: tuple[str, str]) -> bool:
    """CONTRACT.md: `org` everyone; `team` the team named when it was written; `agent_private` its agent; the board all."""
    scope, owner = place
    if viewer.agent is None or scope == "org":
        return True
    return viewer.team == owner if scope == "team" else viewer.agent == owner


def test_who_sees_what_is_as_the_contract_says() -> None:
    """The judge of all else here, by hand."""
    assert [may_see(ANN, place) for place in (("org", ""), ("team", "red"), ("team", "ann"), ("agent_private", "red"))] == [
        *(True, True, False, False)
    ]
    assert [may_see(DON, ("team", "red")), may_see(DON, ("agent_private", "don")), may_see(BOARD, ("agent_private", "don"))] == [
        *(False, True, True)
    ]


# --- every way of reading, in any small world -------------------------------------------------------------------

sketches = st.lists(
    st.tuples(st.sampled_from(PLACES), st.sampled_from(list(Lifecycle)), st.sampled_from(list(MemoryType)), st.booleans()),
    min_size=1,
    max_size=8,
)
edges = st.lists(st.tuples(st.integers(0, 7), st.sampled_from(list(Relation)), st.integers(0, 7)), max_size=6)


ROLES = {"the predicate alone": None, "row security too": ROLE}
"""With one role the predicate of every query guards; the application's own is bound by the tables' policies as well."""


@pytest.fixture(params=ROLES)
def role(request: pytest.FixtureRequest, database_url: str) -> str | None:
    wanted = ROLES[request.param]
    if wanted is not None:
        assert application_role(database_url) == wanted
    return wanted


@pytest.fixture
def stage(database_url: str, role: str | None) -> Iterator[tuple[asyncio.Runner, AsyncSession]]:
    with rolled_back(database_url, role) as (runner, session):
        runner.run(_staff(session))
        yield runner, session


async def _staff(session: AsyncSession) -> None:
    """Every writer has a run, so that it has a diary."""
    for number, name in enumerate(WRITERS, 1):
        agent = "INSERT INTO agents (name, adapter, heartbeat_interval_s, spec, digest) VALUES (:name, 'bash', 30, '{}', '')"
        await session.execute(text(agent), {"name": name})
        run = """INSERT INTO runs (id, agent, adapter, slot, token, lease_expires_at) OVERRIDING SYSTEM VALUE
                 VALUES (:id, :name, 'bash', 1, 1, now())"""
        await session.execute(text(run), {"id": number, "name": name})


DENSE = [(place, Lifecycle.ACTIVE, MemoryType.FACT, True) for place in PLACES]
TIED = [(one, Relation.CONTRADICTS, other) for one in range(len(DENSE)) for other in range(one)]
TIED += [(one, Relation.SUPERSEDES, one - 1) for one in range(1, len(DENSE))]
"""A memory of everybody in every scope, each tied to all others."""


@settings(
    max_examples=100 if LONG else 5,
    phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if LONG else [])],
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(drawn=sketches, ties=edges, viewers=st.lists(st.sampled_from(VIEWERS), min_size=2, max_size=3, unique_by=repr))
@example(drawn=DENSE, ties=TIED, viewers=VIEWERS)
def test_no_way_of_reading_shows_anothers_memory(
    stage: tuple[asyncio.Runner, AsyncSession], drawn: list[Any], ties: list[tuple[int, Relation, int]], viewers: list[Viewer]
) -> None:
    """And each shows all that it should: a way that shows nothing would keep this promise too."""
    runner, session = stage

    async def check() -> None:
        async with session.begin_nested() as scratch:
            world = await _written(session, drawn, ties)
            for viewer in viewers:
                await _assert_recalls_show_only(session, world, viewer)
                await _assert_single_reads_show_only(session, world, viewer)
                await _assert_wholes_show_only(session, world, viewer)
                await _assert_writes_tell_nothing(session, world, viewer)
            await scratch.rollback()
        session.expunge_all()

    runner.run(check())


async def _written(session: AsyncSession, drawn: list[Any], ties: list[tuple[int, Relation, int]]) -> World:
    world = World()
    for number, ((scope, writer), lifecycle, kind, shares_words) in enumerate(drawn):
        sketch = Sketch(number, scope, writer, lifecycle, kind, shares_words)
        who = WRITERS[writer]
        author = Viewer(agent=who.agent, team=who.team, run_id=list(WRITERS).index(writer) + 1)
        stored = await write(
            session,
            sketch.content,
            viewer=author,
            scope=scope,
            type=kind,
            room=sketch.mark("room"),
            context=sketch.mark("context"),
            entities=(EntityRef(kind="thing", key=sketch.mark("entity")), EntityRef(kind="thing", key="shared")),
        )
        owner = {Scope.ORG: "", Scope.TEAM: who.team or writer, Scope.AGENT_PRIVATE: writer}[scope]
        real = Scope.AGENT_PRIVATE if scope is Scope.TEAM and who.team is None else scope
        world.sketches[stored.id], world.whose[stored.id] = sketch, (real.value, owner)
    ids = list(world.sketches)
    for source, relation, target in ties:
        ends = ids[source % len(ids)], ids[target % len(ids)]
        try:
            await brain.relate(session, ends[0], relation, ends[1], viewer=BOARD)
        except OpenCognitError:  # a circle, or itself
            continue
        world.edges.add((ends[0], relation.value, ends[1]))
    await enter(session, BOARD)
    retire = "UPDATE memories SET lifecycle = :state, retired_at = CASE WHEN :gone THEN now() END WHERE id = :id"
    for ident, sketch in world.sketches.items():
        state = {"state": sketch.lifecycle.value, "gone": sketch.lifecycle not in IN_FORCE, "id": ident}
        await session.execute(text(retire), state)
    await settle_within(session, EMBEDDER)
    session.expire_all()
    return world


def _assert_tells_only(told: object, world: World, seen: set[int]) -> None:
    """No mark of a memory that is not among `seen` stands in what was told."""
    words = set(re.findall("[a-z]+", json.dumps(told, default=str)))
    shown = {
        ident
        for ident, sketch in world.sketches.items()
        if words & {sketch.mark(of) for of in ("content", "context", "room", "entity")}
    }
    assert shown <= seen, f"{shown - seen} shown in {told}"


def _ids(hits: Recalled) -> set[int]:
    return {hit.memory.id for hit in hits}


def _told(hits: Recalled) -> list[Any]:
    return [(vars(hit.memory), hit.why, hit.warning, hits.incomplete) for hit in hits]


async def _assert_recalls_show_only(session: AsyncSession, world: World, viewer: Viewer) -> None:
    seen, expected = world.seen(viewer), world.in_force(viewer)
    sharing = {ident for ident in expected if world.sketches[ident].shares_words}
    (values,) = EMBEDDER.encode(["common knowledge"])
    vector, shared = Vector(EMBEDDER.name, values), ("thing", "shared")
    soon, before = datetime.now(UTC) + FAR, datetime.now(UTC) - FAR
    asked: list[tuple[dict[str, Any], set[int] | None]] = [
        ({}, expected),
        ({"query": "common knowledge"}, sharing),
        ({"query": "common knowledge", "embedding": vector}, expected),
        ({"embedding": vector}, expected),
        ({"entity": shared}, expected),
        ({"entity": shared, "query": "common"}, sharing),
        ({"entity": shared, "embedding": vector}, expected),
        ({"as_of": soon}, expected),
        ({"as_of": soon, "query": "common"}, sharing),
        ({"as_of": soon, "embedding": vector}, expected),
        ({"as_of": before, "query": "common", "embedding": vector}, set()),
        ({"types": [MemoryType.FACT], "embedding": vector}, None),
    ]
    for ident in sorted(world.sketches, key=lambda ident: ident in seen)[:3]:
        sketch, own = world.sketches[ident], ident in expected
        # A memory that contradicts the one found is shown beside it: of what is asked for, but only if it may be seen.
        asked += [
            ({"entity": ("thing", sketch.mark("entity"))}, None if own else set()),
            ({"room": sketch.mark("room"), "embedding": vector}, None if own else set()),
            ({"query": sketch.mark("content")}, None if own else set()),
        ]
    for inputs, wanted in asked:
        hits = await brain.recall(session, limit=200, viewer=viewer, **inputs)
        assert _ids(hits) <= seen, inputs
        if wanted is not None:
            assert _ids(hits) >= wanted, inputs
            assert wanted or not hits, inputs
        _assert_tells_only(_told(hits), world, seen)
        named = {int(number) for hit in hits for number in re.findall(r"\d+", hit.warning or "")}
        assert named <= seen, hits
        assert {int(hit.why.get("beside", hit.memory.id)) for hit in hits} <= seen


async def _assert_single_reads_show_only(session: AsyncSession, world: World, viewer: Viewer) -> None:
    seen, edges_seen = world.seen(viewer), world.edges_seen(viewer)
    for ident in world.sketches:
        if ident in seen:
            assert (await brain.get(session, ident, viewer=viewer)).id == ident
        else:
            with pytest.raises(NotFound) as missing:
                await brain.get(session, ident, viewer=viewer)
            assert str(missing.value).replace(str(ident), "7") == await _missing(session, viewer)
        found = set(await brain.edges_of(session, ident, viewer=viewer))
        assert found == {edge for edge in edges_seen if ident in (edge[0], edge[2])}
    entities = await brain.entities_of(session, list(world.sketches), viewer=viewer)
    assert {ident for ident, named in entities.items() if named} == seen
    _assert_tells_only([one.key for named in entities.values() for one in named], world, seen)


async def _missing(session: AsyncSession, viewer: Viewer) -> str:
    """What is said of a memory that nobody ever wrote."""
    with pytest.raises(NotFound) as missing:
        await brain.get(session, 2**40, viewer=viewer)
    return str(missing.value).replace(str(2**40), "7")


async def _assert_wholes_show_only(session: AsyncSession, world: World, viewer: Viewer) -> None:
    seen, edges_seen = world.seen(viewer), world.edges_seen(viewer)
    assert {one.id for one in await brain.listing(session, viewer=viewer, limit=200)} == world.in_force(viewer)
    assert {one.id for one in await brain.listing(session, viewer=viewer, lifecycles=list(Lifecycle), limit=200)} == seen

    for memories, limit in ((200, 200), (1, 200), (0, 2)):
        picture = (await brain.snapshot(session, viewer=viewer, memories=memories, edges=limit)).shape()
        nodes = {int(one["id"]) for one in picture["memories"]}
        drawn = {(int(one["source_id"]), one["relation"], int(one["target_id"])) for one in picture["edges"]}
        assert nodes <= seen
        assert {int(mention["memory_id"]) for one in picture["entities"] for mention in one["mentions"]} <= nodes
        assert drawn <= edges_seen
        assert len(drawn) == min(limit, len(edges_seen))  # hidden ones take nobody's place
        assert {int(one["id"]) for one in picture["memories"] if not one["external"]} == set(
            sorted(seen)[-memories:] if memories else []
        )
        if memories == 200:
            assert nodes == seen
        _assert_tells_only(picture, world, seen)

    told = await brain.stats(session, viewer=viewer)
    assert (told.memories, sum(told.rooms.values()), sum(told.vectors.values())) == (len(seen),) * 3
    assert told.unembedded + told.given_up == len(seen)
    _assert_tells_only([asdict(told)], world, seen)

    lines = [json.loads(line) async for line in brain.export(session, viewer=viewer)]
    assert {int(line["id"]) for line in lines} == seen
    exported = {(int(line["id"]), one["relation"], int(one["target_id"])) for line in lines for one in line["relations"]}
    assert exported == edges_seen
    _assert_tells_only(lines, world, seen)

    for name in WRITERS:
        if viewer.agent in (None, name):
            entries = [one.shape() for one in await brain.diary(session, name, viewer=viewer)]
            noted = {int(one["id"]) for entry in entries for one in entry["memories"]}
            assert noted == {ident for ident in seen if world.sketches[ident].writer == name}
            _assert_tells_only(entries, world, seen)
        else:
            with pytest.raises(NotFound):
                await brain.diary(session, name, viewer=viewer)


async def _assert_writes_tell_nothing(session: AsyncSession, world: World, viewer: Viewer) -> None:
    """Who names a memory that he may not see learns no more than who names one that is not there, and changes nothing."""
    hidden = sorted(set(world.sketches) - world.seen(viewer))
    shown = sorted(world.seen(viewer))
    before = await _contents(session)
    for ident in hidden[:2]:
        other = shown[0] if shown else ident
        for way in (
            lambda ident=ident: brain.archive(session, ident, viewer=viewer),
            lambda ident=ident: brain.restore(session, ident, viewer=viewer),
            lambda ident=ident, other=other: brain.relate(session, other, Relation.SUPPORTS, ident, viewer=viewer),
            lambda ident=ident, other=other: brain.relate(session, ident, Relation.SUPPORTS, other, viewer=viewer),
            lambda ident=ident: write(session, "a guess", viewer=viewer, derives_from=(ident,)),
            lambda ident=ident: write(session, "a guess", viewer=viewer, supersedes=(ident,)),
        ):
            with pytest.raises(NotFound):
                await way()
    assert await _contents(session) == before
    async with session.begin_nested() as scratch:
        for ident in hidden:
            # Its very words, in every scope that the viewer has: a memory of its own, that merges with nothing hidden.
            for scope in Scope if viewer.agent is not None else ():
                stored = await write(session, world.sketches[ident].content, viewer=viewer, scope=scope)
                assert stored.id not in hidden
        await scratch.rollback()
    session.expire_all()


async def _contents(session: AsyncSession) -> Sequence[Any]:
    await enter(session, BOARD)
    rows = await session.execute(text("SELECT id, lifecycle, evidence, trust FROM memories ORDER BY id"))
    return [tuple(row) for row in rows]


# --- many random recalls in one larger world ---------------------------------------------------------------------

TOPICS = ["server", "port", "backup", "night", "harbour", "invoice", "tea", "garden", "engine", "letter", "bridge", "paper"]
TRIALS = 5_000 if LONG else 120
"""For each role."""
MEMORIES = 400


@pytest.fixture
async def crowd(database_url: str, role: str | None) -> AsyncIterator[tuple[Brain, World]]:
    """Four hundred memories of thirty agents in six teams, counted and embedded."""
    db = Database(database_url, role=role)
    chance, world = random.Random(20), World()
    agents = [Viewer(agent=f"agent{n}", team=f"team{n % 6}" if n % 7 else None) for n in range(30)]
    async with db.transaction() as session:
        for number in range(MEMORIES):
            who, scope = chance.choice(agents), chance.choice([Scope.ORG, Scope.TEAM, Scope.AGENT_PRIVATE, Scope.AGENT_PRIVATE])
            if scope is Scope.TEAM and who.team is None:
                continue
            about = EntityRef(kind="thing", key=chance.choice(TOPICS))
            content = " ".join([*chance.choices(TOPICS, k=5), f"number{number}"])
            stored = await write(session, content, viewer=who, scope=scope, entities=(about,), room=chance.choice(TOPICS))
            owner = {Scope.ORG: "", Scope.TEAM: who.team, Scope.AGENT_PRIVATE: who.agent}[scope]
            world.whose[stored.id] = (scope.value, str(owner))
    await settle(db, EMBEDDER)
    yield Brain(db, EMBEDDER), world
    await db.close()


@pytest.mark.timeout(1200)
async def test_random_recalls_never_show_another_scopes_row(crowd: tuple[Brain, World], monkeypatch: pytest.MonkeyPatch) -> None:
    """Any viewer, any mode, any filter: whatever comes is the viewer's to see, and a limit that can be filled is filled."""
    knowing, world = crowd
    chance = random.Random(7)
    words_only = Brain(knowing.db)
    hits_seen = 0
    for trial in range(TRIALS):
        if trial == TRIALS // 2:  # from here on as in a large store
            monkeypatch.setattr(candidates, "SMALL", 20)
            monkeypatch.setattr(candidates, "BY_WORDS", 100)
        number = chance.randrange(32)
        team = chance.choice([None, f"team{number % 6}", f"agent{number}"])
        viewer = chance.choice([BOARD, *[Viewer(agent=f"agent{number}", team=team)] * 9])
        query = chance.choice([None, *[" ".join(chance.choices(TOPICS, k=chance.randint(1, 4)))] * 4])
        filters: dict[str, Any] = {
            "entity": chance.choice([None, None, ("thing", chance.choice(TOPICS))]),
            "room": chance.choice([None, None, None, chance.choice(TOPICS)]),
            "as_of": chance.choice([None, None, None, datetime.now(UTC)]),
        }
        limit = chance.choice([1, 5, 10, 50])
        hits = await chance.choice([knowing, words_only]).recall(query, limit=limit, viewer=viewer, **filters)
        for hit in hits:
            assert may_see(viewer, world.whose[hit.memory.id]), (viewer, query, filters, hit.mode)
        hits_seen += len(hits)
        if filters == {"entity": None, "room": None, "as_of": None} and (not hits or hits[0].mode != "text"):
            assert len(hits) == min(limit, len(world.seen(viewer)))
    assert hits_seen > TRIALS
