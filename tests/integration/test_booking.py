"""The end of a run: fenced, whole or not at all, and repeatable."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from sqlalchemy import text

from opencognit import brain
from opencognit.contracts import BOARD, Answer, Comment, CompleteTask, CreateTask, Remember, Usage
from opencognit.db import Database
from opencognit.engine import heartbeat
from opencognit.errors import StaleToken
from opencognit.states import CancelMode, RunState, Scope, TaskState
from opencognit.testing import until
from opencognit.work import flow, locks
from tests.integration import company


@pytest.fixture
async def team(db: Database) -> Database:
    await company.hire(db, company.spec("ceo"), company.spec("ann"), company.spec("bob"))
    return db


async def _free(db: Database) -> bool:
    return bool(await company.value(db, "SELECT bool_and(execution_run_id IS NULL AND lock_expires_at IS NULL) FROM tasks"))


ENDINGS = {
    "success": ({}, TaskState.DONE, RunState.SUCCEEDED),
    "failure": ({"status": RunState.FAILED, "error": "no"}, TaskState.BLOCKED, RunState.FAILED),
    "retryable": ({"status": RunState.FAILED, "error": "busy", "retryable": True}, TaskState.TODO, RunState.FAILED),
    "timeout": ({"status": RunState.TIMED_OUT, "error": "slow", "retryable": True}, TaskState.TODO, RunState.TIMED_OUT),
    "cancelled": ({"status": RunState.CANCELLED, "cancel": CancelMode.RUN}, TaskState.BLOCKED, RunState.CANCELLED),
    "task cancelled": ({"status": RunState.CANCELLED, "cancel": CancelMode.TASK}, TaskState.CANCELLED, RunState.CANCELLED),
    "released": ({"status": RunState.CANCELLED, "cancel": CancelMode.RELEASE}, TaskState.TODO, RunState.CANCELLED),
    "drained": ({"status": RunState.CANCELLED, "cancel": CancelMode.DRAIN}, TaskState.TODO, RunState.CANCELLED),
}


@pytest.mark.parametrize("how", ENDINGS)
async def test_every_ending_releases_the_lock_with_the_state_that_says_why(team: Database, how: str) -> None:
    """Lock, run, wakeup and task end together; what may go on can be taken again (F01-01)."""
    fields, state, run_state = ENDINGS[how]
    task_id = await company.give(team, "ann")
    (run,) = await company.claim(team)
    await company.finish(team, run, **fields)  # type: ignore[arg-type]
    assert await _free(team)
    assert (await company.task(team, task_id)).status == state
    assert await company.value(team, "SELECT status FROM runs") == run_state
    assert await company.value(team, "SELECT status FROM wakeups WHERE run_id = :id", id=run.run_id) == "done"
    if how in ("released", "drained"):
        (again,) = await company.claim(team)
        assert again.attempt == (1 if how == "drained" else 2)


async def test_late_write_of_a_lost_run_changes_nothing(team: Database) -> None:
    """A stalls past its lease, B takes over and finishes; A's result, memory and comment are refused (F09-03)."""
    task_id = await company.give(team, "ann")
    (stalled,) = await company.claim(team, "node-a")
    await company.lapse(team, stalled.run_id)
    assert await heartbeat.reap(team) == 1
    (second,) = await company.claim(team, "node-b")
    assert second.token > stalled.token
    late = Answer(text="late", memories=(Remember(content="late memory", room="r"),))
    with pytest.raises(StaleToken):
        await company.finish(team, stalled, late)
    await company.finish(team, second, "in time")
    with pytest.raises(StaleToken):
        await company.finish(team, stalled, late)
    task = await company.task(team, task_id)
    assert (task.status, task.result) == (TaskState.DONE, "in time")
    assert await company.value(team, "SELECT count(*) FROM memories") == 0
    assert await company.value(team, "SELECT count(*) FROM comments") == 1


async def test_log_of_a_lost_run_is_dropped(team: Database) -> None:
    """Log chunks carry the token too."""
    from opencognit.work import runs

    await company.give(team, "ann")
    (run,) = await company.claim(team)
    async with team.transaction() as session:
        assert await runs.append_log(session, run.run_id, run.token, 1, "stdout", "kept")
    await company.lapse(team, run.run_id)
    await heartbeat.reap(team)
    async with team.transaction() as session:
        assert not await runs.append_log(session, run.run_id, run.token, 2, "stdout", "late")
    assert await company.value(team, "SELECT string_agg(chunk, '') FROM run_log") == "kept"


async def test_a_finished_run_is_never_reaped_and_a_reaped_one_never_finished(team: Database) -> None:
    """Finish and take-over at the same moment: exactly one of them happens, whichever it is (F09-06)."""
    for _ in range(8):
        task_id = await company.give(team, "ann")
        (run,) = await company.claim(team)
        await company.lapse(team, run.run_id)
        done = asyncio.gather(company.finish(team, run), heartbeat.reap(team), return_exceptions=True)
        finished, reaped = await done
        assert (finished is None) != (reaped == 1)
        state = (await company.task(team, task_id)).status
        assert state == (TaskState.DONE if finished is None else TaskState.TODO)
        if finished is not None:
            (again,) = await company.claim(team)
            await company.finish(team, again)


async def test_a_repeated_booking_of_the_same_claim_changes_nothing(team: Database) -> None:
    """A commit whose answer got lost is tried again: one comment, one memory, one cost (F10-08)."""
    await company.give(team, "ann")
    (run,) = await company.claim(team)
    answer = Answer(text="done", memories=(Remember(content="the api is at /v2", room="api"),))
    usage = (Usage(call_no=1, model="m", cost_usd=Decimal("0.0149"), tokens_in=10, tokens_out=5),)
    for _ in range(3):
        await company.finish(team, run, answer, usage=usage)
    assert await company.value(team, "SELECT count(*) FROM comments") == 1
    assert await company.value(team, "SELECT sum(evidence) FROM memories") == 1
    assert await company.value(team, "SELECT sum(cost_usd) FROM costs") == Decimal("0.014900")
    assert await company.value(team, "SELECT cost_usd FROM runs") == Decimal("0.014900")


async def test_unknown_price_makes_the_runs_cost_unknown_not_zero(team: Database) -> None:
    """None plus something is None."""
    await company.give(team, "ann")
    (run,) = await company.claim(team)
    usage = (Usage(1, "m", Decimal("0.01"), 1, 1), Usage(2, "x", None, 5, 5))
    await company.finish(team, run, usage=usage)
    (row,) = await company.rows(team, "SELECT cost_usd, tokens_in FROM runs")
    assert tuple(row) == (None, 6)


async def test_a_booking_that_breaks_leaves_nothing_behind(team: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """All or nothing: when the last step fails, neither comment nor memory nor state has changed, and it can be repeated."""
    await company.give(team, "ann")
    (run,) = await company.claim(team)
    answer = Answer(text="done", memories=(Remember(content="half", room="r"),))

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(flow, "move", broken)
        with pytest.raises(RuntimeError):
            await company.finish(team, run, answer)
    assert await company.value(team, "SELECT count(*) FROM comments") == 0
    assert await company.value(team, "SELECT count(*) FROM memories") == 0
    assert await company.value(team, "SELECT status FROM runs") == RunState.RUNNING
    await company.finish(team, run, answer)
    assert await company.value(team, "SELECT count(*) FROM memories") == 1


async def test_retries_wait_longer_each_time_and_the_fourth_failure_blocks(team: Database) -> None:
    """5, 15, 45 minutes, then blocked with the last error; a longer wish of the provider is honoured."""
    task_id = await company.give(team, "ann")
    waits = []
    for attempt in range(1, 5):
        (run,) = await company.claim(team)
        assert run.attempt == attempt
        wish = 1200.0 if attempt == 2 else None
        await company.finish(team, run, status=RunState.FAILED, error="busy", retryable=True, retry_after_s=wish)
        if attempt < 4:
            query = "SELECT round(extract(epoch FROM not_before - now())) FROM wakeups WHERE status = 'queued'"
            waits.append(int(await company.value(team, query)))
            async with team.transaction() as session:
                await session.execute(text("UPDATE wakeups SET not_before = now() WHERE status = 'queued'"))
    assert [round(wait, -1) for wait in waits] == [300, 1200, 2700]
    task = await company.task(team, task_id)
    assert (task.status, task.reason) == (TaskState.BLOCKED, "busy")
    assert await company.claim(team) == []


async def test_the_third_lost_run_blocks_the_task(team: Database) -> None:
    """A task that kills its node is not tried for ever (F09-07); success in between forgets earlier losses."""
    task_id = await company.give(team, "ann")
    for _ in range(3):
        (run,) = await company.claim(team)
        await company.lapse(team, run.run_id)
        assert await heartbeat.reap(team) == 1
    task = await company.task(team, task_id)
    assert task.status == TaskState.BLOCKED
    assert "3 runs were lost" in task.reason
    assert await company.claim(team) == []


async def test_thirty_minutes_end_a_run_whose_node_still_renews(team: Database) -> None:
    """The lock is a deadline of its own."""
    task_id = await company.give(team, "ann")
    (run,) = await company.claim(team)
    async with team.transaction() as session:
        await session.execute(text("UPDATE tasks SET lock_expires_at = now() - interval '1 s'"))
    assert await heartbeat.reap(team) == 1
    assert (await company.task(team, task_id)).status == TaskState.TODO
    async with team.transaction() as session:
        assert await locks.renew(session, "node-a", [(run.run_id, run.token)], lease_s=30) == {}


async def test_only_the_owner_renews_and_never_a_lease_that_is_over(team: Database) -> None:
    """Wrong node, wrong token, or too late: not renewed."""
    await company.give(team, "ann")
    (run,) = await company.claim(team, "node-a")
    async with team.transaction() as session:
        assert await locks.renew(session, "node-a", [(run.run_id, run.token)], lease_s=30) == {run.run_id: None}
        assert await locks.renew(session, "node-b", [(run.run_id, run.token)], lease_s=30) == {}
        assert await locks.renew(session, "node-a", [(run.run_id, run.token + 1)], lease_s=30) == {}
    await company.lapse(team, run.run_id)
    async with team.transaction() as session:
        assert await locks.renew(session, "node-a", [(run.run_id, run.token)], lease_s=30) == {}


async def test_an_action_that_cannot_be_done_is_noted_and_the_others_are_done(team: Database) -> None:
    """One unknown assignee does not lose the answer."""
    await company.give(team, "ann")
    (run,) = await company.claim(team)
    actions = (CreateTask(title="x", assignee="nobody"), Comment(text="hello"), CompleteTask(result="the result"))
    await company.finish(team, run, Answer(text="prose", actions=actions))
    (notes,) = await company.rows(team, "SELECT notes FROM runs")
    assert len(notes.notes) == 1
    assert "nobody" in notes.notes[0]
    task = await company.task(team, run.task_id or 0)
    assert (task.status, task.result) == (TaskState.DONE, "the result")


async def test_memory_for_a_team_by_an_agent_without_one_becomes_private(team: Database) -> None:
    """It is stored where nobody else sees it, and the run says so."""
    await company.give(team, "ann")
    (run,) = await company.claim(team)
    answer = Answer(text="t", memories=(Remember(content="for my team", room="r", scope=Scope.TEAM),))
    await company.finish(team, run, answer)
    async with team.transaction() as session:
        (hit,) = await brain.recall(session, "team", viewer=BOARD)
    assert hit.memory.scope == Scope.AGENT_PRIVATE
    (notes,) = await company.rows(team, "SELECT notes FROM runs")
    assert "no team" in notes.notes[0]


async def test_losses_count_in_a_row(team: Database) -> None:
    """A failure that was booked in between came from a node that lived: the task does not kill its nodes."""
    task_id = await company.give(team, "ann")
    for end in ("lost", "lost", "failed", "lost", "lost"):
        await company.hasten(team)
        (run,) = await company.claim(team)
        if end == "lost":
            await company.lose(team, run)
        else:
            await company.finish(team, run, status=RunState.FAILED, error="503", retryable=True)
    assert (await company.task(team, task_id)).status == TaskState.TODO
    (run,) = await company.claim(team)
    await company.lose(team, run)
    assert (await company.task(team, task_id)).status == TaskState.BLOCKED


async def test_a_success_forgets_failures_and_losses(team: Database) -> None:
    """Also one that leaves the task open: what comes afterwards is counted anew."""
    task_id = await company.give(team, "ann")
    (run,) = await company.claim(team)
    await company.finish(team, run, status=RunState.FAILED, error="503", retryable=True)
    await company.hasten(team)
    (run,) = await company.claim(team)
    await company.lose(team, run)
    task = await company.task(team, task_id)
    assert (task.failures, task.lost) == (1, 1)
    (run,) = await company.claim(team)
    await company.finish(team, run, Answer(text="", actions=(CreateTask(title="part", assignee="bob"),)))
    task = await company.task(team, task_id)
    assert (task.status, task.failures, task.lost) == (TaskState.BACKLOG, 0, 0)


async def test_a_lock_that_cannot_be_freed_does_not_keep_the_reaper(team: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """One orphan breaks whatever looks at it: the lapsed run beside it is taken over all the same."""
    await company.give(team, "ann")
    await company.give(team, "bob")
    by_agent = {run.agent: run for run in await company.claim(team)}
    async with team.transaction() as session:
        orphan = {"id": by_agent["ann"].run_id}
        await session.execute(text("UPDATE runs SET status = 'succeeded', ended_at = now() WHERE id = :id"), orphan)

    async def broken(*_: object, **__: object) -> bool:
        raise RuntimeError("a row that nobody foresaw")

    monkeypatch.setattr(flow, "free", broken)
    await company.lose(team, by_agent["bob"])
    query = "SELECT status FROM runs WHERE id = :id"
    assert await company.value(team, query, id=by_agent["bob"].run_id) == RunState.LOST


async def test_stretching_renews_the_locks_of_these_runs_only(team: Database) -> None:
    """Another task's thirty minutes are not made longer by it."""
    mine, other = await company.give(team, "ann"), await company.give(team, "bob")
    started = {run.task_id: run.run_id for run in await company.claim(team, ttl_s=60)}
    async with team.transaction() as session:
        await locks.stretch(session, [started[mine]], ttl_s=1800)
    query = "SELECT lock_expires_at > now() + interval '10 min' FROM tasks WHERE id = :id"
    assert [await company.value(team, query, id=task_id) for task_id in (mine, other)] == [True, False]


async def test_renewals_lock_runs_in_the_order_of_their_ids(team: Database) -> None:
    """Whoever locks two runs, the lower first, and a renewal of both do not wait crosswise, however the rows lie."""
    await company.give(team, "ann")
    await company.give(team, "bob")
    first, second = sorted(await company.claim(team), key=lambda run: run.run_id)
    async with team.transaction() as session:  # its row lies behind the other's now
        await session.execute(text("UPDATE runs SET reason = 'moved' WHERE id = :id"), {"id": first.run_id})
    held = [(run.run_id, run.token) for run in (second, first)]

    async def renew() -> int:
        async with team.transaction() as session:
            return len(await locks.renew(session, "node-a", held, lease_s=30))

    async with team.transaction() as session:
        await locks.fence(session, first.run_id, first.token)
        renewing = asyncio.create_task(renew())
        await until(lambda: company.waits(team))
        await locks.fence(session, second.run_id, second.token)
    assert await renewing == 2
