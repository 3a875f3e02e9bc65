"""Questions to the board and its decisions. Owns the approvals table; what a decision sets in motion is here too."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import events
from opencognit.errors import InvalidInput, NotFound, Refused
from opencognit.events import Happened
from opencognit.models import Approval, Task
from opencognit.states import APPROVAL_STEPS, ApprovalKind, ApprovalState, TaskState, WakeupSource, step
from opencognit.work import flow, roster, steering, tasks, wakeups

HIRE, ASSIGN, SKIP = "hire", "assign", "skip"
UNASSIGNED_OPTIONS = (HIRE, ASSIGN, SKIP)
"""The options of a question about a task that nobody can do; deciding it acts on the task."""
RETRY, CANCEL = "retry", "cancel"
STUCK_OPTIONS = (RETRY, ASSIGN, CANCEL)
"""The options of a question about a task that cannot go on by itself; deciding it acts on the task."""
WAKE_SUBJECT = "wake:"
WAKE_OPTIONS = (RETRY, "leave")
"""Subject (an agent's name follows) and options of a question about a wake without a task; deciding it wakes the agent."""


async def ask(
    session: AsyncSession,
    *,
    kind: ApprovalKind,
    subject: str,
    question: str,
    options: Sequence[str] = (),
    goal_id: int | None = None,
    task_id: int | None = None,
    asked_by: str,
) -> int | None:
    """Ask the board; return the approval's id, or None when the same kind and subject is pending already."""
    row = insert(Approval).values(
        kind=kind.value,
        subject=subject,
        question=question,
        options=list(options),
        goal_id=goal_id,
        task_id=task_id,
        asked_by=asked_by,
    )
    row = row.on_conflict_do_nothing(index_elements=["kind", "subject"], index_where=text("status = 'pending'"))
    approval_id: int | None = (await session.execute(row.returning(Approval.id))).scalar_one_or_none()
    if approval_id is not None:
        data = {"question": question[:500], "options": list(options)}
        await events.record(session, Happened("approval.asked", "approval", approval_id, subject, actor=asked_by, data=data))
    return approval_id


async def get(session: AsyncSession, ident: str | int) -> Approval:
    approval = await session.get(Approval, tasks.parse_id("approval", ident))
    if approval is None:
        raise NotFound("approval", str(ident), "`opencognit approval list` shows those there are")
    return approval


async def listed(session: AsyncSession, *, pending_only: bool = False, limit: int = 200) -> Sequence[Approval]:
    """Return approvals, oldest first."""
    query = select(Approval).order_by(Approval.id.desc()).limit(limit)
    if pending_only:
        query = query.where(Approval.status == ApprovalState.PENDING)
    return list(reversed((await session.scalars(query)).all()))


async def pending_of(session: AsyncSession, goal_id: int) -> Sequence[Approval]:
    """Return the questions about a goal that the board has not answered, oldest first."""
    query = select(Approval).where(Approval.goal_id == goal_id, Approval.status == ApprovalState.PENDING)
    return (await session.scalars(query.order_by(Approval.id))).all()


async def approve(
    session: AsyncSession, ident: str | int, *, option: str | None = None, note: str | None = None, by: str
) -> Approval:
    """Decide for yes, or for `option`: its number from 1, or its text. A question with options needs one."""
    approval, task = await _pending(session, ident)
    chosen = _choose(approval, option)
    acts = approval.options in (list(UNASSIGNED_OPTIONS), list(STUCK_OPTIONS))
    if task is not None and chosen == ASSIGN and acts and not (note or "").strip():
        raise InvalidInput(
            "--note", f"name the agent that is to get task {task.id}: `approval approve {approval.id} ... --note AGENT`"
        )
    await _decide(session, approval, ApprovalState.APPROVED, chosen, note, by)
    if task is not None:
        await _act(session, approval, task, chosen, (note or "").strip(), by)
    elif approval.options == list(WAKE_OPTIONS) and chosen == RETRY:
        await roster.wake(session, approval.subject.removeprefix(WAKE_SUBJECT), by=by)
    return approval


async def reject(session: AsyncSession, ident: str | int, *, note: str | None = None, by: str) -> Approval:
    """Decide for no. An agent that asked is told; a task that nobody can do is blocked, so that it is not forgotten."""
    approval, task = await _pending(session, ident)
    await _decide(session, approval, ApprovalState.REJECTED, None, note, by)
    if task is None:
        return approval
    if approval.options not in (list(UNASSIGNED_OPTIONS), list(STUCK_OPTIONS)):
        await _answer(session, approval, task, "no", (note or "").strip(), by)
    elif task.execution_run_id is None and task.status in (TaskState.BACKLOG, TaskState.BLOCKED):
        await flow.move(session, task, TaskState.BLOCKED, reason=f"{by} said no" + (f": {note}" if note else ""), actor=by)
    return approval


async def _pending(session: AsyncSession, ident: str | int) -> tuple[Approval, Task | None]:
    """Lock the goal and task first, then the approval, and refuse one that is decided."""
    approval = await get(session, ident)
    task = await tasks.locked(session, approval.task_id) if approval.task_id is not None else None
    await session.refresh(approval, with_for_update=True)
    if approval.status != ApprovalState.PENDING:
        how = f"{approval.status}: {approval.decision or approval.note or 'no word was given'}"
        raise Refused(f"approval {str(approval.id)!r} has been decided already ({how})")
    return approval, task


def _choose(approval: Approval, option: str | None) -> str | None:
    listed = ", ".join(f"{number} {label}" for number, label in enumerate(approval.options, 1))
    if option is None:
        if approval.options:
            raise InvalidInput("--option", f"approval {approval.id} asks you to choose: {listed}")
        return None
    if option.isascii() and option.isdigit() and 1 <= int(option) <= len(approval.options):
        return str(approval.options[int(option) - 1])
    if option in approval.options:
        return option
    raise InvalidInput("--option", f"{option!r} is not an option of approval {approval.id}: {listed or 'it has none'}")


async def _decide(
    session: AsyncSession, approval: Approval, status: ApprovalState, decision: str | None, note: str | None, by: str
) -> None:
    approval.status = step(APPROVAL_STEPS, ApprovalState(approval.status), status, kind="approval", ident=approval.id)
    approval.decision, approval.note, approval.decided_by, approval.decided_at = decision, note, by, func.now()
    await session.flush()
    data = {"decision": decision, "note": note, "question": approval.question[:500]}
    await events.record(session, Happened(f"approval.{status}", "approval", approval.id, approval.subject, actor=by, data=data))


async def _act(session: AsyncSession, approval: Approval, task: Task, chosen: str | None, note: str, by: str) -> None:
    if approval.options == list(UNASSIGNED_OPTIONS):
        if chosen == SKIP:
            await flow.move(
                session, task, TaskState.CANCELLED, reason=f"skipped by {by}" + (f": {note}" if note else ""), actor=by
            )
        elif chosen == ASSIGN:
            await steering.assign(session, task.id, note, by=by)
        else:
            task.reason = f"{by} wants to hire: add agents/NAME.toml with the skill, then `task assign {task.id} NAME`"
            await session.flush()
            await flow.settle_goal(session, task.goal_id) if task.goal_id is not None else None
        return
    if approval.options == list(STUCK_OPTIONS):
        await _unstick(session, task, chosen, note, by)
        return
    await _answer(session, approval, task, chosen, note, by)


async def _unstick(session: AsyncSession, task: Task, chosen: str | None, note: str, by: str) -> None:
    task.stale_runs = 0
    if chosen == ASSIGN:
        await steering.assign(session, task.id, note, by=by)
    elif chosen == CANCEL:
        await steering.cancel(session, task.id, by=by)
    elif task.status == TaskState.BLOCKED:
        await steering.retry(session, task.id, by=by)


async def _answer(session: AsyncSession, approval: Approval, task: Task, chosen: str | None, note: str, by: str) -> None:
    """Give the answer to the agent that asked: a comment, and exactly one wake with it."""
    said = " - ".join(part for part in (chosen or "yes", note) if part)
    await tasks.add_comment(session, task, by, f"Answer to “{approval.question}”: {said}")
    if task.assignee is None:
        return
    if task.status == TaskState.BLOCKED:
        await flow.unblock(session, task, WakeupSource.APPROVAL, by=by, reason=f"{by} answered")
    await wakeups.request(session, task.assignee, WakeupSource.APPROVAL, task_id=task.id, by=by, note=f"{by} answered")
