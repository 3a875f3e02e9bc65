"""Units of work, retries, the listener, and the search path that lets a test move time."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.db import Database, Listener, libpq_url, notify
from opencognit.engine import heartbeat
from opencognit.errors import Unreachable
from opencognit.states import RunState, TaskState, WakeupSource
from opencognit.testing import until
from opencognit.work import wakeups
from tests.integration import company, testclock

SOCKET = ".s.PGSQL.5432"


@pytest.fixture
async def notes(db: Database) -> Database:
    """A database with two rows to fight for."""
    async with db.transaction() as session:
        await session.execute(text("CREATE TABLE notes (id int PRIMARY KEY, said text NOT NULL)"))
        await session.execute(text("INSERT INTO notes VALUES (1, 'one'), (2, 'two')"))
    return db


async def _say(session: AsyncSession, ident: int, said: str) -> None:
    await session.execute(text("UPDATE notes SET said = :said WHERE id = :id"), {"id": ident, "said": said})


async def _said(db: Database) -> list[str]:
    return [said for (said,) in await company.rows(db, "SELECT said FROM notes ORDER BY id")]


async def _end_backend(db: Database, pid: int) -> None:
    async with db.transaction() as session:
        assert (await session.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})).scalar_one()


# --- units of work ----------------------------------------------------------------------------------------------


async def test_a_transaction_commits_at_its_end_and_not_before(notes: Database) -> None:
    async with notes.transaction() as session:
        await _say(session, 1, "new")
        assert await _said(notes) == ["one", "two"]
    assert await _said(notes) == ["new", "two"]


async def _fail_after_saying(db: Database, error: type[BaseException]) -> None:
    async with db.transaction() as session:
        await _say(session, 1, "new")
        raise error


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
async def test_a_transaction_rolls_back_on_any_exception(notes: Database, error: type[BaseException]) -> None:
    """Also on cancellation; the exception itself comes through, and the connection goes back clean."""
    with pytest.raises(error):
        await _fail_after_saying(notes, error)
    assert await _said(notes) == ["one", "two"]
    assert notes.engine.pool.checkedout() == 0  # type: ignore[attr-defined]


async def test_a_deadlock_is_tried_again_until_both_have_won(notes: Database) -> None:
    """Two sessions take two rows crosswise: the server breaks one of them, and `retrying` repeats it whole."""
    meet = asyncio.Barrier(2)
    tries = {"a": 0, "b": 0}

    async def cross(session: AsyncSession, name: str, first: int, second: int) -> None:
        tries[name] += 1
        await session.execute(text("SET LOCAL deadlock_timeout = '20ms'"))
        await _say(session, first, name)
        if tries[name] == 1:
            await meet.wait()
        await _say(session, second, name)

    await asyncio.gather(
        notes.retrying(lambda session: cross(session, "a", 1, 2)), notes.retrying(lambda session: cross(session, "b", 2, 1))
    )
    assert sorted(tries.values()) == [1, 2]
    assert len(set(await _said(notes))) == 1


async def test_work_whose_connection_dies_is_done_again_once(notes: Database) -> None:
    """pg_terminate_backend in mid-transaction: the first try leaves nothing, the second is committed."""
    pids: list[int] = []

    async def work(session: AsyncSession) -> int:
        pids.append((await session.execute(text("SELECT pg_backend_pid()"))).scalar_one())
        await session.execute(text("INSERT INTO notes VALUES (:id, 'try')"), {"id": 10 + len(pids)})
        if len(pids) == 1:
            await _end_backend(notes, pids[0])
        return len(pids)

    assert await notes.retrying(work) == 2
    assert pids[0] != pids[1]
    assert await company.rows(notes, "SELECT id FROM notes WHERE id > 10") == [(12,)]


async def test_a_lost_connection_is_unreachable_where_nothing_retries(notes: Database) -> None:
    async def lose() -> None:
        async with notes.transaction() as session:
            await _end_backend(notes, (await session.execute(text("SELECT pg_backend_pid()"))).scalar_one())
            await _say(session, 1, "too late")

    with pytest.raises(Unreachable, match="the database does not answer"):
        await lose()
    assert await _said(notes) == ["one", "two"]


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO notes VALUES (1, 'again')", "SELECT 1/0", "SELECT nothing"],
    ids=["integrity", "data", "syntax"],
)
async def test_what_would_fail_again_is_not_retried(notes: Database, statement: str) -> None:
    """A broken constraint is an answer, not an accident: one try, and the driver's own error."""
    tries = 0

    async def work(session: AsyncSession) -> None:
        nonlocal tries
        tries += 1
        await session.execute(text(statement))

    with pytest.raises(IntegrityError if "INSERT" in statement else DBAPIError):
        await notes.retrying(work)
    assert tries == 1


async def test_retrying_gives_up_at_its_time(notes: Database) -> None:
    """A lock that is never released: the last error comes through instead of an endless loop."""
    tries = 0

    async def work(session: AsyncSession) -> None:
        nonlocal tries
        tries += 1
        await session.execute(text("SELECT 1 FROM notes WHERE id = 1 FOR UPDATE NOWAIT"))

    async with notes.transaction() as holder:
        await _say(holder, 1, "mine")
        with pytest.raises(DBAPIError, match="could not obtain lock"):
            await notes.retrying(work, timeout_s=0.2)
    assert tries > 1


@pytest.mark.parametrize("where", ["/?host={nowhere}", "127.0.0.1:1/"], ids=["socket", "port"])
async def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path, where: str) -> None:
    """One line that says where to look, and never the password."""
    db = Database("postgresql://me:hunter2@" + where.format(nowhere=tmp_path))
    with pytest.raises(Unreachable, match=r"does not answer .*doctor") as error:
        await company.value(db, "SELECT 1")
    assert "hunter2" not in str(error.value)
    assert "\n" not in str(error.value)
    await db.close()


async def test_an_exhausted_pool_is_unreachable(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits too long for a connection gets the same error as without a server, and may try again."""
    db = Database(database_url, pool_size=1)
    monkeypatch.setattr(db.engine.pool, "_timeout", 0.05)
    async with db.transaction() as one, db.transaction() as two:
        for session in (one, two):
            await session.execute(text("SELECT 1"))
        with pytest.raises(Unreachable):
            await company.value(db, "SELECT 1")
    assert await company.value(db, "SELECT 1") == 1
    await db.close()


# --- LISTEN and NOTIFY ------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _listening(url: str, *, probe_s: float = 20.0, answer_s: float = 10.0) -> AsyncIterator[list[str]]:
    """A listener at work; yields what it has heard so far."""
    heard: list[str] = []
    task = asyncio.create_task(Listener(url, heard.append, probe_s=probe_s, answer_s=answer_s).run())
    try:
        await _hears(heard, "reconnected")
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _hears(heard: list[str], payload: str, *, times: int = 1) -> None:
    async def enough() -> bool:
        return heard.count(payload) >= times

    await until(enough)


async def _tell(db: Database, payload: str) -> None:
    async with db.transaction() as session:
        await notify(session, payload)


async def test_the_listener_hears_a_commit_and_not_a_rollback(db: Database) -> None:
    """Only what became true is told; equal notes of one transaction are one."""
    async with _listening(libpq_url(db.url)) as heard:
        with contextlib.suppress(RuntimeError):
            async with db.transaction() as session:
                await notify(session, "undone")
                raise RuntimeError
        async with db.transaction() as session:
            await notify(session, "wakeup")
            await notify(session, "wakeup")
        await _tell(db, "last")
        await _hears(heard, "last")
        assert heard == ["reconnected", "wakeup", "last"]


async def test_nothing_is_lost_while_the_listener_probes(db: Database) -> None:
    """Notes that arrive during a round trip are kept; with a probe every few milliseconds many do."""
    async with _listening(db.url, probe_s=0.005) as heard:
        wanted = [f"note {number}" for number in range(100)]
        for payload in wanted:
            await _tell(db, payload)
        await _hears(heard, wanted[-1])
        assert [payload for payload in heard if payload != "reconnected"] == wanted


async def test_the_listener_comes_back_after_its_session_was_ended(db: Database) -> None:
    """It says so itself, since notes may have been lost meanwhile, and hears again."""
    async with _listening(db.url) as heard:
        query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        await _end_backend(db, await company.value(db, query))
        await _hears(heard, "reconnected", times=2)
        await _tell(db, "wakeup")
        await _hears(heard, "wakeup")


class Firewall:
    """Stands between client and server on a socket of its own; `drop` forgets what is connected, without a word to either."""

    def __init__(self, server_socket: Path) -> None:
        self._server_socket, self._dropped = server_socket, asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def drop(self) -> None:
        self._dropped.set()
        self._dropped = asyncio.Event()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._server_socket)
        for source, sink in ((reader, back), (there, writer)):
            self._tasks.add(asyncio.create_task(self._pass_on(source, sink, self._dropped)))

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, dropped: asyncio.Event) -> None:
        try:
            while (data := await source.read(65536)) or dropped.is_set():
                if dropped.is_set():
                    await asyncio.Event().wait()
                sink.write(data)
                await sink.drain()
        finally:
            sink.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def firewall(database_url: str, tmp_path: Path) -> AsyncIterator[tuple[Firewall, str]]:
    """A firewall before the server, and the address of the test's database through it."""
    place = database_url.partition("host=")[2]
    firewall = Firewall(Path(place) / SOCKET)
    gate = await asyncio.start_unix_server(firewall.accept, tmp_path / SOCKET)
    yield firewall, database_url.replace(place, str(tmp_path))
    gate.close()
    await gate.wait_closed()
    await firewall.close()


async def test_the_listener_finds_a_connection_that_died_in_silence(db: Database, firewall: tuple[Firewall, str]) -> None:
    """An idle firewall dropped it: no error ever comes, only the round trip that is not answered tells."""
    wall, url = firewall
    async with _listening(url, probe_s=0.1, answer_s=1.0) as heard:
        await _tell(db, "before")
        await _hears(heard, "before")
        wall.drop()
        await _tell(db, "lost")
        await _hears(heard, "reconnected", times=2)
        await _tell(db, "after")
        await _hears(heard, "after")
        assert heard == ["reconnected", "before", "reconnected", "after"]


# --- a clock that a test moves ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clock_url(server: str) -> Iterator[str]:
    """A database whose schema was made under the moved clock."""
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute("CREATE DATABASE clock")
        url = re.sub(r"/opencognit\?", "/clock?", server)
        testclock.install(url)
        yield url
        admin.execute("DROP DATABASE clock WITH (FORCE)")


@pytest.fixture
async def clock(clock_url: str) -> AsyncIterator[Database]:
    db = Database(clock_url, search_path=testclock.PATH)
    yield db
    await db.close()


async def test_the_moved_clock_is_everybodys(clock: Database) -> None:
    """Column defaults, due times, leases and locks follow it; the server's own clock does not move."""
    await company.hire(clock, company.spec("ceo"), company.spec("ann"))
    ahead = "SELECT round(extract(epoch FROM {} - pg_catalog.now()) / 60)::int"
    await testclock.advance(clock, 3600)
    async with clock.transaction() as session:
        await wakeups.request(session, "ann", WakeupSource.BOARD, delay_s=300)
    assert await company.value(clock, ahead.format("requested_at") + " FROM wakeups") == 60
    assert await company.claim(clock) == []
    await testclock.advance(clock, 299)
    assert await company.claim(clock) == []
    await testclock.advance(clock, 1)
    (run,) = await company.claim(clock)
    assert await heartbeat.reap(clock) == 0
    await testclock.advance(clock, 31)
    assert await heartbeat.reap(clock) == 1
    assert await company.rows(clock, "SELECT status, ended_at > started_at FROM runs") == [(RunState.LOST, True)]
    assert await company.value(clock, "SELECT count(*) FROM wakeups WHERE run_id <> :id OR run_id IS NULL", id=run.run_id) == 1


async def test_a_lock_of_thirty_minutes_ends_by_the_moved_clock(clock: Database) -> None:
    """A node that renews its lease keeps the run until then, and no longer."""
    await company.hire(clock, company.spec("ceo"), company.spec("bob"))
    task_id = await company.give(clock, "bob")
    (run,) = [one for one in await company.claim(clock, lease_s=9999) if one.agent == "bob"]
    await testclock.advance(clock, 1799)
    assert await heartbeat.reap(clock) == 0
    await testclock.advance(clock, 1)
    assert await heartbeat.reap(clock) == 1
    assert (await company.task(clock, task_id)).status == TaskState.TODO
    assert run.task_id == task_id
