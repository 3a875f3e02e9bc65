"""What a memory is about, found when it is written: entities given and read, names that are known, and what questions gain."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import brain
from opencognit.brain import entity_links, vocabulary
from opencognit.brain.entities import LIMIT, extract
from opencognit.contracts import BOARD, EntityRef, Viewer
from opencognit.db import Database
from opencognit.states import EntityRole, Scope
from tests.integration import company
from tests.integration.brain_kit import ANN, CAI, found, value, write

MENTIONED, SUBJECT, OBJECT = EntityRole.MENTIONED, EntityRole.SUBJECT, EntityRole.OBJECT


@pytest.fixture
async def session(bound: Database) -> AsyncIterator[AsyncSession]:
    async with bound.transaction() as session:
        yield session


async def _entities(session: AsyncSession, ident: int) -> set[tuple[str, str, str]]:
    entities = (await brain.entities_of(session, [ident], viewer=BOARD))[ident]
    return {(one.kind, one.key, one.role.value) for one in entities}


def _ref(kind: str, key: str, role: EntityRole = MENTIONED) -> EntityRef:
    return EntityRef(kind=kind, key=key, role=role)


# --- at write time ----------------------------------------------------------------------------------------------


async def test_what_a_text_shows_is_linked_and_found_by_its_entity(session: AsyncSession) -> None:
    """Without anybody saying so; in its one spelling, whatever the text's and the question's is."""
    stored = await write(session, "Die Rechnung über 1.234,56 € kam am 3. März 2026 von Ann@Example.com, siehe OPS-12")
    assert await _entities(session, stored.id) == {
        ("amount", "1234.56 EUR", MENTIONED),
        ("date", "2026-03-03", MENTIONED),
        ("email", "ann@example.com", MENTIONED),
        ("ticket", "OPS-12", MENTIONED),
    }
    for kind, key in (("date", "March 3, 2026"), ("EMAIL", "ANN@example.com"), ("ticket", "ops-12"), ("amount", "EUR 1,234.56")):
        assert await found(session, entity=(kind, key)) != [], (kind, key)


async def test_what_the_writer_says_keeps_its_role(session: AsyncSession) -> None:
    """What the text mentions besides is added, and never the same thing twice; its own spelling is made the one."""
    given = (_ref("ticket", "ops-12", SUBJECT), _ref("Service", " Billing ", OBJECT))
    stored = await write(session, "OPS-12 and OPS-13 are about v1.2.3", entities=given)
    assert await _entities(session, stored.id) == {
        ("ticket", "OPS-12", SUBJECT),
        ("service", "billing", OBJECT),
        ("ticket", "OPS-13", MENTIONED),
        ("version", "1.2.3", MENTIONED),
    }


async def test_the_same_text_again_adds_no_link(session: AsyncSession) -> None:
    """But what a later writer says it is about is added."""
    first = await write(session, "OPS-12 is done")
    await write(session, "ops-12  is DONE", entities=(_ref("ticket", "OPS-12", SUBJECT),))
    assert await _entities(session, first.id) == {("ticket", "OPS-12", MENTIONED), ("ticket", "OPS-12", SUBJECT)}


async def test_entities_of_one_text_are_bounded(session: AsyncSession) -> None:
    stored = await write(session, " ".join(f"OPS-{number}" for number in range(1, 500)))
    assert len(await _entities(session, stored.id)) == LIMIT


async def test_all_entities_of_a_write_cost_one_statement(session: AsyncSession) -> None:
    """However many it names, new or known; none where it names nothing."""
    statements: list[str] = []
    connection = await session.connection()
    event.listen(connection.sync_connection, "before_cursor_execute", lambda _c, _k, statement, *_: statements.append(statement))
    await write(session, "nothing that has a name")
    plain = len(statements)
    assert not any("entities" in statement for statement in statements)
    for content in ("OPS-1, OPS-2, OPS-3 on 2026-03-03", "OPS-1, OPS-4 on 2026-03-03"):
        statements.clear()
        await write(session, content)
        assert len(statements) == plain + 1


async def test_linking_never_reads_through_the_entities(session: AsyncSession) -> None:
    """A large store's names are looked up by their index alone: known ones, and what a question names."""
    await session.execute(text("INSERT INTO entities (kind, key) SELECT 'ticket', 'OPS-' || n FROM generate_series(1, 20000) n"))
    await session.execute(text("ANALYZE entities"))
    stored = await write(session, "without a name")
    names = {"kinds": ["ticket", "ticket", "ticket"], "keys": ["OPS-1", "OPS-19000", "OPS-20001"]}
    for query, parameters in (
        (entity_links.LINK, {**names, "roles": ["mentioned"] * 3, "memory_id": stored.id}),
        (entity_links.IDENTS, names),
    ):
        plan = "\n".join((await session.execute(text(f"EXPLAIN {_bare(query.text)}"), parameters)).scalars())
        assert "uq_entities_kind_key" in plan
        assert "Seq Scan on entities" not in plan


def _bare(statement: str) -> str:
    return "\n".join(line for line in statement.splitlines() if not line.startswith("--"))


async def test_a_long_text_is_read_beside_the_loop(session: AsyncSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short one on it: a thread would cost more."""
    threads: list[threading.Thread] = []

    def watched(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return extract(*args)

    monkeypatch.setattr(entity_links, "extract", watched)
    await write(session, "OPS-1 is short")
    stored = await write(session, "OPS-2 " + "and so on " * entity_links.INLINE_CHARS)
    assert threads[0] is threading.main_thread()
    assert threads[1] is not threading.main_thread()
    assert await _entities(session, stored.id) == {("ticket", "OPS-2", MENTIONED)}


async def test_writers_who_read_the_same_new_names_make_each_once(db: Database) -> None:
    """Twenty at once, in any order: nobody fails, nobody's link is lost."""

    async def one(number: int) -> int:
        async def work(session: AsyncSession) -> int:
            keys = [f"OPS-{key}" for key in range(1, 9)]
            return (await write(session, f"{' '.join(keys if number % 2 else keys[::-1])} by {number}")).id

        return await db.retrying(work)

    idents = await asyncio.gather(*map(one, range(20)))
    async with db.transaction() as session:
        assert await value(session, "SELECT count(*) FROM entities") == 8
        for ident in idents:
            assert len(await _entities(session, ident)) == 8


# --- names that are known ---------------------------------------------------------------------------------------


async def _learned(bound: Database, content: str, **fields: Any) -> set[tuple[str, str, str]]:
    """Let the process learn names, then write; return what the memory is about."""
    await brain.learn(bound)
    async with bound.transaction() as session:
        return await _entities(session, (await write(session, content, **fields)).id)


async def test_agents_and_named_things_are_known_by_name(bound: Database) -> None:
    """In any spelling of their letters; before they were learned they are words."""
    await company.hire(bound, company.spec("ceo"), company.spec("koehler"))
    async with bound.transaction() as session:
        await write(session, "it went live", entities=(_ref("service", "Billing API"),))
        early = await write(session, "the billing api again")
        assert await _entities(session, early.id) == set()
    assert await _learned(bound, "Köhler says that the BILLING-API is slow") == {
        ("agent", "koehler", MENTIONED),
        ("service", "billing api", MENTIONED),
    }


async def test_a_handle_of_a_known_agent_is_that_agent(bound: Database) -> None:
    await company.hire(bound, company.spec("ceo"), company.spec("ada"))
    assert await _learned(bound, "ask @ada or @bob") == {("agent", "ada", MENTIONED), ("user", "bob", MENTIONED)}


async def test_names_out_of_a_private_memory_are_nobodys(bound: Database) -> None:
    """Else the links of one's own text would tell what others write about; archived ones go as well."""
    async with bound.transaction() as session:
        for scope in (Scope.AGENT_PRIVATE, Scope.TEAM):
            await write(session, f"secret {scope}", viewer=ANN, scope=scope, entities=(_ref("project", "Blue Falcon", SUBJECT),))
        gone = await write(session, "archived", entities=(_ref("project", "Red Falcon", SUBJECT),))
        await brain.archive(session, gone.id, viewer=BOARD)
    assert await _learned(bound, "the blue falcon and the red falcon fly", viewer=CAI) == set()


async def test_the_object_of_a_triple_is_no_name(bound: Database) -> None:
    """`the build | is | green` must not make every green thing a mention; its subject is one."""
    async with bound.transaction() as session:
        triple = (_ref("thing", "nightly build", SUBJECT), _ref("thing", "green", OBJECT))
        await write(session, "nightly build is green", room="kg", entities=triple)
    assert await _learned(bound, "the green house has no nightly build") == {("thing", "nightly build", MENTIONED)}


async def test_names_are_bounded_and_the_newest_count(bound: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has a pattern takes no place among them."""
    monkeypatch.setattr(vocabulary, "MOST", 2)
    async with bound.transaction() as session:
        for key in ("Alpha", "Bravo", "Charlie"):
            await write(session, f"about {key} OPS-1", entities=(_ref("project", key),))
    assert await _learned(bound, "alpha bravo charlie") == {("project", "bravo", MENTIONED), ("project", "charlie", MENTIONED)}


async def test_each_database_has_its_own_names(bound: Database, server: str) -> None:
    """Also for sessions that only read; a database that learned nothing knows nothing."""
    async with bound.transaction() as session:
        await write(session, "it went live", entities=(_ref("service", "Billing API"),))
    await brain.learn(bound)
    other = Database(server)
    async with bound.reading() as reading, bound.transaction() as writing:
        assert vocabulary.names(reading) is vocabulary.names(writing)
        assert vocabulary.names(reading).named("billing api") == ("service", "billing api")
    async with other.reading() as session:
        assert vocabulary.names(session).named("billing api") is None
    await other.close()


# --- questions --------------------------------------------------------------------------------------------------


async def test_a_question_that_names_an_entity_prefers_what_is_about_it(session: AsyncSession) -> None:
    """Of two that match it as well by their words, and though the other is newer; `why` says so."""
    about = await write(session, "the invoice was paid late", entities=(_ref("ticket", "OPS-12", SUBJECT),))
    other = await write(session, "the invoice was paid soon", entities=(_ref("ticket", "OPS-13", SUBJECT),))
    plain = await brain.recall(session, "was the invoice paid", viewer=BOARD)
    assert [hit.memory.id for hit in plain] == [other.id, about.id]
    hits = await brain.recall(session, "was the invoice of OPS-12 paid", viewer=BOARD)
    assert [hit.memory.id for hit in hits] == [about.id, other.id]
    assert (hits[0].why.get("entity_match"), hits[1].why.get("entity_match")) == (1.0, None)


async def test_a_question_without_names_asks_no_more_often(session: AsyncSession) -> None:
    """The names of one cost one statement."""
    await write(session, "the invoice of OPS-12 was paid")
    statements: list[str] = []
    connection = await session.connection()
    event.listen(connection.sync_connection, "before_cursor_execute", lambda _c, _k, statement, *_: statements.append(statement))
    await brain.recall(session, "was the invoice paid", viewer=BOARD)
    plain = len(statements)
    assert not any("JOIN entities" in statement for statement in statements)
    statements.clear()
    await brain.recall(session, "was the invoice of OPS-12 or OPS-13 paid", viewer=BOARD)
    assert len(statements) == plain + 1


async def test_a_name_in_a_question_shows_nobody_what_he_may_not_see(session: AsyncSession) -> None:
    await write(session, "OPS-12 is about wages", viewer=ANN, scope=Scope.AGENT_PRIVATE)
    assert await found(session, "what is OPS-12", viewer=Viewer(agent="cai")) == []
