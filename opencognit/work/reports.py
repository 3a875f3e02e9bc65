"""What came of tasks and goals: the outcomes that others build on, and the report to the board. Reads only."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import reporting
from opencognit.contracts import BriefingInput, ProducedFile
from opencognit.models import Approval, Goal
from opencognit.states import ApprovalState, TaskState

OUTCOMES = text("""
-- A task's own sources are what it comes after and its sub-tasks; a plan or a report gets all work of its goal.
-- A task without a booked call has cost nothing; one with a call of unknown price has an unknown cost.
SELECT t.id, t.title, t.result, t.files, t.status, t.assignee, t.reason,
       (SELECT CASE WHEN count(*) = 0 THEN 0 WHEN bool_or(c.cost_usd IS NULL) THEN NULL ELSE sum(c.cost_usd) END
          FROM costs c WHERE c.task_id = t.id) AS cost,
       (SELECT extract(epoch FROM sum(coalesce(r.ended_at, now()) - r.started_at)) FROM runs r WHERE r.task_id = t.id) AS duration
  FROM tasks t
 WHERE CASE WHEN CAST(:task_id AS bigint) IS NULL THEN t.goal_id = :goal_id AND t.kind = 'work'
            ELSE t.parent_id = :task_id OR t.id IN (SELECT after_id FROM task_dependencies WHERE task_id = :task_id) END
 ORDER BY t.id LIMIT 500
""")


async def of_task(session: AsyncSession, task_id: int) -> Sequence[BriefingInput]:
    """Return the outcomes that a task builds on: those it comes after, and its own sub-tasks'."""
    return await _outcomes(session, task_id=task_id, goal_id=None)


async def of_goal(session: AsyncSession, goal_id: int) -> Sequence[BriefingInput]:
    """Return the outcomes of all work of a goal, in the order in which it was planned."""
    return await _outcomes(session, task_id=None, goal_id=goal_id)


async def _outcomes(session: AsyncSession, *, task_id: int | None, goal_id: int | None) -> Sequence[BriefingInput]:
    rows = await session.execute(OUTCOMES, {"task_id": task_id, "goal_id": goal_id})
    return [
        BriefingInput(
            task_id=str(row.id),
            title=row.title,
            result=row.result or "",
            files=tuple(ProducedFile(**file) for file in row.files),
            status=TaskState(row.status),
            agent=row.assignee,
            reason=row.reason,
            cost_usd=row.cost,
            duration_s=float(row.duration) if row.duration is not None else None,
        )
        for row in rows
    ]


async def current(session: AsyncSession, goal: Goal) -> str:
    """Return the CEO's report, or while there is none what the rows say now, in the same form."""
    if goal.report is not None:
        return goal.report
    asked = select(Approval.question).where(Approval.goal_id == goal.id, Approval.status == ApprovalState.PENDING)
    questions = (await session.scalars(asked.order_by(Approval.id))).all()
    return reporting.compose(goal.title, goal.description, await of_goal(session, goal.id), questions=questions)
