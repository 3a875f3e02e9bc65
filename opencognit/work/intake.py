"""Tasks that a person gives: checked, made and settled in, in the caller's transaction. Agents' tasks are planning.py's."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.errors import Refused
from opencognit.models import Task
from opencognit.states import GoalState, Priority, WakeupSource
from opencognit.work import flow, goals, roster, tasks


async def create(
    session: AsyncSession,
    title: str,
    *,
    description: str = "",
    assignee: str | None = None,
    goal_id: str | int | None = None,
    after: Iterable[str | int] = (),
    priority: Priority = Priority.MEDIUM,
    by: str,
) -> Task:
    """Make a task; one with an assignee and nothing before it starts at once, one without waits in the backlog.

    Raises InvalidInput for its text, NotFound for a name or id that is not there, Refused for a goal that has ended.
    """
    title = tasks.checked_title(title, description, what="done")
    goal = await goals.get(session, goal_id) if goal_id is not None else None
    if goal is not None:
        goal = await flow.lock_goal(session, goal.id)
        if goal.status in (GoalState.ACHIEVED, GoalState.CANCELLED):
            raise Refused(f"goal {str(goal.id)!r} is {goal.status}: `goal reopen {goal.id}` first, or leave out --goal")
    reason = "has no assignee: `task assign` gives it one"
    if assignee is not None:
        await roster.working(session, assignee)
        reason = f"given to {assignee} by {by}"
    task = await tasks.create(
        session,
        title=title,
        description=description,
        goal_id=goal.id if goal is not None else None,
        assignee=assignee,
        priority=priority,
        after=await tasks.check_after(
            session, [tasks.parse_id("task", one) for one in after], goal_id=goal.id if goal is not None else None
        ),
        reason=reason,
        created_by=by,
    )
    await flow.settle_in(session, task, WakeupSource.ASSIGNMENT, by=by)
    if goal is not None:
        await flow.settle_goal(session, goal.id)
    return task
