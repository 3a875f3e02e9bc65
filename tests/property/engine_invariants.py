"""What is true of the engine's tables after every step, whatever was done and by whom. Pure: compares looks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from opencognit.engine.booking import LOST_LIMIT
from opencognit.states import ApprovalState, GoalState, RunState, TaskKind, TaskState, WakeupState
from tests.integration.company import RETRY
from tests.property.engine_world import LIMITS, Look, Row

ENDED = (TaskState.DONE, TaskState.CANCELLED)
OPEN_PLAN = (TaskState.TODO, TaskState.IN_PROGRESS)
REOPENED = {(TaskState.BLOCKED, TaskState.TODO), (TaskState.BLOCKED, TaskState.BACKLOG)}
"""What the board's word makes of a task on which a run is looking again."""
MOVING = (TaskState.TODO, TaskState.IN_PROGRESS, TaskState.IN_REVIEW)


def one_run_holds_a_task(before: Look, now: Look) -> None:
    """A running run holds its task under its token, every held task is held by a running run, and in progress means just that."""
    held = {run["task_id"]: run for run in now.running() if run["task_id"] is not None}
    assert len(held) == sum(run["task_id"] is not None for run in now.running()), "two live runs on one task"
    for task in now.tasks.values():
        run = held.get(task["id"])
        assert task["execution_run_id"] == (run["id"] if run else None), f"task {task['id']} is locked by somebody else"
        assert (task["status"] == TaskState.IN_PROGRESS) == (run is not None and run["resumes_status"] is None), task
        if run is not None:
            assert (task["execution_agent_key"], task["lock_token"]) == (run["agent"], run["token"]), task
            resumed = run["resumes_status"]
            assert resumed in (None, task["status"]) or (resumed, task["status"]) in REOPENED, (resumed, task)
            assert run["resumes_status"] is not None or run["agent"] == task["assignee"], "somebody does another's work"


def limits_hold(before: Look, now: Look) -> None:
    """No agent and no adapter has more runs than it may, and each has a place of its own."""
    running = now.running()
    for agent, count in Counter(run["agent"] for run in running).items():
        assert count <= now.agents[agent]["max_concurrent_runs"], f"{count} runs of {agent}"
    for adapter, count in Counter(run["adapter"] for run in running).items():
        assert count <= LIMITS.get(adapter, count), f"{count} runs of {adapter}"
    assert len({(run["agent"], run["slot"]) for run in running}) == len(running)


def what_has_ended_stays(before: Look, now: Look) -> None:
    """No ended run and no ended wakeup changes any more, and no row vanishes."""
    for run in before.runs.values():
        assert run["status"] == RunState.RUNNING or now.runs[run["id"]] == run, f"run {run['id']} was overwritten"
    for wakeup in before.wakeups.values():
        assert wakeup["status"] in _LIVE_WAKEUP or now.wakeups[wakeup["id"]] == wakeup, f"wakeup {wakeup['id']} was overwritten"
    for table in ("tasks", "goals", "runs", "wakeups", "approvals"):
        assert getattr(before, table).keys() <= getattr(now, table).keys(), f"a row of {table} is gone"


_LIVE_WAKEUP = (WakeupState.QUEUED, WakeupState.CLAIMED)


def wakeups_are_conserved(before: Look, now: Look) -> None:
    """A wakeup is queued, or claimed by one running run, or ended with an outcome; one queued per agent and subject."""
    claimed = Counter(w["run_id"] for w in now.wakeups.values() if w["status"] == WakeupState.CLAIMED)
    assert claimed == Counter(run["id"] for run in now.running())
    queued = [(wakeup["agent"], wakeup["subject"]) for wakeup in now.queued()]
    assert len(set(queued)) == len(queued), "two wakeups wait for the same"
    for wakeup in now.wakeups.values():
        over = wakeup["status"] not in _LIVE_WAKEUP
        assert over == (wakeup["ended_at"] is not None) == bool(wakeup["outcome"]), wakeup
        assert (wakeup["run_id"] is not None) == (wakeup["status"] in (WakeupState.CLAIMED, WakeupState.DONE)), wakeup
        if wakeup["status"] == WakeupState.DONE:
            assert now.runs[wakeup["run_id"]]["status"] != RunState.RUNNING, wakeup
    answered = Counter(w["run_id"] for w in now.wakeups.values() if w["run_id"] is not None)
    assert answered == Counter(now.runs.keys()), "a run without a wakeup, or a wakeup that was run twice"


def ready_work_is_asked_for(before: Look, now: Look) -> None:
    """A ready task has a queued wakeup of its assignee; it became ready when everything before it had ended."""
    asked = {(wakeup["agent"], wakeup["task_id"]) for wakeup in now.queued()}
    for task in now.tasks.values():
        if task["status"] == TaskState.TODO:
            assert (task["assignee"], task["id"]) in asked, f"nobody is asked for task {task['id']}"
            old = before.tasks.get(task["id"])
            if old is None or old["status"] not in (TaskState.TODO, TaskState.IN_PROGRESS):
                assert all(other["status"] in ENDED for other in before_it(now, task)), f"task {task['id']} is ready too early"


def nothing_waits_for_nothing(before: Look, now: Look) -> None:
    """A task in the backlog waits for a task that has not ended, or for an assignee, and says so."""
    for task in now.tasks.values():
        if task["status"] == TaskState.BACKLOG and task["assignee"] is not None and not now.is_called_off(task):
            assert any(other["status"] not in ENDED for other in before_it(now, task)), f"task {task['id']} was not released"
        if task["status"] in (TaskState.BACKLOG, TaskState.BLOCKED) and task["assignee"] is None:
            assert task["reason"], task


def before_it(now: Look, task: Row) -> Iterable[Row]:
    """Return the tasks that must end before this one may start: those before it, and its children."""
    yield from (now.tasks[after] for waiting, after in now.links if waiting == task["id"])
    yield from (other for other in now.tasks.values() if other["parent_id"] == task["id"])


def tokens_rise(before: Look, now: Look) -> None:
    """The token of a task's lock never falls, and rises with each new run."""
    for task in before.tasks.values():
        old, new = task["lock_token"] or 0, now.tasks[task["id"]]["lock_token"] or 0
        assert new >= old, f"task {task['id']}: token {old} became {new}"
        taken = now.tasks[task["id"]]["execution_run_id"] not in (None, task["execution_run_id"])
        assert new > old or not taken, f"task {task['id']} was taken again under token {old}"


def goals_follow_their_tasks(before: Look, now: Look) -> None:
    """A goal's state is what its tasks say."""
    for goal in now.goals.values():
        tasks = [task for task in now.tasks.values() if task["goal_id"] == goal["id"]]
        states = [(task["id"], task["kind"], task["status"], task["assignee"]) for task in tasks]
        assert goal["status"] in _derived(now, goal, tasks), f"goal {goal['id']} is {goal['status']} with {states}"


def _derived(now: Look, goal: Row, tasks: list[Row]) -> set[GoalState]:
    counted = [task for task in tasks if task["kind"] not in (TaskKind.REPORT, TaskKind.CHAT)]
    work = [task["status"] for task in counted if task["kind"] == TaskKind.WORK]
    if goal["status"] == GoalState.CANCELLED:
        return {GoalState.CANCELLED}
    plans = [task for task in counted if task["kind"] == TaskKind.PLAN and task["status"] in OPEN_PLAN]
    if plans:
        stuck = {GoalState.BLOCKED} if all(_is_left(now, task) for task in plans) else set()
        return {GoalState.OPEN, GoalState.PLANNING, GoalState.ACTIVE} | stuck
    if any(task["status"] in MOVING and not _is_left(now, task) for task in counted):
        return {GoalState.ACTIVE}
    if any(task["status"] not in ENDED for task in counted):
        return {GoalState.BLOCKED}
    if not work:
        return {GoalState.BLOCKED if TaskState.DONE in [task["status"] for task in counted] else GoalState.CANCELLED}
    return {GoalState.ACHIEVED if TaskState.DONE in work else GoalState.CANCELLED}


def _is_left(now: Look, task: Row) -> bool:
    """Ready for an agent that does not work here any more."""
    return bool(task["status"] == TaskState.TODO and not now.agents[task["assignee"]]["present"])


def who_gives_up_is_heard(before: Look, now: Look) -> None:
    """A task blocked after its last attempt has an open escalation, and when that has ended a question to the board."""
    for task in now.tasks.values():
        old = before.tasks.get(task["id"])
        fresh = old is not None and old["status"] != TaskState.BLOCKED and task["status"] == TaskState.BLOCKED
        if fresh and (task["failures"] > len(RETRY.delays_s) or task["lost"] >= LOST_LIMIT):
            assert is_known(now, task), f"task {task['id']} was given up and nobody knows"
        if task["about_id"] is not None and old is not None and old["status"] != task["status"] == TaskState.DONE:
            about = now.tasks[task["about_id"]]
            assert about["status"] != TaskState.BLOCKED or is_known(now, about), f"escalation {task['id']} ended and nobody knows"


def is_known(now: Look, task: Row) -> bool:
    """Return whether somebody is asked about a task."""
    raised = any(one["about_id"] == task["id"] and one["status"] not in ENDED for one in now.tasks.values())
    pending = (one for one in now.approvals.values() if one["status"] == ApprovalState.PENDING)
    return raised or any(one["task_id"] == task["id"] for one in pending)


INVARIANTS: tuple[Callable[[Look, Look], None], ...] = (
    one_run_holds_a_task,
    limits_hold,
    what_has_ended_stays,
    wakeups_are_conserved,
    ready_work_is_asked_for,
    nothing_waits_for_nothing,
    tokens_rise,
    goals_follow_their_tasks,
    who_gives_up_is_heard,
)


def check(before: Look, now: Look) -> None:
    """Raise AssertionError for the first thing that is not as it must be."""
    for invariant in INVARIANTS:
        invariant(before, now)
