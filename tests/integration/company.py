"""A small company for tests: agents in the table, goals and tasks by the real verbs, runs claimed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import text

from opencognit.agents import AgentSpec
from opencognit.config import Retry
from opencognit.contracts import Answer, Viewer
from opencognit.db import Database
from opencognit.engine import booking, heartbeat
from opencognit.engine.booking import Outcome
from opencognit.models import Task
from opencognit.states import RunState, WakeupSource
from opencognit.work import claims, flow, roster, tasks
from opencognit.work.claims import Claimed

RETRY = Retry(jitter=0)


def spec(name: str, **fields: Any) -> AgentSpec:
    """An agent that needs nothing: `ceo` plans, all others are bash."""
    adapter = "ceo" if name == "ceo" else "bash"
    config = {} if name == "ceo" else {"command": "true"}
    return AgentSpec.model_validate({"name": name, "adapter": adapter, "adapter_config": config, **fields})


async def hire(db: Database, *specs: AgentSpec) -> None:
    """Make the company consist of these agents."""
    async with db.transaction() as session:
        await roster.sync(session, {one.name: one for one in specs}, interval_s=30)


async def give(db: Database, assignee: str | None, title: str = "work", **fields: Any) -> int:
    """Make a task and let it become ready; return its id."""
    async with db.transaction() as session:
        task = await tasks.create(session, title=title, assignee=assignee, created_by="board", **fields)
        await flow.settle_in(session, task, WakeupSource.ASSIGNMENT, by="board")
        return task.id


async def claim(
    db: Database, node: str = "node-a", *, capacity: int = 10, lease_s: float = 30, ttl_s: float = 1800
) -> list[Claimed]:
    async with db.transaction() as session:
        return list(await claims.claim(session, node, capacity=capacity, lease_s=lease_s, ttl_s=ttl_s))


async def finish(db: Database, claimed: Claimed, said: str | Answer = "done", **fields: Any) -> None:
    """Book a run as succeeded with what it said, or with the outcome's own fields."""
    answer = said if isinstance(said, Answer) else Answer(text=said)
    outcome = Outcome(**{"status": RunState.SUCCEEDED, "viewer": Viewer(agent=claimed.agent), "answer": answer, **fields})
    async with db.transaction() as session:
        await booking.book(session, claimed, outcome, retry=RETRY)


async def task(db: Database, ident: int) -> Task:
    async with db.transaction() as session:
        return await tasks.get(session, ident)


async def rows(db: Database, query: str, **parameters: Any) -> Sequence[Any]:
    async with db.transaction() as session:
        return (await session.execute(text(query), parameters)).all()


async def value(db: Database, query: str, **parameters: Any) -> Any:
    async with db.transaction() as session:
        return (await session.execute(text(query), parameters)).scalar_one()


async def hasten(db: Database) -> None:
    """Let everything that is queued be due."""
    async with db.transaction() as session:
        await session.execute(text("UPDATE wakeups SET not_before = now() WHERE status = 'queued'"))


async def lose(db: Database, run: Claimed) -> None:
    """Let the run's node be dead, and the reaper find it."""
    await lapse(db, run.run_id)
    await heartbeat.reap(db)


async def lapse(db: Database, run_id: int) -> None:
    """Let the run's lease be over."""
    async with db.transaction() as session:
        await session.execute(text("UPDATE runs SET lease_expires_at = now() - interval '1 s' WHERE id = :id"), {"id": run_id})


async def waits(db: Database) -> bool:
    """Return whether a session of this database waits for a lock."""
    query = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT granted"
    return bool(await value(db, query + " AND datname = current_database()"))
