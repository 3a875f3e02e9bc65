"""What stops by itself: retries, loops, rings, floods; and who is told."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from opencognit.contracts import Answer, Comment, CreateTask
from opencognit.db import Database
from opencognit.states import GoalState, Priority, RunState, TaskState, WakeupSource
from opencognit.work import approvals, beats, claims, flow, goals, planning, steering, wakeups
from tests.integration import company


@pytest.fixture
async def team(db: Database) -> Database:
    lead = company.spec("lead")
    await company.hire(db, company.spec("ceo"), lead, company.spec("ann", reports_to="lead"), company.spec("bob"))
    return db


async def _fail_for_good(db: Database, agent: str) -> None:
    """Let the agent's task fail until nothing of it is due any more."""
    for _ in range(4):
        async with db.transaction() as session:
            await session.execute(text("UPDATE wakeups SET not_before = now() WHERE status = 'queued'"))
        for run in await company.claim(db):
            if run.agent == agent:
                await company.finish(db, run, status=RunState.FAILED, error=f"busy {run.attempt}", retryable=True)
            else:
                await company.finish(db, run)


async def test_the_fourth_failure_escalates_once_to_the_manager_with_the_failures(team: Database) -> None:
    """One task of high priority for who it reports to, with the last errors in it."""
    task_id = await company.give(team, "ann")
    await _fail_for_good(team, "ann")
    (raised,) = await company.rows(team, "SELECT * FROM tasks WHERE about_id = :id", id=task_id)
    assert (raised.assignee, raised.priority, raised.status) == ("lead", Priority.HIGH, TaskState.TODO)
    assert all(f"busy {attempt}" in raised.description for attempt in (1, 2, 3, 4))


async def test_an_escalation_that_fails_goes_to_the_board_and_not_round(team: Database) -> None:
    """The manager fails too: one question to the board, no escalation of the escalation."""
    await company.give(team, "ann")
    await _fail_for_good(team, "ann")
    await _fail_for_good(team, "lead")
    assert await company.value(team, "SELECT count(*) FROM tasks WHERE about_id IS NOT NULL") == 1
    assert await company.value(team, "SELECT count(*) FROM approvals") == 1


@pytest.mark.parametrize(("option", "state"), [("retry", TaskState.TODO), ("cancel", TaskState.CANCELLED)])
async def test_without_a_manager_the_board_is_asked_and_its_answer_acts(team: Database, option: str, state: TaskState) -> None:
    """A CEO that plans by rules cannot decide, so the board is asked at once; its choice moves the task."""
    task_id = await company.give(team, "bob")
    await _fail_for_good(team, "bob")
    async with team.transaction() as session:
        (question,) = await approvals.listed(session)
        await approvals.approve(session, question.id, option=option, by="board")
    assert (await company.task(team, task_id)).status == state


async def test_agents_that_only_talk_are_stopped_and_the_board_told_once(team: Database) -> None:
    """Two agents answer each other on finished tasks: a handful of runs, then silence and one question (F01-06)."""
    first, second = await company.give(team, "ann"), await company.give(team, "bob")
    others = {"ann": second, "bob": first}
    runs = 0
    for _ in range(40):
        started = await company.claim(team)
        if not started:
            break
        for run in started:
            if run.agent == "lead":
                await company.finish(team, run)
                continue
            runs += 1
            await company.finish(team, run, Answer(text="", actions=(Comment(task_id=str(others[run.agent]), text="and you?"),)))
    assert runs <= 2 * (flow.STALE_LIMIT + 2)
    asked = await company.value(team, "SELECT count(*) FROM approvals") + await company.value(
        team, "SELECT count(*) FROM tasks WHERE about_id IS NOT NULL"
    )
    assert 1 <= asked <= 2
    async with team.transaction() as session:
        await steering.comment(session, first, "go on", by="board")
    assert [run.task_id for run in await company.claim(team)][:1] == [first]


async def test_a_chain_of_wakes_by_agents_ends(team: Database) -> None:
    """Deeper than the limit nobody is woken by an agent's words; the comment is kept."""
    task_id = await company.give(team, "ann")
    (run,) = await company.claim(team)
    await company.finish(team, run)
    async with team.transaction() as session:
        await steering.comment(session, task_id, "once more", by="bob", depth=flow.CAUSE_LIMIT + 1)
    assert await company.claim(team) == []
    assert await company.value(team, "SELECT count(*) FROM comments WHERE author = 'bob'") == 1


async def test_work_is_not_handed_back_to_whoever_handed_it_down(team: Database) -> None:
    """ann makes a task for bob, bob one for ann: refused with the reason; splitting for oneself is allowed (F01-20)."""
    await company.give(team, "ann")
    (run,) = await company.claim(team)
    await company.finish(team, run, Answer(text="", actions=(CreateTask(title="for bob", assignee="bob"),)))
    (run,) = await company.claim(team)
    actions = (CreateTask(title="back", assignee="ann"), CreateTask(title="my own part", assignee="bob"))
    await company.finish(team, run, Answer(text="", actions=actions))
    titles = {row.title for row in await company.rows(team, "SELECT title FROM tasks")}
    assert titles == {"work", "for bob", "my own part"}
    notes = [note for row in await company.rows(team, "SELECT notes FROM runs") for note in row.notes]
    assert any("waits for this" in note for note in notes)


async def test_sub_tasks_for_ever_come_to_an_end(team: Database) -> None:
    """A task that splits itself at each wake is refused after some rounds and blocked, and its manager is told once."""
    task_id = await company.give(team, "ann")
    for _ in range(60):
        started = await company.claim(team)
        if not started:
            break
        for run in started:
            child = Answer(text="", actions=(CreateTask(title="again", assignee="bob"),))
            await company.finish(team, run, child if run.task_id == task_id else "done")
    assert (await company.task(team, task_id)).status == TaskState.BLOCKED
    assert await company.value(team, "SELECT count(*) FROM tasks WHERE parent_id = :id", id=task_id) == planning.SUBTASK_ROUNDS
    assert await company.value(team, "SELECT count(*) FROM tasks WHERE about_id = :id", id=task_id) == 1


async def test_an_adapters_limit_holds_over_all_agents(team: Database) -> None:
    """Two runs of bash at once, though three agents have work; a third starts when one ends."""
    for agent in ("ann", "bob", "lead"):
        await company.give(team, agent)

    async def claim() -> list[claims.Claimed]:
        async with team.transaction() as session:
            return list(await claims.claim(session, "n", capacity=9, lease_s=30, ttl_s=1800, limits={"bash": 2}))

    first = await claim()
    assert len(first) == 2
    assert await claim() == []
    await company.finish(team, first[0])
    assert len(await claim()) == 1


async def test_waiting_work_moves_up_and_old_wakes_expire(team: Database) -> None:
    """A quarter of an hour raises a wakeup by one; a wake without a task is dropped after a day, a task's never."""
    await company.give(team, "ann", priority=Priority.LOW)
    async with team.transaction() as session:
        await wakeups.request(session, "bob", WakeupSource.BOARD)
        await session.execute(text("UPDATE wakeups SET not_before = now() - interval '25 h'"))
    async with team.transaction() as session:
        await beats.beat(session)
    async with team.transaction() as session:
        await beats.beat(session)
    rows = await company.rows(team, "SELECT status, rank FROM wakeups ORDER BY id")
    assert [tuple(row) for row in rows] == [("queued", Priority.LOW.rank - 1), ("expired", Priority.MEDIUM.rank - 1)]


async def test_a_goal_whose_task_gave_up_is_blocked_until_the_board_decides(team: Database) -> None:
    """The question names the task; cancelling it lets the goal end."""
    async with team.transaction() as session:
        goal_id = (await goals.post(session, "g")).id
    (plan,) = await company.claim(team)
    actions = (CreateTask(title="A", assignee="bob"), CreateTask(title="B", assignee="ann"))
    await company.finish(team, plan, Answer(text="", actions=actions))
    await _fail_for_good(team, "bob")
    async with team.transaction() as session:
        assert (await goals.get(session, goal_id)).status == GoalState.BLOCKED
        (question,) = await approvals.listed(session, pending_only=True)
        await approvals.approve(session, question.id, option="cancel", by="board")
    async with team.transaction() as session:
        assert (await goals.get(session, goal_id)).status == GoalState.ACHIEVED
