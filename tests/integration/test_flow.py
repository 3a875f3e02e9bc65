"""What follows from a task's change: readiness, waking, the goal's state, and the board's decisions."""

from __future__ import annotations

import asyncio

import pytest

from opencognit.contracts import Answer, AskBoard, CreateTask
from opencognit.db import Database
from opencognit.errors import InvalidInput, Refused
from opencognit.states import GoalState, RunState, TaskKind, TaskState, WakeupSource
from opencognit.work import approvals, goals, steering, wakeups
from tests.integration import company


@pytest.fixture
async def team(db: Database) -> Database:
    await company.hire(db, company.spec("ceo"), company.spec("ann", max_concurrent_runs=5), company.spec("bob"))
    return db


async def _post(db: Database, *actions: object) -> int:
    """Post a goal and let the CEO answer with these actions; return the goal's id."""
    async with db.transaction() as session:
        goal_id = (await goals.post(session, "a goal")).id
    (plan,) = await company.claim(db)

    await company.finish(db, plan, Answer(text="planned", actions=tuple(actions)))  # type: ignore[arg-type]
    return goal_id


async def _goal(db: Database, goal_id: int) -> tuple[GoalState, str]:
    async with db.transaction() as session:
        goal = await goals.get(session, goal_id)
        return GoalState(goal.status), goal.reason


async def _work(db: Database, goal_id: int) -> dict[str, TaskState]:
    async with db.transaction() as session:
        found = await goals.tasks_of(session, goal_id)
        return {task.title: TaskState(task.status) for task in found if task.kind == TaskKind.WORK}


async def _run_all(db: Database, *, rounds: int = 10) -> list[str]:
    """Claim and finish until nothing is due; return the titles in the order in which they ran."""
    ran: list[str] = []
    for _ in range(rounds):
        started = await company.claim(db)
        if not started:
            break
        for run in started:
            assert run.task_id is not None
            ran.append((await company.task(db, run.task_id)).title)
            await company.finish(db, run)
    return ran


async def test_the_last_blocker_wakes_what_waits_at_once(team: Database) -> None:
    """C after A and B starts only when both ended, and then at once; the goal is achieved and reported."""
    goal_id = await _post(
        team,
        CreateTask(title="A", assignee="ann"),
        CreateTask(title="B", assignee="bob"),
        CreateTask(title="C", assignee="bob", after=("new-1", "new-2")),
    )
    assert (await _goal(team, goal_id))[0] is GoalState.ACTIVE
    assert (await _work(team, goal_id))["C"] is TaskState.BACKLOG
    ran = await _run_all(team)
    assert ran[2:] == ["C", "Report: a goal"]
    assert (await _goal(team, goal_id))[0] is GoalState.ACHIEVED


async def test_two_last_blockers_at_once_wake_once(team: Database) -> None:
    """A and B end in two sessions at the same moment: C becomes ready exactly once, never not at all."""
    for _ in range(5):
        goal_id = await _post(
            team,
            CreateTask(title="A", assignee="ann"),
            CreateTask(title="B", assignee="ann"),
            CreateTask(title="C", assignee="bob", after=("new-1", "new-2")),
        )
        first, second = await company.claim(team)
        await asyncio.gather(company.finish(team, first), company.finish(team, second))
        assert (await _work(team, goal_id))["C"] is TaskState.TODO
        assert await _run_all(team) == ["C", "Report: a goal"]


async def test_a_failed_task_blocks_its_goal_and_says_why(team: Database) -> None:
    """What cannot be retried blocks the task with the reason; the goal is blocked once nothing else runs, and reported."""
    goal_id = await _post(team, CreateTask(title="A", assignee="ann"), CreateTask(title="B", assignee="bob"))
    failing, fine = sorted(await company.claim(team), key=lambda run: run.agent)
    await company.finish(team, failing, status=RunState.FAILED, error="exit 3: no such table")
    assert (await _goal(team, goal_id))[0] is GoalState.ACTIVE
    await company.finish(team, fine)
    state, reason = await _goal(team, goal_id)
    assert state is GoalState.BLOCKED
    assert "no such table" in reason
    assert await _run_all(team) == ["Report: a goal"]


async def test_retry_of_a_blocked_task_makes_the_goal_active_again(team: Database) -> None:
    """After the board retries, the run happens and the goal is achieved."""
    goal_id = await _post(team, CreateTask(title="A", assignee="ann"))
    (failing,) = await company.claim(team)
    await company.finish(team, failing, status=RunState.FAILED, error="no")
    await _run_all(team)
    assert failing.task_id is not None
    async with team.transaction() as session:
        await steering.retry(session, failing.task_id, by="board")
    assert (await _goal(team, goal_id))[0] is GoalState.ACTIVE
    assert await _run_all(team) == ["A", "Report: a goal"]
    assert (await _goal(team, goal_id))[0] is GoalState.ACHIEVED


async def _unassigned(db: Database) -> tuple[int, int]:
    """A goal with one doable task and one that nobody can do; returns goal and approval."""
    goal_id = await _post(
        db,
        CreateTask(title="A", assignee="ann"),
        CreateTask(title="X", reason="nobody can"),
        AskBoard(question="who does X?", options=("hire", "assign", "skip"), task_id="new-2"),
        CreateTask(title="after X", assignee="ann", after=("new-2",)),
    )
    await _run_all(db)
    return goal_id, await company.value(db, "SELECT id FROM approvals")


async def test_an_item_nobody_can_do_asks_the_board_and_blocks_the_rest_only(team: Database) -> None:
    """The rest goes on; then the goal is blocked, naming the task."""
    goal_id, _ = await _unassigned(team)
    state, reason = await _goal(team, goal_id)
    assert state is GoalState.BLOCKED
    assert "nobody can" in reason
    assert await _work(team, goal_id) == {"A": TaskState.DONE, "X": TaskState.BACKLOG, "after X": TaskState.BACKLOG}


async def test_skip_cancels_the_item_and_releases_what_waits_for_it(team: Database) -> None:
    """A cancelled blocker releases: the goal goes on and can be achieved."""
    goal_id, approval = await _unassigned(team)
    async with team.transaction() as session:
        await approvals.approve(session, approval, option="3", by="board")
    assert (await _work(team, goal_id))["X"] is TaskState.CANCELLED
    assert await _run_all(team) == ["after X", "Report: a goal"]
    assert (await _goal(team, goal_id))[0] is GoalState.ACHIEVED


async def test_assign_gives_the_item_to_the_agent_in_the_note(team: Database) -> None:
    """Without a note it asks for the name and decides nothing; with it the task runs."""
    goal_id, approval = await _unassigned(team)
    with pytest.raises(InvalidInput, match="name the agent"):
        async with team.transaction() as session:
            await approvals.approve(session, approval, option="assign", by="board")
    async with team.transaction() as session:
        await approvals.approve(session, approval, option="assign", note="bob", by="board")
    assert await _run_all(team) == ["X", "after X", "Report: a goal"]
    assert (await _goal(team, goal_id))[0] is GoalState.ACHIEVED


async def test_an_approval_is_used_once(team: Database) -> None:
    """A second decision is refused, and two at once decide once."""
    _, approval = await _unassigned(team)

    async def decide() -> bool:
        try:
            async with team.transaction() as session:
                await approvals.approve(session, approval, option="skip", by="board")
        except Refused:
            return False
        return True

    assert sorted(await asyncio.gather(decide(), decide(), decide())) == [False, False, True]


async def test_rejecting_blocks_the_item_with_the_note(team: Database) -> None:
    """A no is kept as the reason; nothing is lost in silence."""
    goal_id, approval = await _unassigned(team)
    async with team.transaction() as session:
        await approvals.reject(session, approval, note="too dear", by="board")
    state, reason = await _goal(team, goal_id)
    assert (state, (await _work(team, goal_id))["X"]) == (GoalState.BLOCKED, TaskState.BLOCKED)
    assert "too dear" in reason


async def test_sub_tasks_make_their_parent_wait_and_wake_it_once(team: Database) -> None:
    """An expert's task with sub-tasks goes to the backlog, and has one run when all of them ended."""
    goal_id = await _post(team, CreateTask(title="A", assignee="ann"))
    (parent,) = await company.claim(team)

    children = (CreateTask(title="a1", assignee="bob"), CreateTask(title="a2", assignee="bob"))
    await company.finish(team, parent, Answer(text="split", actions=children))
    assert (await _work(team, goal_id))["A"] is TaskState.BACKLOG
    assert await _run_all(team) == ["a1", "a2", "A", "Report: a goal"]
    assert (await _goal(team, goal_id))[0] is GoalState.ACHIEVED


async def test_cancelling_a_goal_ends_all_that_is_open(team: Database) -> None:
    """Waiting tasks are cancelled, a running one is asked to stop; pending questions are withdrawn; nothing runs after."""
    goal_id = await _post(team, CreateTask(title="A", assignee="ann"), CreateTask(title="B", assignee="bob", after=("new-1",)))
    (run,) = await company.claim(team)
    async with team.transaction() as session:
        await goals.cancel(session, goal_id, by="board")
    assert await company.value(team, "SELECT cancel_mode FROM runs WHERE id = :id", id=run.run_id) == "task"
    assert await _work(team, goal_id) == {"A": TaskState.IN_PROGRESS, "B": TaskState.CANCELLED}
    assert await company.claim(team) == []
    with pytest.raises(Refused, match="already cancelled"):
        async with team.transaction() as session:
            await goals.cancel(session, goal_id, by="board")


async def test_comment_by_the_assignee_wakes_nobody(team: Database) -> None:
    """An agent's own words never wake it, also on a blocked task (F01-05)."""
    task_id = await company.give(team, "ann")
    (run,) = await company.claim(team)
    await company.finish(team, run, status=RunState.FAILED, error="no")
    async with team.transaction() as session:
        await steering.comment(session, task_id, "still blocked", by="ann")
    assert await company.claim(team) == []
    async with team.transaction() as session:
        await steering.comment(session, task_id, "try the other door", by="board")
    (again,) = await company.claim(team)
    assert again.task_id == task_id


async def test_a_plan_without_tasks_blocks_the_goal(team: Database) -> None:
    """A goal whose plan made nothing is not achieved: it waits for the board with its reason."""
    goal_id = await _post(team)
    state, reason = await _goal(team, goal_id)
    assert state is GoalState.BLOCKED
    assert "no task" in reason


@pytest.mark.parametrize("end", [RunState.SUCCEEDED, RunState.FAILED])
async def test_what_was_queued_for_a_task_goes_with_its_end(team: Database, end: RunState) -> None:
    """A timer's wake during the run is answered by it: skipped at once, saying why, not left for the heartbeat."""
    task_id = await company.give(team, "bob")
    (run,) = await company.claim(team)
    async with team.transaction() as session:
        await wakeups.request(session, "bob", WakeupSource.TIMER, task_id=task_id)
    await company.finish(team, run, status=end, error="no")
    (row,) = await company.rows(team, "SELECT status, outcome FROM wakeups WHERE source = 'timer'")
    assert row.status == "skipped"
    assert "the task is" in row.outcome
