"""Asking and claiming: coalescing, limits, order, and the races between claimers."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from opencognit.db import Database
from opencognit.states import Priority, RunState, TaskState, WakeupSource
from opencognit.work import beats, claims, flow, roster, steering, tasks, wakeups
from tests.integration import company


@pytest.fixture
async def team(db: Database) -> Database:
    await company.hire(db, company.spec("ceo"), company.spec("ann"), company.spec("bob", max_concurrent_runs=3))
    return db


async def test_second_request_joins_the_queued_one(team: Database) -> None:
    """One queued wakeup per agent and task: it counts, keeps every reason, the earlier time and the higher priority."""
    task_id = await company.give(team, "ann")
    async with team.transaction() as session:
        for source, priority in ((WakeupSource.COMMENT, Priority.LOW), (WakeupSource.RETRY, Priority.CRITICAL)):
            await wakeups.request(session, "ann", source, task_id=task_id, priority=priority, delay_s=600)
    (row,) = await company.rows(team, "SELECT count, rank, jsonb_array_length(reasons), not_before <= now(), talk FROM wakeups")
    assert tuple(row) == (3, Priority.CRITICAL.rank, 3, True, True)


async def test_concurrent_requests_become_one_wakeup(team: Database) -> None:
    """Twenty sessions ask at once: one row, twenty reasons counted."""
    task_id = await company.give(team, "ann")

    async def ask() -> None:
        async with team.transaction() as session:
            await wakeups.request(session, "ann", WakeupSource.COMMENT, task_id=task_id)

    await asyncio.gather(*(ask() for _ in range(20)))
    assert [tuple(row) for row in await company.rows(team, "SELECT count FROM wakeups")] == [(21,)]


async def test_claim_locks_the_task_and_gives_a_rising_token(team: Database) -> None:
    """The claim starts the run, holds the task for it, and each token is larger than the one before."""
    await company.give(team, "ann", "first")
    second = await company.give(team, "bob", "second")
    runs = sorted(await company.claim(team), key=lambda run: run.run_id)
    assert len(runs) == 2
    assert len({run.token for run in runs}) == 2
    task = await company.task(team, second)
    held = next(run for run in runs if run.task_id == second)
    assert (task.status, task.execution_run_id, task.execution_agent_key) == (TaskState.IN_PROGRESS, held.run_id, "bob")
    assert task.lock_token == held.token
    assert task.lock_expires_at is not None
    assert task.execution_locked_at is not None
    assert (task.lock_expires_at - task.execution_locked_at).total_seconds() == 1800


async def test_an_agent_never_exceeds_its_concurrent_runs(team: Database) -> None:
    """ann takes one at a time, bob three, however many wait."""
    for _ in range(5):
        await company.give(team, "ann")
        await company.give(team, "bob")
    first = await company.claim(team, capacity=20)
    assert sorted(run.agent for run in first) == ["ann", "bob", "bob", "bob"]
    assert await company.claim(team, capacity=20) == []


async def test_racing_claimers_never_take_the_same_task(team: Database) -> None:
    """Eight claimers over forty tasks of two agents: each running task has one run and no agent too many."""
    for _ in range(20):
        await company.give(team, "ann")
        await company.give(team, "bob")
    finished = 0
    while finished < 40:
        batches = await asyncio.gather(*(company.claim(team, f"node-{n}", capacity=4) for n in range(8)))
        started = [run for batch in batches for run in batch]
        assert started
        assert len({run.task_id for run in started}) == len(started)
        per_agent = dict(await company.rows(team, "SELECT agent, count(*) FROM runs WHERE status = 'running' GROUP BY agent"))
        assert per_agent.get("ann", 0) <= 1
        assert per_agent.get("bob", 0) <= 3
        for run in started:
            await company.finish(team, run)
        finished += len(started)
    assert await company.value(team, "SELECT count(*) FROM runs") == 40


@pytest.mark.parametrize("how", ["company", "agent", "removed"])
async def test_whoever_is_switched_off_gets_nothing(team: Database, how: str) -> None:
    """A paused company, a paused agent, an agent without a file: the wakeup stays queued and nothing starts."""
    await company.give(team, "ann")
    async with team.transaction() as session:
        if how == "company":
            await session.execute(text("UPDATE company SET paused = true"))
        elif how == "agent":
            await roster.pause(session, "ann", by="board")
        else:
            await roster.sync(session, {"ceo": company.spec("ceo")}, interval_s=30)
    assert await company.claim(team) == []
    assert await company.value(team, "SELECT count(*) FROM wakeups WHERE status = 'queued'") == 1


async def test_critical_goes_before_older_low_ones(team: Database) -> None:
    """Priority first, then age."""
    low = await company.give(team, "ann", priority=Priority.LOW)
    critical = await company.give(team, "ann", priority=Priority.CRITICAL)
    order = []
    for _ in range(2):
        (run,) = await company.claim(team, capacity=1)
        order.append(run.task_id)
        await company.finish(team, run)
    assert order == [critical, low]


async def test_a_later_time_is_waited_for(team: Database) -> None:
    """A retry in ten minutes is not claimed now, and the dispatcher learns how long to wait."""
    async with team.transaction() as session:
        await wakeups.request(session, "ann", WakeupSource.RETRY, delay_s=600)
    assert await company.claim(team) == []
    async with team.transaction() as session:
        seconds = await wakeups.seconds_to_next(session)
    assert seconds is not None
    assert 500 < seconds <= 600


async def test_wakes_during_a_run_give_exactly_one_run_afterwards(team: Database) -> None:
    """Three comments while the run is on wait for its end and then cause one run, which sees them all."""
    task_id = await company.give(team, "ann")
    (first,) = await company.claim(team)
    async with team.transaction() as session:
        for _ in range(3):
            await wakeups.request(session, "ann", WakeupSource.COMMENT, task_id=task_id)
    assert await company.claim(team) == []
    await company.finish(team, first)
    (second,) = await company.claim(team)
    assert second.task_id == task_id
    await company.finish(team, second, "answered")
    assert await company.claim(team) == []
    task = await company.task(team, task_id)
    assert (task.status, task.result) == (TaskState.DONE, "done")


async def test_wake_by_a_person_gives_one_run_without_any_task(team: Database) -> None:
    """`agent wake` means exactly one run, also with nothing to do and also when asked twice before it starts."""
    async with team.transaction() as session:
        await roster.wake(session, "ann", by="board")
        await roster.wake(session, "ann", by="board")
    (run,) = await company.claim(team)
    assert run.task_id is None
    await company.finish(team, run)
    assert await company.claim(team) == []


async def test_heartbeat_asks_only_for_agents_with_forgotten_work(team: Database) -> None:
    """A ready task without a wakeup is found once its agent's beat is due; an agent without work is not touched."""
    task_id = await company.give(team, "ann")
    async with team.transaction() as session:
        await session.execute(text("DELETE FROM wakeups"))
        await session.execute(text("UPDATE agents SET next_beat_at = now() - interval '1 s'"))
    async with team.transaction() as session:
        assert await beats.beat(session) == 1
    async with team.transaction() as session:
        assert await beats.beat(session) == 0
    (run,) = await company.claim(team)
    assert run.task_id == task_id
    due = dict(await company.rows(team, "SELECT name, next_beat_at > now() FROM agents"))
    assert due == {"ann": True, "bob": False, "ceo": False}


async def test_wakeup_of_an_ended_task_is_skipped_not_run(team: Database) -> None:
    """A retry that is queued when the task is cancelled costs no run; its wakeup says why."""
    task_id = await company.give(team, "ann")
    async with team.transaction() as session:
        await session.execute(text("UPDATE tasks SET status = 'cancelled' WHERE id = :id"), {"id": task_id})
    assert await company.claim(team) == []
    async with team.transaction() as session:
        await beats.beat(session)
    (row,) = await company.rows(team, "SELECT status, outcome FROM wakeups")
    assert row.status == "skipped"
    assert row.outcome


async def test_a_lowered_limit_counts_the_runs_that_are_on(team: Database) -> None:
    """bob's third place is taken when only two are left: one more may start, not two."""
    for _ in range(5):
        await company.give(team, "bob")
    started = await company.claim(team)
    last = await company.value(team, "SELECT id FROM runs WHERE slot = 3")
    for run in started:
        if run.run_id != last:
            await company.finish(team, run)
    await company.hire(team, company.spec("ceo"), company.spec("bob", max_concurrent_runs=2))
    assert len(await company.claim(team)) == 1


async def test_an_adapters_new_limit_counts_the_runs_that_are_on(team: Database) -> None:
    """Two runs without a place of the adapter's, then a limit of three: one more may start."""
    for _ in range(3):
        await company.give(team, "bob")
    await company.give(team, "ann")
    assert len(await company.claim(team, capacity=2)) == 2
    async with team.transaction() as session:
        started = await claims.claim(session, "b", capacity=9, lease_s=30, ttl_s=1800, limits={"bash": 3})
    assert len(started) == 1


async def test_a_row_that_refers_to_a_task_does_not_hide_it_from_a_claim(team: Database) -> None:
    """Somebody is about to comment: the task can be taken all the same."""
    task_id = await company.give(team, "ann")
    async with team.transaction() as session:
        await session.execute(text("INSERT INTO comments (task_id, author, text) VALUES (:id, 'x', 'y')"), {"id": task_id})
        assert len(await company.claim(team)) == 1


async def test_what_waits_for_a_runs_end_does_not_stand_before_other_work(team: Database) -> None:
    """With one place left, an urgent comment on a finished task on which a run is looking is passed over for other work."""
    busy = await company.give(team, "bob", priority=Priority.CRITICAL)
    (run,) = await company.claim(team)
    await company.finish(team, run)
    for words in ("what of this?", "and this?"):
        async with team.transaction() as session:
            await steering.comment(session, busy, words, by="board")
        await company.claim(team)
    other = await company.give(team, "bob", priority=Priority.LOW)
    assert [run.task_id for run in await company.claim(team, capacity=1)] == [other]


async def test_a_heartbeat_passes_over_a_task_that_becomes_ready_at_this_moment(team: Database) -> None:
    """Its queued wakeup, which the last blocker's end joins, is not skipped for what the task was before."""
    blocker = await company.give(team, "bob")
    (run,) = await company.claim(team)
    task_id = await company.give(team, "ann", after=(blocker,))
    async with team.transaction() as session:
        await wakeups.request(session, "ann", WakeupSource.TIMER, task_id=task_id)
        await session.execute(text("UPDATE agents SET heartbeat_interval_s = 0"))
        await session.execute(
            text(
                "UPDATE tasks SET status = 'done', execution_run_id = NULL, execution_agent_key = NULL,"
                " execution_locked_at = NULL, lock_expires_at = NULL WHERE id = :id"
            ),
            {"id": blocker},
        )
        await session.execute(text("UPDATE runs SET status = 'succeeded', ended_at = now() WHERE id = :id"), {"id": run.run_id})
    async with team.transaction() as session:
        assert await flow.settle_in(session, await tasks.locked(session, task_id), WakeupSource.DEPENDENCY, by="board")
        async with asyncio.timeout(10), team.transaction() as other:
            await beats.beat(other)
    assert [run.task_id for run in await company.claim(team)] == [task_id]


async def test_a_claimer_learns_that_others_were_at_what_it_passed_over(team: Database) -> None:
    """Nothing was got because another holds it: something is left; nothing can start: nothing is."""

    async def left(limits: dict[str, int]) -> bool:
        async with team.transaction() as session:
            return await claims.is_something_left(session, limits=limits)

    assert not await left({})
    task_id = await company.give(team, "ann")
    async with team.transaction() as session:
        await tasks.locked(session, task_id)
        assert await company.claim(team) == []
        assert await left({})
        assert not await left({"bash": 0})
    (run,) = await company.claim(team)
    await company.give(team, "ann")
    assert not await left({}), "ann has a run on"
    await company.finish(team, run, status=RunState.FAILED, error="no")
    assert await left({})
