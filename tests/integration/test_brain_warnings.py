"""What a recall says beside its hits: who contradicts one, who was proposed to take its place, and to whom it says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import brain, briefing
from opencognit.brain import Hit
from opencognit.contracts import BOARD, BriefingAgent, BriefingCompany, EntityRef, MemoryDraft, Viewer
from opencognit.db import Database
from opencognit.engine.context import as_briefing_memory
from opencognit.states import Relation, Scope, Trust

ANN, CAI = Viewer(agent="ann", team="red"), Viewer(agent="cai", team="blue")
CONTRADICTS, SUPERSEDES = Relation.CONTRADICTS, Relation.SUPERSEDES


@pytest.fixture
async def session(bound: Database) -> AsyncIterator[AsyncSession]:
    async with bound.transaction() as session:
        yield session


async def _write(session: AsyncSession, content: str, *, viewer: Viewer = BOARD, **fields: Any) -> int:
    trust = fields.pop("trust", Trust.OBSERVED)
    return (await brain.write(session, MemoryDraft(content=content, **fields), viewer=viewer, trust=trust)).id


async def _relate(session: AsyncSession, source: int, relation: Relation, target: int) -> None:
    await brain.relate(session, source, relation, target, viewer=BOARD)


async def _recall(session: AsyncSession, query: str | None = "harbour", *, viewer: Viewer = BOARD, **how: Any) -> list[Hit]:
    return list(await brain.recall(session, query, viewer=viewer, **how))


def _shown(hits: list[Hit]) -> list[tuple[int, str | None]]:
    return [(hit.memory.id, hit.warning) for hit in hits]


@pytest.mark.parametrize("drawn", ["by the hit", "by the other"])
async def test_a_contradicted_hit_has_the_other_directly_behind_it(session: AsyncSession, drawn: str) -> None:
    """Whoever drew the edge; the other is shown though no word of the question is in it, and each names the other."""
    weaker = await _write(session, "a harbour far away with many other words about boats and nets and the weather")
    hit = await _write(session, "the harbour is open", trust=Trust.VERIFIED)
    other = await _write(session, "ships are turned away")
    await _relate(session, *((hit, CONTRADICTS, other) if drawn == "by the hit" else (other, CONTRADICTS, hit)))
    hits = await _recall(session)
    assert _shown(hits) == [
        (hit, f"contradicts memory {other} (observed)"),
        (other, f"contradicts memory {hit} (verified)"),
        (weaker, None),
    ]
    assert (hits[1].score, hits[1].why, hits[1].mode) == (hits[0].score, {"beside": hit}, "text")


async def test_it_takes_the_place_of_the_weakest_hit(session: AsyncSession) -> None:
    """Never of the hit itself: with one place only the warning is left, and so it is behind the last one."""
    weaker = await _write(session, "a harbour far away with many other words about boats and nets and the weather")
    hit = await _write(session, "the harbour is open")
    other = await _write(session, "ships are turned away")
    await _relate(session, other, CONTRADICTS, hit)
    warning = f"contradicts memory {other} (observed)"
    assert [ident for ident, _ in _shown(await _recall(session, limit=2))] == [hit, other]
    assert _shown(await _recall(session, limit=1)) == [(hit, warning)]
    await _relate(session, weaker, CONTRADICTS, other)
    assert [ident for ident, _ in _shown(await _recall(session, limit=3))] == [hit, other, weaker]


async def test_a_hit_that_contradicts_a_better_one_moves_up_to_it(session: AsyncSession) -> None:
    """It is there once, with what it was found by."""
    best = await _write(session, "harbour harbour harbour")
    between = await _write(session, "the harbour and its many boats")
    last = await _write(session, "a harbour far away with many other words about boats and nets and the weather")
    assert [hit.memory.id for hit in await _recall(session)] == [best, between, last]
    await _relate(session, last, CONTRADICTS, best)
    hits = await _recall(session)
    assert [hit.memory.id for hit in hits] == [best, last, between]
    assert hits[1].why.keys() > {"beside", "text_rank"}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


async def test_the_newest_of_several_is_shown_and_three_are_named(session: AsyncSession) -> None:
    """A much contradicted hit does not drive all others out."""
    hit = await _write(session, "the harbour is open")
    others = [await _write(session, f"ships are turned away, says {name}") for name in ("a", "b", "c", "d")]
    for other in others:
        await _relate(session, other, CONTRADICTS, hit)
    named = ", ".join(f"{other} (observed)" for other in (others[3], others[2], others[1]))
    shown = _shown(await _recall(session))
    assert shown == [(hit, f"contradicts memories {named}"), (others[3], f"contradicts memory {hit} (observed)")]


async def test_a_proposal_to_supersede_is_named_and_not_shown(session: AsyncSession) -> None:
    """The older one stays in force and is warned of; once it is superseded there is nothing to warn of."""
    old = await _write(session, "the harbour is open", trust=Trust.VERIFIED)
    new = await _write(session, "it was closed in May", viewer=ANN, supersedes=(old,))
    assert _shown(await _recall(session)) == [(old, f"is proposed to be superseded by memory {new} (observed)")]
    await brain.archive(session, new, viewer=BOARD)
    assert _shown(await _recall(session)) == [(old, None)]


async def test_both_warnings_of_one_hit_are_said(session: AsyncSession) -> None:
    old = await _write(session, "the harbour is open", trust=Trust.VERIFIED)
    new = await _write(session, "it was closed in May", viewer=ANN, supersedes=(old,))
    await _relate(session, new, CONTRADICTS, old)
    warning = f"contradicts memory {new} (observed); is proposed to be superseded by memory {new} (observed)"
    assert _shown(await _recall(session))[0] == (old, warning)


@pytest.mark.parametrize("relation", [Relation.SUPPORTS, Relation.DERIVES_FROM, Relation.RELATED_TO, Relation.OBSERVED_WITH])
async def test_other_relations_warn_of_nothing(session: AsyncSession, relation: Relation) -> None:
    hit, other = await _write(session, "the harbour is open"), await _write(session, "ships are turned away")
    await _relate(session, other, relation, hit)
    assert _shown(await _recall(session)) == [(hit, None)]


async def test_what_the_asker_may_not_see_is_neither_named_nor_shown(session: AsyncSession) -> None:
    """Another team's objection stays with that team."""
    hit = await _write(session, "the harbour is open")
    secret = await _write(session, "ships are turned away", viewer=ANN, scope=Scope.TEAM)
    rival = await _write(session, "it was closed in May", viewer=ANN, scope=Scope.AGENT_PRIVATE, supersedes=(hit,))
    await _relate(session, secret, CONTRADICTS, hit)
    assert _shown(await _recall(session, viewer=CAI)) == [(hit, None)]
    for viewer in (ANN, BOARD):
        [first, second] = _shown(await _recall(session, viewer=viewer))
        assert first[0] == hit
        assert str(secret) in (first[1] or "")
        assert str(rival) in (first[1] or "")
        assert second[0] == secret


async def test_what_is_not_in_force_contradicts_nothing(session: AsyncSession) -> None:
    hit, other = await _write(session, "the harbour is open"), await _write(session, "ships are turned away")
    await _relate(session, other, CONTRADICTS, hit)
    await brain.archive(session, other, viewer=BOARD)
    assert _shown(await _recall(session)) == [(hit, None)]


async def test_a_filter_does_not_hide_what_contradicts(session: AsyncSession) -> None:
    """The other room's objection is the one that a reader would not find by himself; entity and newest warn too."""
    hit = await _write(session, "the harbour is open", room="ports", entities=(EntityRef(kind="port", key="x"),))
    other = await _write(session, "ships are turned away", room="complaints")
    await _relate(session, other, CONTRADICTS, hit)
    for how in ({"room": "ports"}, {"entity": ("port", "x")}, {"query": None, "room": "ports"}):
        assert [ident for ident, _ in _shown(await _recall(session, **how))] == [hit, other]


async def test_a_question_about_the_past_is_warned_of_what_was_known_then(session: AsyncSession) -> None:
    """An objection of today is none of yesterday's; one that has been put away since was one then."""
    hit, other = await _write(session, "the harbour is open"), await _write(session, "ships are turned away")
    await session.execute(text("UPDATE memories SET created_at = '2026-01-01'"))
    await _relate(session, other, CONTRADICTS, hit)
    await session.execute(text("UPDATE memory_edges SET created_at = '2026-03-01'"))
    february, april = datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
    assert _shown(await _recall(session, as_of=february)) == [(hit, None)]
    assert [ident for ident, _ in _shown(await _recall(session, as_of=april))] == [hit, other]
    await brain.archive(session, other, viewer=BOARD)
    assert [ident for ident, _ in _shown(await _recall(session, as_of=april))] == [hit, other]
    assert _shown(await _recall(session)) == [(hit, None)]


async def test_all_hits_together_cost_one_statement(session: AsyncSession) -> None:
    """Twenty contradicted hits ask no more often than one that nobody contradicts."""
    asked: list[str] = []
    await _write(session, "the lighthouse stands alone")
    for number in range(20):
        hit, other = await _write(session, f"the harbour number {number}"), await _write(session, f"no port {number}")
        await _relate(session, other, CONTRADICTS, hit)
    connection = await session.connection()
    event.listen(connection.sync_connection, "before_cursor_execute", lambda _c, _k, statement, *_: asked.append(statement))
    assert len(await _recall(session, "lighthouse", limit=40)) == 1
    few = len(asked)
    assert len(await _recall(session, limit=40)) == 40
    assert len(asked) == 2 * few
    assert sum("memory_edges" in statement for statement in asked) == 2


async def test_an_agent_reads_the_warning_and_the_content_stays_verbatim(session: AsyncSession) -> None:
    """It stands in the first line of the memory's block; the briefing's JSON keeps its keys."""
    hit, other = await _write(session, "the harbour is open"), await _write(session, "ships are turned away")
    await _relate(session, other, CONTRADICTS, hit)
    memories = [as_briefing_memory(one) for one in await _recall(session)]
    assert [one.content for one in memories] == ["the harbour is open", "ships are turned away"]
    assert set(memories[0].model_dump()) == {"id", "type", "room", "trust", "content", "created_at"}
    made = briefing.build(
        run_id=1,
        token=1,
        agent=BriefingAgent(name="ann", role="", title=""),
        company=BriefingCompany(name="", goal=""),
        memories=memories,
    )
    assert f'warning="contradicts memory {other} (observed)"' in briefing.render_data(made, "marker123")
    assert "warning" not in briefing.to_json(made)
