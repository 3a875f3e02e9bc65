"""What people decide holds, whatever happens at the same time: cancels, retries, assignments, answers, comments."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from opencognit.contracts import (
    Action,
    Answer,
    AskBoard,
    AssignTask,
    BlockTask,
    CompleteTask,
    CreateTask,
    Report,
    Viewer,
)
from opencognit.db import Database
from opencognit.engine import booking, heartbeat
from opencognit.engine.booking import LOST_LIMIT, Outcome
from opencognit.errors import Refused
from opencognit.states import ApprovalState, CancelMode, GoalState, RunState, TaskState
from opencognit.work import approvals, flow, goals, intake, locks, reports, roster, runs, steering, tasks
from opencognit.work.claims import Claimed
from tests.integration import company


@pytest.fixture
async def team(db: Database) -> Database:
    await company.hire(db, company.spec("ceo"), company.spec("ann"), company.spec("bob"))
    return db


async def _goal(db: Database, *actions: Action, title: str = "g") -> int:
    """Post a goal and let the CEO's plan be these actions."""
    async with db.transaction() as session:
        goal_id = (await goals.post(session, title)).id
    (plan,) = [run for run in await company.claim(db) if run.agent == "ceo"]
    await company.finish(db, plan, Answer(text="plan", actions=actions))
    return goal_id


async def _state(db: Database, goal_id: int) -> GoalState:
    async with db.transaction() as session:
        return GoalState((await goals.get(session, goal_id)).status)


async def _only(db: Database) -> Claimed:
    (run,) = await company.claim(db)
    return run


async def _resumed(db: Database) -> Claimed:
    """A finished task of ann's on which the board has said something: the run that looks at it."""
    task_id = await company.give(db, "ann")
    await company.finish(db, await _only(db))
    async with db.transaction() as session:
        await steering.comment(session, task_id, "and now?", by="board")
    return await _only(db)


@pytest.mark.parametrize("end", ["lost", "retryable", "drained"])
async def test_a_cancelled_goals_run_never_starts_again(team: Database, end: str) -> None:
    """Cancelled, and before its node could stop it the run was lost, failed for later or drained: the task is cancelled."""
    goal_id = await _goal(team, CreateTask(title="a", assignee="ann"))
    run = await _only(team)
    async with team.transaction() as session:
        await goals.cancel(session, goal_id, by="board")
    if end == "lost":
        await company.lapse(team, run.run_id)
        assert await heartbeat.reap(team) == 1
    elif end == "retryable":
        await company.finish(team, run, status=RunState.FAILED, error="busy", retryable=True)
    else:
        await company.finish(team, run, status=RunState.CANCELLED, cancel=CancelMode.DRAIN)
    assert (await company.task(team, run.task_id or 0)).status == TaskState.CANCELLED
    assert await company.claim(team) == []
    assert await company.value(team, "SELECT count(*) FROM wakeups WHERE status = 'queued'") == 0
    assert await _state(team, goal_id) is GoalState.CANCELLED


async def test_a_plan_that_comes_after_the_cancel_makes_nothing(team: Database) -> None:
    """The CEO's answer arrives when the goal is cancelled already: no task, and the run says why."""
    async with team.transaction() as session:
        goal_id = (await goals.post(session, "g")).id
    plan = await _only(team)
    async with team.transaction() as session:
        await goals.cancel(session, goal_id, by="board")
    await company.finish(team, plan, Answer(text="plan", actions=(CreateTask(title="a", assignee="ann"),)))
    assert await company.value(team, "SELECT count(*) FROM tasks WHERE kind = 'work'") == 0
    assert await company.claim(team) == []


@pytest.mark.parametrize("verb", ["retry", "assign", "comment"])
async def test_nothing_starts_inside_a_cancelled_goal(team: Database, verb: str) -> None:
    """Retry and assign are refused naming the way out; a comment is kept and wakes nobody."""
    goal_id = await _goal(team, CreateTask(title="a", assignee="ann"))
    task_id = await company.value(team, "SELECT id FROM tasks WHERE kind = 'work'")
    async with team.transaction() as session:
        await goals.cancel(session, goal_id, by="board")
    if verb == "comment":
        async with team.transaction() as session:
            await steering.comment(session, task_id, "why?", by="board")
    else:
        with pytest.raises(Refused, match="goal reopen"):
            async with team.transaction() as session:
                await (
                    steering.retry(session, task_id, by="board")
                    if verb == "retry"
                    else steering.assign(session, task_id, "bob", by="board")
                )
    assert await company.claim(team) == []


async def test_a_task_made_while_its_blocker_ends_is_not_forgotten(team: Database) -> None:
    """The new link and the blocker's end see each other, in whichever order they commit."""
    blocker = await company.give(team, "ann")
    run = await _only(team)
    outcome = Outcome(RunState.SUCCEEDED, Viewer(agent="ann"), answer=Answer(text="ok"))

    async def make() -> None:
        async with team.transaction() as session:
            await intake.create(session, "after", assignee="bob", after=[blocker], by="board")

    async with team.transaction() as session:
        await booking.book(session, run, outcome, retry=company.RETRY)
        making = asyncio.create_task(make())
        await asyncio.sleep(0.3)
        assert not making.done(), "it waits for the blocker's end"
    await making
    assert (await _only(team)).agent == "bob"


async def test_a_task_comes_after_others_of_its_own_goal_only(team: Database) -> None:
    """Goals are settled one by one: a link across them is refused."""
    await _goal(team, CreateTask(title="a", assignee="ann"))
    other = await company.give(team, "bob")
    with pytest.raises(Refused, match="own goal"):
        async with team.transaction() as session:
            await intake.create(session, "x", goal_id=1, after=[other], by="board")


async def test_a_comment_that_kills_its_node_is_given_up(team: Database) -> None:
    """A run on an ended task is lost again and again: after the limit it stops, and the board is asked."""
    run = await _resumed(team)
    for _ in range(LOST_LIMIT):
        await company.lapse(team, run.run_id)
        await heartbeat.reap(team)
        started = await company.claim(team)
        if not started:
            break
        (run,) = started
    assert await company.claim(team) == []
    assert await company.value(team, "SELECT count(*) FROM approvals WHERE status = 'pending'") == 1


async def test_only_the_assignee_does_the_task(team: Database) -> None:
    """What ann was told before the task went to bob does not let her do it."""
    async with team.transaction() as session:
        await session.execute(text("UPDATE agents SET status = 'paused' WHERE name = 'ann'"))
    task_id = await company.give(team, "ann")
    async with team.transaction() as session:
        await steering.comment(session, task_id, "hi", by="board")
        await steering.assign(session, task_id, "bob", by="board")
        await session.execute(text("UPDATE agents SET status = 'idle'"))
    assert [run.agent for run in await company.claim(team)] == ["bob"]


@pytest.mark.parametrize("action", [BlockTask(reason="cannot"), CreateTask(title="more", assignee="bob")])
async def test_an_impossible_wish_on_a_finished_task_is_noted_and_the_rest_kept(team: Database, action: Action) -> None:
    """A finished task can neither be blocked nor wait for sub-tasks: the words are kept, the task stays done."""
    run = await _resumed(team)
    await company.finish(team, run, Answer(text="my answer", actions=(action,)))
    task = await company.task(team, run.task_id or 0)
    assert (task.status, task.execution_run_id) == (TaskState.DONE, None)
    assert await company.value(team, "SELECT count(*) FROM comments WHERE text = 'my answer'") == 1
    assert await company.value(team, "SELECT jsonb_array_length(notes) FROM runs WHERE id = :id", id=run.run_id) == 1


async def test_a_cancelled_task_is_not_completed_by_a_comments_run(team: Database) -> None:
    """It says that a retry takes it up again."""
    task_id = await company.give(team, "ann")
    async with team.transaction() as session:
        await steering.cancel(session, task_id, by="board")
    async with team.transaction() as session:
        await steering.comment(session, task_id, "hi", by="board")
    run = await _only(team)
    await company.finish(team, run, Answer(text="x", actions=(CompleteTask(result="done after all"),)))
    assert (await company.task(team, task_id)).status == TaskState.CANCELLED
    assert "task retry" in (await company.rows(team, "SELECT notes FROM runs"))[0].notes[0]


async def test_a_goal_whose_plan_is_cancelled_is_cancelled(team: Database) -> None:
    """Not open for ever, so that whoever waits learns of it."""
    async with team.transaction() as session:
        goal_id = (await goals.post(session, "g")).id
    async with team.transaction() as session:
        await steering.cancel(session, 1, by="board")
    assert await _state(team, goal_id) is GoalState.CANCELLED
    async with team.transaction() as session:
        assert await goals.is_over(session, goal_id)


async def test_a_reopened_goals_plan_may_be_cancelled(team: Database) -> None:
    """Then it is what it was: achieved."""
    goal_id = await _goal(team, CreateTask(title="a", assignee="ann"))
    for _ in range(2):
        await company.finish(team, await _only(team))
    async with team.transaction() as session:
        await goals.reopen(session, goal_id, by="board")
    plan = await company.value(team, "SELECT max(id) FROM tasks WHERE kind = 'plan'")
    async with team.transaction() as session:
        await steering.cancel(session, plan, by="board")
    assert await _state(team, goal_id) is GoalState.ACHIEVED


async def test_a_retried_plan_makes_its_goal_open_again(team: Database) -> None:
    """Blocked no longer, and not over, while it is planned."""
    async with team.transaction() as session:
        goal_id = (await goals.post(session, "g")).id
    await company.finish(team, await _only(team), status=RunState.FAILED, error="bad")
    async with team.transaction() as session:
        await steering.retry(session, 1, by="board")
    assert await _state(team, goal_id) is GoalState.OPEN
    while (plan := await _only(team)).task_id != 1:
        await company.finish(team, plan)  # the report on how it was blocked comes first: the CEO does one thing at a time
    async with team.transaction() as session:
        await runs.start_goal(session, plan.run_id, plan.token)
    assert await _state(team, goal_id) is GoalState.PLANNING


async def test_a_comment_is_tried_again_when_its_run_fails_for_the_moment(team: Database) -> None:
    """A person's words on a finished task are not lost to a busy provider: the same waits, then the board is told."""
    run = await _resumed(team)
    await company.finish(team, run, status=RunState.FAILED, error="503", retryable=True)
    assert await company.value(team, "SELECT count(*) FROM wakeups WHERE status = 'queued' AND talk") == 1
    for _ in range(3):
        async with team.transaction() as session:
            await session.execute(text("UPDATE wakeups SET not_before = now() WHERE status = 'queued'"))
        await company.finish(team, await _only(team), status=RunState.FAILED, error="503", retryable=True)
    assert await company.claim(team) == []
    assert await company.value(team, "SELECT count(*) FROM approvals WHERE status = 'pending'") == 1


async def test_a_question_goes_with_its_cause(team: Database) -> None:
    """Assigned by hand and done: the question about who should do it is withdrawn, and answering it does nothing."""
    ask = AskBoard(question="who?", options=approvals.UNASSIGNED_OPTIONS, task_id="new-1")
    await _goal(team, CreateTask(title="a"), CreateTask(title="b", assignee="bob"), ask)
    task_id = await company.value(team, "SELECT id FROM tasks WHERE title = 'a'")
    async with team.transaction() as session:
        await steering.assign(session, task_id, "ann", by="board")
    assert await company.value(team, "SELECT status FROM approvals") == ApprovalState.CANCELLED
    with pytest.raises(Refused, match="decided already"):
        async with team.transaction() as session:
            await approvals.approve(session, 1, option="skip", by="board")


async def test_a_second_question_waits_too(team: Database) -> None:
    """An agent that asks again before the board has answered is not done."""
    task_id = await company.give(team, "ann")
    await company.finish(team, await _only(team), Answer(text="x", actions=(AskBoard(question="one?"),)))
    async with team.transaction() as session:
        await steering.comment(session, task_id, "look again", by="board")
    await company.finish(team, await _only(team), Answer(text="x", actions=(AskBoard(question="two?"),)))
    assert (await company.task(team, task_id)).status == TaskState.BLOCKED


async def test_a_no_reaches_the_agent_that_asked(team: Database) -> None:
    """Rejecting a question tells its agent, with the note, by exactly one run."""
    task_id = await company.give(team, "ann")
    await company.finish(team, await _only(team), Answer(text="x", actions=(AskBoard(question="may I?"),)))
    async with team.transaction() as session:
        await approvals.reject(session, 1, note="too dear", by="board")
    assert (await _only(team)).task_id == task_id
    assert await company.value(team, "SELECT count(*) FROM comments WHERE text LIKE '%no - too dear%'") == 1
    assert await company.claim(team) == []


async def _gives_up(db: Database, agent: str) -> int:
    task_id = await company.give(db, agent)
    for _ in range(4):
        await company.finish(db, await _only(db), status=RunState.FAILED, error="bad", retryable=True)
        async with db.transaction() as session:
            await session.execute(text("UPDATE wakeups SET not_before = now()"))
    return task_id


async def test_a_manager_may_assign_what_was_escalated_to_it(team: Database) -> None:
    """And when it leaves the task blocked, the board is asked."""
    await company.hire(team, company.spec("ceo"), company.spec("ann", reports_to="bob"), company.spec("bob"))
    first = await _gives_up(team, "ann")
    await company.finish(team, await _only(team), Answer(text="x", actions=(AssignTask(task_id=str(first), assignee="bob"),)))
    assert (await company.task(team, first)).assignee == "bob"
    await company.finish(team, await _only(team))
    assert await company.value(team, "SELECT count(*) FROM approvals") == 0
    await _gives_up(team, "ann")
    await company.finish(team, await _only(team), "I looked at it")
    assert await company.value(team, "SELECT count(*) FROM approvals WHERE status = 'pending'") == 1


async def test_stretching_a_lock_and_booking_never_wait_crosswise(team: Database) -> None:
    """Renewal takes runs, booking takes the task and then the run: the lock is stretched in a transaction of its own."""
    task_id = await company.give(team, "ann")
    run = await _only(team)
    async with team.transaction() as booking_session:
        await tasks.locked(booking_session, task_id)
        async with team.transaction() as session:
            await locks.renew(session, "node-a", [(run.run_id, run.token)], lease_s=30)
        stretching = asyncio.create_task(_stretch(team, run.run_id))
        await locks.fence(booking_session, run.run_id, run.token)
    await stretching


async def _stretch(db: Database, run_id: int) -> None:
    async with db.transaction() as session:
        await locks.stretch(session, [run_id], ttl_s=1800)


async def test_a_colleague_does_not_cut_a_retrys_wait_short_but_the_board_does(team: Database) -> None:
    """The provider said two hours: bob's comment waits with it, the board's does not."""
    task_id = await company.give(team, "ann")
    await company.finish(team, await _only(team), status=RunState.FAILED, error="429", retryable=True, retry_after_s=7200.0)
    async with team.transaction() as session:
        await steering.comment(session, task_id, "ping", by="bob", depth=1)
    assert await company.claim(team) == []
    async with team.transaction() as session:
        await steering.comment(session, task_id, "now", by="board")
    assert (await _only(team)).attempt == 2


async def test_a_sub_task_that_nobody_can_do_asks_the_board(team: Database) -> None:
    """As the CEO's items do; skipping it lets the parent go on."""
    parent = await company.give(team, "ann")
    await company.finish(team, await _only(team), Answer(text="x", actions=(CreateTask(title="c", skills=("quantum",)),)))
    assert await company.claim(team) == []
    async with team.transaction() as session:
        await approvals.approve(session, 1, option="skip", by="board")
    assert (await _only(team)).task_id == parent


async def test_an_old_report_is_not_shown_for_a_goal_that_goes_on(team: Database) -> None:
    """After a retry the report is made from what is now."""
    goal_id = await _goal(team, CreateTask(title="a", assignee="ann"))
    await company.finish(team, await _only(team), status=RunState.FAILED, error="bad")
    await company.finish(team, await _only(team), Answer(text="x", actions=(Report(text="OLD"),)))
    task_id = await company.value(team, "SELECT id FROM tasks WHERE title = 'a'")
    async with team.transaction() as session:
        await steering.retry(session, task_id, by="board")
    async with team.transaction() as session:
        assert "OLD" not in await reports.current(session, await goals.get(session, goal_id))


async def test_work_of_an_agent_that_left_blocks_its_goal_and_says_so(team: Database) -> None:
    """Nobody would ever start it; with the file back, the goal goes on."""
    goal_id = await _goal(team, CreateTask(title="a", assignee="ann"))
    everyone = company.spec("ceo"), company.spec("ann"), company.spec("bob")
    for specs, state in ((everyone[::2], GoalState.BLOCKED), (everyone, GoalState.ACTIVE)):
        await company.hire(team, *specs)
        async with team.transaction() as session:
            await flow.reconsider(session, ["ann"])
        assert await _state(team, goal_id) is state


async def test_a_retrys_wait_holds_against_what_a_colleague_said_during_the_run(team: Database) -> None:
    """bob's comment waits for the run's end already; the run fails for two hours: it waits those with it."""
    task_id = await company.give(team, "ann")
    run = await _only(team)
    async with team.transaction() as session:
        await steering.comment(session, task_id, "ping", by="bob", depth=1)
    await company.finish(team, run, status=RunState.FAILED, error="429", retryable=True, retry_after_s=7200.0)
    assert await company.claim(team) == []


async def test_the_boards_word_during_a_run_is_not_put_off_by_its_failure(team: Database) -> None:
    """Who wrote while the run was on is heard now, though the provider is to be left alone for two hours."""
    task_id = await company.give(team, "ann")
    run = await _only(team)
    async with team.transaction() as session:
        await steering.comment(session, task_id, "use the other key", by="board")
    await company.finish(team, run, status=RunState.FAILED, error="429", retryable=True, retry_after_s=7200.0)
    assert (await _only(team)).task_id == task_id


@pytest.mark.parametrize("done", [False, True])
async def test_a_cancelled_goal_answers_nothing_that_was_said_before(team: Database, done: bool) -> None:
    """A comment that waits, on an open task or a finished one, starts no run any more."""
    goal_id = await _goal(team, CreateTask(title="a", assignee="ann"), CreateTask(title="b", assignee="ann"))
    task_id = await company.value(team, "SELECT id FROM tasks WHERE title = 'a'")
    if done:
        await company.finish(team, await _only(team))
    async with team.transaction() as session:
        await steering.comment(session, task_id, "hm", by="board")
    async with team.transaction() as session:
        await goals.cancel(session, goal_id, by="board")
    assert await company.claim(team) == []


async def test_a_cancelled_task_answers_nothing_that_was_said_before(team: Database) -> None:
    """The board's own comment too: the cancel came after it."""
    task_id = await company.give(team, "ann")
    async with team.transaction() as session:
        await steering.comment(session, task_id, "hm", by="board")
    async with team.transaction() as session:
        await steering.cancel(session, task_id, by="board")
    assert await company.claim(team) == []


async def test_a_cancelled_goal_stops_the_run_that_answers_a_comment(team: Database) -> None:
    """Also on a task that is done."""
    goal_id = await _goal(team, CreateTask(title="a", assignee="ann"), CreateTask(title="b", assignee="bob"))
    task_id = await company.value(team, "SELECT id FROM tasks WHERE title = 'a'")
    for run in await company.claim(team):
        if run.task_id == task_id:
            await company.finish(team, run)
    async with team.transaction() as session:
        await steering.comment(session, task_id, "hm", by="board")
    run = await _only(team)
    async with team.transaction() as session:
        await goals.cancel(session, goal_id, by="board")
    assert await company.value(team, "SELECT cancel_mode FROM runs WHERE id = :id", id=run.run_id) == CancelMode.TASK


async def _raised(db: Database) -> int:
    """A task of ann's that was escalated to bob; return its id."""
    await company.hire(db, company.spec("ceo"), company.spec("ann", reports_to="bob"), company.spec("bob"))
    return await _gives_up(db, "ann")


ABOUT = "SELECT status FROM tasks WHERE about_id = :id"


@pytest.mark.parametrize("end", ["cancelled", "done"])
async def test_an_escalation_ends_with_what_it_is_about(team: Database, end: str) -> None:
    """The board was quicker than the manager: no run is spent on a task that is over."""
    task_id = await _raised(team)
    async with team.transaction() as session:
        await roster.pause(session, "bob", by="board")
        await (steering.cancel if end == "cancelled" else steering.retry)(session, task_id, by="board")
    if end == "done":
        await company.finish(team, await _only(team))
    assert (await company.task(team, task_id)).status == end
    assert await company.value(team, ABOUT, id=task_id) == TaskState.CANCELLED
    async with team.transaction() as session:
        await roster.resume(session, "bob", by="board")
    assert await company.claim(team) == []


async def test_a_manager_at_work_on_a_task_that_ends_is_stopped(team: Database) -> None:
    """The escalation's run is asked to stop, and its task ends with it."""
    task_id = await _raised(team)
    run = await _only(team)
    async with team.transaction() as session:
        await steering.cancel(session, task_id, by="board")
    assert await company.value(team, "SELECT cancel_mode FROM runs WHERE id = :id", id=run.run_id) == CancelMode.TASK
    await company.finish(team, run, status=RunState.CANCELLED, cancel=CancelMode.TASK)
    assert await company.value(team, ABOUT, id=task_id) == TaskState.CANCELLED


async def test_a_task_and_its_escalation_that_end_at_once_do_not_wait_crosswise(team: Database) -> None:
    """While the manager's end is being booked, the task's end passes the escalation by."""
    task_id = await _raised(team)
    run = await _only(team)
    async with team.transaction() as booking_session:
        await tasks.locked(booking_session, run.task_id or 0)
        async with asyncio.timeout(10), team.transaction() as session:
            await steering.cancel(session, task_id, by="board")
        await tasks.locked(booking_session, task_id)
    await company.finish(team, run)
    assert await company.value(team, ABOUT, id=task_id) == TaskState.DONE


@pytest.mark.parametrize(
    ("first", "second", "holds"),
    [
        (CancelMode.TASK, CancelMode.RUN, CancelMode.TASK),
        (CancelMode.TASK, CancelMode.RELEASE, CancelMode.TASK),
        (CancelMode.RUN, CancelMode.RELEASE, CancelMode.RUN),
        (CancelMode.RUN, CancelMode.TASK, CancelMode.TASK),
        (CancelMode.RELEASE, CancelMode.TASK, CancelMode.TASK),
    ],
)
async def test_the_stronger_of_two_wishes_holds(team: Database, first: CancelMode, second: CancelMode, holds: CancelMode) -> None:
    """Whichever came first: what is called off does not start again."""
    await company.give(team, "ann")
    run = await _only(team)
    for mode in (first, second):
        async with team.transaction() as session:
            await locks.cancel(session, run.run_id, mode, "board")
    assert await company.value(team, "SELECT cancel_mode FROM runs") == holds


async def test_releasing_a_task_whose_run_is_on_leaves_the_lock_to_its_node(team: Database) -> None:
    """Nobody else may start it before the node has stopped it."""
    task_id = await company.give(team, "ann")
    run = await _only(team)
    async with team.transaction() as session:
        await steering.release(session, task_id, by="board")
    task = await company.task(team, task_id)
    assert (task.status, task.execution_run_id) == (TaskState.IN_PROGRESS, run.run_id)
    assert await company.claim(team) == []
    assert await company.value(team, "SELECT cancel_mode FROM runs") == CancelMode.RELEASE


async def test_a_question_is_withdrawn_when_its_task_is_done(team: Database) -> None:
    """The board wrote instead of answering, the agent did it: nothing is left to decide."""
    await company.give(team, "ann")
    await company.finish(team, await _only(team), Answer(text="x", actions=(AskBoard(question="one or two?"),)))
    async with team.transaction() as session:
        await steering.comment(session, 1, "just do it", by="board")
    await company.finish(team, await _only(team))
    assert await company.value(team, "SELECT status FROM approvals") == ApprovalState.CANCELLED
