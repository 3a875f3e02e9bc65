"""Short properties that stand on the engine's fences. Each takes a company of a CEO, `ann` and `bob` with nothing to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.contracts import Answer, CreateTask, Viewer
from opencognit.db import Database
from opencognit.engine import booking, heartbeat
from opencognit.errors import Refused, StaleToken
from opencognit.states import GoalState, RunState, TaskState, WakeupSource
from opencognit.testing import until
from opencognit.work import claims, closing, goals, intake, locks, runs, wakeups
from opencognit.work.claims import Claimed
from tests.integration import company
from tests.property import engine_world

Check = Callable[[Database], Awaitable[None]]
Verb = Callable[[AsyncSession], Awaitable[Any]]


async def overlap(db: Database, first: Verb, second: Verb) -> None:
    """Let `second` begin after what `first` did and before that is committed; both commit."""

    async def commit() -> None:
        async with db.transaction() as session:
            await second(session)

    async def waits_or_is_done() -> bool:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return later.done() or bool(await company.value(db, query))

    async with db.transaction() as session:
        await first(session)
        later = asyncio.create_task(commit())
        await until(waits_or_is_done)
    await later


def ends(run: Claimed, *, together: bool) -> Verb:
    """Book the run as succeeded: by itself, or as the bookkeeper does."""

    async def end(session: AsyncSession) -> None:
        if together:
            given = [closing.Plain(run.run_id, run.token, "done", 0, None, ())]
            assert await closing.close(session, given) == {run.run_id}
        else:
            outcome = booking.Outcome(RunState.SUCCEEDED, Viewer(agent=run.agent), answer=Answer("done"))
            await booking.book(session, run, outcome, retry=company.RETRY)

    return end


def claiming(node: str, **limits: int) -> Verb:
    return lambda session: claims.claim(session, node, capacity=1, lease_s=30, ttl_s=1800, limits=limits)


async def _running(db: Database) -> int:
    return int(await company.value(db, "SELECT count(*) FROM runs WHERE status = 'running'"))


async def racing_claims_leave_an_agent_its_limit(db: Database) -> None:
    """Two nodes claim two tasks of an agent that does one at a time, neither seeing the other."""
    for _ in range(2):
        await company.give(db, "ann")
    await overlap(db, claiming("a"), claiming("b"))
    assert await _running(db) == 1


async def racing_claims_leave_an_adapter_its_limit(db: Database) -> None:
    """Two nodes claim for two agents of an adapter that is limited to one run."""
    for agent in ("ann", "bob"):
        await company.give(db, agent)
    await overlap(db, claiming("a", bash=1), claiming("b", bash=1))
    assert await _running(db) == 1


async def claims_one_by_one_leave_an_agent_its_limit(db: Database) -> None:
    for _ in range(2):
        await company.give(db, "ann")
    for node in ("a", "b"):
        await company.claim(db, node, capacity=1)
    assert await _running(db) == 1


async def one_task_gets_one_run(db: Database) -> None:
    """Two agents were spoken to about one ended task: one claim takes one of them."""
    task_id = await company.give(db, "ann")
    (run,) = await company.claim(db)
    await company.finish(db, run)
    async with db.transaction() as session:
        for agent in ("ann", "bob"):
            await wakeups.request(session, agent, WakeupSource.MENTION, task_id=task_id)
    await company.claim(db)
    assert await _running(db) == 1


async def a_subject_is_queued_once(db: Database) -> None:
    """Asked twice, queued once; a database that refuses the second is as good."""
    for _ in range(2):
        with suppress(IntegrityError):
            async with db.transaction() as session:
                await wakeups.request(session, "ann", WakeupSource.BOARD)
    assert await company.value(db, "SELECT count(*) FROM wakeups WHERE status = 'queued'") == 1


async def a_wrong_token_books_nothing(db: Database) -> None:
    """The run is on, but under another token than the one that whoever writes was given."""
    await company.give(db, "ann")
    (run,) = await company.claim(db)
    before = await engine_world.look(db)
    with pytest.raises(StaleToken):
        await company.finish(db, replace(run, token=run.token + 1))
    assert await engine_world.look(db) == before


async def a_wrong_token_logs_nothing(db: Database) -> None:
    await company.give(db, "ann")
    (run,) = await company.claim(db)
    async with db.transaction() as session:
        await runs.append_log(session, run.run_id, run.token + 1, 1, "stdout", "not mine")
    assert await company.value(db, "SELECT count(*) FROM run_log") == 0


async def a_lost_run_does_nothing(db: Database, act: Callable[[Database, Claimed], Awaitable[None]]) -> None:
    """Taken over while its node was frozen: what that node still does changes not one row."""
    await company.give(db, "ann")
    (run,) = await company.claim(db)
    await company.lapse(db, run.run_id)
    assert await heartbeat.reap(db) == 1
    before = await engine_world.look(db)
    with suppress(Refused):
        await act(db, run)
    assert await engine_world.look(db) == before


async def books(db: Database, run: Claimed) -> None:
    await company.finish(db, run, "late")


async def closes(db: Database, run: Claimed) -> None:
    async with db.transaction() as session:
        await closing.close(session, [closing.Plain(run.run_id, run.token, "late", 0, None, ())])


async def logs(db: Database, run: Claimed) -> None:
    async with db.transaction() as session:
        await runs.append_log(session, run.run_id, run.token, 1, "stdout", "late")


async def renews(db: Database, run: Claimed) -> None:
    async with db.transaction() as session:
        await locks.renew(session, "node-a", [(run.run_id, run.token)], lease_s=9e6)


async def a_living_run_is_not_taken_over(db: Database) -> None:
    await company.give(db, "ann")
    await company.claim(db)
    assert await heartbeat.reap(db) == 0
    assert await _running(db) == 1


async def a_run_renewed_in_the_last_moment_is_not_taken_over(db: Database) -> None:
    """The reaper saw it lapsed, then its node renewed, then the reaper takes what it saw."""
    await company.give(db, "ann")
    (run,) = await company.claim(db)
    await company.lapse(db, run.run_id)
    async with db.transaction() as session:
        (lost,) = await locks.lapsed(session)
    async with db.transaction() as session:
        await session.execute(text("UPDATE runs SET lease_expires_at = now() + interval '30 s'"))
    async with db.transaction() as session:
        assert not await booking.book_lost(session, lost)
    assert await _running(db) == 1


async def two_last_tasks_end_a_goal(db: Database, *, together: bool) -> None:
    """Both end at the same moment: whoever is second sees that nothing is left."""
    async with db.transaction() as session:
        goal_id = (await goals.post(session, "g")).id
    (plan,) = await company.claim(db)
    parts = tuple(CreateTask(title="part", assignee=agent) for agent in ("ann", "bob"))
    await company.finish(db, plan, Answer("", actions=parts))
    first, second = await company.claim(db)
    await overlap(db, ends(first, together=together), ends(second, together=together))
    assert await company.value(db, "SELECT status FROM goals WHERE id = :id", id=goal_id) == GoalState.ACHIEVED


async def two_last_tasks_release_the_third(db: Database, *, together: bool) -> None:
    """What waits for both is ready when both have ended, also where no goal orders them."""
    before = [await company.give(db, agent) for agent in ("ann", "bob")]
    waiting = await company.give(db, "ann", "third", after=before)
    first, second = await company.claim(db)
    await overlap(db, ends(first, together=together), ends(second, together=together))
    assert (await company.task(db, waiting)).status == TaskState.TODO


async def a_task_made_while_another_ends_is_released(db: Database, *, together: bool, made_first: bool) -> None:
    """`task create --after` at the moment of that task's end: it is ready, whichever commits first."""
    before = await company.give(db, "ann")
    (run,) = await company.claim(db)

    async def make(session: AsyncSession) -> None:
        await intake.create(session, "next", assignee="bob", after=[before], by="board")

    verbs = [make, ends(run, together=together)]
    await overlap(db, *(verbs if made_first else reversed(verbs)))
    assert await company.value(db, "SELECT status FROM tasks WHERE title = 'next'") == TaskState.TODO


CHECKS: Mapping[str, Check] = {
    "racing claims, agent": racing_claims_leave_an_agent_its_limit,
    "racing claims, adapter": racing_claims_leave_an_adapter_its_limit,
    "claims one by one": claims_one_by_one_leave_an_agent_its_limit,
    "one task": one_task_gets_one_run,
    "one subject": a_subject_is_queued_once,
    "wrong token, booking": a_wrong_token_books_nothing,
    "wrong token, log": a_wrong_token_logs_nothing,
    "lost run books": partial(a_lost_run_does_nothing, act=books),
    "lost run closes": partial(a_lost_run_does_nothing, act=closes),
    "lost run logs": partial(a_lost_run_does_nothing, act=logs),
    "lost run renews": partial(a_lost_run_does_nothing, act=renews),
    "living run": a_living_run_is_not_taken_over,
    "renewed run": a_run_renewed_in_the_last_moment_is_not_taken_over,
    "last two, booked": partial(two_last_tasks_end_a_goal, together=False),
    "last two, closed": partial(two_last_tasks_end_a_goal, together=True),
    "third, booked": partial(two_last_tasks_release_the_third, together=False),
    "third, closed": partial(two_last_tasks_release_the_third, together=True),
    "next, booked": partial(a_task_made_while_another_ends_is_released, together=False, made_first=True),
    "next, closed": partial(a_task_made_while_another_ends_is_released, together=True, made_first=True),
    "next, made late": partial(a_task_made_while_another_ends_is_released, together=True, made_first=False),
}
