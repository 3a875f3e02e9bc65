"""Tasks as rows: make, find, list, comment, change state. What follows from a change is flow.py's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import events
from opencognit.contracts import TEXT_LIMIT, TITLE_LIMIT
from opencognit.errors import InvalidInput, NotFound, Refused
from opencognit.events import Happened
from opencognit.models import Comment, Goal, Task, TaskDependency
from opencognit.shapes import Shape
from opencognit.states import TASK_ENDED, TASK_STEPS, Priority, TaskKind, TaskState, step
from opencognit.work import roster, shapes


def parse_id(kind: str, ident: str | int) -> int:
    """Return a row id from what a person typed; raises NotFound for what cannot be one."""
    text = str(ident).strip().removeprefix("#")
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise NotFound(kind, str(ident)[:80], f"ids are numbers: `opencognit {kind} list` shows them")
    return int(text)


def checked_title(title: str, description: str, *, what: str) -> str:
    """Return the trimmed title; raises InvalidInput for a title or description that is empty or too long."""
    title = title.strip()
    if not title:
        raise InvalidInput("title", f"is empty: say in a few words what is to be {what}")
    if len(title) > TITLE_LIMIT:
        raise InvalidInput("title", f"has {len(title)} characters, at most {TITLE_LIMIT}: put the rest into --description")
    if len(description) > TEXT_LIMIT:
        raise InvalidInput("description", f"has {len(description)} characters, at most {TEXT_LIMIT}: shorten it")
    return title


async def create(
    session: AsyncSession,
    *,
    title: str,
    description: str = "",
    kind: TaskKind = TaskKind.WORK,
    goal_id: int | None = None,
    parent_id: int | None = None,
    assignee: str | None = None,
    skills: Iterable[str] = (),
    priority: Priority = Priority.MEDIUM,
    after: Iterable[int] = (),
    reason: str = "",
    created_by: str,
    depth: int = 0,
) -> Task:
    """Store a task in the backlog; flow.settle_in makes it ready. A dependency on an ended task counts as met.

    New tasks come after older ones only, so that no cycle can arise here. Those are locked against ending meanwhile:
    either their end sees the new link, or the new task sees their end.
    """
    waits_for = list(dict.fromkeys(after))
    if waits_for:
        await session.execute(select(Task.id).where(Task.id.in_(waits_for)).order_by(Task.id).with_for_update(read=True))
    task = Task(
        title=title,
        description=description,
        kind=kind,
        goal_id=goal_id,
        parent_id=parent_id,
        assignee=assignee,
        skills=list(skills),
        priority=priority,
        reason=reason,
        created_by=created_by,
        depth=depth,
        status=TaskState.BACKLOG,
    )
    session.add(task)
    await session.flush()
    links = [{"task_id": task.id, "after_id": other} for other in waits_for]
    if links:
        await session.execute(insert(TaskDependency), links)
    data = {"kind": kind.value, "assignee": assignee, "goal_id": str(goal_id) if goal_id else None}
    await events.record(session, Happened("task.created", "task", task.id, title, actor=created_by, data=data))
    return task


async def get(session: AsyncSession, ident: str | int) -> Task:
    """Return a task without locking it; raises NotFound."""
    task = await session.get(Task, parse_id("task", ident))
    if task is None:
        raise NotFound("task", str(ident), "`opencognit task list` shows those there are")
    return task


async def locked(session: AsyncSession, ident: str | int) -> Task:
    """Return a task with its goal and itself locked, in that order, as every verb that changes a task must."""
    task = await get(session, ident)
    if task.goal_id is not None:
        await session.execute(select(Goal.id).where(Goal.id == task.goal_id).with_for_update(key_share=True))
    await session.refresh(task, with_for_update={"key_share": True})
    return task


async def listed(
    session: AsyncSession,
    *,
    status: TaskState | None = None,
    assignee: str | None = None,
    goal_id: int | None = None,
    limit: int = 200,
) -> Sequence[Task]:
    """Return tasks, oldest first."""
    query = select(Task).order_by(Task.id.desc()).limit(limit)
    if status is not None:
        query = query.where(Task.status == status)
    if assignee is not None:
        await roster.get(session, assignee)
        query = query.where(Task.assignee == assignee)
    if goal_id is not None:
        query = query.where(Task.goal_id == goal_id)
    return list(reversed((await session.scalars(query)).all()))


async def comments_of(session: AsyncSession, ids: Sequence[int]) -> Mapping[int, Sequence[Comment]]:
    """Return the comments of each task, oldest first."""
    found: dict[int, list[Comment]] = {one: [] for one in ids}
    for comment in await session.scalars(select(Comment).where(Comment.task_id.in_(ids)).order_by(Comment.id)):
        found[comment.task_id].append(comment)
    return found


async def shaped(session: AsyncSession, rows: Sequence[Task]) -> list[Shape]:
    """Return the JSON shape of each task, with what it waits for and its comments."""
    ids = [row.id for row in rows]
    after: dict[int, list[int]] = {one: [] for one in ids}
    links = select(TaskDependency).where(TaskDependency.task_id.in_(ids)).order_by(TaskDependency.after_id)
    for link in await session.scalars(links):
        after[link.task_id].append(link.after_id)
    comments = await comments_of(session, ids)
    return [shapes.task(row, after=after[row.id], comments=comments[row.id]) for row in rows]


async def check_after(session: AsyncSession, after: Iterable[int], *, goal_id: int | None) -> list[int]:
    """Return the ids, once each; raises NotFound for one that does not exist, Refused for one of another goal.

    Goals are settled one by one: a task that waits for another goal's would leave its own without news.
    """
    wanted = list(dict.fromkeys(after))
    query = select(Task.id, Task.goal_id).where(Task.id.in_(wanted))
    found = {row.id: row.goal_id for row in await session.execute(query)} if wanted else {}
    for one in wanted:
        if one not in found:
            raise NotFound("task", str(one), "name an existing task after which this one comes")
        if found[one] != goal_id:
            of = f"goal {found[one]}" if found[one] is not None else "no goal"
            raise Refused(f"task {str(one)!r} is of {of}: a task can only come after others of its own goal")
    return wanted


async def change(
    session: AsyncSession, task: Task, wanted: TaskState, *, reason: str | None = None, actor: str = events.SYSTEM
) -> None:
    """Move a locked task to `wanted`; the only place where a task's state changes, apart from the claim."""
    before = TaskState(task.status)
    task.status = step(TASK_STEPS, before, wanted, kind="task", ident=task.id)
    if reason is not None:
        task.reason = reason
    task.ended_at = func.now() if wanted in TASK_ENDED else None
    task.updated_at = func.now()
    await session.flush()
    if wanted != before:
        data = {"from": before.value, "to": wanted.value, "reason": task.reason, "goal_id": str(task.goal_id or "") or None}
        await events.record(session, Happened("task.status_changed", "task", task.id, task.title, actor=actor, data=data))


async def add_comment(session: AsyncSession, task: Task, author: str, text: str, *, run_id: int | None = None) -> Comment:
    """Store a comment; whether somebody is woken by it is flow.py's."""
    if not text.strip():
        raise InvalidInput("text", "is empty: write what you want to say")
    comment = Comment(task_id=task.id, author=author, text=text, run_id=run_id)
    session.add(comment)
    await session.flush()
    data = {"comment_id": str(comment.id), "text": text[:500]}
    await events.record(session, Happened("task.commented", "task", task.id, task.title, actor=author, data=data))
    return comment
