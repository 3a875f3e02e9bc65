"""Collects what a run is to know, in one short transaction. Owns the queries; briefing.py owns the shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import brain
from opencognit.agents import AgentSpec
from opencognit.contracts import (
    BriefingComment,
    BriefingGoal,
    BriefingInput,
    BriefingMemory,
    BriefingTask,
    TeamMember,
    Viewer,
)
from opencognit.engine.context import as_briefing_memory
from opencognit.models import Comment, Goal, Task
from opencognit.states import Priority, TaskKind
from opencognit.work import reports, roster
from opencognit.work.wakeups import Claimed

COMMENTS = 50
QUESTION_CHARS = 4000


@dataclass(frozen=True, slots=True)
class Collected:
    """All that the database knows for one run."""

    spec: AgentSpec
    viewer: Viewer
    goal: BriefingGoal | None
    task: BriefingTask | None
    comments: Sequence[BriefingComment]
    inputs: Sequence[BriefingInput]
    memories: Sequence[BriefingMemory]
    team: Sequence[TeamMember]


async def collect(session: AsyncSession, claimed: Claimed, *, recall_limit: int) -> Collected:
    """Read the run's task, goal, inputs, comments and what the brain knows about them."""
    agent = await roster.get(session, claimed.agent)
    spec = AgentSpec.model_validate(agent.spec)
    viewer = Viewer(agent=spec.name, team=spec.team, run_id=claimed.run_id, task_id=claimed.task_id)
    task = await session.get(Task, claimed.task_id) if claimed.task_id is not None else None
    goal = await session.get(Goal, task.goal_id) if task is not None and task.goal_id is not None else None
    question = "\n".join(part for one in (goal, task) if one is not None for part in (one.title, one.description))
    hits = await brain.recall(session, question[:QUESTION_CHARS], limit=recall_limit, viewer=viewer) if question else []
    leads = agent.adapter == "ceo"
    return Collected(
        spec=spec,
        viewer=viewer,
        goal=BriefingGoal(id=str(goal.id), title=goal.title, description=goal.description) if goal is not None else None,
        task=_task(task, claimed.attempt) if task is not None else None,
        comments=await _comments(session, task.id) if task is not None else (),
        inputs=await _inputs(session, task) if task is not None else (),
        memories=[as_briefing_memory(hit) for hit in hits],
        team=await roster.team(session) if leads else (),
    )


def _task(task: Task, attempt: int) -> BriefingTask:
    return BriefingTask(
        id=str(task.id),
        kind=TaskKind(task.kind),
        title=task.title,
        description=task.description,
        priority=Priority(task.priority),
        attempt=attempt,
    )


async def _comments(session: AsyncSession, task_id: int) -> Sequence[BriefingComment]:
    query = select(Comment).where(Comment.task_id == task_id).order_by(Comment.id.desc()).limit(COMMENTS)
    found = reversed((await session.scalars(query)).all())
    return [BriefingComment(author=one.author, text=one.text, created_at=one.created_at) for one in found]


async def _inputs(session: AsyncSession, task: Task) -> Sequence[BriefingInput]:
    """A plan and a report are about the whole goal, any other task about what it builds on."""
    if task.kind in (TaskKind.PLAN, TaskKind.REPORT) and task.goal_id is not None:
        return await reports.of_goal(session, task.goal_id)
    return await reports.of_task(session, task.id)
