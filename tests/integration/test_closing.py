"""Closing many runs in one statement does what booking each by itself does."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from opencognit.contracts import Answer, CreateTask, Viewer
from opencognit.db import Database
from opencognit.engine.booking import Outcome
from opencognit.engine.bookkeeper import Bookkeeper
from opencognit.errors import StaleToken
from opencognit.states import ApprovalKind, ApprovalState, RunState, TaskState
from opencognit.work import approvals, closing, goals, roster
from opencognit.work.claims import Claimed
from tests.conftest import sibling
from tests.integration import company

TABLES = {
    "runs": "status, result, exit_code, soul_hash, notes, error, cost_usd, ended_at IS NOT NULL",
    "tasks": "title, status, result, reason, failures, lost, stale_runs, execution_run_id, lock_expires_at, ended_at IS NOT NULL",
    "wakeups": "agent, status, outcome, source, ended_at IS NOT NULL",
    "comments": "author, text",
    "goals": "status, reason, ended_at IS NOT NULL",
    "events": "type, subject_kind, subject_title, actor, data->>'from', data->>'to', data->>'reason', data->>'text'",
}


async def _prepared(db: Database) -> list[Claimed]:
    """A goal with dependent tasks, a lone task and a wake without a task, all running."""
    await company.hire(db, company.spec("ceo"), company.spec("ann", max_concurrent_runs=9), company.spec("bob"))
    async with db.transaction() as session:
        await goals.post(session, "g")
    (plan,) = await company.claim(db)
    actions = (
        CreateTask(title="A", assignee="ann"),
        CreateTask(title="B", assignee="ann"),
        CreateTask(title="C", assignee="bob", after=("new-1", "new-2")),
    )
    await company.finish(db, plan, Answer(text="plan", actions=actions))
    await company.give(db, "ann", "alone")
    async with db.transaction() as session:
        await roster.wake(session, "bob", by="board")
    return await company.claim(db)


async def _state(db: Database) -> dict[str, list[Any]]:
    return {
        table: sorted(map(str, await company.rows(db, f"SELECT {columns} FROM {table}"))) for table, columns in TABLES.items()
    }


def _outcome(run: Claimed) -> Outcome:
    return Outcome(
        RunState.SUCCEEDED,
        Viewer(agent=run.agent),
        answer=Answer(text=f"said by {run.agent}"),
        exit_code=0,
        soul_hash="h",
        notes=("n",),
    )


async def test_together_is_the_same_as_one_by_one(db: Database, server: str, template: str) -> None:
    """Every table has the same content afterwards."""
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE test_closing_other TEMPLATE {template}")
    other = Database(sibling(server, "test_closing_other"))
    try:
        for run in await _prepared(other):
            outcome = _outcome(run)
            await company.finish(other, run, outcome.answer, exit_code=0, soul_hash="h", notes=("n",))
        runs = await _prepared(db)
        async with db.transaction() as session:
            given = [closing.Plain(run.run_id, run.token, _outcome(run).answer.text, 0, "h", ("n",)) for run in runs]
            assert await closing.close(session, given) == {run.run_id for run in runs}
        assert await _state(db) == await _state(other)
    finally:
        await other.close()


async def test_what_is_lost_or_resumed_is_left_out_and_the_rest_is_closed(db: Database) -> None:
    """One old token among good ones neither fails the batch nor is written."""
    runs = await _prepared(db)
    given = [closing.Plain(run.run_id, run.token + (1 if run is runs[0] else 0), "said", 0, None, ()) for run in runs]
    async with db.transaction() as session:
        assert await closing.close(session, given) == {run.run_id for run in runs[1:]}
    assert await company.value(db, "SELECT status FROM runs WHERE id = :id", id=runs[0].run_id) == RunState.RUNNING


async def test_a_bookkeeper_books_all_and_refuses_the_lost(db: Database) -> None:
    """Thirty bookings at once: each task done once, and the one whose run was taken over raises."""
    await company.hire(db, company.spec("ceo"), company.spec("ann", max_concurrent_runs=50))
    for _ in range(30):
        await company.give(db, "ann")
    runs = await company.claim(db, capacity=30)

    async with db.transaction() as session:
        await session.execute(text("UPDATE runs SET token = nextval('fencing_token') WHERE id = :id"), {"id": runs[7].run_id})
    keeper = Bookkeeper(db, retry=company.RETRY)
    keeping = asyncio.create_task(keeper.keep())
    try:
        booked = await asyncio.gather(*(keeper.book(run, _outcome(run)) for run in runs), return_exceptions=True)
    finally:
        keeping.cancel()
    assert [n for n, result in enumerate(booked) if isinstance(result, StaleToken)] == [7]
    assert await company.value(db, "SELECT count(*) FROM tasks WHERE status = :done", done=TaskState.DONE) == 29
    assert await company.value(db, "SELECT count(*) FROM comments") == 29


@pytest.mark.parametrize("given", [[], None])
async def test_nothing_to_close_asks_nothing(db: Database, given: list[closing.Plain] | None) -> None:
    """No runs, no query."""
    async with db.transaction() as session:
        assert await closing.close(session, given or []) == set()


async def _close(db: Database, run: Claimed) -> set[int]:
    async with db.transaction() as session:
        return await closing.close(session, [closing.Plain(run.run_id, run.token, "done", 0, None, ())])


async def _book(db: Database, run: Claimed) -> None:
    """Book a plain success as a node does."""
    keeper = Bookkeeper(db, retry=company.RETRY)
    keeping = asyncio.create_task(keeper.keep())
    try:
        await keeper.book(run, Outcome(RunState.SUCCEEDED, Viewer(agent=run.agent), answer=Answer(text="done")))
    finally:
        keeping.cancel()


async def test_an_escalation_is_not_closed_but_booked(db: Database) -> None:
    """When it ends and the task is still blocked, the board must be asked."""
    await company.hire(db, company.spec("ceo"), company.spec("ann", reports_to="bob"), company.spec("bob"))
    await company.give(db, "ann")
    for _ in range(4):
        (run,) = await company.claim(db)
        await company.finish(db, run, status=RunState.FAILED, error="503", retryable=True)
        await company.hasten(db)
    (run,) = await company.claim(db)
    assert (run.agent, await _close(db, run)) == ("bob", set())
    await _book(db, run)
    assert await company.value(db, "SELECT count(*) FROM approvals WHERE status = 'pending'") == 1


async def test_a_task_with_a_question_is_not_closed_but_booked(db: Database) -> None:
    """The question goes with its task, also one that somebody else asked about its first attempt."""
    await company.hire(db, company.spec("ceo"), company.spec("ann"))
    task_id = await company.give(db, "ann")
    (run,) = await company.claim(db)
    async with db.transaction() as session:
        await approvals.ask(session, kind=ApprovalKind.QUESTION, subject="x", question="?", task_id=task_id, asked_by="bob")
    assert await _close(db, run) == set()
    await _book(db, run)
    assert await company.value(db, "SELECT status FROM approvals") == ApprovalState.CANCELLED


@pytest.mark.parametrize("before", ["failed", "lost"])
async def test_what_went_wrong_before_is_forgotten_with_a_success(db: Database, before: str) -> None:
    """A second attempt is booked by itself, and the next failure is the first again."""
    await company.hire(db, company.spec("ceo"), company.spec("ann"))
    task_id = await company.give(db, "ann")
    (run,) = await company.claim(db)
    if before == "lost":
        await company.lose(db, run)
    else:
        await company.finish(db, run, status=RunState.FAILED, error="503", retryable=True)
    await company.hasten(db)
    (run,) = await company.claim(db)
    assert await _close(db, run) == set()
    await _book(db, run)
    task = await company.task(db, task_id)
    assert (task.status, task.failures, task.lost, task.stale_runs) == (TaskState.DONE, 0, 0, 0)
