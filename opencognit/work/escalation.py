"""Tells somebody who can decide that work is stuck: the manager, else a CEO with a model, else the board. Once.

An escalation is a task of high priority about the stuck one. It never escalates itself: when it fails too, the board is
asked.
"""

from __future__ import annotations

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.contracts import TITLE_LIMIT
from opencognit.events import SYSTEM
from opencognit.models import Agent, Approval, Run, Task
from opencognit.states import TASK_ENDED, AgentState, ApprovalKind, Priority, TaskState, WakeupSource
from opencognit.work import approvals, flow, tasks

ERRORS_SHOWN = 4
ERROR_CHARS = 1000


async def escalate(session: AsyncSession, task: Task, why: str) -> None:
    """Raise a blocked task to whoever may decide about it; a second call while that is open changes nothing."""
    said = f"{why}\n\n{await _failures(session, task.id)}".strip()
    manager = await _manager(session, task) if not await _was_raised(session, task.id) else None
    if manager is None:
        await _ask_board(session, task, said)
        return
    query = select(Task.id).where(Task.about_id == task.id, Task.status.not_in([*TASK_ENDED, TaskState.BLOCKED]))
    if (await session.scalars(query.limit(1))).first() is not None:
        return
    raised = await tasks.create(
        session,
        title=f"Escalation: task {task.id}, {task.title}"[:TITLE_LIMIT],
        description=f"Task {task.id} of {task.assignee} is stuck. Decide how it goes on: assign it, comment, or ask.\n\n{said}",
        assignee=manager,
        priority=Priority.HIGH,
        reason=f"{task.assignee} reports to {manager}",
        created_by=SYSTEM,
    )
    raised.about_id = task.id
    await session.flush()
    await flow.settle_in(session, raised, WakeupSource.ASSIGNMENT, by=SYSTEM)


async def tell_of_wake(session: AsyncSession, agent: str, why: str) -> None:
    """Ask the board once about an agent that was woken without a task and could not do it: nothing else keeps it in mind."""
    await approvals.ask(
        session,
        kind=ApprovalKind.QUESTION,
        subject=f"{approvals.WAKE_SUBJECT}{agent}",
        question=f"{agent} was woken without a task, and {why}\n\nWake it again, or leave it?",
        options=approvals.WAKE_OPTIONS,
        asked_by=SYSTEM,
    )


async def tell_of_growth(session: AsyncSession, task: Task, root_id: int, why: str) -> None:
    """Ask the board about work that was split without end: once for all that grew from one root, however much of it is stuck."""
    subject = f"split:{root_id}"
    if (await session.scalars(select(Approval.id).where(Approval.subject == subject).limit(1))).first() is not None:
        return
    await approvals.ask(
        session,
        kind=ApprovalKind.QUESTION,
        subject=subject,
        question=f"The work below task {root_id} was split without end: {why}. What wanted more parts is blocked, see"
        f" `task list --status blocked`; you are asked this once. The first is task {task.id} ({task.title}): retry it, assign"
        " it to the agent in the note, or cancel it?",
        options=approvals.STUCK_OPTIONS,
        goal_id=task.goal_id,
        task_id=task.id,
        asked_by=SYSTEM,
    )


async def follow_up(session: AsyncSession, escalation: Task) -> None:
    """When an escalation has ended and what it was about is still blocked, the board is asked."""
    if escalation.about_id is None:
        return
    about = await tasks.locked(session, escalation.about_id)
    if about.status == TaskState.BLOCKED:
        await _ask_board(session, about, f"{escalation.assignee} looked at it and left it as it is. {about.reason}")


RAISED = text("""
-- The task was escalated before, or is a part of what an escalation asked for: managers had their turn.
WITH RECURSIVE up AS (
  SELECT id, parent_id, about_id FROM tasks WHERE id = :task_id
   UNION ALL SELECT t.id, t.parent_id, t.about_id FROM tasks t JOIN up ON t.id = up.parent_id
)
SELECT EXISTS (SELECT 1 FROM up WHERE about_id IS NOT NULL)
    OR EXISTS (SELECT 1 FROM tasks WHERE about_id = :task_id AND status IN ('done', 'cancelled', 'blocked'))
""")


async def _was_raised(session: AsyncSession, task_id: int) -> bool:
    return bool((await session.execute(RAISED, {"task_id": task_id})).scalar_one())


async def _failures(session: AsyncSession, task_id: int) -> str:
    query = select(Run.id, Run.status, Run.error).where(Run.task_id == task_id, Run.error.is_not(None)).order_by(Run.id.desc())
    rows = (await session.execute(query.limit(ERRORS_SHOWN))).all()
    return "\n\n".join(f"Run {row.id} {row.status}: {row.error[-ERROR_CHARS:]}" for row in reversed(rows))


async def _manager(session: AsyncSession, task: Task) -> str | None:
    """Return the agent to decide, None for the board. A CEO that plans by rules cannot decide anything."""
    if task.about_id is not None or task.assignee is None:
        return None
    agent = await session.get(Agent, task.assignee)
    ceo = (await session.scalars(select(Agent).where(Agent.adapter == "ceo", Agent.present).limit(1))).first()
    named = await session.get(Agent, agent.reports_to) if agent is not None and agent.reports_to else None
    for candidate in (named, ceo):
        if (
            candidate is not None
            and candidate.present
            and candidate.status == AgentState.IDLE
            and candidate.name != task.assignee
            and _decides(candidate)
        ):
            return candidate.name
    return None


def _decides(agent: Agent) -> bool:
    return agent.adapter != "ceo" or agent.spec.get("adapter_config", {}).get("planner") == "llm"


async def _ask_board(session: AsyncSession, task: Task, said: str) -> None:
    await approvals.ask(
        session,
        kind=ApprovalKind.QUESTION,
        subject=f"task:{task.id}",
        question=f"Task {task.id} ({task.title}) is stuck: retry it, assign it to the agent in the note, or cancel it?\n\n{said}",
        options=approvals.STUCK_OPTIONS,
        goal_id=task.goal_id,
        task_id=task.id,
        asked_by=SYSTEM,
    )
