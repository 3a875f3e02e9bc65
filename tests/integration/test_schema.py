"""The schema that the migrations make: it is the models', its constraints bite, and it can be made and undone safely."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, insert, text
from sqlalchemy.pool import NullPool

from opencognit import brain
from opencognit.brain.embed.hashing import HashEmbedder
from opencognit.contracts import BOARD, Answer, AskBoard, CreateTask, EntityRef, MemoryDraft, Remember, Usage
from opencognit.db import Database, check_server, downgrade, libpq_url, upgrade
from opencognit.errors import OpenCognitError, Unreachable
from opencognit.models import Base, MemoryUse, Routine, RoutineFiring, Token
from opencognit.states import (
    STORED_AGENT_STATES,
    ApprovalKind,
    ApprovalState,
    CancelMode,
    EntityRole,
    GoalState,
    Lifecycle,
    MemoryType,
    Priority,
    Relation,
    RunState,
    Scope,
    TaskKind,
    TaskState,
    TokenKind,
    Trust,
    WakeupSource,
    WakeupState,
)
from opencognit.work import goals, locks, runs
from tests.integration import company, testclock

schema = importlib.import_module("opencognit.db.upgrade")  # the package exports a function of that name
ROOT = Path(__file__).parents[2]
_names = itertools.count(1)


def _database(server: str, how: str = "") -> Iterator[str]:
    name = f"schema_{next(_names)}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} {how}".encode())
        yield re.sub(r"/opencognit\?", f"/{name}?", server)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_url(server: str) -> Iterator[str]:
    """A database without anything in it."""
    yield from _database(server)


def _asked(url: str, query: str, *parameters: Any) -> list[Any]:
    with psycopg.connect(libpq_url(url), autocommit=True) as connection:
        cursor = connection.execute(query.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


def _tables(url: str) -> set[str]:
    query = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'S', 'v')"
    return {name for (name,) in _asked(url, query)}


# --- the migrations make what the models say --------------------------------------------------------------------


def test_autogenerate_finds_no_difference(database_url: str) -> None:
    """Tables, columns, types, defaults, keys and indexes of the migrations are those of the models."""
    engine = create_engine(database_url.replace("postgresql:", "postgresql+psycopg:", 1), poolclass=NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


CATALOGUE = {
    "columns": """SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated,
                         pg_get_expr(d.adbin, d.adrelid)
                    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                   WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped""",
    "constraints": """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
                        FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype <> 'n'""",
    "indexes": "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "sequences": "SELECT sequencename, data_type::text, increment_by FROM pg_sequences WHERE schemaname = 'public'",
}


def test_migrations_make_exactly_what_the_models_would(database_url: str, empty_url: str) -> None:
    """Also what autogenerate does not look at: checks, index predicates, generated columns, sequences."""
    engine = create_engine(empty_url.replace("postgresql:", "postgresql+psycopg:", 1), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE EXTENSION vector"))
        Base.metadata.create_all(connection)
    engine.dispose()
    for what, query in CATALOGUE.items():
        migrated = [row for row in _asked(database_url, query) if row[0] != "alembic_version"]
        assert migrated, what
        assert sorted(map(str, migrated)) == sorted(map(str, _asked(empty_url, query))), what


ENUMS: dict[str, type[StrEnum] | frozenset[Any]] = {
    "agents.status": STORED_AGENT_STATES,
    "approvals.kind": ApprovalKind,
    "approvals.status": ApprovalState,
    "goals.priority": Priority,
    "goals.status": GoalState,
    "memories.lifecycle": Lifecycle,
    "memories.scope": Scope,
    "memories.trust": Trust,
    "memories.type": MemoryType,
    "memory_edges.relation": Relation,
    "memory_entities.role": EntityRole,
    "runs.cancel_mode": CancelMode,
    "runs.resumes_status": TaskState,
    "runs.status": RunState,
    "tasks.kind": TaskKind,
    "tasks.priority": Priority,
    "tasks.status": TaskState,
    "tokens.kind": TokenKind,
    "wakeups.source": WakeupSource,
    "wakeups.status": WakeupState,
}
COPIES = {"memory_counts.scope", "memory_embeddings.scope"}
"""Columns that are only ever filled from `memories.scope`, which is checked."""
FREE = {"entities.kind", "events.type", "events.subject_kind", "agents.status_reason", "costs.price_source"}
"""Columns named like a state that hold any text."""


def test_every_state_in_the_database_is_one_of_its_enum(database_url: str) -> None:
    """Each CHECK lists exactly the values of states.py, and every column that is named like a state has one."""
    query = "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c'"
    listed: dict[str, set[str]] = {}
    for table, definition in _asked(database_url, query):
        if found := re.fullmatch(r"CHECK \(\((\w+) = ANY \(ARRAY\[(.*)\]\)\)\)", definition):
            listed[f"{table}.{found[1]}"] = set(re.findall(r"'(\w+)'::text", found[2]))
    assert listed.pop("memories.language") == {"english", "german"}
    assert listed == {column: {str(value) for value in values} for column, values in ENUMS.items()}
    columns = {f"{table.name}.{column.name}" for table in Base.metadata.tables.values() for column in table.columns}
    words = re.compile(r"status|kind|type$|scope|trust|lifecycle|role$|relation|mode$|priority|[._]source$")
    assert {
        name for name in columns if words.search(name.split(".")[1]) or name.endswith(".source")
    } == ENUMS.keys() | FREE | COPIES


# --- constraints are the arbiter --------------------------------------------------------------------------------

AGENT = "INSERT INTO agents (name, adapter, heartbeat_interval_s, spec, digest) VALUES (%s, 'bash', 30, '{}', '')"
TASK = "INSERT INTO tasks (id, title, created_by) OVERRIDING SYSTEM VALUE VALUES (%s, 't', 'board')"
RUN = "INSERT INTO runs (task_id, agent, adapter, slot, token, lease_expires_at) VALUES (%s, %s, 'bash', %s, 1, now())"
WAKEUP = "INSERT INTO wakeups (agent, subject, source) VALUES (%s, %s, 'board')"
FIRING = "INSERT INTO routine_firings (routine, slot, outcome) VALUES ('daily', %s, 'fired')"
APPROVAL = "INSERT INTO approvals (kind, subject, question, asked_by) VALUES (%s, %s, 'may I?', 'ann')"
ROUTINE = "INSERT INTO routines (name, spec, digest) VALUES ('daily', '{}', '')"

ARBITERS: dict[str, tuple[str, tuple[Any, ...], tuple[Any, ...], str]] = {
    # name: what is inserted, the first row, one that must be let in beside it, the statement that lets the first go
    "uq_runs_task": (RUN, (1, "ann", 1), (2, "ann", 2), "UPDATE runs SET status = 'lost', ended_at = now()"),
    "uq_runs_agent_slot": (RUN, (None, "ann", 1), (None, "bob", 1), "UPDATE runs SET status = 'lost', ended_at = now()"),
    "uq_wakeups_queued": (WAKEUP, ("ann", "task:1"), ("ann", "task:2"), "UPDATE wakeups SET status = 'claimed'"),
    "pk_routine_firings": (FIRING, ("2026-10-25 03:30",), ("2026-10-26 03:30",), "DELETE FROM routine_firings"),
    "uq_approvals_pending": (APPROVAL, ("question", "task:1"), ("hire", "task:1"), "UPDATE approvals SET status = 'approved'"),
}


@pytest.fixture(scope="module")
def module_url(server: str, template: str) -> Iterator[str]:
    """One migrated database for all tests that roll back what they do."""
    yield from _database(server, f"TEMPLATE {template}")


@pytest.fixture
def raw(module_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction, rolled back at the end, with two agents, two tasks and a routine."""
    with psycopg.connect(libpq_url(module_url)) as connection, connection.transaction(force_rollback=True):
        for number, name in enumerate(("ann", "bob"), 1):
            connection.execute(AGENT, (name,))
            connection.execute(TASK, (number,))
        connection.execute(ROUTINE)
        yield connection


@pytest.mark.parametrize("name", ARBITERS)
def test_the_index_lets_only_the_first_in(raw: psycopg.Connection[Any], name: str) -> None:
    """A second row for the same thing gets 23505 from this very index; another thing, or a later time, is let in."""
    statement, first, beside, let_go = ARBITERS[name]
    second = (1, "bob", 2) if name == "uq_runs_task" else first
    raw.execute(statement, first)
    with pytest.raises(psycopg.errors.UniqueViolation) as refused, raw.transaction():
        raw.execute(statement, second)
    assert refused.value.diag.constraint_name == name
    raw.execute(statement, beside)
    raw.execute(let_go.encode())
    raw.execute(statement, first)


LOCK = (
    "UPDATE tasks SET execution_run_id = 7, execution_agent_key = 'ann', execution_locked_at = now(), lock_expires_at = now(),"
    " lock_token = 1, status = 'in_progress' WHERE id = 1"
)


@pytest.mark.parametrize("column", ["execution_run_id", "execution_agent_key", "execution_locked_at", "lock_expires_at"])
def test_a_lock_is_whole_or_not_there(raw: psycopg.Connection[Any], column: str) -> None:
    """No column of the lock can be missing, and none can stay behind when the others go."""
    value = {"execution_run_id": "7", "execution_agent_key": "'ann'"}.get(column, "now()")
    with pytest.raises(psycopg.errors.CheckViolation, match="ck_tasks_lock_whole"), raw.transaction():
        raw.execute(f"UPDATE tasks SET {column} = {value} WHERE id = 2".encode())
    raw.execute(LOCK.encode())
    with pytest.raises(psycopg.errors.CheckViolation, match="ck_tasks_"), raw.transaction():
        raw.execute(f"UPDATE tasks SET {column} = NULL WHERE id = 1".encode())


def test_work_in_progress_is_locked(raw: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="ck_tasks_in_progress_is_locked"):
        raw.execute("UPDATE tasks SET status = 'in_progress' WHERE id = 1")


MEMORY = (
    "INSERT INTO memories (type, room, scope, trust, confidence, content, content_hash, language, search_text)"
    " VALUES ('fact', 'r', '{scope}', 'observed', {confidence}, 'c', '', '{language}', 'c')"
)
OTHER_CHECKS = {
    "ck_runs_ended": "INSERT INTO runs (agent, adapter, slot, token, lease_expires_at, status)"
    " VALUES ('ann', 'bash', 1, 1, now(), 'lost')",
    "ck_company_single": "INSERT INTO company (id) VALUES (2)",
    "ck_task_dependencies_not_itself": "INSERT INTO task_dependencies VALUES (1, 1)",
    "ck_agents_max_concurrent_runs": "UPDATE agents SET max_concurrent_runs = 0",
    "ck_agents_status": "UPDATE agents SET status = 'running'",
    "ck_memories_owner": MEMORY.format(scope="team", confidence=1, language="german"),
    "ck_memories_confidence": MEMORY.format(scope="org", confidence=1.1, language="german"),
    "ck_memories_language": MEMORY.format(scope="org", confidence=1, language="latin"),
    "ck_memories_retired": MEMORY.format(scope="org", confidence=1, language="german")
    .replace("(type,", "(lifecycle, type,")
    .replace("('fact'", "('superseded', 'fact'"),
}


@pytest.mark.parametrize("name", OTHER_CHECKS)
def test_the_check_refuses_what_cannot_be(raw: psycopg.Connection[Any], name: str) -> None:
    """23514 from this very constraint."""
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        raw.execute(OTHER_CHECKS[name].encode())
    assert refused.value.diag.constraint_name == name


# --- up and down ------------------------------------------------------------------------------------------------


async def _fill(url: str) -> None:
    """Put at least one row into every table: by the company's own verbs where there are any yet."""
    db = Database(url)
    await company.hire(db, company.spec("ceo"), company.spec("ann"))
    async with db.transaction() as session:
        await goals.post(session, "a goal")
        await locks.seen(session, "node-a", pid=1, host="here", capacity=1)
    (plan,) = await company.claim(db)
    todo = (CreateTask(title="A", assignee="ann"), CreateTask(title="B", assignee="ann", after=("new-1",)))
    await company.finish(db, plan, Answer(text="planned", actions=todo))
    (run,) = await company.claim(db)
    async with db.transaction() as session:
        assert await runs.append_log(session, run.run_id, run.token, 1, "stdout", "hello")
    entities = (EntityRef(kind="service", key="api"),)
    first = Remember(content="the api is at /v2", room="api", entities=entities)
    second = Remember(content="so /v1 can go", room="api", derives_from=("1",))
    answer = Answer(text="done", memories=(first, second), actions=(AskBoard(question="remove /v1?"),))
    await company.finish(db, run, answer, usage=(Usage(1, "m", None),))
    async with db.transaction() as session:
        draft = MemoryDraft(content="the api is rate-limited")
        await brain.write(session, draft, viewer=BOARD, trust=Trust.VERIFIED, idempotency_key="k")
        await session.execute(insert(Routine).values(name="daily", spec={}, digest=""))
        await session.execute(insert(RoutineFiring).values(routine="daily", slot=text("localtimestamp"), outcome="fired"))
        await session.execute(insert(Token).values(name="run", kind=TokenKind.RUN, hash=b"h", run_id=run.run_id))
    await brain.Indexer(db, HashEmbedder()).catch_up()
    async with db.transaction() as session:
        await brain.write(session, MemoryDraft(content="not indexed yet"), viewer=BOARD, trust=Trust.VERIFIED)
        await session.execute(insert(MemoryUse).values(memory_id=1, uses=1))
    for table in Base.metadata.sorted_tables:
        assert await company.value(db, f"SELECT count(*) FROM {table.name}"), f"{table.name} is empty"
    await db.close()


async def test_a_filled_database_can_go_down_and_up_again(empty_url: str) -> None:
    """Downgrade to base leaves nothing of ours behind, and the way up is open again."""
    assert upgrade(empty_url)
    await _fill(empty_url)
    before = _tables(empty_url)
    downgrade(empty_url, "base")
    assert _tables(empty_url) == {"alembic_version"}
    assert upgrade(empty_url)
    assert _tables(empty_url) == before
    assert _asked(empty_url, "SELECT paused FROM company") == [(False,)]


WRITTEN_BEFORE = {
    # what a version without the index for words had: content, scope, owner, lifecycle
    "Die Datenbank lauscht auf Port 5433": ("org", "", "active"),
    "the proxy listens on port 8080": ("team", "red", "active"),
    "the proxy listens on port 80": ("org", "", "superseded"),
    "port numbers are on the wall": ("agent_private", "ann", "archived"),
    "the printer has no port": ("agent_private", "ann", "stale"),
}
OLD_ROW = """
INSERT INTO memories (type, room, scope, owner, trust, lifecycle, confidence, content, content_hash, language, search_text,
                      updated_at)
SELECT 'fact', 'net', %(scope)s, %(owner)s, 'observed', %(lifecycle)s, 0.7, content, sha256(convert_to(content, 'UTF8')),
       'english', lower(content), '2026-01-02 03:04:05Z'
  FROM (SELECT %(content)s::text AS content) AS given
"""


async def test_memories_of_the_first_schema_are_kept_and_found_by_the_next(empty_url: str) -> None:
    """Every row and column of 0001 is there afterwards, and what is in force is found once the backlog's loop has read it."""
    upgrade(empty_url, "0001")
    with psycopg.connect(libpq_url(empty_url), autocommit=True) as connection:
        for content, (scope, owner, lifecycle) in WRITTEN_BEFORE.items():
            connection.execute(OLD_ROW, {"scope": scope, "owner": owner, "lifecycle": lifecycle, "content": content})
        connection.execute(
            "INSERT INTO memory_embeddings (memory_id, model, embedding) SELECT id, 'm', '[0.6,0.8]' FROM memories"
        )
        connection.execute(
            "INSERT INTO memory_edges (source_id, relation, target_id, created_by) VALUES (2, 'supersedes', 3, 'b')"
        )
        connection.execute("INSERT INTO entities (kind, key) VALUES ('service', 'proxy')")
        connection.execute("INSERT INTO memory_entities (memory_id, entity_id, role) VALUES (2, 1, 'subject')")
    tables = ("memories", "memory_embeddings", "memory_edges", "entities", "memory_entities")
    columns = {table: _columns(empty_url, table) for table in tables}
    before = {table: _asked(empty_url, f"SELECT {columns[table]} FROM {table} ORDER BY 1, 2") for table in tables}

    assert upgrade(empty_url)

    after = {table: _asked(empty_url, f"SELECT {columns[table]} FROM {table} ORDER BY 1, 2") for table in tables}
    assert after == before
    assert [len(after[table]) for table in tables] == [5, 5, 1, 1, 1]
    retired = _asked(empty_url, "SELECT lifecycle, retired_at = updated_at FROM memories ORDER BY id")
    assert retired == [("active", None), ("active", None), ("superseded", True), ("archived", True), ("stale", None)]
    whose = _asked(empty_url, "SELECT count(*) FROM memory_embeddings e JOIN memories m ON m.id = e.memory_id"
                              " WHERE (e.scope, e.owner) = (m.scope, m.owner)")  # fmt: skip
    assert whose == [(5,)]

    db = Database(empty_url)
    indexer = brain.Indexer(db, HashEmbedder())
    await indexer.adopt()
    assert await indexer.catch_up() == len(WRITTEN_BEFORE)
    (german, english) = ("Auf welchem Port lauschen die Datenbanken?", "Which port does the proxy listen on?")
    async with db.transaction() as session:
        for question, content in ((german, "Die Datenbank lauscht auf Port 5433"), (english, "the proxy listens on port 8080")):
            hits = await brain.recall(session, question, viewer=BOARD)
            assert hits[0].memory.content == content
            assert hits[0].why["text_rank"] == 1
            assert {hit.memory.lifecycle for hit in hits} <= {"active", "stale"}
    await db.close()
    assert _asked(empty_url, "SELECT sum(memories) FROM memory_counts") == [(5,)]
    assert _asked(empty_url, "SELECT language FROM memories WHERE id = 1") == [("german",)]
    assert _asked(empty_url, "SELECT count(*) FROM memory_embeddings WHERE model = 'hash-v1'") == [(5,)]


def _columns(url: str, table: str) -> str:
    """Return the columns that a table has, but for what is made of the text for searching."""
    query = """SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute
                WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT LIKE 'search%%'"""
    return str(_asked(url, query, table)[0][0])


async def test_the_schema_works_where_it_was_made(empty_url: str) -> None:
    """Not in `public` but under a path of its own, as a test's clock has it: what the functions read is found there."""
    testclock.install(empty_url)
    db = Database(empty_url, search_path=testclock.PATH)
    async with db.transaction() as session:
        await brain.write(session, MemoryDraft(content="the kettle is slow"), viewer=BOARD, trust=Trust.VERIFIED)
    indexer = brain.Indexer(db, HashEmbedder())
    await indexer.adopt()
    assert await indexer.catch_up() == 1
    hits = await brain.Brain(db, HashEmbedder()).recall("kettle", viewer=BOARD)
    assert [(hit.memory.content, "similarity" in hit.why) for hit in hits] == [("the kettle is slow", True)]
    await db.close()


def test_a_current_database_is_left_alone(database_url: str) -> None:
    assert not upgrade(database_url)


def test_three_upgrades_at_once_are_one(empty_url: str) -> None:
    """Three daemons start on an empty database: one migrates, the others wait and find it done (F13-06)."""
    with psycopg.connect(libpq_url(empty_url), autocommit=True) as gate, ThreadPoolExecutor(3) as pool:
        gate.execute("SELECT pg_advisory_lock(%s)", (schema.ADVISORY_KEY,))
        started = [pool.submit(upgrade, empty_url) for _ in range(3)]
        while _waiting_for_locks(gate) < 3:
            assert not any(one.done() for one in started)
        gate.execute("SELECT pg_advisory_unlock_all()")
        assert sorted(one.result() for one in started) == [False, False, True]
    assert _asked(empty_url, "SELECT version_num FROM alembic_version") == [(schema.head(),)]
    assert _asked(empty_url, "SELECT count(*) FROM company") == [(1,)]


def _waiting_for_locks(connection: psycopg.Connection[Any]) -> int:
    here = "(SELECT oid FROM pg_database WHERE datname = current_database())"
    row = connection.execute(f"SELECT count(*) FROM pg_locks WHERE NOT granted AND database = {here}".encode()).fetchone()
    return int(row[0]) if row is not None else 0


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of this program with one migration more, which changes two tables."""
    now = schema.head()
    shutil.copytree(ROOT / "migrations", tmp_path / "migrations")
    following = NEXT.format(revision=f"{int(now) + 1:04}", down_revision=now)
    (tmp_path / "migrations" / "versions" / f"{int(now) + 1:04}_next.py").write_text(following)
    monkeypatch.setattr(schema, "_scripts", lambda: tmp_path / "migrations")


NEXT = """
from alembic import op

revision, down_revision, branch_labels, depends_on = "{revision}", "{down_revision}", None, None


def upgrade() -> None:
    op.execute("ALTER TABLE agents ADD COLUMN mood text")
    op.execute("ALTER TABLE goals ADD COLUMN mood text")


def downgrade() -> None:
    op.execute("ALTER TABLE agents DROP COLUMN mood")
    op.execute("ALTER TABLE goals DROP COLUMN mood")
"""


@pytest.mark.usefixtures("next_version")
async def test_an_upgrade_gives_way_to_a_session_that_works(database_url: str, db: Database) -> None:
    """An old daemon reads for long: the upgrade gives up, says so, changes nothing, and succeeds later (F13-06)."""
    await company.hire(db, company.spec("ceo"))
    (before,) = await company.rows(db, "SELECT version_num FROM alembic_version")
    async with db.transaction() as reader:
        await reader.execute(text("SELECT count(*) FROM goals"))
        with pytest.raises(OpenCognitError, match="schema was not changed: another session holds a table"):
            await asyncio.to_thread(upgrade, database_url, lock_timeout_s=0.2)
        async with db.transaction() as session:
            await goals.post(session, "the old schema still works")
    assert await company.rows(db, "SELECT version_num FROM alembic_version") == [before]
    moods = "SELECT count(*) FROM information_schema.columns WHERE column_name = 'mood'"
    assert await company.value(db, moods) == 0
    assert await asyncio.to_thread(upgrade, database_url)
    assert await company.value(db, moods) == 2


def test_a_database_of_a_newer_version_is_refused(database_url: str) -> None:
    """The revision is not one of ours: one line that says so, and nothing is touched."""
    _asked(database_url, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(OpenCognitError, match=r"made by another version .*'9999'.*use that version"):
        upgrade(database_url)
    with pytest.raises(OpenCognitError, match="made by another version"):
        downgrade(database_url, "base")
    assert _asked(database_url, "SELECT version_num FROM alembic_version") == [("9999",)]


def test_a_role_without_rights_is_told_what_its_owner_must_do(empty_url: str) -> None:
    _asked(empty_url, "CREATE ROLE guest LOGIN")
    with pytest.raises(OpenCognitError, match=r"refuses \(permission denied.*GRANT CREATE ON SCHEMA public"):
        upgrade(empty_url.replace("opencognit@", "guest@"))
    _asked(empty_url, "DROP ROLE guest")


# --- the server -------------------------------------------------------------------------------------------------


def test_the_embedded_server_will_do(empty_url: str) -> None:
    """Before and after the extension is made in this database."""
    assert re.fullmatch(r"PostgreSQL \d+\.\d+, pgvector \d+\.\d+\.\d+", check_server(empty_url))
    upgrade(empty_url)
    assert check_server(empty_url)


@pytest.mark.parametrize(
    ("number", "version", "pgvector", "says"),
    [
        (140012, "14.12", "0.8.4", "PostgreSQL 14.12 is too old: use 15 or newer"),
        (150000, "15.0", None, r"PostgreSQL 15.0 has no pgvector: install pgvector 0.8.4"),
        (180003, "18.3", "0.8.3", r"pgvector 0.8.3 is too old: install 0.8.4 .*ALTER EXTENSION vector UPDATE"),
        (180003, "18.3", "0.7", "pgvector 0.7 is too old"),
    ],
)
def test_a_server_that_will_not_do_is_named_with_its_mend(number: int, version: str, pgvector: str | None, says: str) -> None:
    with pytest.raises(OpenCognitError, match=says):
        schema.judge(number, version, pgvector)


@pytest.mark.parametrize("pgvector", ["0.8.4", "0.8.10", "0.9.0", "1.0", "0.10.0-dev"])
def test_a_newer_pgvector_is_welcome(pgvector: str) -> None:
    """Versions are numbers, not texts."""
    assert schema.judge(150000, "15.0", pgvector) == f"PostgreSQL 15.0, pgvector {pgvector}"


def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    """One line, without the password."""
    url = f"postgresql://me:hunter2@/db?host={tmp_path}"
    for verb in (upgrade, check_server):
        with pytest.raises(Unreachable, match="does not answer") as error:
            verb(url)
        assert "hunter2" not in str(error.value)
        assert "\n" not in str(error.value)
