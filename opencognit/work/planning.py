"""Turns an agent's actions into rows: checks each, does what can be done, says of the rest why not. Calls no adapter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import matching
from opencognit.contracts import (
    TITLE_LIMIT,
    Action,
    AskBoard,
    AssignTask,
    BlockTask,
    Comment,
    CompleteTask,
    CreateTask,
    Hire,
    Recall,
    Relate,
    Remember,
    Report,
)
from opencognit.errors import NotFound, OpenCognitError, Refused
from opencognit.models import Agent, Task
from opencognit.states import ApprovalKind, Priority, TaskKind, TaskState, WakeupSource
from opencognit.work import approvals, escalation, flow, goals, roster, steering, tasks

TASKS_PER_ANSWER = 200
TASKS_PER_ROOT = 200
"""So many tasks may come of one, through all that split further; about so many where two are split at once."""
SUBTASK_DEPTH = 5
SUBTASK_ROUNDS = 5
"""So often a task may be split again after its sub-tasks have ended."""


@dataclass(slots=True)
class Answering:
    """An agent's answer while it is applied. `made[i]` is the task behind the provisional id `new-(i+1)`.

    `resumed`: its task had ended before this run.
    """

    run_id: int
    agent: Agent
    task: Task | None
    depth: int = 0
    resumed: bool = False
    made: list[Task] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    completed: str | None = None
    blocked: str | None = None
    asked: bool = False
    stuck: str | None = None
    """Why its work goes round in circles: handed back to whoever handed it down, or split without end."""
    root_id: int | None = None
    """The task from which grew what was split without end."""

    @property
    def is_ceo(self) -> bool:
        return self.agent.adapter == "ceo"

    @property
    def children(self) -> bool:
        """Whether the agent's own task has to wait for what it has made."""
        return not self.is_ceo and bool(self.made)


async def apply(session: AsyncSession, answering: Answering, actions: Sequence[Action]) -> None:
    """Do the actions in order. The caller holds the locks of the run, its task and its goal.

    An action that cannot be done becomes a line in `answering.problems`; the others are done. Memories are not this
    module's: `remember`, `recall` and `relate` are passed over here.
    """
    for number, action in enumerate(actions, 1):
        try:
            await _apply_one(session, answering, action)
        except OpenCognitError as error:
            answering.problems.append(f"action {number} ({action.action}): {error}")
    if answering.stuck and not (answering.made or answering.completed or answering.blocked or answering.asked):
        await _give_up(session, answering, answering.stuck)


async def _give_up(session: AsyncSession, answering: Answering, why: str) -> None:
    """Block the task instead of calling it done, and tell somebody once: who waits for it waits on, so that it ends here."""
    answering.blocked = why
    if answering.task is None:
        return
    if answering.root_id is not None:
        await escalation.tell_of_growth(session, answering.task, answering.root_id, why)
    else:
        await escalation.escalate(session, answering.task, why)


async def _apply_one(session: AsyncSession, answering: Answering, action: Action) -> None:
    match action:
        case CreateTask():
            await _create(session, answering, action)
        case AssignTask():
            await _assign(session, answering, action)
        case CompleteTask():
            if await _own_or_led(session, answering, action.task_id) is None:
                answering.completed = action.result
        case BlockTask():
            await _block(session, answering, action)
        case Comment():
            await _comment(session, answering, action)
        case AskBoard():
            await _ask(session, answering, action)
        case Hire():
            await _hire(session, answering, action)
        case Report():
            await _report(session, answering, action)
        case Remember() | Recall() | Relate():
            return


async def _create(session: AsyncSession, answering: Answering, action: CreateTask) -> None:
    if len(answering.made) >= TASKS_PER_ANSWER:
        raise Refused(f"one answer may make {TASKS_PER_ANSWER} tasks: do the rest in a later one")
    own = answering.task
    depth = 0 if answering.is_ceo or own is None else own.depth + 1
    if depth and answering.resumed:
        raise Refused("this task has ended and cannot wait for sub-tasks: comment, or ask the board to retry it")
    if depth and own is not None:
        await _refuse_growth(session, answering, own, depth)
    if depth and own is not None and own.rounds >= SUBTASK_ROUNDS:
        answering.stuck = f"it was split {SUBTASK_ROUNDS} times and was to be split again"
        raise Refused(f"this task was split {SUBTASK_ROUNDS} times: finish it, or ask the board")
    if own is not None and await flow.is_called_off(session, own):
        raise Refused("the goal was cancelled meanwhile: nothing new is made for it")
    goal_id = own.goal_id if own is not None else None
    after = await tasks.check_after(session, [await _resolve(session, answering, one) for one in action.after], goal_id=goal_id)
    if depth and own is not None:
        await _refuse_circle(session, own, after)
    assignee, reason = await _who(session, answering, action)
    if depth and assignee is not None:
        await _refuse_ring(session, answering, assignee)
    task = await tasks.create(
        session,
        title=action.title.strip()[:TITLE_LIMIT],
        description=action.description,
        goal_id=goal_id,
        parent_id=own.id if own is not None and not answering.is_ceo else None,
        assignee=assignee,
        skills=action.skills,
        priority=action.priority or Priority(own.priority if own is not None else Priority.MEDIUM),
        after=after,
        reason=reason,
        created_by=answering.agent.name,
        depth=depth,
    )
    answering.made.append(task)
    if assignee is None and action.skills:
        await _ask_who(session, answering, task)
    await flow.settle_in(session, task, WakeupSource.ASSIGNMENT, by=answering.agent.name, cause_run_id=answering.run_id)


GROWN = text("""
-- From a task up to its root, and all that grew from that.
WITH RECURSIVE up AS (
  SELECT id, parent_id FROM tasks WHERE id = :task_id
   UNION ALL SELECT t.id, t.parent_id FROM tasks t JOIN up ON t.id = up.parent_id
), down AS (
  SELECT id FROM up WHERE parent_id IS NULL
   UNION ALL SELECT t.id FROM tasks t JOIN down ON t.parent_id = down.id
)
SELECT (SELECT id FROM up WHERE parent_id IS NULL) AS root_id, count(*) - 1 AS grown FROM down
""")


async def _refuse_growth(session: AsyncSession, answering: Answering, own: Task, depth: int) -> None:
    """One task must not become thousands, each with a run to pay for and a question to the board."""
    root_id, grown = (await session.execute(GROWN, {"task_id": own.id})).one()
    if depth > SUBTASK_DEPTH:
        answering.root_id, answering.stuck = root_id, f"it was split {SUBTASK_DEPTH} deep and was to be split again"
        raise Refused(f"tasks may be nested {SUBTASK_DEPTH} deep: do this part yourself, or ask the board")
    if grown >= TASKS_PER_ROOT:
        answering.root_id, answering.stuck = root_id, f"{grown} tasks came of it and it was to be split again"
        raise Refused(f"{grown} tasks came of task {root_id}, no more may: do this part yourself, or ask the board")


async def _ask_who(session: AsyncSession, answering: Answering, task: Task) -> None:
    """Nobody fits: the board decides, as it does for the CEO's items."""
    await approvals.ask(
        session,
        kind=ApprovalKind.QUESTION,
        subject=f"task:{task.id}",
        question=f"Nobody can do task {task.id}, {task.title!r}: {task.reason}. Hire (add agents/NAME.toml with such a skill,"
        f" then `task assign {task.id} NAME`), assign it to the agent in the note, or skip it?",
        options=approvals.UNASSIGNED_OPTIONS,
        goal_id=task.goal_id,
        task_id=task.id,
        asked_by=answering.agent.name,
    )


WAITING = text("""
-- All that cannot end before this task has: what comes after it, and what it is a part of.
WITH RECURSIVE waiting (id) AS (
  SELECT CAST(:task_id AS bigint)
   UNION
  SELECT next.id FROM waiting w CROSS JOIN LATERAL (
    SELECT d.task_id AS id FROM task_dependencies d WHERE d.after_id = w.id
     UNION ALL SELECT t.parent_id FROM tasks t WHERE t.id = w.id AND t.parent_id IS NOT NULL) next
)
SELECT t.id FROM waiting w JOIN tasks t ON t.id = w.id
 WHERE t.id = ANY(CAST(:after AS bigint[])) AND t.status NOT IN ('done', 'cancelled') ORDER BY t.id LIMIT 1
""")


async def _refuse_circle(session: AsyncSession, own: Task, after: Sequence[int]) -> None:
    """A sub-task, for which its parent waits, must not wait for that parent or for what comes after it."""
    if not after:
        return
    found = (await session.execute(WAITING, {"task_id": own.id, "after": list(after)})).scalar_one_or_none()
    if found is not None:
        raise Refused(f"task {str(found)!r} waits for your own task {str(own.id)!r}: a part of that cannot come after it")


ANCESTORS = text("""
WITH RECURSIVE up AS (
  SELECT id, parent_id, assignee, status FROM tasks WHERE id = :task_id
   UNION ALL SELECT t.id, t.parent_id, t.assignee, t.status FROM tasks t JOIN up ON t.id = up.parent_id
)
SELECT id FROM up WHERE assignee = :assignee AND status NOT IN ('done', 'cancelled') AND id <> :task_id LIMIT 1
""")


async def _refuse_ring(session: AsyncSession, answering: Answering, assignee: str) -> None:
    """Work must not be handed back to whoever handed it down: neither can do it, and nobody would be told."""
    own = answering.task
    if own is None or assignee == answering.agent.name:
        return
    above = (await session.execute(ANCESTORS, {"task_id": own.id, "assignee": assignee})).scalar_one_or_none()
    if above is not None:
        answering.stuck = f"{answering.agent.name} cannot do it and wanted to hand it back to {assignee}, who handed it down"
        raise Refused(
            f"{assignee} waits for this in task {str(above)!r}: if you cannot do it either, say what is missing to the board"
        )


async def _who(session: AsyncSession, answering: Answering, action: CreateTask) -> tuple[str | None, str]:
    if action.assignee is not None:
        agent = await roster.get(session, action.assignee)
        if not agent.present:
            raise Refused(f"agent {agent.name!r} is not working here any more: name another")
        return agent.name, action.reason or f"given by {answering.agent.name}"
    if not action.skills:
        return None, action.reason or "nobody was named for it"
    found = matching.match(f"{action.title}\n{action.description}", skills=action.skills, team=await roster.team(session))
    return found.agent, found.reason


async def _resolve(session: AsyncSession, answering: Answering, ident: str) -> int:
    """Return the row id behind `new-N` or a task id."""
    if ident.startswith("new-"):
        number = ident.removeprefix("new-")
        if number.isascii() and number.isdigit() and 1 <= int(number) <= len(answering.made):
            return answering.made[int(number) - 1].id
        raise NotFound("task", ident, f"this answer has made {len(answering.made)} tasks before it")
    return (await tasks.get(session, ident)).id


async def _own_or_led(session: AsyncSession, answering: Answering, ident: str | None) -> Task | None:
    """Return None for the agent's own task, another task where the agent may decide about it; raises Refused."""
    own = answering.task
    if ident is None or (own is not None and ident == str(own.id)):
        if own is None:
            raise Refused("this run has no task: name one")
        return None
    other = await tasks.locked(session, await _resolve(session, answering, ident))
    if own is not None and (other.parent_id == own.id or own.about_id == other.id):
        return other
    if answering.is_ceo and (own is None or other.goal_id == own.goal_id):
        return other
    raise Refused(f"task {str(other.id)!r} is not yours: comment on it instead")


async def _assign(session: AsyncSession, answering: Answering, action: AssignTask) -> None:
    other = await _own_or_led(session, answering, action.task_id)
    if other is None:
        raise Refused("your own task cannot be passed on while you are at it: make a sub-task for the other agent")
    await steering.assign(session, other.id, action.assignee, by=answering.agent.name)


async def _block(session: AsyncSession, answering: Answering, action: BlockTask) -> None:
    other = await _own_or_led(session, answering, action.task_id)
    if other is None:
        answering.blocked = action.reason
    elif other.execution_run_id is not None:
        raise Refused(f"a run is on task {str(other.id)!r}: comment on it instead")
    else:
        await flow.move(session, other, TaskState.BLOCKED, reason=action.reason, actor=answering.agent.name)


async def _comment(session: AsyncSession, answering: Answering, action: Comment) -> None:
    ident = action.task_id if action.task_id is not None else (str(answering.task.id) if answering.task is not None else None)
    if ident is None:
        raise Refused("this run has no task: name the one to comment on")
    task_id = await _resolve(session, answering, ident)
    depth = answering.depth + 1
    task = await steering.comment(session, task_id, action.text, by=answering.agent.name, run_id=answering.run_id, depth=depth)
    if flow.is_worn_out(task, depth) and task.assignee not in (None, answering.agent.name):
        await escalation.escalate(
            session, task, f"{answering.agent.name} and {task.assignee} wrote to each other without any result"
        )


async def _ask(session: AsyncSession, answering: Answering, action: AskBoard) -> None:
    own = answering.task
    task_id = await _resolve(session, answering, action.task_id) if action.task_id is not None else (own.id if own else None)
    subject = f"task:{task_id}" if task_id is not None else f"agent:{answering.agent.name}"
    asked = await approvals.ask(
        session,
        kind=ApprovalKind.QUESTION,
        subject=subject,
        question=action.question,
        options=action.options,
        goal_id=own.goal_id if own is not None else None,
        task_id=task_id,
        asked_by=answering.agent.name,
    )
    if own is not None and task_id == own.id and own.kind == TaskKind.WORK:
        answering.asked = True
    if asked is None:
        raise Refused(f"a question about {subject} is waiting for the board already: wait for its answer")


async def _hire(session: AsyncSession, answering: Answering, action: Hire) -> None:
    own = answering.task
    wanted = f"{action.role}" + (f" with {', '.join(action.skills)}" if action.skills else "")
    asked = await approvals.ask(
        session,
        kind=ApprovalKind.HIRE,
        subject=f"hire:{action.role.strip().casefold()}",
        question=f"Hire {wanted}? {action.reason}",
        goal_id=own.goal_id if own is not None else None,
        asked_by=answering.agent.name,
    )
    if asked is None:
        raise Refused(f"the board is already asked to hire {action.role!r}: wait for its decision")


async def _report(session: AsyncSession, answering: Answering, action: Report) -> None:
    own = answering.task
    if own is None or own.goal_id is None or not answering.is_ceo:
        raise Refused("a report is the CEO's, on a task of the goal: comment instead")
    await goals.save_report(session, own.goal_id, action.text, by=answering.agent.name)
