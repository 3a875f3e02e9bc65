"""What the measures stand on: an embedded server in a temporary folder, companies on it, nodes as processes of their own.

Owns everything that it starts, and ends it. Measures nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import make_url, text

from benchmarks.raw import check_durable
from opencognit import logs, postgres
from opencognit.agents import AgentSpec
from opencognit.config import Home, load_config
from opencognit.contracts import Briefing, RunContext, RunResult
from opencognit.db import Database, libpq_url, upgrade
from opencognit.engine.node import Node
from opencognit.work import roster

CAPACITY = 64
PROBE = "probe"
"""The agent whose runs tell when they begin."""
START_S = 60.0

_numbers = itertools.count(1)


@contextmanager
def server() -> Iterator[str]:
    """Yield the address of an embedded server of the package's own kind; gone at the end, with its folder."""
    with tempfile.TemporaryDirectory(prefix="opencognit-benchmark-", ignore_cleanup_errors=True) as folder:
        holding = postgres.hold(Path(folder) / "data", linger_s=0)
        try:
            with psycopg.connect(libpq_url(holding.dsn), autocommit=True) as admin:
                check_durable(admin)
            yield holding.dsn
        finally:
            holding.close()


@contextmanager
def database(server_url: str) -> Iterator[str]:
    """Yield the address of a fresh database at this version's schema."""
    name = f"benchmark_{next(_numbers)}"
    with psycopg.connect(libpq_url(server_url), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        url = make_url(server_url).set(database=name).render_as_string(hide_password=False)
        try:
            upgrade(url)
            yield url
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def company(server_url: str, *, agents: int = 16) -> AsyncIterator[Database]:
    """Yield a company of `agents` with sixteen places each, and the probe, which has one."""
    names = [f"agent-{number}" for number in range(agents)]
    specs = {name: _spec(name, slots=16) for name in names} | {PROBE: _spec(PROBE, slots=1)}
    with database(server_url) as url:
        db = Database(url)
        try:
            async with db.transaction() as session:
                await roster.sync(session, specs, interval_s=30)
            yield db
        finally:
            await db.close()


def _spec(name: str, *, slots: int) -> AgentSpec:
    fields = {"name": name, "adapter": "bash", "adapter_config": {"command": "true"}, "max_concurrent_runs": slots}
    return AgentSpec.model_validate(fields)


GIVE = text("""
WITH given AS (
  INSERT INTO tasks (title, status, assignee, created_by)
  SELECT 'work ' || n, 'todo', 'agent-' || n % :agents, 'board' FROM generate_series(1, :count) n
  RETURNING id, assignee
)
INSERT INTO wakeups (agent, task_id, subject, source, reasons)
SELECT assignee, id, 'task:' || id, 'assignment', '[{"source": "assignment", "by": "board", "note": ""}]' FROM given
""")
NOTIFY = text("SELECT pg_notify('opencognit', 'wakeup')")


async def give(db: Database, count: int, *, agents: int = 16) -> None:
    """Make `count` ready tasks with their wakeups, as their posting would leave them."""
    async with db.transaction() as session:
        await session.execute(GIVE, {"count": count, "agents": agents})
        await session.execute(NOTIFY)


class Nothing:
    """An adapter that answers at once; it tells when the probe began."""

    name = "nothing"

    def __init__(self, begun: Connection) -> None:
        self._begun = begun

    async def run(self, briefing: Briefing, context: RunContext) -> RunResult:
        if briefing.agent.name == PROBE:
            self._begun.send(time.perf_counter())
        return RunResult(text="done")

    def check(self, config: dict[str, Any]) -> str | None:
        return None


@dataclass(slots=True)
class NodeProcess:
    """A node in an operating system process of its own. `begun` carries the times at which probes began."""

    url: str
    begun: Connection = field(init=False)
    _process: multiprocessing.process.BaseProcess = field(init=False)

    def start(self) -> None:
        """Return when the node works."""
        context = multiprocessing.get_context("spawn")
        self.begun, told = context.Pipe(duplex=False)
        self._process = context.Process(target=_be_a_node, args=(self.url, told), daemon=True)
        self._process.start()
        told.close()
        if not self.begun.poll(START_S) or self.begun.recv() != "ready":
            raise RuntimeError("the node did not start: its error stands above")

    def stop(self) -> None:
        self._process.terminate()
        self._process.join(START_S)


@contextmanager
def nodes(url: str, count: int) -> Iterator[list[NodeProcess]]:
    """Yield `count` nodes at work; they end in order."""
    started: list[NodeProcess] = []
    try:
        for _ in range(count):
            started.append(NodeProcess(url))
            started[-1].start()
        yield started
    finally:
        for node in started:
            node.stop()


def _be_a_node(url: str, told: Connection) -> None:
    with tempfile.TemporaryDirectory(prefix="opencognit-node-") as folder, Path(os.devnull).open("w") as nowhere:
        logs.setup(stream=nowhere, json=True)  # a node that logs, as a real one does
        root = Path(folder)
        (root / "config.toml").write_text(f"[runs]\ncapacity = {CAPACITY}\n")
        asyncio.run(_work(url, Home(root, load_config(root, {})), told))


async def _work(url: str, home: Home, told: Connection) -> None:
    stop, adapter, db = asyncio.Event(), Nothing(told), Database(url)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    node = Node(db, home, registry=lambda _: adapter)
    working = asyncio.create_task(node.run(stop))
    await asyncio.wait({working, asyncio.create_task(node.ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
    told.send("ready")
    try:
        await working
    finally:
        await db.close()


async def value(db: Database, query: str, **parameters: Any) -> Any:
    async with db.transaction() as session:
        return (await session.execute(text(query), parameters)).scalar_one()


async def until(condition: Callable[[], Awaitable[bool]], *, timeout_s: float, every_s: float = 0.05) -> None:
    """Wait for a condition in the database; raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110 (what is waited for lives in a database)
            await asyncio.sleep(every_s)
