"""What stops by itself: retries, loops, rings, floods; and who is told."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from opencognit.contracts import Answer, AssignTask, Comment, CreateTask
from opencognit.db import Database
from opencognit.engine import heartbeat
from opencognit.engine.booking import LOST_LIMIT
from opencognit.states import CancelMode, GoalState, Priority, RunState, TaskState, WakeupSource
from opencognit.work import approvals, beats, claims, flow, goals, locks, planning, roster, steering, wakeups
from opencognit.work import company as board
from opencognit.work.claims import Claimed
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
        await wakeups.request(session, "bob", WakeupSource.TIMER)
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


# --- what would go round for ever ----------------------------------------------------------------------------------------


async def _run_out(db: Database, answers: dict[str, Answer | None], *, at_most: int) -> int:
    """Let each agent say its piece (None: it fails for the moment) until nothing is due; return how many runs that took."""
    count = 0
    while count < at_most:
        await company.hasten(db)
        started = await company.claim(db)
        if not started:
            break
        for run in started:
            count += 1
            said = answers[run.agent]
            if said is None:
                await company.finish(db, run, status=RunState.FAILED, error="503", retryable=True)
            else:
                await company.finish(db, run, said)
    return count


async def _pending(db: Database) -> int:
    return int(await company.value(db, "SELECT count(*) FROM approvals WHERE status = 'pending'"))


async def test_what_was_escalated_and_handed_back_ends_at_the_board(team: Database) -> None:
    """lead has ann do it, ann wants lead to do it: the escalation's parts are not escalated again, the board is asked."""
    await company.give(team, "lead")
    answers: dict[str, Answer | None] = {
        "lead": Answer(text="", actions=(CreateTask(title="do it", assignee="ann"),)),
        "ann": Answer(text="", actions=(CreateTask(title="do it", assignee="lead"),)),
    }
    assert await _run_out(team, answers, at_most=100) < 20
    assert await _pending(team) >= 1


@pytest.mark.parametrize("how", ["hands it back", "fails"])
async def test_a_manager_that_assigns_it_again_each_time_is_asked_once(team: Database, how: str) -> None:
    """The second time that the same task is stuck it is the board's."""
    task_id = await company.give(team, "ann" if how == "fails" else "lead")
    if how == "hands it back":
        (run,) = await company.claim(team)
        await company.finish(team, run, Answer(text="", actions=(CreateTask(title="part", assignee="ann"),)))
        task_id = await company.value(team, "SELECT id FROM tasks WHERE title = 'part'")
    again = Answer(text="again", actions=(AssignTask(task_id=str(task_id), assignee="ann"),))
    back = Answer(text="no", actions=(CreateTask(title="back", assignee="lead"),))
    assert await _run_out(team, {"lead": again, "ann": None if how == "fails" else back}, at_most=100) < 20
    assert await company.value(team, "SELECT count(*) FROM tasks WHERE about_id = :id", id=task_id) == 1
    assert await _pending(team) == 1


async def test_a_paused_manager_is_not_waited_for(team: Database) -> None:
    """What is stuck goes to the board when who it reports to takes nothing."""
    async with team.transaction() as session:
        await roster.pause(session, "lead", by="board")
    await company.give(team, "ann")
    await _fail_for_good(team, "ann")
    assert await _pending(team) == 1


async def test_one_task_does_not_become_thousands(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that splits whatever it gets: bounded below one root, and the board is asked once in all."""
    monkeypatch.setattr(planning, "TASKS_PER_ROOT", 20)
    await company.hire(db, company.spec("ceo"), company.spec("ann", max_concurrent_runs=10))
    first, other = await company.give(db, "ann"), await company.give(db, "ann")
    parts = Answer(text="", actions=tuple(CreateTask(title=f"part {n}", assignee="ann") for n in range(3)))
    assert await _run_out(db, {"ann": parts}, at_most=200) == 2 * 21
    assert await company.value(db, "SELECT count(*) FROM tasks") == 2 * 21
    subjects = {row.subject for row in await company.rows(db, "SELECT subject FROM approvals")}
    assert subjects == {f"split:{first}", f"split:{other}"}
    async with db.transaction() as session:
        (question, _) = await approvals.listed(session, pending_only=True)
        await approvals.approve(session, question.id, option="retry", by="board")
    assert await _run_out(db, {"ann": parts}, at_most=200) == 1
    assert await company.value(db, "SELECT count(*) FROM approvals") == 2


async def test_splitting_too_deep_asks_once_too(db: Database) -> None:
    """Two parts at the deepest level want to be split: both are blocked, the question is one."""
    await company.hire(db, company.spec("ceo"), company.spec("ann", max_concurrent_runs=40))
    await company.give(db, "ann")
    two = Answer(text="", actions=(CreateTask(title="a", assignee="ann"), CreateTask(title="b", assignee="ann")))
    await _run_out(db, {"ann": two}, at_most=200)
    assert await company.value(db, "SELECT max(depth) FROM tasks") == planning.SUBTASK_DEPTH
    blocked = await company.value(db, "SELECT count(*) FROM tasks WHERE status = 'blocked'")
    assert blocked == 2**planning.SUBTASK_DEPTH
    assert await company.value(db, "SELECT count(*) FROM approvals") == 1


async def test_words_between_agents_grow_deeper(team: Database) -> None:
    """What an agent says in a run that was caused by words is one deeper, and a retry of that run is as deep as it was."""
    first, second = await company.give(team, "ann"), await company.give(team, "bob")
    for run in await company.claim(team):
        await company.finish(team, run)
    async with team.transaction() as session:
        await steering.comment(session, first, "and?", by="bob", depth=3)
    depth = "SELECT depth FROM wakeups WHERE status = 'queued'"
    (run,) = await company.claim(team)
    await company.finish(team, run, status=RunState.FAILED, error="503", retryable=True)
    assert await company.value(team, depth) == 3
    await company.hasten(team)
    (run,) = await company.claim(team)
    await company.finish(team, run, Answer(text="", actions=(Comment(task_id=str(second), text="well"),)))
    assert await company.value(team, depth) == 4


# --- wakes without a task ------------------------------------------------------------------------------------------------


async def _woken(db: Database) -> Claimed:
    async with db.transaction() as session:
        await roster.wake(session, "bob", by="board")
    (run,) = await company.claim(db)
    assert run.task_id is None
    return run


async def _again(db: Database) -> Claimed:
    await company.hasten(db)
    (run,) = await company.claim(db)
    return run


async def test_a_wake_without_a_task_is_tried_as_often_as_a_task_and_then_told(team: Database) -> None:
    """After 5, 15, 45 minutes, or as late as the provider says; the fourth failure asks the board, whose yes wakes it again."""
    run, waits = await _woken(team), []
    for wish in (None, 7200.0, None):
        await company.finish(team, run, status=RunState.FAILED, error="429", retryable=True, retry_after_s=wish)
        query = "SELECT round(extract(epoch FROM not_before - now())) FROM wakeups WHERE status = 'queued'"
        waits.append(round(int(await company.value(team, query)), -1))
        assert await _pending(team) == 0
        run = await _again(team)
    assert waits == [300, 7200, 2700]
    await company.finish(team, run, status=RunState.FAILED, error="429", retryable=True)
    async with team.transaction() as session:
        (question,) = await approvals.listed(session, pending_only=True)
        assert "429" in question.question
        await approvals.approve(session, question.id, option="retry", by="board")
    run = await _again(team)
    await company.finish(team, run, status=RunState.FAILED, error="429", retryable=True)
    assert await _pending(team) == 0, "a person's new wake starts anew"
    await company.finish(team, await _again(team))
    await company.hasten(team)
    assert await company.claim(team) == []


async def test_a_wake_that_cannot_be_helped_is_told_at_once(team: Database) -> None:
    """A failure that waiting does not mend is not tried again; leaving it wakes nobody."""
    await company.finish(team, await _woken(team), status=RunState.FAILED, error="no such key")
    await company.hasten(team)
    assert await company.claim(team) == []
    async with team.transaction() as session:
        (question,) = await approvals.listed(session, pending_only=True)
        await approvals.approve(session, question.id, option="leave", by="board")
    assert await company.claim(team) == []


async def test_a_wake_that_kills_its_nodes_ends_and_is_told(team: Database) -> None:
    """The third loss in a row is the last; how deep the wake was stays what it was."""
    run = await _woken(team)
    for number in range(LOST_LIMIT):
        assert (await _pending(team), run.depth) == (0, 0)
        await company.lose(team, run)
        if number < LOST_LIMIT - 1:
            run = await _again(team)
    assert await company.value(team, "SELECT count(*) FROM wakeups WHERE status = 'queued'") == 0
    assert await _pending(team) == 1


async def test_losses_of_a_wake_count_in_a_row(team: Database) -> None:
    """A failure in between was told by a living node."""
    run = await _woken(team)
    for _ in range(LOST_LIMIT - 1):
        await company.lose(team, run)
        run = await _again(team)
    await company.finish(team, run, status=RunState.FAILED, error="503", retryable=True)
    run = await _again(team)
    for _ in range(LOST_LIMIT - 1):
        await company.lose(team, run)
        run = await _again(team)
    assert await _pending(team) == 0


@pytest.mark.parametrize(("mode", "runs"), [(CancelMode.RUN, 0), (CancelMode.RELEASE, 1)])
async def test_a_lost_wake_that_was_cancelled_does_not_come_back(team: Database, mode: CancelMode, runs: int) -> None:
    """What a person wanted of it holds, also when its node dies first."""
    run = await _woken(team)
    async with team.transaction() as session:
        await locks.cancel(session, run.run_id, mode, "board")
    await company.lose(team, run)
    assert len(await company.claim(team)) == runs


async def test_what_a_person_asked_for_never_expires(team: Database) -> None:
    """Nor does the next try of it: the agent was away for days, and then does it."""
    await company.finish(team, await _woken(team), status=RunState.FAILED, error="503", retryable=True)
    async with team.transaction() as session:
        await roster.wake(session, "bob", by="board")
        await session.execute(text("UPDATE wakeups SET not_before = now() - interval '9 days' WHERE status = 'queued'"))
    await heartbeat.beat(team)
    assert await company.value(team, "SELECT count(*) FROM wakeups WHERE status = 'queued'") == 2


async def test_wakes_do_not_age_while_the_company_is_paused(team: Database) -> None:
    """A weekend's pause costs no wake, and afterwards its day begins anew."""
    async with team.transaction() as session:
        await wakeups.request(session, "bob", WakeupSource.TIMER)
        await board.pause(session, by="board")
        await session.execute(text("UPDATE wakeups SET not_before = now() - interval '50 h'"))
    await heartbeat.beat(team)
    async with team.transaction() as session:
        await roster.pause(session, "bob", by="board")
        await board.resume(session, by="board")
    await heartbeat.beat(team)
    async with team.transaction() as session:
        await roster.resume(session, "bob", by="board")
    assert len(await company.claim(team)) == 1
