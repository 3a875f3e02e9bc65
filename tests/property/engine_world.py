"""The world of the engine's model: a company on a database with the moved clock, and all of its tables in one look.

Owns time, the event loop and what a look contains; decides nothing about what is right (engine_invariants.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.db import Database
from opencognit.states import AgentState, GoalState, RunState, TaskState, WakeupState
from opencognit.work import flow, roster
from tests.integration import company, testclock

T = TypeVar("T")
Row = Mapping[str, Any]

LIMITS = {"bash": 3}
LEASE_S, TTL_S = 30.0, 1800.0
AGENTS = ("ann", "bob", "eve")
SPECS = {
    "ceo": company.spec("ceo"),
    "ann": company.spec("ann", reports_to="bob"),
    "bob": company.spec("bob", max_concurrent_runs=2),
    "eve": company.spec("eve", heartbeat_interval_s=0),
}

WHOLE = ("company", "agents", "goals", "tasks", "wakeups", "runs", "approvals")
LINKS = "task_dependencies"
DIGESTED = ("comments", "memories", "costs", "run_log", "events")
"""Tables of which only their number of rows and a digest are looked at."""

LOOK = (
    "SELECT jsonb_build_object('links', (SELECT coalesce(jsonb_agg(jsonb_build_array(task_id, after_id)), '[]') FROM "
    f"{LINKS}), 'late', (SELECT coalesce(jsonb_agg(id), '[]') FROM wakeups WHERE not_before > now())"
    + "".join(f", '{name}', (SELECT coalesce(jsonb_agg(to_jsonb(t)), '[]') FROM {name} t)" for name in WHOLE)
    + "".join(f", '{name}', (SELECT count(*) || ' ' || coalesce(md5(string_agg(t::text, '' ORDER BY t::text)), '')"
              f" FROM {name} t)" for name in DIGESTED)
    + ")"
)  # fmt: skip

LAPSED = """
SELECT r.id FROM runs r LEFT JOIN tasks t ON t.id = r.task_id
 WHERE r.status = 'running'
   AND (r.lease_expires_at <= now() OR (:locks AND t.execution_run_id = r.id AND t.lock_expires_at <= now()))
"""


@dataclass(frozen=True)
class Look:
    """All tables at one moment. Two looks are equal when nobody has written anything in between."""

    company: Row
    agents: Mapping[str, Row]
    goals: Mapping[int, Row]
    tasks: Mapping[int, Row]
    wakeups: Mapping[int, Row]
    runs: Mapping[int, Row]
    approvals: Mapping[int, Row]
    links: Sequence[tuple[int, int]]
    digests: Mapping[str, str]
    late: frozenset[int] = field(compare=False)
    """Wakeups whose time has not come."""

    def running(self) -> list[Row]:
        return [run for run in self.runs.values() if run["status"] == RunState.RUNNING]

    def queued(self) -> list[Row]:
        return [wakeup for wakeup in self.wakeups.values() if wakeup["status"] == WakeupState.QUEUED]

    def is_called_off(self, task: Row) -> bool:
        return task["goal_id"] is not None and bool(self.goals[task["goal_id"]]["status"] == GoalState.CANCELLED)

    def claimable(self) -> list[Row]:
        """Return the wakeups that may be claimed now, the first to be taken first."""
        found = [wakeup for wakeup in self.queued() if self._may_run(wakeup)]
        return sorted(found, key=lambda wakeup: (wakeup["rank"], wakeup["id"]))

    def _may_run(self, wakeup: Row) -> bool:
        agent = self.agents[wakeup["agent"]]
        if wakeup["id"] in self.late or self.company["paused"] or agent["status"] != AgentState.IDLE or not agent["present"]:
            return False
        running = self.running()
        if sum(run["agent"] == agent["name"] for run in running) >= agent["max_concurrent_runs"]:
            return False
        limit = LIMITS.get(agent["adapter"])
        if limit is not None and sum(run["adapter"] == agent["adapter"] for run in running) >= limit:
            return False
        task = self.tasks[wakeup["task_id"]] if wakeup["task_id"] is not None else None
        if task is None:
            return True
        if task["execution_run_id"] is not None:
            return False
        if task["status"] == TaskState.TODO:
            return bool(task["assignee"] == agent["name"])
        return bool(wakeup["talk"]) and task["status"] != TaskState.BACKLOG


async def look(db: Database) -> Look:
    """Read all tables in one statement."""
    async with db.reading() as session:
        seen: dict[str, Any] = (await session.execute(text(LOOK))).scalar_one()
    by_id = {name: {row["id"]: row for row in sorted(seen[name], key=_id)} for name in WHOLE if name != "agents"}
    return Look(
        company=seen["company"][0],
        agents={row["name"]: row for row in seen["agents"]},
        goals=by_id["goals"],
        tasks=by_id["tasks"],
        wakeups=by_id["wakeups"],
        runs=by_id["runs"],
        approvals=by_id["approvals"],
        links=sorted((task_id, after_id) for task_id, after_id in seen["links"]),
        digests={name: seen[name] for name in DIGESTED},
        late=frozenset(seen["late"]),
    )


def _id(row: Row) -> int:
    return int(row["id"])


class World:
    """A company whose verbs run one after the other, each in a transaction of its own."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.db = Database(url, search_path=testclock.PATH, pool_size=2)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def do(self, verb: Callable[[AsyncSession], Awaitable[T]]) -> T:
        """Commit one verb."""

        async def commit() -> T:
            async with self.db.transaction() as session:
                return await verb(session)

        return self.run(commit())

    def reset(self) -> None:
        """Empty every table, set the clock right and hire everybody."""

        async def clear(session: AsyncSession) -> None:
            query = text(
                "SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables WHERE schemaname = :schema"
                " AND tablename NOT IN ('clock', 'alembic_version')"
            )
            tables = (await session.execute(query, {"schema": testclock.SCHEMA})).scalar_one()
            for statement in (
                f"TRUNCATE {tables} RESTART IDENTITY CASCADE",
                "ALTER SEQUENCE fencing_token RESTART",
                "INSERT INTO company DEFAULT VALUES",
                f"UPDATE {testclock.SCHEMA}.clock SET ahead = '0'",
            ):
                await session.execute(text(statement))

        self.do(clear)
        self.staff(SPECS)

    def staff(self, names: Iterable[str]) -> None:
        """Make the company consist of these agents, as the daemon does when their files change."""

        async def follow(session: AsyncSession) -> None:
            changed = await roster.sync(session, {name: SPECS[name] for name in names}, interval_s=30)
            await flow.reconsider(session, changed)

        self.do(follow)

    def look(self) -> Look:
        return self.run(look(self.db))

    def lapsed(self, *, locks: bool = True) -> set[int]:
        """Return the running runs whose lease has run out, and with `locks` those whose task's lock has."""

        async def ask(session: AsyncSession) -> set[int]:
            return set((await session.execute(text(LAPSED), {"locks": locks})).scalars())

        return self.do(ask)

    def advance(self, seconds: float) -> None:
        self.run(testclock.advance(self.db, seconds))

    def close(self) -> None:
        self.run(self.db.close())
        self.loop.close()
