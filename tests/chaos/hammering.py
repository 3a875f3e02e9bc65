"""What one process of the hammer does: claims, endings of all kinds, wishes, and a clock that runs out, as fast as it can.

Every committed wish and every committed effect leaves a row of its own in the same transaction (`asked`, `effects`), so that
what came in can be compared with what came out.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from typing import Any, TypeVar

import structlog
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.config import Retry
from opencognit.contracts import Action, Answer, Comment, CreateTask, Viewer
from opencognit.db import Database
from opencognit.engine import booking, heartbeat
from opencognit.engine.booking import Outcome
from opencognit.errors import Refused, StaleToken
from opencognit.states import CancelMode, Priority, RunState, WakeupSource
from opencognit.work import beats, claims, closing, goals, intake, locks, roster, steering, wakeups
from opencognit.work.claims import Claimed
from tests.integration import company

T = TypeVar("T")

LIMITS = {"bash": 7}
AGENTS = {"ann": 1, "bob": 2, "cat": 3, "dan": 1, "eve": 4, "ceo": 2}
PLENTY = 40
"""With so much open work nobody brings more."""
STRIKERS = 2
"""So many strike at once in each process."""
RETRY = Retry(delays_s=(0.05, 0.05, 0.05), jitter=0)
AT_ONCE = {"lease_s": 60.0, "ttl_s": 1800.0}

LEDGER = """
CREATE TABLE asked (wakeup_id bigint NOT NULL);
CREATE TABLE effects (run_id bigint PRIMARY KEY, task_id bigint, token bigint NOT NULL);
"""


@dataclass(frozen=True)
class Orders:
    url: str
    node: str
    seed: int
    claims: int
    """So many claims by all processes together; after that what is open is brought to its end."""


def specs() -> list[Any]:
    return [company.spec(name, max_concurrent_runs=most) for name, most in AGENTS.items()]


def main(orders: Orders, claimed: Synchronized[int], over: Event, report: Queue[Counter[str]]) -> None:
    """A process: strike until enough was claimed, then drain until told that all is over."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    report.put(asyncio.run(_main(orders, claimed, over)))


async def _main(orders: Orders, claimed: Synchronized[int], over: Event) -> Counter[str]:
    _keep_a_ledger_of_wishes()
    db = Database(orders.url, pool_size=STRIKERS)
    seen: Counter[str] = Counter()
    async with asyncio.TaskGroup() as group:
        for number in range(STRIKERS):
            chance = random.Random(orders.seed * STRIKERS + number)
            group.create_task(Striker(db, orders, chance, seen).strike(claimed, over))
    await db.close()
    return seen


def _keep_a_ledger_of_wishes() -> None:
    plain = wakeups.request

    async def request(session: AsyncSession, *args: Any, **kwargs: Any) -> int:
        ident = await plain(session, *args, **kwargs)
        await session.execute(text("INSERT INTO asked VALUES (:ident)"), {"ident": ident})
        return ident

    wakeups.request = request


class Striker:
    """One loop of claims and endings. `seen` counts what happened."""

    def __init__(self, db: Database, orders: Orders, chance: random.Random, seen: Counter[str]) -> None:
        self._db, self._node, self._target, self._chance, self._seen = db, orders.node, orders.claims, chance, seen
        self._lost: list[Claimed] = []

    async def strike(self, claimed: Synchronized[int], over: Event) -> None:
        while claimed.value < self._target:
            runs = await self._claim(self._chance.randint(1, 4))
            with claimed.get_lock():
                claimed.value += len(runs)
            if not runs and await self.commit(_open) < PLENTY:
                await self._bring_work()
            await self._end(runs)
            if self._chance.random() < 0.4:
                await self._disturb()
            await self._write_late()
        while not over.is_set():
            runs = await self._claim(4)
            await self._close(runs)
            if not runs:
                self._seen["reaped"] += await heartbeat.reap(self._db)
                await asyncio.sleep(0.05)

    async def commit(self, verb: Callable[[AsyncSession], Awaitable[T]]) -> T:
        """Commit one verb, again on a deadlock: as the engine does, but counted."""
        while True:
            self._seen["transactions"] += 1
            try:
                async with self._db.transaction() as session:
                    return await verb(session)
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) != "40P01":
                    raise
                self._seen["deadlocks"] += 1

    async def _claim(self, capacity: int) -> Sequence[Claimed]:
        return await self.commit(lambda s: claims.claim(s, self._node, capacity=capacity, limits=LIMITS, **AT_ONCE))

    # --- endings -------------------------------------------------------------------------------------------------

    async def _end(self, runs: Sequence[Claimed]) -> None:
        plain = []
        for run in runs:
            fate = self._chance.choices(("plain", "booked", "busy", "failed", "stopped", "lapsed"), (60, 14, 8, 3, 7, 8))[0]
            self._seen[fate] += 1
            match fate:
                case "plain" if run.agent != "ceo":
                    plain.append(run)
                case "busy" | "failed":
                    await self._book(run, RunState.FAILED, error="no", retryable=fate == "busy")
                case "stopped":
                    mode = self._chance.choice([CancelMode.RELEASE, CancelMode.DRAIN])
                    await self._book(run, RunState.CANCELLED, cancel=mode)
                case "lapsed":
                    await self._lapse(run)
                case _:
                    await self._book(run, RunState.SUCCEEDED, answer=Answer("done", actions=tuple(self._actions(run))))
        await self._close(plain)

    async def _close(self, runs: Sequence[Claimed]) -> None:
        """End plain runs together, as the bookkeeper does; what is not plain is booked by itself."""

        async def close(session: AsyncSession) -> set[int]:
            given = [closing.Plain(run.run_id, run.token, "done", 0, None, ()) for run in runs]
            closed = await closing.close(session, given)
            for run in runs:
                if run.run_id in closed:
                    await _effect(session, run)
            return closed

        closed = await self.commit(close) if runs else set()
        for run in runs:
            if run.run_id not in closed:
                await self._book(run, RunState.SUCCEEDED, answer=Answer("done"))

    async def _book(self, run: Claimed, status: RunState, **fields: Any) -> None:
        async def book(session: AsyncSession) -> None:
            if status is RunState.SUCCEEDED:
                await _effect(session, run)
            await booking.book(session, run, Outcome(status, Viewer(agent=run.agent), **fields), retry=RETRY)

        try:
            await self.commit(book)
        except StaleToken:
            self._seen["fenced"] += 1

    def _actions(self, run: Claimed) -> list[Action]:
        if run.agent == "ceo":
            who = self._chance.choices(("ann", "bob", "cat", "dan", "eve"), k=3)
            return [CreateTask(title=f"part {n}", assignee=one) for n, one in enumerate(who)]
        return [Comment(task_id=str(run.task_id), text="noted")] if run.task_id is not None else []

    async def _lapse(self, run: Claimed) -> None:
        """The node froze: its lease is over, somebody reaps, and later the node wakes and writes."""
        lease = text("UPDATE runs SET lease_expires_at = now() - interval '1 s' WHERE id = :id AND token = :token")
        await self.commit(lambda session: session.execute(lease, {"id": run.run_id, "token": run.token}))
        self._lost.append(run)
        if self._chance.random() < 0.7:
            self._seen["reaped"] += await self._reap()

    async def _reap(self) -> int:
        """As heartbeat.reap, with its deadlocks counted."""
        found = await self.commit(locks.lapsed)
        return sum([await self.commit(partial(_take_over, lost=lost)) for lost in found])

    async def _write_late(self) -> None:
        while self._lost and self._chance.random() < 0.3:
            late = self._lost.pop(0)
            if self._chance.random() < 0.5:
                await self._close([late])
            else:
                await self._book(late, RunState.SUCCEEDED, answer=Answer("late"))

    # --- what comes in -------------------------------------------------------------------------------------------

    async def _bring_work(self) -> None:
        """Tasks without a goal that wait for each other, so that only their own locks order them; sometimes a goal."""
        if self._chance.random() < 0.25:
            await self.commit(lambda session: goals.post(session, "a goal"))
        made: list[int] = []
        for _ in range(4):
            made.append(await self._make(self._chance.sample(made, min(len(made), self._chance.randint(0, 2)))))

    async def _make(self, after: Sequence[int], goal_id: int | None = None) -> int:
        given: dict[str, Any] = {
            "assignee": self._chance.choice(list(AGENTS)[:-1]),
            "priority": self._chance.choice(list(Priority)),
        }

        async def make(session: AsyncSession) -> int:
            return (await intake.create(session, "work", after=after, goal_id=goal_id, by="board", **given)).id

        return await self.commit(make)

    async def _disturb(self) -> None:
        """A word, a wish, a pause or a retry somewhere, at the same moment as everything else."""
        if (task := await self.commit(_any_task)) is None:
            return
        try:
            await self._disturb_at(*task)
        except Refused:
            self._seen["refused"] += 1

    async def _disturb_at(self, ident: int, goal_id: int | None) -> None:
        match self._chance.choice(["word", "word", "wish", "wish", "after", "retry", "switch", "beat"]):
            case "word":
                await self.commit(
                    lambda session: steering.comment(session, ident, "look", by=self._chance.choice(["board", "bob"]))
                )
            case "wish":
                source = self._chance.choice([WakeupSource.BOARD, WakeupSource.MENTION])
                agent = self._chance.choice(["ann", "bob"])
                await self.commit(lambda session: wakeups.request(session, agent, source))
            case "after":
                await self._make([ident], goal_id)
            case "retry":
                await self.commit(_retry)
            case "beat":  # what it asks for had been forgotten: then a wakeup counts more than was asked
                self._seen["forgotten"] += await self.commit(beats.beat)
            case "switch":
                verb = self._chance.choice([roster.pause, roster.resume, roster.resume])
                await self.commit(lambda session: verb(session, "dan", by="board"))


async def _take_over(session: AsyncSession, lost: locks.Lost) -> bool:
    return await booking.book_lost(session, lost)


async def _retry(session: AsyncSession) -> None:
    query = text("SELECT id FROM tasks WHERE status = 'blocked' ORDER BY random() LIMIT 1")
    blocked = (await session.execute(query)).scalar_one_or_none()
    if blocked is not None:
        await steering.retry(session, blocked, by="board")


async def _effect(session: AsyncSession, run: Claimed) -> None:
    values = {"run_id": run.run_id, "task_id": run.task_id, "token": run.token}
    await session.execute(text("INSERT INTO effects VALUES (:run_id, :task_id, :token)"), values)


async def _open(session: AsyncSession) -> int:
    query = text("SELECT count(*) FROM (SELECT FROM tasks WHERE status IN ('todo', 'backlog') LIMIT :most) t")
    return int((await session.execute(query, {"most": PLENTY})).scalar_one())


async def _any_task(session: AsyncSession) -> tuple[int, int | None] | None:
    """One of the newest tasks, where things happen, with its goal."""
    query = text("SELECT id, goal_id FROM (SELECT id, goal_id FROM tasks ORDER BY id DESC LIMIT 40) t ORDER BY random() LIMIT 1")
    row = (await session.execute(query)).one_or_none()
    return (row.id, row.goal_id) if row is not None else None
