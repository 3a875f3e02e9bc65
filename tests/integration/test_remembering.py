"""What an agent remembers, through a whole run: what it was told is not new, its triples and edges reach the brain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from opencognit import brain, daemon
from opencognit.config import Home
from opencognit.contracts import BOARD, Briefing, EntityRef, MemoryDraft, Remember, RunContext, RunResult, Viewer
from opencognit.db import Database
from opencognit.engine.node import Node
from opencognit.models import Memory
from opencognit.states import EntityRole, Lifecycle, Trust
from opencognit.testing import Script, ScriptedAdapter, until
from tests.conftest import MakeHome
from tests.integration import company

AGENT = 'adapter = "bash"\n[adapter_config]\ncommand = "true"\n'
CONFIG = '[brain]\nembedder = "off"\n[brain.trust]\neva = "verified"\n'
PAGE = "On Monday the whole team moves the production database to the new cluster in Falkenstein"


@pytest.fixture
def home(make_home: MakeHome) -> Home:
    return make_home(agents={"ceo": 'adapter = "ceo"', "ann": AGENT, "eva": AGENT}, config=CONFIG)


@asynccontextmanager
async def node(db: Database, home: Home, scripted: ScriptedAdapter) -> AsyncIterator[None]:
    await daemon.sync_agents(daemon.Opened(home, db, None))
    working, stop = Node(db, home, registry=scripted.only()), asyncio.Event()
    task = asyncio.create_task(working.run(stop))
    try:
        await asyncio.wait({task, asyncio.create_task(working.ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
        yield
    finally:
        stop.set()
        await task


async def run(db: Database, home: Home, answer: str | Script, *, agent: str = "ann", description: str = "") -> Sequence[str]:
    """Let the agent answer a task; return the notes on its run."""
    async with node(db, home, ScriptedAdapter({agent: answer})):
        task_id = await company.give(db, agent, description=description)

        async def ended() -> Any:
            return await company.rows(
                db, "SELECT status, notes FROM runs WHERE task_id = :id AND ended_at IS NOT NULL", id=task_id
            )

        [(status, notes)] = await until(ended)
    assert status == "succeeded"
    return list(notes or ())


async def known(db: Database, content: str, *, trust: Trust = Trust.OBSERVED, viewer: Viewer = BOARD) -> int:
    async with db.transaction() as session:
        return (await brain.write(session, MemoryDraft(content=content), viewer=viewer, trust=trust)).id


async def memories(db: Database) -> dict[str, Memory]:
    async with db.transaction() as session:
        found = await brain.listing(session, viewer=BOARD, lifecycles=tuple(Lifecycle), limit=100)
    return {memory.content: memory for memory in found}


# --- what the agent was told ------------------------------------------------------------------------------------


async def test_what_is_copied_from_the_task_is_only_asserted(db: Database, home: Home) -> None:
    """Eight words in a row lower the trust and are noted; the agent's own words keep what its identity gives."""
    answer = f"[REMEMBER:ops] Note that {PAGE[10:]}.\n\n[REMEMBER:ops] The move took four hours"
    notes = await run(db, home, answer, agent="eva", description=f"{PAGE}.\nPlease prepare it.")
    found = {content: memory.trust for content, memory in (await memories(db)).items()}
    assert found == {f"Note that {PAGE[10:]}.": Trust.ASSERTED, "The move took four hours": Trust.VERIFIED}
    assert [note for note in notes if "copied" in note] == [
        "memory 1 [REMEMBER:ops]: in part copied from what this run was told, so it is only asserted"
    ]


async def test_a_recalled_memory_is_not_stored_again_by_tag_or_by_action(db: Database, home: Home) -> None:
    """What recall told within the run is as little news as the briefing; each attempt is noted."""
    ident = await known(db, "Deploys happen on Tuesday")

    async def answer(briefing: Briefing, context: RunContext) -> RunResult:
        assert not briefing.memories
        [told] = await context.recall("when do deploys happen")
        again = Remember(content=f"  {told.content.upper()} ", room="ops")
        return RunResult(text=f"[REMEMBER:ops] {told.content}", actions=(again,))

    notes = await run(db, home, answer)
    [memory] = (await memories(db)).values()
    assert (memory.id, memory.evidence, memory.trust) == (ident, 1, Trust.OBSERVED)
    assert ["not stored" in note for note in notes] == [True, True]


async def test_a_tools_answer_put_into_other_words_around_it_is_only_asserted(db: Database, home: Home) -> None:
    """Also where it is no whole line, by tag and by native action, and whatever the trust of what was recalled."""
    await known(db, PAGE, trust=Trust.VERIFIED)

    async def answer(_: Briefing, context: RunContext) -> RunResult:
        [told] = await context.recall("Falkenstein cluster")
        return RunResult(
            text=f"[REMEMBER:ops] I read: {told.content}, and so it is",
            actions=(Remember(content=f"{told.content}!!", room="x"),),
        )

    await run(db, home, answer, agent="eva")
    found = {content: memory.trust for content, memory in (await memories(db)).items()}
    assert found == {PAGE: Trust.VERIFIED, f"I read: {PAGE}, and so it is": Trust.ASSERTED, f"{PAGE}!!": Trust.ASSERTED}


async def test_what_the_briefings_memories_say_is_not_stored_again(db: Database, home: Home) -> None:
    """Found for the task before the run began: the `remember` action is held to it too."""
    await known(db, "work is done in Berlin")

    async def answer(briefing: Briefing, _: RunContext) -> RunResult:
        [told] = briefing.memories
        return RunResult(text="", actions=(Remember(content=told.content, room="other"),))

    [note] = await run(db, home, answer)
    assert "repeated from what this run was told" in note
    assert [memory.evidence for memory in (await memories(db)).values()] == [1]


async def test_a_long_answer_is_read_off_the_loop_all_the_same(db: Database, home: Home) -> None:
    await run(db, home, f"{'filler ' * 5000}\n[REMEMBER:ops] So {PAGE}", description=PAGE)
    assert (await memories(db))[f"So {PAGE}"].trust == Trust.ASSERTED


# --- triples and edges ------------------------------------------------------------------------------------------


async def test_a_triple_becomes_a_fact_with_subject_and_object(db: Database, home: Home) -> None:
    """Its further entities keep their roles; asking for either entity finds it."""
    await run(db, home, "[REMEMBER:kg entity=team:red] service:Billing | runs on | Cluster 7")
    [(content, memory)] = (await memories(db)).items()
    assert (content, memory.type, memory.room, memory.context) == (
        "Billing runs on Cluster 7",
        "fact",
        "kg",
        "ann (ann), task: work",
    )
    async with db.transaction() as session:
        entities = (await brain.entities_of(session, [memory.id], viewer=BOARD))[memory.id]
        hits = await brain.recall(session, entity=("thing", "cluster 7"), viewer=BOARD)
    assert {
        EntityRef(kind="service", key="billing", role=EntityRole.SUBJECT),
        EntityRef(kind="thing", key="cluster 7", role=EntityRole.OBJECT),
        EntityRef(kind="team", key="red"),
    } <= set(entities)
    assert [hit.memory.id for hit in hits] == [memory.id]


async def test_a_malformed_triple_is_noted_and_stays_in_the_text(db: Database, home: Home) -> None:
    [note] = await run(db, home, "[REMEMBER:kg] only | two")
    assert "three parts" in note
    assert await memories(db) == {}


async def test_sources_and_what_is_superseded_reach_the_brain(db: Database, home: Home) -> None:
    """Trust is capped at the weakest source, the older memory is marked, both edges are there."""
    source, old = (
        await known(db, "a page says 5432", trust=Trust.ASSERTED),
        await known(db, "the port is 5433", trust=Trust.ASSERTED),
    )
    notes = await run(db, home, f"[REMEMBER:ops type=fact derives_from={source} supersedes={old}] our port is 5432")
    found = await memories(db)
    new = found["our port is 5432"]
    assert (new.trust, found["the port is 5433"].lifecycle, notes) == (Trust.ASSERTED, Lifecycle.SUPERSEDED, [])
    async with db.transaction() as session:
        edges = await brain.edges_of(session, new.id, viewer=BOARD)
    assert set(edges) == {(new.id, "derives_from", source), (new.id, "supersedes", old)}


async def test_what_may_not_be_superseded_is_a_proposal_and_noted(db: Database, home: Home) -> None:
    """A verified memory stays in force against an agent's word, by tag and by action; the note says which memory asked."""
    old = await known(db, "prices are final", trust=Trust.VERIFIED)
    notes = await run(db, home, f"[REMEMBER:x] first\n\n[REMEMBER:ops supersedes={old}] prices may change")
    assert [note.startswith("memory 2 [REMEMBER:ops]: ") and "proposal" in note for note in notes] == [True]
    found = await memories(db)
    assert (found["prices are final"].lifecycle, len(found)) == (Lifecycle.ACTIVE, 3)


async def test_a_proposal_by_the_relate_action_is_noted_too(db: Database, home: Home) -> None:
    old = await known(db, "prices are final", trust=Trust.VERIFIED)
    new = await known(db, "prices may change", viewer=Viewer(agent="ann"))
    action = f'[{{"action": "relate", "source_id": {new}, "relation": "supersedes", "target_id": {old}}}]'
    [note] = await run(db, home, f"```actions\n{action}\n```")
    assert note.startswith("relate: ")
    assert "proposal" in note


async def test_an_unknown_source_is_a_note_and_the_rest_is_stored(db: Database, home: Home) -> None:
    [note] = await run(db, home, "[REMEMBER:x derives_from=999] lost\n\n[REMEMBER:x] kept")
    assert "memory 1 [REMEMBER:x]" in note
    assert "999" in note
    assert list(await memories(db)) == ["kept"]


async def test_an_edge_that_closes_a_circle_undoes_its_whole_memory(db: Database, home: Home) -> None:
    """The same content again with an impossible edge adds no evidence and no other edge; what follows is stored."""
    first, other = await known(db, "one", trust=Trust.VERIFIED), await known(db, "three")
    async with db.transaction() as session:
        proposal = MemoryDraft(content="two", supersedes=(first,))
        second = (await brain.write(session, proposal, viewer=Viewer(agent="ann"), trust=Trust.OBSERVED)).id
    [note] = await run(db, home, f"[REMEMBER:x supersedes={other},{second}] one\n\n[REMEMBER:x] four")
    assert "circle" in note
    found = await memories(db)
    assert set(found) == {"one", "two", "three", "four"}
    assert (found["one"].evidence, {memory.lifecycle for memory in found.values()}) == (1, {Lifecycle.ACTIVE})


async def test_repeating_a_trusted_memory_lends_its_trust_to_nobody(db: Database, home: Home) -> None:
    """An agent that says again what the board said supersedes with its own word, not with the board's."""
    await known(db, "the office is in Berlin", trust=Trust.VERIFIED)
    rule = await known(db, "nobody pays without two signatures", trust=Trust.VERIFIED)
    [note] = await run(db, home, f"[REMEMBER:x supersedes={rule}] the office is in Berlin")
    assert "proposal" in note
    assert (await memories(db))["nobody pays without two signatures"].lifecycle == Lifecycle.ACTIVE


async def test_a_trust_that_the_board_lent_to_its_words_is_not_the_agents(db: Database, home: Home) -> None:
    """What an agent wrote and the board confirmed is verified; what it supersedes is still the agent's word."""
    own = await known(db, "the office is in Berlin", viewer=Viewer(agent="ann"))
    assert await known(db, "the office is in Berlin", trust=Trust.VERIFIED) == own
    rule = await known(db, "nobody pays without two signatures", trust=Trust.VERIFIED)
    action = f'[{{"action": "relate", "source_id": {own}, "relation": "supersedes", "target_id": {rule}}}]'
    [note] = await run(db, home, f"```actions\n{action}\n```")
    assert "proposal" in note
    assert (await memories(db))["nobody pays without two signatures"].lifecycle == Lifecycle.ACTIVE
