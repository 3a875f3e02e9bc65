"""The composition root: finds the database, brings it up to date, builds the node, handles signals. No rule lives here."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import structlog
from sqlalchemy import text

from opencognit import adapters, postgres
from opencognit.agents import load_agents
from opencognit.config import Home
from opencognit.db import Database, application_role, check_server, is_current, upgrade
from opencognit.errors import ConfigError, HomeInUse, OpenCognitError, Refused
from opencognit.work import flow, roster, routines

log = structlog.get_logger(__name__)

LOOK_S = 2.0
"""How often a running daemon looks at its agent files and at its embedded server."""
ANSWER_S = 15.0
"""How long a transaction of a node may take: past that its connection leads nowhere, and another is opened."""
IDLE_S = 10.0
"""How long the server lets a node that says nothing more hold its locks; never longer than its lease."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A company whose database is reachable and up to date. `holding` is the embedded server, None for an outside one."""

    home: Home
    db: Database
    holding: postgres.Holding | None


@asynccontextmanager
async def opened(home: Home, *, migrate: bool = False) -> AsyncIterator[Opened]:
    """Yield the company's database at this version's schema; starts the embedded server if it is down.

    An embedded database is always brought up to date. One that `database.url` names is changed only with `migrate`, by
    the commands that are meant to: raises Refused where its schema is missing or old.
    """
    url = home.config.database_url
    holding = await asyncio.to_thread(postgres.hold, home.data) if url is None else None
    try:
        dsn = url if url is not None else _dsn(holding)
        if url is None or migrate:
            if await asyncio.to_thread(upgrade, dsn):
                log.info("schema.upgraded")
        elif not await asyncio.to_thread(is_current, dsn):
            raise Refused("the database that database.url names has not this version's schema: run `opencognit db upgrade`")
        idle_s = min(home.config.runs.lease_s, IDLE_S)
        role = await asyncio.to_thread(application_role, dsn)
        db = Database(dsn, role=role, pool_size=home.config.database.pool_size, idle_s=idle_s)
        try:
            yield Opened(home, db, holding)
        finally:
            await db.close()
    finally:
        if holding is not None:
            await asyncio.to_thread(holding.close)


def _dsn(holding: postgres.Holding | None) -> str:
    assert holding is not None
    return holding.dsn


async def sync_agents(company: Opened) -> list[str]:
    """Make the database agree with `agents/*.toml`; raises ConfigError and changes nothing when a file is wrong."""
    specs = load_agents(company.home.root, known_adapters=adapters.names())
    config = company.home.config
    async with company.db.transaction() as session:
        await routines.sync(session, config.routines, timezone=config.company.timezone)
        changed = await roster.sync(session, specs, interval_s=config.heartbeat.interval_s)
        await flow.reconsider(session, changed)
        return changed


@contextmanager
def exclusively(home: Home) -> Iterator[None]:
    """Hold the home for one `up`; raises HomeInUse, naming the other process."""
    home.runtime.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = home.runtime / "up.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            written = os.pread(descriptor, 32, 0).decode("ascii", "ignore").strip()
            raise HomeInUse(home.root, int(written) if written.isdigit() else None) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


async def run_node(
    company: Opened, stop: asyncio.Event, *, capacity: int | None = None, ready: asyncio.Event | None = None
) -> None:
    """Run one node with its helpers until `stop` is set and its drain is over."""
    from opencognit.engine.loops import ended
    from opencognit.engine.node import Node  # a command beside a daemon never runs one

    await asyncio.to_thread(check_server, company.db.url)
    await sync_agents(company)
    await _sweep(company)
    company.db.answer_s = ANSWER_S
    node = Node(company.db, company.home, capacity=capacity)
    async with asyncio.TaskGroup() as group:
        helpers = [group.create_task(_look_after(company), name="files")]
        if ready is not None:
            helpers.append(group.create_task(_pass_on(node.ready, ready), name="ready"))
        await node.run(stop)
        await ended(helpers)


async def _sweep(company: Opened) -> None:
    """Remove the briefing folders of runs that are over: a killed node leaves its own behind. Say what nobody can plan."""
    async with company.db.reading() as session:
        running = set((await session.scalars(text("SELECT id FROM runs WHERE status = 'running'"))).all())
        planners = (await session.scalars(text("SELECT count(*) FROM agents WHERE adapter = 'ceo' AND present"))).one()
    for folder in company.home.runtime.glob("run-*-*"):
        number = folder.name.split("-")[1]
        if number.isdigit() and int(number) not in running:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    if not planners:
        log.warning("company.without_ceo", mend='goals cannot be posted: add an agents/NAME.toml with adapter = "ceo"')


async def _pass_on(source: asyncio.Event, target: asyncio.Event) -> None:
    await source.wait()
    target.set()


async def _look_after(company: Opened) -> None:
    """Apply changed agent files, keeping the last good version; start the embedded server again when it has gone."""
    seen = _fingerprint(company.home)
    while True:
        await asyncio.sleep(LOOK_S)
        now = _fingerprint(company.home)
        try:
            if company.holding is not None and not company.holding.is_kept():
                await asyncio.to_thread(company.holding.ensure)
            if now != seen:
                changed = await sync_agents(company)
                seen = now
                log.info("agents.reloaded", changed=changed)
        except ConfigError as error:
            seen = now
            log.warning("agents.kept", reason="a file is wrong, the last good version holds", error=str(error))
        except OpenCognitError as error:
            log.warning("helper.failed", error=str(error))


def _fingerprint(home: Home) -> frozenset[tuple[str, int, int, int]]:
    """Everything that tells a changed agent file, however an editor saves it."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(home.agents_dir):
            if entry.name.endswith(".toml"):
                with contextlib.suppress(OSError):
                    stat = entry.stat()
                    found.append((entry.name, stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return frozenset(found)


@contextmanager
def stopping(stop: asyncio.Event, *, at_once: Callable[[], None] | None = None) -> Iterator[None]:
    """Turn SIGTERM, SIGINT and SIGHUP into `stop`; a second one ends the process at once, as a kill would."""
    loop = asyncio.get_running_loop()

    def first_or_second() -> None:
        if stop.is_set():
            if at_once is not None:
                at_once()
            os._exit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, first_or_second)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


async def is_running(company: Opened) -> bool:
    """Return whether some node of this company is alive: it renewed lately, and on this host its process exists."""
    query = text("SELECT pid, host FROM nodes WHERE ended_at IS NULL AND seen_at > now() - make_interval(secs => :lease_s)")
    async with company.db.transaction() as session:
        rows = (await session.execute(query, {"lease_s": float(company.home.config.runs.lease_s)})).all()
    return any(row.host != socket.gethostname() or _exists(row.pid) for row in rows)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
