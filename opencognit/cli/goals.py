"""`goal`: what the board posts, and how it stands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opencognit.cli import output, values
from opencognit.cli.common import BY, Json, Limit, opens_company
from opencognit.errors import OpenCognitError, Unreachable
from opencognit.states import GoalState, Priority

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from opencognit.daemon import Opened
    from opencognit.models import Approval, Goal, Task

app = typer.Typer(help="Goals: post, follow, read the report, call off, take up again.")

Id = Annotated[str, typer.Argument(metavar="ID", help="The goal's number.")]


@app.command()
@opens_company
async def post(
    company: Opened,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What is to be achieved, in a few words.")],
    dash: Annotated[str | None, typer.Argument(metavar="[-]", help="Read the description from standard input.")] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="The goal in full; a checklist is planned.")] = None,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="Read the description from a file.")] = None,
    priority: Annotated[Priority, typer.Option(help="How urgent it is.")] = Priority.MEDIUM,
    budget_usd: Annotated[str | None, typer.Option(metavar="X", help="Most that the goal may cost.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end; exit status 0 only if it was achieved.")] = False,
    timeout_s: Annotated[float | None, typer.Option(metavar="N", help="With --wait: give up after so long.")] = None,
    as_json: Json = False,
) -> int:
    """Post a goal; the CEO plans it.

    Without a running daemon the goal is stored and waits for `up`. With --wait nobody would ever answer then: nothing is
    stored, and the exit status is 5.
    """
    from opencognit import daemon
    from opencognit.errors import InvalidInput
    from opencognit.work import company as companies
    from opencognit.work import goals, shapes

    if timeout_s is not None and not wait:
        raise InvalidInput("--timeout-s", "says how long to wait: give it together with --wait")
    values.seconds("--timeout-s", timeout_s)
    text, budget = values.long_text(description, file, dash), values.usd("--budget-usd", budget_usd)
    alive = await daemon.is_running(company)
    if wait and not alive:
        raise Unreachable(
            "no daemon runs this company, so nobody would work on the goal: start `opencognit up`, or leave out --wait"
            " (nothing was stored)"
        )
    async with company.db.transaction() as session:
        goal = await goals.post(session, title, description=text, priority=priority, budget_usd=budget, by=BY)
        paused = (await companies.get(session)).paused
    if paused:
        output.note("the company is paused: nothing starts until `opencognit resume`")
    if wait:
        return await _wait(company, goal.id, timeout_s, as_json)
    if as_json:
        output.json_document(shapes.goal(goal))
    else:
        output.write(f"goal {goal.id} posted: {output.line(goal.title)}")
    if not alive:
        output.note("no daemon runs this company: the goal waits for `opencognit up`")
    return 0


async def _wait(company: Opened, goal_id: int, timeout_s: float | None, as_json: bool) -> int:
    """Follow the goal to its end, then print it whole; also when the time is over, so that its number is known."""
    from opencognit.cli.progress import follow

    late: OpenCognitError | None = None
    try:
        await follow(company, goal_id, timeout_s=timeout_s, quiet=as_json)
    except Unreachable:
        raise
    except OpenCognitError as error:
        late = error
    async with company.db.transaction() as session:
        document = await _document(session, goal_id)
    if as_json:
        output.json_document(document)
    else:
        _print_end(document)
    if late is not None:
        raise late
    return 0 if document["status"] == GoalState.ACHIEVED else 1


async def _document(session: AsyncSession, goal_id: int) -> dict[str, Any]:
    """The goal with all that belongs to it: tasks, open questions, report."""
    from opencognit.work import approvals, goals, shapes, tasks

    goal = await goals.get(session, goal_id)
    return {
        **shapes.goal(goal),
        "tasks": await tasks.shaped(session, await goals.tasks_of(session, goal_id)),
        "approvals": [shapes.approval(one) for one in await approvals.pending_of(session, goal_id)],
        "report": goal.report,
    }


def _print_end(document: dict[str, Any]) -> None:
    if document["report"]:
        output.write(output.block(document["report"]) + "\n")
    why = f": {output.line(document['reason'])}" if document["reason"] else ""
    output.write(f"goal {document['id']} is {document['status']}{why}")
    for asked in document["approvals"]:
        choices = "".join(f"  {number} = {output.line(option)}" for number, option in enumerate(asked["options"], 1))
        option = " --option N" if choices else ""
        output.write(f"question {asked['id']}: {output.line(asked['question'])}{choices}")
        output.write(f"  answer it with `opencognit approval approve {asked['id']}{option}`")


@app.command("list")
@opens_company
async def list_(company: Opened, limit: Limit = 200, as_json: Json = False) -> None:
    """List the goals, oldest first."""
    from opencognit.work import goals, shapes

    async with company.db.transaction() as session:
        found = await goals.listed(session, limit=limit)
    if as_json:
        output.json_items(shapes.goal(one) for one in found)
        return
    head = ("id", "status", "priority", "posted", "title")
    rows = ((str(one.id), one.status, one.priority, output.when(one.created_at, company.home), one.title) for one in found)
    output.table(head, rows, empty='no goals yet: post one with `opencognit goal post "..."`')


@app.command()
@opens_company
async def show(company: Opened, ident: Id, as_json: Json = False) -> None:
    """Show a goal with its tasks and its open questions."""
    from opencognit.work import approvals, goals, runs

    async with company.db.transaction() as session:
        goal = await goals.get(session, ident)
        if as_json:
            output.json_document(await _document(session, goal.id))
            return
        tasks = await goals.tasks_of(session, goal.id)
        asked = await approvals.pending_of(session, goal.id)
        cost, count = await runs.spent(session, goal.id)
    _print_goal(company, goal, f"{count} runs" + (f", ${cost:f}" if cost is not None else ""))
    _print_tasks(tasks)
    _print_questions(asked)


def _print_goal(company: Opened, goal: Goal, spent: str) -> None:
    pairs = [
        ("status", goal.status),
        ("reason", goal.reason),
        ("priority", goal.priority),
        ("budget", None if goal.budget_usd is None else f"${goal.budget_usd:f}"),
        ("posted", f"{output.when(goal.created_at, company.home)} by {goal.created_by}"),
        ("ended", None if goal.ended_at is None else output.when(goal.ended_at, company.home)),
        ("so far", spent),
        ("report", None if goal.report is None else f"`opencognit goal report {goal.id}`"),
        ("asked", goal.description),
    ]
    output.fields(f"goal {goal.id}: {goal.title}", pairs)


def _print_tasks(tasks: Sequence[Task]) -> None:
    head = ("id", "kind", "status", "assignee", "title", "reason")
    rows = ((str(one.id), one.kind, one.status, one.assignee, one.title, one.reason) for one in tasks)
    output.section("Tasks", head, rows, empty="none yet")


def _print_questions(asked: Sequence[Approval]) -> None:
    if asked:
        rows = ((str(one.id), one.question, _options(one)) for one in asked)
        output.section("Questions to the board", ("id", "question", "options"), rows, empty="none")


def _options(approval: Approval) -> str:
    return ", ".join(f"{number} {option}" for number, option in enumerate(approval.options, 1))


@app.command()
@opens_company
async def report(company: Opened, ident: Id, as_json: Json = False) -> None:
    """Print the report on a goal: the CEO's, or how things stand now while there is none."""
    from opencognit.work import goals, reports, shapes

    async with company.db.transaction() as session:
        goal = await goals.get(session, ident)
        text = await reports.current(session, goal)
    if as_json:
        output.json_document(
            {
                "goal_id": str(goal.id),
                "status": goal.status,
                "final": goal.report is not None,
                "reported_at": shapes.time(goal.reported_at),
                "report": text,
            }
        )
        return
    output.write(output.block(text))
    if goal.report is None:
        output.note(f"goal {goal.id} is {goal.status}: this is how things stand now, the CEO has not reported")


@app.command()
@opens_company
async def cancel(company: Opened, ident: Id) -> None:
    """Call a goal off with all its open tasks; runs that are on are stopped."""
    from opencognit.work import goals

    async with company.db.transaction() as session:
        goal = await goals.cancel(session, ident, by=BY)
    output.write(f"goal {goal.id} is {goal.status}")


@app.command()
@opens_company
async def reopen(company: Opened, ident: Id) -> None:
    """Plan an ended or blocked goal again; tasks that are done stay done."""
    from opencognit import daemon
    from opencognit.work import goals

    alive = await daemon.is_running(company)
    async with company.db.transaction() as session:
        goal = await goals.reopen(session, ident, by=BY)
    output.write(f"goal {goal.id} is {goal.status}: the CEO plans it again")
    if not alive:
        output.note("no daemon runs this company: the goal waits for `opencognit up`")
