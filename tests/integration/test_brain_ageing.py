"""What nobody wants any more grows stale and comes back when it is wanted; a room's summary, what it says and takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import brain
from opencognit.brain import Brain, Caretaker, vocabulary
from opencognit.brain.ageing import AGE, DAYS, age
from opencognit.brain.summaries import CHARS, LINE_CHARS, SOURCES
from opencognit.brain.uses import MOST, Uses, used
from opencognit.contracts import BOARD, EntityRef, Viewer
from opencognit.db import Database
from opencognit.errors import InvalidInput, NotFound
from opencognit.states import Lifecycle, MemoryType, Relation, Scope, Trust
from opencognit.testing import until
from tests.integration.brain_kit import ANN, BEA, CAI, DON, value, write

IMMORTAL = {MemoryType.DECISION, MemoryType.RULE, MemoryType.PREFERENCE}


@pytest.fixture
async def session(bound: Database) -> AsyncIterator[AsyncSession]:
    async with bound.transaction() as session:
        yield session


async def _back(session: AsyncSession, days: float, ident: int | None = None) -> None:
    """Let a memory, or all of them, have been written so many days ago."""
    moved = "UPDATE memories SET created_at = now() - make_interval(secs => :s), updated_at = now() - make_interval(secs => :s)"
    where = "" if ident is None else " WHERE id = :id"
    await session.execute(text(moved + where), {"s": days * 86400} | ({} if ident is None else {"id": ident}))


async def _lifecycle(session: AsyncSession, ident: int) -> str:
    return str(await value(session, "SELECT lifecycle FROM memories WHERE id = :id", id=ident))


# --- ageing -----------------------------------------------------------------------------------------------------


def test_each_type_has_an_age() -> None:
    """What was decided, is a rule or is preferred holds until somebody says otherwise."""
    assert set(DAYS) == set(MemoryType)
    assert {kind for kind, days in DAYS.items() if days is None} == IMMORTAL


@pytest.mark.parametrize("kind", MemoryType)
async def test_a_memory_grows_stale_at_its_types_age_and_not_before(session: AsyncSession, kind: MemoryType) -> None:
    """Nothing else of it changes: it stays in force, and keeps its times."""
    stored = await write(session, f"a {kind}", type=kind)
    days = DAYS[kind]
    await _back(session, (days or 10_000) - 0.1)
    assert await age(session) == 0
    await _back(session, (days or 10_000) + 0.1)
    updated = await value(session, "SELECT updated_at FROM memories")
    assert await age(session) == (0 if days is None else 1)
    assert await _lifecycle(session, stored.id) == (Lifecycle.ACTIVE if days is None else Lifecycle.STALE)
    assert await value(session, "SELECT updated_at FROM memories") == updated
    assert await age(session) == 0


async def test_what_is_used_does_not_age(session: AsyncSession) -> None:
    """A use counts from its own day on, however old the memory is."""
    stored = await write(session, "an old episode", type=MemoryType.EPISODE)
    await _back(session, 1000)
    await used(session, {stored.id: 1})
    await session.execute(text("UPDATE memory_uses SET used_at = now() - interval '89 days'"))
    assert await age(session) == 0
    await session.execute(text("UPDATE memory_uses SET used_at = now() - interval '91 days'"))
    assert await age(session) == 1


async def test_a_use_and_an_identical_write_revive(session: AsyncSession) -> None:
    """Neither makes another memory, and what was revived does not age again at once."""
    one, two = await write(session, "first plan", type=MemoryType.PLAN), await write(session, "second plan", type=MemoryType.PLAN)
    await _back(session, 100)
    assert await age(session) == 2
    await used(session, {one.id: 1})
    assert (await write(session, "Second  plan")).id == two.id
    assert [await _lifecycle(session, one.id), await _lifecycle(session, two.id)] == [Lifecycle.ACTIVE] * 2
    assert await age(session) == 0


@pytest.mark.parametrize("lifecycle", [Lifecycle.ARCHIVED, Lifecycle.SUPERSEDED])
async def test_what_is_out_of_force_neither_ages_nor_comes_back(session: AsyncSession, lifecycle: Lifecycle) -> None:
    old = await write(session, "an old plan", type=MemoryType.PLAN)
    if lifecycle is Lifecycle.ARCHIVED:
        await brain.archive(session, old.id, viewer=BOARD)
    else:
        await write(session, "a rule instead", type=MemoryType.RULE, supersedes=(old.id,))
    await _back(session, 1000)
    assert await age(session) == 0
    await used(session, {old.id: 1})
    assert await _lifecycle(session, old.id) == lifecycle


async def test_a_stale_memory_is_found_behind_what_is_as_good(session: AsyncSession) -> None:
    """It is ranked lower, not hidden; nothing but the mark has changed between the two questions."""
    old = await write(session, "The harbour opens at seven", type=MemoryType.PLAN)
    new = await write(session, "The harbour opens at eight", type=MemoryType.PLAN)
    before = {hit.memory.id: hit.score for hit in await brain.recall(session, "when the harbour opens", viewer=BOARD)}
    await session.execute(text("UPDATE memories SET lifecycle = 'stale' WHERE id = :id"), {"id": new.id})
    hits = await brain.recall(session, "when the harbour opens", viewer=BOARD)
    assert [hit.memory.id for hit in hits] == [old.id, new.id]
    assert [hit.score for hit in hits] == pytest.approx([before[old.id], 0.8 * before[new.id]])


async def test_ageing_goes_in_batches_and_finds_by_its_index(session: AsyncSession) -> None:
    """A large store is never marked in one go, and one without anything to mark is not read through."""
    for number in range(5):
        await write(session, f"plan {number}", type=MemoryType.PLAN)
    await _back(session, 100)
    assert [await age(session, limit=2) for _ in range(4)] == [2, 2, 1, 0]
    await session.execute(
        text(
            "INSERT INTO memories (type, room, scope, trust, confidence, content, content_hash, language, search_text)"
            " SELECT 'fact', 'r', 'org', 'observed', 1, n::text, n::text::bytea, 'english', '' FROM generate_series(1, 3000) n"
        )
    )
    await session.execute(text("ANALYZE memories"))
    connection = await session.connection()

    def explain(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
        return (f"EXPLAIN {statement}" if statement.lstrip().startswith("--") else statement), parameters

    event.listen(connection.sync_connection, "before_cursor_execute", explain, retval=True)
    parameters = {"types": ["fact", "plan"], "days": [365, 60], "limit": 1000}
    plan = "\n".join((await session.execute(AGE, parameters)).scalars())
    assert "ix_memories_ageing" in plan
    assert "Seq Scan on memories" not in plan


async def test_two_nodes_do_not_age_at_once(db: Database) -> None:
    async with db.transaction() as one:
        stored = await write(one, "plan", type=MemoryType.PLAN)
        await _back(one, 100)
    async with db.transaction() as one, db.transaction() as two:
        await one.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('memory_ageing', 0))"))
        assert await age(two) == 0
    async with db.transaction() as one:
        assert await age(one) == 1
        assert await _lifecycle(one, stored.id) == Lifecycle.STALE


# --- uses -------------------------------------------------------------------------------------------------------


async def test_a_recall_notes_what_it_gave_and_writes_nothing(db: Database) -> None:
    """Only what was given counts; one statement writes down what many recalls gave."""
    memory = Brain(db)
    async with db.transaction() as session:
        one, two = await write(session, "the harbour is open"), await write(session, "the lighthouse is dark")
    statements: list[str] = []
    event.listen(
        db.engine.sync_engine, "before_cursor_execute", lambda _c, _k, statement, *_: statements.append(statement.lstrip())
    )
    for query in ("harbour", "harbour", "harbour lighthouse"):
        await memory.recall(query, viewer=ANN)
    assert statements
    assert not [one for one in statements if any(word in one for word in ("INSERT", "UPDATE", "DELETE"))]
    statements.clear()
    await memory.uses.flush(db)
    assert sum("memory_uses" in statement for statement in statements) == 1
    await memory.uses.flush(db)
    async with db.reading() as session:
        uses = (await session.execute(text("SELECT memory_id, uses FROM memory_uses ORDER BY memory_id"))).all()
    assert [tuple(row) for row in uses] == [(one.id, 3), (two.id, 1)]


async def test_uses_that_cannot_be_written_down_are_kept_for_later(db: Database) -> None:
    async with db.transaction() as session:
        stored = await write(session, "the harbour is open")
    uses = Uses()
    uses.note([stored.id, stored.id])
    lost = Database("postgresql:///nowhere?host=/nonexistent")
    with suppress(Exception):
        await uses.flush(lost)
    await lost.close()
    uses.note([stored.id])
    await uses.flush(db)
    async with db.reading() as session:
        assert await value(session, "SELECT uses FROM memory_uses") == 3


def test_what_is_noted_is_bounded() -> None:
    """While nobody writes it down, a process remembers so many and no more; those go on being counted."""
    uses = Uses()
    uses.note(range(2 * MOST))
    uses.note([1])
    assert len(uses._noted) == MOST
    assert uses._noted[1] == 2


async def test_uses_of_what_is_not_there_are_passed_over(session: AsyncSession) -> None:
    stored = await write(session, "the harbour is open")
    await used(session, {stored.id: 1, 999: 4})
    assert await value(session, "SELECT count(*) FROM memory_uses") == 1


async def test_the_caretaker_does_it_all_and_goes_on_after_a_failure(
    db: Database, bound: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A use noted before the look-round saves its memory from ageing in the same one; a broken round is not the last.

    It looks after what no agent may see together: every scope.
    """
    monkeypatch.setattr("opencognit.brain.caretaker.PAUSE_S", 0.01)
    async with db.transaction() as session:
        wanted = await write(session, "wanted plan", type=MemoryType.PLAN)
        unwanted = await write(session, "another plan", viewer=ANN, scope=Scope.AGENT_PRIVATE, type=MemoryType.PLAN)
        await write(session, "it went live", entities=(EntityRef(kind="service", key="Billing API"),), type=MemoryType.RULE)
        await _back(session, 100)
    memory = Brain(bound)
    memory.uses.note([wanted.id])
    broken = 0

    async def failing(_: AsyncSession) -> int:
        nonlocal broken
        broken += 1
        if broken == 1:
            raise InvalidInput("test", "once")
        return 0 if broken > 2 else await age(_)

    monkeypatch.setattr("opencognit.brain.ageing.age", failing)
    keeping = asyncio.create_task(Caretaker(memory).keep())

    async def aged() -> bool:
        async with db.reading() as session:
            return await _lifecycle(session, unwanted.id) == Lifecycle.STALE

    await until(aged)
    keeping.cancel()
    async with bound.reading() as session:
        assert vocabulary.names(session).named("billing api") == ("service", "billing api")
    async with db.reading() as session:
        assert await _lifecycle(session, wanted.id) == Lifecycle.ACTIVE
        assert await value(session, "SELECT memory_id FROM memory_uses") == wanted.id
    assert broken >= 2


async def test_the_caretaker_ages_at_most_once_an_hour(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[float] = []
    clock = [1000.0]
    monkeypatch.setattr("opencognit.brain.caretaker.monotonic", lambda: clock[0])

    async def counted(_: AsyncSession) -> int:
        rounds.append(clock[0])
        return 0

    monkeypatch.setattr("opencognit.brain.ageing.age", counted)
    caretaker = Caretaker(Brain(db))
    for clock[0] in (1000.0, 1005.0, 4599.0, 4601.0):
        await caretaker.look_after()
    assert rounds == [1000.0, 4601.0]


# --- summaries --------------------------------------------------------------------------------------------------


def _about(*keys: str) -> dict[str, Any]:
    return {"entities": tuple(EntityRef(kind="service", key=key) for key in keys), "room": "ops"}


async def _sum(session: AsyncSession, room: str = "ops", *, viewer: Viewer = BOARD, **how: Any) -> brain.Summary:
    trust = Trust.VERIFIED if viewer.is_board else Trust.OBSERVED
    return await brain.summarise(session, room, viewer=viewer, trust=trust, **how)


async def test_a_summary_has_the_newest_of_each_thing(session: AsyncSession) -> None:
    """Once each, newest first, whole lines; what names nothing, is over, out of force or elsewhere is not in it."""
    await write(session, "billing was slow", **_about("billing"))
    await write(session, "search is new", **_about("search"))
    both = await write(session, "billing and mail\nare fast", **_about("billing", "mail"))
    gone = await write(session, "search was removed", **_about("search"))
    await brain.archive(session, gone.id, viewer=BOARD)
    await write(session, "nothing in particular", room="ops")
    await write(session, "billing elsewhere", **{**_about("billing"), "room": "other"})
    over = await write(session, "mail is down today", **_about("mail"))
    await session.execute(text("UPDATE memories SET valid_to = now() - interval '1 day' WHERE id = :id"), {"id": over.id})
    summary = await _sum(session, " OPS ")
    memory = await brain.get(session, summary.id, viewer=BOARD)
    assert memory.content.splitlines()[1:] == ["- billing and mail are fast", "- search is new"]
    assert (memory.type, memory.room, memory.scope) == (MemoryType.FACT, "ops", Scope.ORG)
    assert summary.sources[0] == both.id
    edges = await brain.edges_of(session, summary.id, viewer=BOARD)
    assert set(edges) == {(summary.id, Relation.DERIVES_FROM, source) for source in summary.sources}


async def test_a_summary_is_trusted_no_more_than_its_weakest_source(session: AsyncSession) -> None:
    await write(session, "billing is fast", trust=Trust.VERIFIED, confidence=0.9, **_about("billing"))
    await write(session, "somebody says mail is slow", trust=Trust.ASSERTED, confidence=0.4, **_about("mail"))
    memory = await brain.get(session, (await _sum(session)).id, viewer=BOARD)
    assert (memory.trust, memory.confidence) == (Trust.ASSERTED, 0.4)


async def test_a_new_summary_takes_the_formers_place_and_restore_brings_it_back(session: AsyncSession) -> None:
    """Also where a weaker source has come in; the summary itself is never a source; the next one replaces both."""
    await write(session, "billing is fast, says OPS-1", trust=Trust.VERIFIED, **_about("billing"))
    first = await _sum(session)
    assert await _sum(session) == brain.Summary(first.id, first.sources, (), made=False)
    await write(session, "mail is slow", trust=Trust.ASSERTED, **_about("mail"))
    second = await _sum(session)
    assert (second.made, second.replaced, second.note) == (True, (first.id,), None)
    assert first.id not in second.sources
    assert await _lifecycle(session, first.id) == Lifecycle.SUPERSEDED
    await brain.restore(session, first.id, viewer=BOARD)
    assert await _lifecycle(session, first.id) == Lifecycle.ACTIVE
    await write(session, "mail is fast", **_about("mail"))
    assert set((await _sum(session)).replaced) == {first.id, second.id}


async def test_a_summary_never_mixes_scopes(session: AsyncSession) -> None:
    """Everyone's is made of what everyone sees, a team's of the team's, an agent's of its own."""
    await write(session, "billing for all", **_about("billing"))
    await write(session, "billing for red", viewer=ANN, scope=Scope.TEAM, **_about("billing"))
    await write(session, "billing for ann", viewer=ANN, scope=Scope.AGENT_PRIVATE, **_about("billing"))
    await write(session, "billing for blue", viewer=CAI, scope=Scope.TEAM, **_about("billing"))
    for viewer, scope, owner, content in (
        (BOARD, Scope.ORG, "", "billing for all"),
        (BEA, Scope.TEAM, "red", "billing for red"),
        (ANN, Scope.AGENT_PRIVATE, "ann", "billing for ann"),
        (CAI, Scope.TEAM, "blue", "billing for blue"),
    ):
        memory = await brain.get(session, (await _sum(session, viewer=viewer, scope=scope)).id, viewer=BOARD)
        assert (memory.scope, memory.owner, memory.content.splitlines()[1:]) == (scope, owner, [f"- {content}"])
    with pytest.raises(NotFound, match="names anything"):
        await _sum(session, viewer=BEA, scope=Scope.AGENT_PRIVATE)
    with pytest.raises(NotFound):
        await _sum(session, viewer=DON, scope=Scope.TEAM)
    with pytest.raises(InvalidInput, match="use org"):
        await _sum(session, scope=Scope.TEAM)


async def test_an_agents_summary_does_not_overrule_the_boards(session: AsyncSession) -> None:
    """Its word is worth no more there than anywhere else."""
    await write(session, "billing is fast", trust=Trust.VERIFIED, **_about("billing"))
    first = await _sum(session)
    await write(session, "mail is slow", trust=Trust.VERIFIED, **_about("mail"))
    second = await _sum(session, viewer=ANN)
    assert await _lifecycle(session, first.id) == Lifecycle.ACTIVE
    assert "proposal" in (second.note or "")


async def test_a_summary_is_bounded(session: AsyncSession) -> None:
    """In sources, in each line and in all; what was left out is said."""
    for number in range(SOURCES + 5):
        await write(session, f"service {number} " + "runs and runs " * 60, **_about(f"service {number}"))
    summary = await _sum(session)
    memory = await brain.get(session, summary.id, viewer=BOARD)
    lines = memory.content.splitlines()
    assert len(summary.sources) <= SOURCES
    assert len(lines) == len(summary.sources) + 2
    assert max(map(len, lines[1:])) <= LINE_CHARS + 2
    assert len(memory.content) <= CHARS + 200
    assert (lines[1][:13], lines[-1]) == (f"- service {SOURCES + 4} ", "(older ones are left out)")
