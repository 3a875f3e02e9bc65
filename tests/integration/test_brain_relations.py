"""What edges mean: who takes whose place and how that is undone, whose trust is bounded by whom, and no circles."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import brain
from opencognit.contracts import BOARD
from opencognit.db import Database
from opencognit.errors import InvalidInput, Refused
from opencognit.states import WEAKEST_FIRST, Lifecycle, Relation, Scope, Trust
from tests.integration.brain_kit import ANN, BEA, CAI, DON, found, value, write

ORDERED = [Relation.SUPERSEDES, Relation.DERIVES_FROM]


async def _lifecycle(session: AsyncSession, ident: int) -> str:
    return str(await value(session, "SELECT lifecycle FROM memories WHERE id = :id", id=ident))


async def _trust(session: AsyncSession, ident: int) -> str:
    return str(await value(session, "SELECT trust FROM memories WHERE id = :id", id=ident))


# --- superseding and its undoing --------------------------------------------------------------------------------


async def test_restoring_undoes_superseding_and_archiving(session: AsyncSession) -> None:
    """The memory is in force and recalled again, the edge that put it away is gone, its other edges stay."""
    old, new = (await write(session, "the port is 5432")).id, (await write(session, "the port is 5433")).id
    await brain.relate(session, new, Relation.CONTRADICTS, old, viewer=BOARD)
    assert await brain.relate(session, new, Relation.SUPERSEDES, old, viewer=BOARD) is None
    assert await found(session, "port") == ["the port is 5433"]
    restored = await brain.restore(session, old, viewer=BOARD)
    assert (restored.lifecycle, restored.retired_at) == (Lifecycle.ACTIVE, None)
    assert set(await found(session, "port")) == {"the port is 5432", "the port is 5433"}
    assert await brain.edges_of(session, old, viewer=BOARD) == [(new, "contradicts", old)]
    await brain.archive(session, old, viewer=BOARD)
    assert await found(session, "port") == ["the port is 5433"]
    await brain.restore(session, old, viewer=BOARD)
    assert len(await found(session, "port")) == 2
    await brain.restore(session, old, viewer=BOARD)
    assert len(await found(session, "port")) == 2


async def test_superseding_again_after_a_restore_marks_again(session: AsyncSession) -> None:
    old, new = (await write(session, "one")).id, (await write(session, "two")).id
    for _ in range(2):
        await brain.relate(session, new, Relation.SUPERSEDES, old, viewer=BOARD)
        assert await _lifecycle(session, old) == Lifecycle.SUPERSEDED
        await brain.restore(session, old, viewer=BOARD)
        assert await _lifecycle(session, old) == Lifecycle.ACTIVE


async def test_a_memory_whose_words_are_in_force_elsewhere_cannot_be_restored(session: AsyncSession) -> None:
    """Refused, in a line that says why; the transaction goes on and nothing has changed."""
    old = await write(session, "the door code is 1234")
    await brain.archive(session, old.id, viewer=BOARD)
    again = await write(session, "the door code is 1234")
    with pytest.raises(Refused, match=f"memory {old.id} cannot be restored: the same content is known and in force"):
        await brain.restore(session, old.id, viewer=BOARD)
    assert await _lifecycle(session, old.id) == Lifecycle.ARCHIVED
    assert [hit.memory.id for hit in await brain.recall(session, "door code", viewer=BOARD)] == [again.id]


@pytest.mark.parametrize("weaker", [Trust.ASSERTED, Trust.OBSERVED])
async def test_a_weaker_word_only_proposes_to_supersede(session: AsyncSession, weaker: Trust) -> None:
    """The note names both and their trust; the older stays in force until the board says so; then it is marked."""
    old = await write(session, "the port is 5432", trust=Trust.VERIFIED)
    new = await write(session, "the port is 5433", viewer=ANN, trust=weaker, supersedes=(old.id,))
    assert new.note == f"memory {old.id} is verified, this is only {weaker}: kept as a proposal to supersede it"
    assert set(await found(session, "port")) == {"the port is 5432", "the port is 5433"}
    assert await brain.edges_of(session, old.id, viewer=BOARD) == [(new.id, "supersedes", old.id)]
    await write(session, "the port is 5433", trust=Trust.VERIFIED, supersedes=(old.id,))
    assert await found(session, "port") == ["the port is 5433"]


@pytest.mark.parametrize(("newer", "older"), list(itertools.product(Trust, Trust)))
async def test_whoever_is_trusted_no_less_supersedes(session: AsyncSession, newer: Trust, older: Trust) -> None:
    old = await write(session, "the port is 5432", trust=older)
    await write(session, "the port is 5433", viewer=ANN, trust=newer, supersedes=(old.id,))
    marked = WEAKEST_FIRST.index(newer) >= WEAKEST_FIRST.index(older)
    assert await _lifecycle(session, old.id) == (Lifecycle.SUPERSEDED if marked else Lifecycle.ACTIVE)


async def test_the_trust_of_a_known_memory_does_not_lend_itself_to_who_repeats_it(session: AsyncSession) -> None:
    """An agent that writes a verified memory's words anew cannot have another verified one superseded by it."""
    old = await write(session, "the port is 5432", trust=Trust.VERIFIED)
    new = await write(session, "the port is 5433", trust=Trust.VERIFIED)
    again = await write(session, "THE PORT IS 5433", viewer=ANN, trust=Trust.ASSERTED, supersedes=(old.id,))
    assert (again.id, again.merged) == (new.id, True)
    assert again.note is not None
    assert await _lifecycle(session, old.id) == Lifecycle.ACTIVE


PLACES = {
    "org": (BOARD, Scope.ORG),
    "red": (ANN, Scope.TEAM),
    "blue": (CAI, Scope.TEAM),
    "ann": (ANN, Scope.AGENT_PRIVATE),
    "bea": (BEA, Scope.AGENT_PRIVATE),
}


@pytest.mark.parametrize(("newer", "older"), list(itertools.product(PLACES, PLACES)))
async def test_what_fewer_see_only_proposes_to_supersede(session: AsyncSession, newer: str, older: str) -> None:
    """Nobody loses a memory to one that he does not see: the newer is for all, or for the same ones."""
    viewer, scope = PLACES[older]
    old = await write(session, "the port is 5432", viewer=viewer, scope=scope)
    viewer, scope = PLACES[newer]
    new = await write(session, "the port is 5433", viewer=viewer, scope=scope)
    note = await brain.relate(session, new.id, Relation.SUPERSEDES, old.id, viewer=BOARD)
    marked = newer in ("org", older)
    assert (note is None) is marked
    assert await _lifecycle(session, old.id) == (Lifecycle.SUPERSEDED if marked else Lifecycle.ACTIVE)


@pytest.mark.parametrize("relation", Relation)
async def test_only_a_memorys_writer_or_the_board_says_what_came_before_it(session: AsyncSession, relation: Relation) -> None:
    """Anybody who sees both may say that they support or contradict each other, not that one takes the other's place."""
    old, new = (await write(session, "one", viewer=ANN)).id, (await write(session, "two", viewer=ANN)).id
    if relation in ORDERED:
        with pytest.raises(Refused, match=f"memory {new} is not bea's: only its writer or the board says what it {relation}"):
            await brain.relate(session, new, relation, old, viewer=BEA)
        assert await brain.edges_of(session, new, viewer=BOARD) == []
    for viewer in (ANN, BOARD) if relation in ORDERED else (BEA, DON):
        assert await brain.relate(session, new, relation, old, viewer=viewer) is None
        assert await brain.edges_of(session, new, viewer=BOARD) == [(new, relation, old)]


async def test_as_of_shows_what_was_in_force_then(session: AsyncSession) -> None:
    """What was superseded or archived since is shown for a time before that, and what took its place is not; now not."""
    noon = datetime(2026, 5, 4, 12, tzinfo=UTC)
    hour = timedelta(hours=1)
    old, gone = await write(session, "the port is 5432"), await write(session, "the port is behind the desk")
    new = await write(session, "the port is 5433", supersedes=(old.id,))
    await brain.archive(session, gone.id, viewer=BOARD)
    times = "UPDATE memories SET created_at = :made, retired_at = CASE WHEN retired_at IS NOT NULL THEN :noon ELSE NULL END"
    for ident, made in ((old.id, noon - hour), (gone.id, noon - hour), (new.id, noon)):
        await session.execute(text(f"{times} WHERE id = :id"), {"id": ident, "made": made, "noon": noon})
    before, after = {"the port is 5432", "the port is behind the desk"}, {"the port is 5433"}
    for query in ("port", None):
        assert set(await found(session, query, as_of=noon - 2 * hour)) == set()
        assert set(await found(session, query, as_of=noon - hour)) == before
        assert set(await found(session, query, as_of=noon - timedelta(microseconds=1))) == before
        assert set(await found(session, query, as_of=noon)) == after
        assert set(await found(session, query)) == after


# --- deriving ---------------------------------------------------------------------------------------------------


async def test_a_cap_goes_down_the_whole_line_of_what_derives(session: AsyncSession) -> None:
    """Two sources, three generations: all that lies below the weak one is capped, nothing beside it; and nothing rises."""
    weak, strong = await write(session, "weak", trust=Trust.ASSERTED), await write(session, "strong", trust=Trust.VERIFIED)
    line = [strong.id]
    for number in range(3):
        child = await write(session, f"generation {number}", trust=Trust.VERIFIED, derives_from=(line[-1],))
        line.append(child.id)
    beside = await write(session, "beside", trust=Trust.VERIFIED, derives_from=(strong.id,))
    assert [await _trust(session, one) for one in (*line, beside.id)] == ["verified"] * 5
    await brain.relate(session, line[1], Relation.DERIVES_FROM, weak.id, viewer=BOARD)
    assert [await _trust(session, one) for one in (*line, beside.id)] == ["verified", *["asserted"] * 3, "verified"]
    await brain.relate(session, line[1], Relation.DERIVES_FROM, beside.id, viewer=BOARD)
    assert await _trust(session, line[1]) == "asserted"


async def test_a_cap_reaches_what_its_drawer_does_not_see(session: AsyncSession) -> None:
    """Trust is a rule of the store, not of who looks: bea's own conclusion falls with what it was drawn from."""
    weak = await write(session, "weak", trust=Trust.ASSERTED)
    known = await write(session, "known", viewer=ANN, trust=Trust.OBSERVED)
    own = await write(session, "bea's own", viewer=BEA, scope=Scope.AGENT_PRIVATE, derives_from=(known.id,))
    assert await _trust(session, own.id) == "observed"
    await brain.relate(session, known.id, Relation.DERIVES_FROM, weak.id, viewer=ANN)
    assert [await _trust(session, one) for one in (known.id, own.id)] == ["asserted", "asserted"]


edges = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)
trusts = st.lists(st.sampled_from(list(Trust)), min_size=6, max_size=6)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges, trusts)
def test_whatever_derives_from_whatever_no_trust_exceeds_a_sources(
    runner: asyncio.Runner, open_session: AsyncSession, drawn: list[tuple[int, int]], given_trusts: list[Trust]
) -> None:
    """In whichever order edges are drawn: a circle is refused and changes nothing, the weakest source bounds all below it."""

    async def check() -> None:
        session = open_session
        async with session.begin_nested() as scratch:
            ids = [(await write(session, f"memory {n}", trust=trust)).id for n, trust in enumerate(given_trusts)]
            below: dict[int, set[int]] = {n: set() for n in range(6)}

            def reaches(start: int, end: int) -> bool:
                return start == end or any(reaches(one, end) for one in below[start])

            for source, target in drawn:
                if reaches(target, source):
                    with pytest.raises(InvalidInput, match="target: "):
                        await brain.relate(session, ids[source], Relation.DERIVES_FROM, ids[target], viewer=BOARD)
                else:
                    await brain.relate(session, ids[source], Relation.DERIVES_FROM, ids[target], viewer=BOARD)
                    below[source].add(target)
            for n in range(6):
                weakest = min((given_trusts[m] for m in range(6) if reaches(n, m)), key=WEAKEST_FIRST.index)
                assert await _trust(session, ids[n]) == weakest
            await scratch.rollback()

    runner.run(check())


# --- circles ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("length", [2, 3, 5])
async def test_a_circle_is_refused_where_it_says_nothing(session: AsyncSession, relation: Relation, length: int) -> None:
    """However long; the relations that go both ways may close one."""
    ids = [(await write(session, f"memory {number}")).id for number in range(length)]
    for newer, older in itertools.pairwise(ids):
        await brain.relate(session, newer, relation, older, viewer=BOARD)
    if relation in ORDERED:
        told = f"target: memory {ids[0]} already {relation} memory {ids[-1]}, directly or by others: a circle"
        with pytest.raises(InvalidInput, match=told):
            await brain.relate(session, ids[-1], relation, ids[0], viewer=BOARD)
    else:
        await brain.relate(session, ids[-1], relation, ids[0], viewer=BOARD)
    expected = length - 1 if relation in ORDERED else length
    assert await value(session, "SELECT count(*) FROM memory_edges") == expected


@pytest.mark.parametrize("relation", ORDERED)
async def test_a_circle_through_what_its_drawer_does_not_see_is_refused_too(session: AsyncSession, relation: Relation) -> None:
    first, last = await write(session, "first", viewer=ANN), await write(session, "last", viewer=ANN)
    hidden = await write(session, "bea's own", viewer=BEA, scope=Scope.AGENT_PRIVATE)
    await brain.relate(session, first.id, relation, hidden.id, viewer=BOARD)
    await brain.relate(session, hidden.id, relation, last.id, viewer=BOARD)
    with pytest.raises(InvalidInput, match="a circle"):
        await brain.relate(session, last.id, relation, first.id, viewer=ANN)
    assert await value(session, "SELECT count(*) FROM memory_edges") == 2


async def test_one_relations_circle_is_not_anothers(session: AsyncSession) -> None:
    """B takes A's place, and A is what it was derived from: no circle."""
    a, b = (await write(session, "a")).id, (await write(session, "b")).id
    await brain.relate(session, b, Relation.SUPERSEDES, a, viewer=BOARD)
    await brain.relate(session, a, Relation.DERIVES_FROM, b, viewer=BOARD)
    assert len(await brain.edges_of(session, a, viewer=BOARD)) == 2


Step = Callable[[AsyncSession], Awaitable[object]]


async def _racing(db: Database, *steps: Step) -> list[object]:
    """Let the first do its step and wait, the others come to theirs meanwhile; then commit one by one."""
    stepped, go = asyncio.Event(), asyncio.Event()

    async def first() -> object:
        async with db.transaction() as session:
            said = await steps[0](session)
            stepped.set()
            await go.wait()
            return said

    async def other(step: Step) -> object:
        async with db.transaction() as session:
            return await step(session)

    async with asyncio.timeout(30):
        holding = asyncio.create_task(first())
        await stepped.wait()
        waiting = [asyncio.create_task(other(step)) for step in steps[1:]]
        await _until_blocked(db, len(waiting))
        go.set()
        return await asyncio.gather(holding, *waiting, return_exceptions=True)


async def _until_blocked(db: Database, number: int) -> None:
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with db.reading() as session:
        while await value(session, query) < number:  # noqa: ASYNC110 - it is the server that blocks them
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("relation", ORDERED)
async def test_two_who_close_a_circle_at_the_same_time_are_not_both_let(db: Database, relation: Relation) -> None:
    """The second waits for the first to commit, sees its edge and is refused."""
    async with db.transaction() as session:
        a, b = (await write(session, "a")).id, (await write(session, "b")).id
    first, second = await _racing(
        db,
        lambda session: brain.relate(session, a, relation, b, viewer=BOARD),
        lambda session: brain.relate(session, b, relation, a, viewer=BOARD),
    )
    assert first is None
    assert isinstance(second, InvalidInput)
    async with db.transaction() as session:
        assert await brain.edges_of(session, a, viewer=BOARD) == [(a, relation, b)]


async def test_a_cap_that_another_is_just_drawing_is_not_missed(db: Database) -> None:
    """While B is being derived from what is only asserted, C is derived from B: in the end C is only asserted too."""
    async with db.transaction() as session:
        a = (await write(session, "a", trust=Trust.ASSERTED)).id
        b = (await write(session, "b", trust=Trust.VERIFIED)).id
        c = (await write(session, "c", trust=Trust.VERIFIED)).id
    said = await _racing(
        db,
        lambda session: brain.relate(session, b, Relation.DERIVES_FROM, a, viewer=BOARD),
        lambda session: brain.relate(session, c, Relation.DERIVES_FROM, b, viewer=BOARD),
        lambda session: write(session, "d", trust=Trust.VERIFIED, derives_from=(b,)),
    )
    assert not any(isinstance(one, BaseException) for one in said), said
    async with db.transaction() as session:
        assert await value(session, "SELECT array_agg(trust ORDER BY content) FROM memories") == ["asserted"] * 4


async def test_superseding_waits_for_who_is_just_raising_the_older_ones_trust(db: Database) -> None:
    """The board confirms a memory while an agent's supersedes it: what is verified then stays in force."""
    async with db.transaction() as session:
        old = (await write(session, "the port is 5432", trust=Trust.OBSERVED)).id
        new = (await write(session, "the port is 5433", viewer=ANN, trust=Trust.OBSERVED)).id
    confirmed, note = await _racing(
        db,
        lambda session: write(session, "the port is 5432", trust=Trust.VERIFIED),
        lambda session: brain.relate(session, new, Relation.SUPERSEDES, old, viewer=ANN),
    )
    assert isinstance(confirmed, brain.Stored)
    assert isinstance(note, str), note
    assert "kept as a proposal" in note
    async with db.transaction() as session:
        assert await _lifecycle(session, old) == Lifecycle.ACTIVE


# --- who sees edges ---------------------------------------------------------------------------------------------


async def test_an_edge_is_seen_by_those_who_see_both_its_ends(session: AsyncSession) -> None:
    public = await write(session, "known to all")
    secret = await write(session, "for red", viewer=ANN, scope=Scope.TEAM, derives_from=(public.id,))
    own = await write(session, "bea's own", viewer=BEA, scope=Scope.AGENT_PRIVATE, derives_from=(secret.id,))
    for viewer, expected in ((BOARD, 2), (ANN, 1), (BEA, 2), (CAI, 0), (DON, 0)):
        edges_seen = {
            edge for ident in (public.id, secret.id, own.id) for edge in await brain.edges_of(session, ident, viewer=viewer)
        }
        assert len(edges_seen) == expected
