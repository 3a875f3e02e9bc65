"""The verbs by which a board, an operator or the CEO steers a task. Owns when each is refused; what follows is flow's."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.db import notify
from opencognit.errors import Refused
from opencognit.events import BOARD
from opencognit.models import Approval, Task
from opencognit.states import TASK_ENDED, CancelMode, Priority, TaskKind, TaskState, WakeupSource
from opencognit.work import flow, locks, roster, tasks, wakeups


async def assign(session: AsyncSession, ident: str | int, agent: str, *, by: str) -> Task:
    """Give a task that no run holds to `agent`; a ready or blocked one starts at once."""
    await roster.working(session, agent)
    task = await tasks.locked(session, ident)
    _refuse_running(task, "assigned")
    if task.kind != TaskKind.WORK:
        raise Refused(f"task {str(task.id)!r} is a {task.kind} of its goal and stays with {task.assignee}: assign work instead")
    await _refuse_called_off(session, task)
    await wakeups.skip(session, task.id, f"assigned to {agent}")
    await wakeups.hand_over(session, task.id, agent)
    await flow.withdraw_questions(session, Approval.task_id == task.id, f"assigned to {agent}")
    task.assignee = agent
    task.failures = task.lost = task.stale_runs = 0
    if task.status in (TaskState.TODO, TaskState.BLOCKED, TaskState.DONE, TaskState.CANCELLED):
        if task.status != TaskState.BLOCKED:
            await tasks.change(session, task, TaskState.TODO, actor=by)
        await tasks.change(session, task, TaskState.BACKLOG, actor=by)
    task.reason = f"assigned to {agent} by {by}"
    await session.flush()
    await flow.settle_in(session, task, WakeupSource.ASSIGNMENT, by=by)
    if task.goal_id is not None:
        await flow.settle_goal(session, task.goal_id)
    return task


async def retry(session: AsyncSession, ident: str | int, *, by: str) -> Task:
    """Start a blocked, cancelled or done task again, with its failures forgotten."""
    task = await tasks.locked(session, ident)
    _refuse_running(task, "retried")
    await _refuse_called_off(session, task)
    if task.status in (TaskState.TODO, TaskState.BACKLOG):
        raise Refused(f"task {str(task.id)!r} is {task.status}: it will run by itself, there is nothing to retry")
    task.failures = task.lost = task.stale_runs = 0
    await flow.withdraw_questions(session, Approval.task_id == task.id, f"retried by {by}")
    reason = f"retried by {by}"
    if task.status in (TaskState.DONE, TaskState.IN_REVIEW):
        await tasks.change(session, task, TaskState.TODO, reason=reason, actor=by)
    await tasks.change(session, task, TaskState.BACKLOG, reason=reason, actor=by)
    if task.assignee is None:
        raise Refused(f"task {str(task.id)!r} has no assignee: `task assign {task.id} AGENT` starts it")
    await flow.settle_in(session, task, WakeupSource.BOARD, by=by)
    if task.goal_id is not None:
        await flow.settle_goal(session, task.goal_id)
    return task


async def cancel(session: AsyncSession, ident: str | int, *, by: str, reason: str = "") -> Task:
    """Call a task off. Where a run is on, its node stops it first and the task ends with it."""
    task = await tasks.locked(session, ident)
    if task.status in TASK_ENDED:
        raise Refused(f"task {str(task.id)!r} is already {task.status}")
    if task.execution_run_id is not None:
        await locks.cancel(session, task.execution_run_id, CancelMode.TASK, by)
        await notify(session, "cancel")
        task.reason = reason or f"cancelled by {by}"
        await session.flush()
        return task
    await flow.move(session, task, TaskState.CANCELLED, reason=reason or f"cancelled by {by}", actor=by)
    return task


async def comment(
    session: AsyncSession, ident: str | int, text_: str, *, by: str, run_id: int | None = None, depth: int = 0
) -> Task:
    """Write on a task and wake its assignee, unless that one wrote it, it waits for others, is worn out or called off.

    `depth` counts the agents that woke each other up to here; the board's word starts anew.
    """
    task = await tasks.locked(session, ident)
    await tasks.add_comment(session, task, by, text_, run_id=run_id)
    if by == BOARD:
        task.stale_runs = 0
    silent = task.assignee is None or task.assignee == by or task.status == TaskState.BACKLOG
    if silent or flow.is_worn_out(task, depth) or await flow.is_called_off(session, task):
        await session.flush()
        return task
    if by == BOARD and task.status == TaskState.BLOCKED:
        await flow.unblock(session, task, WakeupSource.COMMENT, by=by, reason=f"{by} wrote on it")
    assert task.assignee is not None
    await wakeups.request(
        session,
        task.assignee,
        WakeupSource.COMMENT,
        task_id=task.id,
        by=by,
        note=f"by {by}",
        priority=Priority(task.priority),
        cause_run_id=run_id,
        depth=depth,
    )
    return task


async def release(session: AsyncSession, ident: str | int, *, by: str) -> Task:
    """Free a task's lock: a run that is on is stopped by its node and the task starts again."""
    task = await tasks.locked(session, ident)
    if task.execution_run_id is None:
        raise Refused(f"task {str(task.id)!r} is not locked: there is nothing to release")
    if await flow.free(session, task, by=by):
        return task
    await locks.cancel(session, task.execution_run_id, CancelMode.RELEASE, by)
    await notify(session, "cancel")
    return task


async def _refuse_called_off(session: AsyncSession, task: Task) -> None:
    if await flow.is_called_off(session, task):
        raise Refused(f"goal {str(task.goal_id)!r} is cancelled: `goal reopen {task.goal_id}` first")


def _refuse_running(task: Task, verb: str) -> None:
    if task.execution_run_id is not None:
        raise Refused(
            f"task {str(task.id)!r} cannot be {verb} while run {task.execution_run_id} is on it:"
            f" wait, or `run cancel {task.execution_run_id}`"
        )
