"""Deliberate writes from code: one verb for each type, with all that a memory may have, and only what was asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from opencognit import brain
from opencognit.brain import Brain, Recorder
from opencognit.contracts import BOARD, EntityRef, Viewer
from opencognit.db import Database
from opencognit.errors import InvalidInput, NotFound
from opencognit.models import Memory
from opencognit.states import EntityRole, Lifecycle, MemoryType, Scope, Trust

ANN = Viewer(agent="ann", team="red", run_id=7, task_id=8)


async def _memory(db: Database, ident: int) -> Memory:
    async with db.transaction() as session:
        return await brain.get(session, ident, viewer=BOARD)


@pytest.mark.parametrize("kind", MemoryType)
async def test_there_is_a_verb_for_each_type(db: Database, kind: MemoryType) -> None:
    """It stores that type, as the recorder's viewer, with its trust, in its room."""
    recorder = Recorder(Brain(db), viewer=ANN, trust=Trust.OBSERVED, room="Ops")
    stored = await getattr(recorder, kind.value)(f"this is a {kind}")
    memory = await _memory(db, stored.id)
    assert (memory.type, memory.content, memory.room, memory.trust) == (kind, f"this is a {kind}", "ops", Trust.OBSERVED)
    assert (memory.source_agent, memory.source_run_id, memory.source_task_id) == ("ann", 7, 8)


def test_there_is_no_other_verb() -> None:
    """Nothing that stores without being told what it is."""
    assert {name for name in dir(Recorder) if not name.startswith("_")} == {*MemoryType, "brain", "viewer", "trust", "room"}


async def test_all_that_a_memory_may_have_can_be_said(db: Database) -> None:
    """Lists as well as tuples; sources cap the trust, what is superseded is marked."""
    board = Recorder(Brain(db), viewer=BOARD, trust=Trust.VERIFIED)
    recorder = Recorder(Brain(db), viewer=ANN, trust=Trust.OBSERVED)
    source = await Recorder(Brain(db), viewer=BOARD, trust=Trust.ASSERTED).fact("somebody said 5432")
    old = await recorder.fact("the port is 5433", scope=Scope.TEAM, derives_from=[source.id])
    since, until = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    details: dict[str, Any] = {"valid_from": since, "valid_to": until, "context": "from the handbook", "confidence": 0.9}
    stored = await recorder.decision(
        "the port is 5432",
        room="network",
        scope=Scope.TEAM,
        entities=[EntityRef(kind="service", key="Billing", role=EntityRole.SUBJECT)],
        derives_from=[source.id],
        supersedes=[old.id],
        **details,
    )
    memory = await _memory(db, stored.id)
    assert {name: getattr(memory, name) for name in details} == details
    assert (memory.room, memory.scope, memory.owner, memory.trust) == ("network", Scope.TEAM, "red", Trust.ASSERTED)
    assert (await _memory(db, old.id)).lifecycle == Lifecycle.SUPERSEDED
    async with db.transaction() as session:
        entities = (await brain.entities_of(session, [stored.id], viewer=BOARD))[stored.id]
    assert EntityRef(kind="service", key="billing", role=EntityRole.SUBJECT) in entities
    assert (await board.rule("the port is 5432")).merged is False  # the team's is none of the company's


async def test_a_key_stores_once(db: Database) -> None:
    """The second call gives the first one's memory, also with another verb; other content under it is refused."""
    recorder = Recorder(Brain(db), viewer=ANN, trust=Trust.OBSERVED)
    first = await recorder.outcome("it worked", idempotency_key="k1")
    again = await recorder.outcome("it worked", idempotency_key="k1")
    assert (first.merged, again.merged, again.id) == (False, True, first.id)
    assert (await _memory(db, first.id)).evidence == 1
    with pytest.raises(InvalidInput, match="used for another memory"):
        await recorder.outcome("it failed", idempotency_key="k1")


async def test_a_bad_call_stores_nothing(db: Database) -> None:
    recorder = Recorder(Brain(db), viewer=ANN, trust=Trust.OBSERVED)
    with pytest.raises(NotFound):
        await recorder.fact("derived from nothing", derives_from=[99])
    with pytest.raises(InvalidInput, match="confidence"):
        await recorder.fact("too sure", confidence=1.5)
    async with db.transaction() as session:
        assert await brain.listing(session, viewer=BOARD) == []
