"""What follows from a task's change: who becomes ready, who is woken, how the goal stands. Owns the goal's state.

Callers hold the lock of the task's goal (tasks.locked), so that two last tasks never miss each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import events
from opencognit.db import notify
from opencognit.errors import Refused
from opencognit.events import SYSTEM, Happened
from opencognit.models import Approval, Goal, Run, Task
from opencognit.states import (
    GOAL_ENDED,
    GOAL_STEPS,
    TASK_ENDED,
    ApprovalState,
    CancelMode,
    GoalState,
    Priority,
    RunState,
    TaskKind,
    TaskState,
    WakeupSource,
    step,
)
from opencognit.work import locks, roster, tasks, wakeups

STALE_LIMIT = 5
"""So many runs in a row that change nothing on a task are enough: then only the board wakes its agent again."""
CAUSE_LIMIT = 10
"""So many agents in a row may be woken by each other's words; then the board has to want it."""

READY = text("""
-- Everything before it has ended, and so have its children.
SELECT NOT EXISTS (SELECT 1 FROM task_dependencies d JOIN tasks b ON b.id = d.after_id
                    WHERE d.task_id = :task_id AND b.status NOT IN ('done', 'cancelled'))
   AND NOT EXISTS (SELECT 1 FROM tasks c WHERE c.parent_id = :task_id AND c.status NOT IN ('done', 'cancelled'))
""")


async def is_called_off(session: AsyncSession, task: Task) -> bool:
    """Return whether the task's goal was cancelled: then nothing of it may start any more."""
    if task.goal_id is None:
        return False
    status = (await session.scalars(select(Goal.status).where(Goal.id == task.goal_id))).one()
    return status == GoalState.CANCELLED


async def settle_in(session: AsyncSession, task: Task, source: WakeupSource, *, by: str, cause_run_id: int | None = None) -> bool:
    """Make a waiting task ready if nothing stands before it and somebody has it, and wake that one; return whether.

    Nothing becomes ready under a goal that was called off, whatever leads here.
    """
    if task.assignee is None or await is_called_off(session, task):
        return False
    if not (await session.execute(READY, {"task_id": task.id})).scalar_one():
        return False
    await tasks.change(session, task, TaskState.TODO, actor=by)
    await wakeups.request(
        session,
        task.assignee,
        source,
        task_id=task.id,
        by=by,
        priority=Priority(task.priority),
        cause_run_id=cause_run_id,
    )
    return True


async def move(
    session: AsyncSession,
    task: Task,
    wanted: TaskState,
    *,
    reason: str | None = None,
    actor: str = SYSTEM,
    cause_run_id: int | None = None,
) -> None:
    """Change a locked task's state and let everything follow from it, up to the goal."""
    await tasks.change(session, task, wanted, reason=reason, actor=actor)
    if wanted in TASK_ENDED or wanted is TaskState.BLOCKED:
        await wakeups.skip(session, task.id, f"the task is {wanted}")
    if wanted is TaskState.CANCELLED:  # whoever calls it off wants no answer to what was said before
        await wakeups.drop(session, task.id, "the task is cancelled")
    if wanted in TASK_ENDED:
        await withdraw_questions(session, Approval.task_id == task.id, f"the task is {wanted}")
        await release_waiting(session, task.id, task.parent_id, by=actor, cause_run_id=cause_run_id)
        if task.attempt:  # what was never tried was never escalated
            await _withdraw_escalations(session, task, f"task {task.id} is {wanted}", actor)
    if task.goal_id is not None:
        await settle_goal(session, task.goal_id)


async def _withdraw_escalations(session: AsyncSession, about: Task, why: str, actor: str) -> None:
    """Call off what was raised about a task that has ended: nobody has to decide about it any more.

    One that another transaction holds is ending itself: waiting for it, with its task held here, could be for ever.
    """
    query = select(Task).where(Task.about_id == about.id, Task.status.not_in(TASK_ENDED)).order_by(Task.id)
    query = query.with_for_update(key_share=True, skip_locked=True).execution_options(populate_existing=True)
    for raised in (await session.scalars(query)).all():
        if raised.execution_run_id is None:
            await move(session, raised, TaskState.CANCELLED, reason=why, actor=actor)
        else:
            await locks.cancel(session, raised.execution_run_id, CancelMode.TASK, actor)
            await notify(session, "cancel")


async def release_waiting(
    session: AsyncSession, task_id: int, parent_id: int | None, *, by: str, cause_run_id: int | None = None
) -> None:
    """Make ready what waited for an ended task, and its parent if that waits for its children."""
    for waiting in await _dependents(session, task_id):
        await settle_in(session, waiting, WakeupSource.DEPENDENCY, by=by, cause_run_id=cause_run_id)
    if parent_id is not None:
        for parent in await _locked_backlog(session, [parent_id]):
            await settle_in(session, parent, WakeupSource.CHILDREN, by=by, cause_run_id=cause_run_id)


async def _dependents(session: AsyncSession, task_id: int) -> Sequence[Task]:
    """Lock the waiting tasks first, judge after: whoever comes second sees what the first has committed."""
    query = text("SELECT task_id FROM task_dependencies WHERE after_id = :task_id")
    ids = (await session.execute(query, {"task_id": task_id})).scalars().all()
    return await _locked_backlog(session, ids)


async def _locked_backlog(session: AsyncSession, ids: Sequence[int]) -> Sequence[Task]:
    if not ids:
        return []
    query = (
        select(Task)
        .where(Task.id.in_(ids), Task.status == TaskState.BACKLOG)
        .order_by(Task.id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    return (await session.scalars(query)).all()


COUNTS = text("""
-- What waits for an agent whose file is gone does not move: somebody has to assign it.
SELECT count(*) FILTER (WHERE status IN ('in_progress', 'in_review') OR status = 'todo' AND present) AS moving,
       count(*) FILTER (WHERE status IN ('backlog', 'blocked') OR status = 'todo' AND NOT present) AS stuck,
       count(*) FILTER (WHERE status = 'done' AND kind = 'work') AS done,
       count(*) FILTER (WHERE kind = 'work') AS work,
       bool_or(kind = 'plan' AND status IN ('todo', 'in_progress')) AS planning,
       bool_or(kind = 'plan' AND status = 'done') AS planned,
       string_agg(id::text || ' (' || left(CASE WHEN present THEN reason ELSE assignee || ' works here no more' END, 120) || ')',
                  '; ' ORDER BY id)
         FILTER (WHERE status = 'blocked' OR status = 'backlog' AND assignee IS NULL OR status = 'todo' AND NOT present) AS why
  FROM (SELECT t.*, coalesce(a.present, true) AS present FROM tasks t LEFT JOIN agents a ON a.name = t.assignee
         WHERE t.goal_id = :goal_id AND t.kind NOT IN ('report', 'chat')) AS of_goal
""")


async def settle_goal(session: AsyncSession, goal_id: int) -> None:
    """Derive the goal's state from its tasks, and ask the CEO for a report when it has come to an end."""
    goal = await lock_goal(session, goal_id)
    if goal.status == GoalState.CANCELLED:
        return
    row = (await session.execute(COUNTS, {"goal_id": goal_id})).one()
    reason = ""
    if row.planning and not row.work:
        wanted = GoalState.OPEN if goal.status == GoalState.BLOCKED else GoalState(goal.status)
    elif row.moving:
        wanted = GoalState.ACTIVE
    elif row.stuck:
        wanted, reason = (
            GoalState.BLOCKED,
            f"waiting for the board: task {row.why}" if row.why else "its tasks wait for each other",
        )
    elif row.done:
        wanted = GoalState.ACHIEVED
    elif row.work:
        wanted = GoalState.CANCELLED
    elif row.planned:
        wanted, reason = GoalState.BLOCKED, "the plan has no task: see its result, then reopen or cancel the goal"
    else:  # its plan was called off before it had made anything
        wanted = GoalState.CANCELLED
    await change_goal(session, goal, wanted, reason=reason)


async def lock_goal(session: AsyncSession, goal_id: int) -> Goal:
    query = select(Goal).where(Goal.id == goal_id).with_for_update(key_share=True).execution_options(populate_existing=True)
    return (await session.scalars(query)).one()


async def change_goal(session: AsyncSession, goal: Goal, wanted: GoalState, *, reason: str = "", actor: str = SYSTEM) -> None:
    """Move a locked goal; the only place where a goal's state changes. Its end asks for a report."""
    before = GoalState(goal.status)
    goal.status = step(GOAL_STEPS, before, wanted, kind="goal", ident=goal.id)
    goal.reason = reason
    if wanted == before:
        await session.flush()
        return
    goal.updated_at = func.now()
    goal.ended_at = func.now() if wanted in GOAL_ENDED else None
    if wanted not in GOAL_ENDED:
        goal.report = goal.reported_at = None  # it told of an end that was none
    await session.flush()
    data = {"from": before.value, "to": wanted.value, "reason": reason}
    await events.record(session, Happened(f"goal.{wanted.value}", "goal", goal.id, goal.title, actor=actor, data=data))
    if wanted in GOAL_ENDED - {GoalState.BLOCKED}:
        await withdraw_questions(session, Approval.goal_id == goal.id, "the goal has ended")
    if wanted in (GoalState.ACHIEVED, GoalState.BLOCKED):
        await _ask_for_report(session, goal)


async def withdraw_questions(session: AsyncSession, which: ColumnElement[bool], why: str) -> None:
    """Take back the pending questions whose reason has gone: an answer to them would set off something nobody wants."""
    query = select(Approval).where(which, Approval.status == ApprovalState.PENDING).order_by(Approval.id)
    for approval in (await session.scalars(query.with_for_update())).all():
        approval.status, approval.decided_at, approval.note = ApprovalState.CANCELLED, func.now(), why
        happened = Happened("approval.cancelled", "approval", approval.id, approval.subject)
        await events.record(session, happened)
    await session.flush()


async def _ask_for_report(session: AsyncSession, goal: Goal) -> None:
    """One open report task per goal: a second ending before it has run is covered by the same report."""
    query = select(Task.id).where(
        Task.goal_id == goal.id, Task.kind == TaskKind.REPORT, Task.status.in_((TaskState.TODO, TaskState.BACKLOG))
    )
    if (await session.scalars(query)).first() is not None:
        return
    try:
        ceo = await roster.ceo(session)
    except Refused:
        return
    report = await tasks.create(
        session,
        title=f"Report: {goal.title}"[:500],
        kind=TaskKind.REPORT,
        goal_id=goal.id,
        assignee=ceo.name,
        priority=Priority(goal.priority),
        reason=f"the goal is {goal.status}",
        created_by=SYSTEM,
    )
    await settle_in(session, report, WakeupSource.ASSIGNMENT, by=SYSTEM)


def is_worn_out(task: Task, depth: int) -> bool:
    """Return whether agents' words no longer wake anybody on this task: they went round without changing anything."""
    return task.stale_runs >= STALE_LIMIT or depth > CAUSE_LIMIT


async def unblock(session: AsyncSession, task: Task, source: WakeupSource, *, by: str, reason: str) -> None:
    """Let a locked, blocked task go on, after what it waits for."""
    await tasks.change(session, task, TaskState.BACKLOG, reason=reason, actor=by)
    await settle_in(session, task, source, by=by)
    if task.goal_id is not None:
        await settle_goal(session, task.goal_id)


async def free(session: AsyncSession, task: Task, *, by: str) -> bool:
    """Drop the lock of a locked task whose run has ended, and let the task go on; return False where a run is on."""
    if task.execution_run_id is None:
        return False
    run = await session.get(Run, task.execution_run_id, populate_existing=True)
    if run is not None and run.status == RunState.RUNNING:
        return False
    locks.clear(task)
    if task.status != TaskState.IN_PROGRESS:
        await session.flush()
        return True
    await tasks.change(session, task, TaskState.TODO, reason="its lock belonged to a run that had ended", actor=by)
    if task.assignee is not None:
        priority = Priority(task.priority)
        await wakeups.request(session, task.assignee, WakeupSource.RETRY, task_id=task.id, by=by, priority=priority)
    return True


async def reconsider(session: AsyncSession, agents: Sequence[str]) -> None:
    """Settle the goals in which these agents have work: they came, went or came back."""
    query = select(Task.goal_id).where(Task.assignee.in_(agents), Task.status == TaskState.TODO, Task.goal_id.is_not(None))
    for goal_id in sorted({goal_id for goal_id in await session.scalars(query) if goal_id is not None}):
        await settle_goal(session, goal_id)
