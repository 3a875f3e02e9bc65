"""`agent`: who works here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from opencognit.cli import output
from opencognit.cli.common import BY, Json, opens_company
from opencognit.states import TASK_ENDED, AgentState

if TYPE_CHECKING:
    from opencognit.daemon import Opened
    from opencognit.models import Agent
    from opencognit.shapes import Shape

app = typer.Typer(help="Agents: who works here, wake, pause, resume.")

Name = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name.")]


@app.command("list")
@opens_company
async def list_(company: Opened, as_json: Json = False) -> None:
    """List the agents with what they are doing."""
    from opencognit.work import roster, shapes

    async with company.db.transaction() as session:
        load = await roster.workload(session)
        found = [shapes.agent(one, running=load[one.name][0], load=load[one.name][1]) for one in await roster.everyone(session)]
    if as_json:
        output.json_items(found)
        return
    head = ("name", "state", "adapter", "role", "runs", "tasks", "skills")
    output.table(
        head,
        (
            (
                one["name"],
                _state(one),
                one["adapter"],
                one["role"],
                str(one["running"]),
                str(one["load"]),
                ", ".join(one["skills"] or []),
            )
            for one in found
        ),
        empty="no agents yet: add agents/NAME.toml",
    )


def _state(shape: Shape) -> str:
    return str(shape["status"]) if shape["present"] else "gone"


@app.command()
@opens_company
async def show(company: Opened, name: Name, as_json: Json = False) -> None:
    """Show an agent with its open tasks."""
    from opencognit.work import roster, shapes, tasks

    async with company.db.transaction() as session:
        agent = await roster.get(session, name)
        running, load = (await roster.workload(session))[agent.name]
        shape = shapes.agent(agent, running=running, load=load)
        has = [one for one in await tasks.listed(session, assignee=agent.name) if one.status not in TASK_ENDED]
        if as_json:
            output.json_document({**shape, "tasks": await tasks.shaped(session, has)})
            return
    pairs = [
        ("state", _state(shape) + (f" ({shape['reason']})" if shape["reason"] else "")),
        ("role", shape["role"]),
        ("title", shape["title"]),
        ("skills", ", ".join(shape["skills"] or [])),
        ("team", shape["team"]),
        ("reports to", shape["reports_to"]),
        ("adapter", shape["adapter"]),
        ("runs", f"{running} of {agent.max_concurrent_runs} at the same time"),
        ("heartbeat", f"every {agent.heartbeat_interval_s:g} s" if agent.heartbeat_interval_s else "only when woken"),
        ("file", f"agents/{agent.name}.toml" if agent.present else f"agents/{agent.name}.toml is gone or not enabled"),
    ]
    output.fields(f"{agent.name}: {shape['display_name']}", pairs)
    rows = ((str(one.id), one.status, one.title) for one in has)
    output.section("Open tasks", ("id", "status", "title"), rows, empty="none")


@app.command()
@opens_company
async def wake(company: Opened, name: Name, as_json: Json = False) -> None:
    """Ask for one run of an agent, even if it has no open task."""
    from opencognit import daemon
    from opencognit.work import company as companies
    from opencognit.work import roster

    alive = await daemon.is_running(company)
    async with company.db.transaction() as session:
        wakeup_id = await roster.wake(session, name, by=BY)
        # Before the commit lets a node take it: what is seen here was there before.
        agent, paused = await roster.get(session, name), (await companies.get(session)).paused
        running, _ = (await roster.workload(session))[name]
    will = _what_follows(agent, alive=alive, paused=paused, busy=running >= agent.max_concurrent_runs)
    if as_json:
        output.json_document({"agent": name, "wakeup_id": str(wakeup_id), "will": will})
    else:
        output.write(f"{name} is asked to run: {will}")


def _what_follows(agent: Agent, *, alive: bool, paused: bool, busy: bool) -> str:
    """Say when the run will start; what stands in its way comes in the order in which a person must mend it."""
    if agent.status == AgentState.PAUSED:
        return f"it is paused, and runs after `opencognit agent resume {agent.name}`"
    if agent.status == AgentState.ERROR:
        return f"it cannot run until this is mended: {agent.status_reason or 'see `opencognit doctor`'}"
    if paused:
        return "the company is paused, it runs after `opencognit resume`"
    if not alive:
        return "no daemon runs this company, it runs after `opencognit up`"
    if busy:
        return "it is at work, one more run follows the present one"
    return "one run starts now"


@app.command()
@opens_company
async def pause(company: Opened, name: Name) -> None:
    """Give an agent no more work; a run that is on finishes."""
    from opencognit.work import roster

    async with company.db.transaction() as session:
        agent = await roster.pause(session, name, by=BY)
    output.write(f"{agent.name} is paused: it takes nothing until `opencognit agent resume {agent.name}`")


@app.command()
@opens_company
async def resume(company: Opened, name: Name) -> None:
    """Give an agent work again."""
    from opencognit.work import roster

    async with company.db.transaction() as session:
        agent = await roster.resume(session, name, by=BY)
    output.write(f"{agent.name} takes work again")
