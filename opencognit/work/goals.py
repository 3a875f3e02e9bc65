"""Goals: what the board posts. Owns the verbs on them; their state follows from their tasks (flow.py)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import events
from opencognit.contracts import TITLE_LIMIT
from opencognit.db import notify
from opencognit.errors import InvalidInput, NotFound, Refused
from opencognit.events import Happened
from opencognit.models import Agent, Goal, Task
from opencognit.states import TASK_ENDED, AgentState, CancelMode, GoalState, Priority, TaskKind, TaskState, WakeupSource
from opencognit.work import flow, locks, roster, tasks, wakeups


async def post(
    session: AsyncSession,
    title: str,
    *,
    description: str = "",
    priority: Priority = Priority.MEDIUM,
    budget_usd: Decimal | None = None,
    by: str = events.BOARD,
) -> Goal:
    """Store a goal and give it to the CEO to plan, in one transaction. Raises InvalidInput, or Refused without a CEO."""
    title = tasks.checked_title(title, description, what="achieved")
    if budget_usd is not None and (not budget_usd.is_finite() or budget_usd <= 0):
        raise InvalidInput("budget_usd", f"is {budget_usd}: give a positive amount, or leave it out")
    await roster.ceo(session)
    goal = Goal(title=title, description=description, priority=priority, budget_usd=budget_usd, created_by=by)
    session.add(goal)
    await session.flush()
    data = {"priority": priority.value}
    await events.record(session, Happened("goal.posted", "goal", goal.id, title, actor=by, data=data))
    await _plan(session, goal, by, "the goal was posted")
    return goal


async def _plan(session: AsyncSession, goal: Goal, by: str, reason: str) -> None:
    ceo = await roster.ceo(session)
    plan = await tasks.create(
        session,
        title=f"Plan: {goal.title}"[:TITLE_LIMIT],
        kind=TaskKind.PLAN,
        goal_id=goal.id,
        assignee=ceo.name,
        priority=Priority(goal.priority),
        reason=reason,
        created_by=by,
    )
    await flow.settle_in(session, plan, WakeupSource.ASSIGNMENT, by=by)


async def get(session: AsyncSession, ident: str | int) -> Goal:
    goal = await session.get(Goal, tasks.parse_id("goal", ident))
    if goal is None:
        raise NotFound("goal", str(ident), "`opencognit goal list` shows those there are")
    return goal


async def listed(session: AsyncSession, *, limit: int = 200) -> Sequence[Goal]:
    """Return goals, oldest first."""
    return list(reversed((await session.scalars(select(Goal).order_by(Goal.id.desc()).limit(limit))).all()))


async def unfinished(session: AsyncSession) -> Sequence[Goal]:
    """Return the goals that are neither achieved nor cancelled, oldest first."""
    over = (GoalState.ACHIEVED, GoalState.CANCELLED)
    return (await session.scalars(select(Goal).where(Goal.status.not_in(over)).order_by(Goal.id))).all()


async def tasks_of(session: AsyncSession, goal_id: int) -> Sequence[Task]:
    """Return all tasks of a goal, in the order in which they were made."""
    return (await session.scalars(select(Task).where(Task.goal_id == goal_id).order_by(Task.id))).all()


async def cancel(session: AsyncSession, ident: str | int, *, by: str) -> Goal:
    """Call a goal off with all its open tasks; runs that are on are stopped by their nodes."""
    goal = await flow.lock_goal(session, (await get(session, ident)).id)
    if goal.status in (GoalState.CANCELLED, GoalState.ACHIEVED):
        raise Refused(f"goal {str(goal.id)!r} is already {goal.status}: `goal reopen {goal.id}` starts it again")
    await flow.change_goal(session, goal, GoalState.CANCELLED, reason=f"cancelled by {by}", actor=by)
    for task in await tasks_of(session, goal.id):
        await _cancel_task(session, task.id, by)
    return goal


async def _cancel_task(session: AsyncSession, task_id: int, by: str) -> None:
    task = await tasks.locked(session, task_id)
    if task.execution_run_id is not None:
        await locks.cancel(session, task.execution_run_id, CancelMode.TASK, by)
        await notify(session, "cancel")
    elif task.status in TASK_ENDED:
        await wakeups.drop(session, task.id, "the goal was cancelled")
    else:
        await flow.move(session, task, TaskState.CANCELLED, reason=f"the goal was cancelled by {by}", actor=by)


async def reopen(session: AsyncSession, ident: str | int, *, by: str) -> Goal:
    """Plan an ended goal again; tasks that are done stay done."""
    goal = await flow.lock_goal(session, (await get(session, ident)).id)
    if goal.status not in (GoalState.ACHIEVED, GoalState.BLOCKED, GoalState.CANCELLED):
        raise Refused(f"goal {str(goal.id)!r} is {goal.status}: it is still being worked on")
    await flow.change_goal(session, goal, GoalState.OPEN, reason=f"reopened by {by}", actor=by)
    await _plan(session, goal, by, f"the goal was reopened by {by}")
    return goal


async def save_report(session: AsyncSession, goal_id: int, report: str, *, by: str) -> None:
    """Store the CEO's report to the board."""
    goal = await flow.lock_goal(session, goal_id)
    goal.report, goal.reported_at = report, func.now()
    await session.flush()
    await events.record(session, Happened("goal.reported", "goal", goal.id, goal.title, actor=by))


async def is_over(session: AsyncSession, goal_id: int) -> bool:
    """Return whether the goal has ended and its report, if one is due and somebody can write it, is written."""
    goal = await get(session, goal_id)
    if goal.status not in (GoalState.ACHIEVED, GoalState.BLOCKED, GoalState.CANCELLED):
        return False
    open_states = (TaskState.TODO, TaskState.IN_PROGRESS, TaskState.BACKLOG)
    query = (
        select(Task.id)
        .join(Agent, Agent.name == Task.assignee)
        .where(Task.goal_id == goal_id, Task.kind == TaskKind.REPORT, Task.status.in_(open_states))
        .where(Agent.present, Agent.status == AgentState.IDLE)
    )
    return (await session.scalars(query.limit(1))).first() is None
