"""Row-level security: in the role that a company works as, the database itself shows nobody what is not theirs."""

from __future__ import annotations

import itertools

import pytest
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from opencognit import brain
from opencognit.brain import Brain, Indexer
from opencognit.brain.embed.hashing import HashEmbedder
from opencognit.brain.visibility import enter
from opencognit.contracts import BOARD, EntityRef, MemoryDraft, Viewer
from opencognit.db import Database, application_role
from opencognit.db.roles import ROLE
from opencognit.states import Relation, Scope, Trust

ANN, BEA, DON = Viewer(agent="ann", team="red"), Viewer(agent="bea", team="blue"), Viewer(agent="don")
VIEWERS = (BOARD, ANN, BEA, DON)
TABLES = {
    "memories": "id",
    "memory_embeddings": "memory_id",
    "memory_entities": "memory_id",
    "memory_edges": "source_id",
}

FILL = """
INSERT INTO memories (type, room, scope, owner, trust, confidence, content, content_hash, language, search_text)
SELECT 'fact', 'general', 'org', '', 'observed', 0.7, t, sha256(t::bytea), 'english', t
  FROM (SELECT 'service' || n % 997 || ' listens on port ' || n AS t FROM generate_series(1, 20000) n) AS texts
"""


async def _filled(db: Database) -> dict[str | None, set[int]]:
    """Write a memory of every kind, with a vector, an entity and an edge; return by agent (None: the board) what it may see."""
    knowing = Brain(db, HashEmbedder())
    ids: dict[tuple[Scope, str], int] = {}
    for viewer, scope in ((BOARD, Scope.ORG), *itertools.product((ANN, BEA), (Scope.TEAM, Scope.AGENT_PRIVATE))):
        draft = MemoryDraft(
            content=f"the secret of {viewer.agent} for {scope}", scope=scope, entities=(EntityRef(kind="thing", key="secret"),)
        )
        ids[scope, viewer.agent or ""] = (await knowing.write(draft, viewer=viewer, trust=Trust.OBSERVED)).id
    org = ids[Scope.ORG, ""]
    async with db.transaction() as session:
        for ident in ids.values():
            if ident != org:
                await brain.relate(session, ident, Relation.RELATED_TO, org, viewer=BOARD)
    indexer = Indexer(db, HashEmbedder())
    await indexer.adopt()
    assert await indexer.catch_up() == len(ids)
    seen: dict[str | None, set[int]] = {
        name: {ident for (_, agent), ident in ids.items() if agent in ("", name)} for name in ("ann", "bea", "don")
    }
    return {None: set(ids.values()), **seen}


def test_a_company_works_in_a_role_that_the_policies_bind(database_url: str) -> None:
    """The embedded server makes it; it owns nothing."""
    assert application_role(database_url) == ROLE


async def test_every_table_shows_only_what_the_asker_may_see(bound: Database) -> None:
    """Also to a query that forgot the predicate; and nothing at all where nobody has said who asks."""
    visible = await _filled(bound)
    for viewer, table in itertools.product((None, *VIEWERS), TABLES):
        async with bound.transaction() as session:
            if viewer is not None:
                await enter(session, viewer)
            found = set((await session.execute(text(f"SELECT {TABLES[table]} FROM {table}"))).scalars())
        expected = visible[viewer.agent] if viewer is not None else set()
        if table == "memory_edges":
            expected = expected - {min(visible[None])}  # the org's memory is at the other end of all edges
        assert found == expected, (viewer, table)


async def test_what_one_asked_says_nothing_to_the_next_on_its_connection(database_url: str) -> None:
    """Who asks holds for one transaction."""
    db = Database(database_url, role=ROLE, pool_size=1)
    await _filled(db)
    async with db.transaction() as session:
        await enter(session, BOARD)
        assert (await session.execute(text("SELECT count(*) FROM memories"))).scalar_one() == 5
    async with db.transaction() as session:
        assert (await session.execute(text("SELECT count(*) FROM memories"))).scalar_one() == 0
    await db.close()


async def test_nobody_writes_for_others(bound: Database) -> None:
    """A row that its writer would not see is refused by the database too."""
    await _filled(bound)
    for statement in (
        "UPDATE memories SET owner = 'bea' WHERE scope = 'agent_private'",
        "UPDATE memories SET scope = 'team', owner = 'blue' WHERE scope = 'org'",
    ):
        async with bound.transaction() as session:
            await enter(session, ANN)
            with pytest.raises(ProgrammingError, match="row-level security"):
                await session.execute(text(statement))
            await session.rollback()


async def test_recall_sees_the_same(bound: Database) -> None:
    """Search by words is a function with its owner's rights: it carries the predicate itself."""
    visible = await _filled(bound)
    knowing = Brain(bound, HashEmbedder())
    for viewer in VIEWERS:
        for embedding in (None, await knowing.encode("a secret")):
            async with bound.transaction() as session:
                hits = await brain.recall(session, "the secret", embedding=embedding, viewer=viewer, limit=50)
            assert {hit.memory.id for hit in hits} == visible[viewer.agent]


async def test_the_index_of_words_is_read_in_that_role(db: Database, bound: Database) -> None:
    """Under a policy `@@` may not use it, so search by words is a function of the tables' owner."""
    async with db.transaction() as session:
        await session.execute(text(FILL))
        await session.execute(text("SELECT gin_clean_pending_list('ix_memories_search')"))  # what a vacuum does
        await session.execute(text("ANALYZE memories"))
    scans = text("SELECT pg_stat_get_xact_numscans('ix_memories_search'::regclass)")
    async with bound.transaction() as session:
        hits = await brain.recall(session, "Where is service17?", viewer=ANN, limit=5)
        assert [hit for hit in hits if "service17 " in hit.memory.content] == hits != []
        assert (await session.execute(scans)).scalar_one() > 0


async def test_the_function_and_the_policies_have_one_predicate(bound: Database) -> None:
    """`memory_visible` over every scope, owner and asker: org to all, a team's to it, an agent's own to it, all to the board."""
    async with bound.transaction() as session:
        for scope, owner, viewer in itertools.product(Scope, ("", "ann", "red", "bea"), VIEWERS):
            query = text("SELECT memory_visible(:scope, :owner, :agent, :team, :board)")
            parameters = {"scope": scope, "owner": owner, "agent": viewer.agent, "team": viewer.team, "board": viewer.is_board}
            seen = bool((await session.execute(query, parameters)).scalar_one())
            own = {Scope.ORG: True, Scope.TEAM: owner == viewer.team, Scope.AGENT_PRIVATE: owner == viewer.agent}[scope]
            assert seen == (viewer.is_board or own), (scope, owner, viewer)
