"""`task`: pieces of work, by hand where the CEO's plan does not do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opencognit.cli import output, values
from opencognit.cli.common import BY, Json, Limit, opens_company
from opencognit.states import Priority, TaskState

if TYPE_CHECKING:
    from opencognit.daemon import Opened
    from opencognit.models import Task
    from opencognit.shapes import Shape

app = typer.Typer(help="Tasks: list, read, make, assign, comment, start again, call off.")

Id = Annotated[str, typer.Argument(metavar="ID", help="The task's number.")]
Agent = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name.")]


@app.command("list")
@opens_company
async def list_(
    company: Opened,
    status: Annotated[TaskState | None, typer.Option(help="Only tasks in this state.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="AGENT", help="Only tasks of this agent.")] = None,
    goal: Annotated[str | None, typer.Option(metavar="ID", help="Only tasks of this goal.")] = None,
    limit: Limit = 200,
    as_json: Json = False,
) -> None:
    """List tasks, oldest first."""
    from opencognit.work import goals, tasks

    async with company.db.transaction() as session:
        goal_id = (await goals.get(session, goal)).id if goal is not None else None
        found = await tasks.listed(session, status=status, assignee=agent, goal_id=goal_id, limit=limit)
        if as_json:
            output.json_items(await tasks.shaped(session, found))
            return
    head = ("id", "goal", "kind", "status", "assignee", "title")
    rows = ((str(one.id), _number(one.goal_id), one.kind, one.status, one.assignee, one.title) for one in found)
    output.table(head, rows, empty="no such tasks")


def _number(ident: int | None) -> str | None:
    return None if ident is None else str(ident)


@app.command()
@opens_company
async def show(company: Opened, ident: Id, as_json: Json = False) -> None:
    """Show a task: what is asked, who has it and why, its result, its comments, its lock."""
    from opencognit.work import tasks

    async with company.db.transaction() as session:
        task = await tasks.get(session, ident)
        [shape] = await tasks.shaped(session, [task])
        comments = (await tasks.comments_of(session, [task.id]))[task.id]
    if as_json:
        output.json_document(shape)
        return
    _print_task(company, task, shape)
    for one in comments:
        output.heading(f"{output.when(one.created_at, company.home)} {one.author} wrote:")
        output.write(output.block(one.text))


def _print_task(company: Opened, task: Task, shape: Shape) -> None:
    expires = output.when(task.lock_expires_at, company.home)
    pairs = [
        ("status", task.status),
        ("assignee", task.assignee or "nobody"),
        ("reason", task.reason),
        ("goal", _number(task.goal_id)),
        ("part of", _number(task.parent_id)),
        ("after", ", ".join(shape["after"])),
        ("kind", task.kind),
        ("priority", task.priority),
        ("attempt", str(task.attempt) if task.attempt else None),
        ("made", f"{output.when(task.created_at, company.home)} by {task.created_by}"),
        ("ended", None if task.ended_at is None else output.when(task.ended_at, company.home)),
        ("lock", f"run {task.execution_run_id} of {task.execution_agent_key} until {expires}" if shape["lock"] else None),
        ("asked", task.description),
        ("result", task.result),
        ("files", "\n".join(f"{file.get('path')} ({file.get('size')} bytes)" for file in task.files)),
    ]
    output.fields(f"task {task.id}: {task.title}", pairs)


@app.command()
@opens_company
async def create(
    company: Opened,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What is to be done, in a few words.")],
    dash: Annotated[str | None, typer.Argument(metavar="[-]", help="Read the description from standard input.")] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="The task in full.")] = None,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="Read the description from a file.")] = None,
    assignee: Annotated[str | None, typer.Option(metavar="AGENT", help="Who is to do it.")] = None,
    goal: Annotated[str | None, typer.Option(metavar="ID", help="The goal that it serves.")] = None,
    after: Annotated[list[str] | None, typer.Option(metavar="ID", help="A task that must end first; may be repeated.")] = None,
    priority: Annotated[Priority, typer.Option(help="How urgent it is.")] = Priority.MEDIUM,
    as_json: Json = False,
) -> None:
    """Make a task. With an assignee it starts as soon as nothing stands before it."""
    from opencognit import daemon
    from opencognit.work import intake, tasks

    text = values.long_text(description, file, dash)
    async with company.db.transaction() as session:
        task = await intake.create(
            session,
            title,
            description=text,
            assignee=assignee,
            goal_id=goal,
            after=after or (),
            priority=priority,
            by=BY,
        )
        [shape] = await tasks.shaped(session, [task])
    if as_json:
        output.json_document(shape)
    else:
        output.write(f"task {task.id} made: {output.line(task.title)}; {_standing(task)}")
    if task.status == TaskState.TODO and not await daemon.is_running(company):
        output.note("no daemon runs this company: the task waits for `opencognit up`")


def _standing(task: Task) -> str:
    if task.assignee is None:
        return f"it waits for an assignee: `opencognit task assign {task.id} AGENT`"
    if task.status == TaskState.BACKLOG:
        return f"{task.assignee} does it once the tasks before it have ended"
    return f"{task.assignee} is asked to do it"


@app.command()
@opens_company
async def assign(company: Opened, ident: Id, agent: Agent) -> None:
    """Give a task to an agent; a ready, blocked or ended one starts at once."""
    from opencognit.work import steering

    async with company.db.transaction() as session:
        task = await steering.assign(session, ident, agent, by=BY)
    output.write(f"task {task.id} is {task.status}, assigned to {task.assignee}")


@app.command()
@opens_company
async def comment(
    company: Opened, ident: Id, text: Annotated[str, typer.Argument(metavar="TEXT", help="What you want to say.")]
) -> None:
    """Write on a task; its assignee gets one run that sees it."""
    from opencognit.contracts import TEXT_LIMIT
    from opencognit.errors import InvalidInput
    from opencognit.work import steering

    if len(text) > TEXT_LIMIT:
        raise InvalidInput("text", f"has {len(text)} characters, at most {TEXT_LIMIT}: shorten it")
    async with company.db.transaction() as session:
        task = await steering.comment(session, ident, text, by=BY)
    heard = "nobody has the task yet" if task.assignee is None else f"{task.assignee} will see it"
    output.write(f"comment on task {task.id} stored: {heard}")


@app.command()
@opens_company
async def retry(company: Opened, ident: Id) -> None:
    """Start a blocked or ended task again, its failures forgotten."""
    from opencognit.work import steering

    async with company.db.transaction() as session:
        task = await steering.retry(session, ident, by=BY)
    output.write(f"task {task.id} is {task.status}: {_standing(task)}")


@app.command()
@opens_company
async def cancel(company: Opened, ident: Id) -> None:
    """Call a task off; a run that is on is stopped first."""
    from opencognit.work import steering

    async with company.db.transaction() as session:
        task = await steering.cancel(session, ident, by=BY)
    if task.execution_run_id is not None:
        output.write(f"task {task.id} is cancelled as soon as its node has stopped run {task.execution_run_id}")
    else:
        output.write(f"task {task.id} is {task.status}")


@app.command()
@opens_company
async def release(company: Opened, ident: Id) -> None:
    """Free a task's lock: its run is stopped and the task starts again."""
    from opencognit.work import steering

    async with company.db.transaction() as session:
        task = await steering.release(session, ident, by=BY)
    output.write(f"task {task.id} is free as soon as its node has stopped run {task.execution_run_id}")
