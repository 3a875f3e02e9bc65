"""Collects what a run is to know: one query for a batch, then what the brain knows of each. briefing.py owns the shape."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.agents import AgentSpec
from opencognit.brain import Brain
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
from opencognit.states import Priority, TaskKind
from opencognit.work import reports, roster
from opencognit.work.claims import Claimed

COMMENTS = 50
QUESTION_CHARS = 4000


@dataclass(frozen=True, slots=True)
class Collected:
    """All that the database knows for one run. `question`: what the brain is to be asked; empty where it knows nothing."""

    spec: AgentSpec
    viewer: Viewer
    goal: BriefingGoal | None
    task: BriefingTask | None
    comments: Sequence[BriefingComment]
    inputs: Sequence[BriefingInput]
    question: str
    team: Sequence[TeamMember]
    memories: Sequence[BriefingMemory] = ()


KNOWN = text("""
-- What every run needs, for all of a batch at once; what only some need is asked for run by run.
SELECT r.id AS run_id, a.spec, a.digest, a.adapter = 'ceo' AS leads, t.id AS task_id, t.kind, t.title, t.description, t.priority,
       g.id AS goal_id, g.title AS goal_title, g.description AS goal_description,
       (SELECT jsonb_agg(jsonb_build_object('author', c.author, 'text', c.text, 'created_at', c.created_at) ORDER BY c.id)
          FROM (SELECT * FROM comments WHERE task_id = t.id ORDER BY id DESC LIMIT :comments) c) AS comments,
       EXISTS (SELECT 1 FROM task_dependencies d WHERE d.task_id = t.id)
         OR EXISTS (SELECT 1 FROM tasks c WHERE c.parent_id = t.id) AS has_sources,
       EXISTS (SELECT 1 FROM memory_counts) OR EXISTS (SELECT 1 FROM memory_backlog) AS remembers
  FROM runs r JOIN agents a ON a.name = r.agent
  LEFT JOIN tasks t ON t.id = r.task_id LEFT JOIN goals g ON g.id = t.goal_id
 WHERE r.id = ANY(CAST(:run_ids AS bigint[]))
""")


async def collect(session: AsyncSession, batch: Sequence[Claimed]) -> dict[int, Collected]:
    """Return by run id what each run of a batch is to know: its task, goal, inputs and comments; no memories yet."""
    parameters = {"run_ids": [claimed.run_id for claimed in batch], "comments": COMMENTS}
    rows = {row.run_id: row for row in await session.execute(KNOWN, parameters)}
    return {claimed.run_id: await _collected(session, claimed, rows[claimed.run_id]) for claimed in batch}


async def remembering(brain: Brain, known: Collected, *, limit: int) -> Collected:
    """Return `known` with what the brain knows about its question. Holds no transaction while a model reads it."""
    if not known.question:
        return known
    hits = await brain.recall(known.question, limit=limit, viewer=known.viewer)
    return replace(known, memories=[as_briefing_memory(hit) for hit in hits])


async def _collected(session: AsyncSession, claimed: Claimed, row: Row[Any]) -> Collected:
    spec = _spec(row.digest, json.dumps(row.spec))
    viewer = Viewer(agent=spec.name, team=spec.team, run_id=claimed.run_id, task_id=claimed.task_id)
    task, goal = _task(row, claimed.attempt), _goal(row)
    question = "\n".join(part for one in (task, goal) if one is not None for part in (one.title, one.description))
    return Collected(
        spec=spec,
        viewer=viewer,
        goal=goal,
        task=task,
        comments=[BriefingComment.model_validate(comment) for comment in row.comments or ()],
        inputs=await _inputs(session, row),
        question=question[:QUESTION_CHARS] if row.remembers else "",
        team=await roster.team(session) if row.leads else (),
    )


@lru_cache(maxsize=1000)
def _spec(_digest: str, spec: str) -> AgentSpec:
    return AgentSpec.model_validate_json(spec)


def _task(row: Row[Any], attempt: int) -> BriefingTask | None:
    if row.task_id is None:
        return None
    return BriefingTask(
        id=str(row.task_id),
        kind=TaskKind(row.kind),
        title=row.title,
        description=row.description,
        priority=Priority(row.priority),
        attempt=attempt,
    )


def _goal(row: Row[Any]) -> BriefingGoal | None:
    if row.goal_id is None:
        return None
    return BriefingGoal(id=str(row.goal_id), title=row.goal_title, description=row.goal_description)


async def _inputs(session: AsyncSession, row: Row[Any]) -> Sequence[BriefingInput]:
    """A plan and a report are about the whole goal, any other task about what it builds on."""
    if row.kind in (TaskKind.PLAN, TaskKind.REPORT) and row.goal_id is not None:
        return await reports.of_goal(session, row.goal_id)
    return await reports.of_task(session, row.task_id) if row.has_sources else ()
