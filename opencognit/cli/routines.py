"""`routine`: work that comes by the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from opencognit.cli import output
from opencognit.cli.common import BY, Json, opens_company

if TYPE_CHECKING:
    from opencognit.daemon import Opened

app = typer.Typer(help="Routines: list, run one now.")


@app.command("list")
@opens_company
async def list_(company: Opened, as_json: Json = False) -> None:
    """List the routines of config.toml with their next slot and what became of the last ones."""
    from opencognit.work import routines, shapes

    async with company.db.transaction() as session:
        found = [(one, await routines.firings(session, one.name)) for one in await routines.listed(session)]
    if as_json:
        output.json_items(shapes.routine(one, fired) for one, fired in found)
        return
    head = ("name", "cron", "zone", "agent", "next", "last", "title")
    rows = (
        (
            one.name,
            one.spec["cron"],
            one.spec["timezone"],
            one.spec["agent"],
            output.when(one.next_at, company.home) if one.next_at is not None else "never",
            fired[0].outcome if fired else "never",
            one.spec["title"],
        )
        for one, fired in found
    )
    output.table(head, rows, empty="no routines: add [[routines]] to config.toml")


@app.command()
@opens_company
async def run(
    company: Opened, name: Annotated[str, typer.Argument(metavar="NAME", help="The routine's name.")], as_json: Json = False
) -> None:
    """Make a routine's task now, beside its slots."""
    from opencognit.work import routines, tasks

    async with company.db.transaction() as session:
        task = await tasks.get(session, await routines.run(session, name, by=BY))
        (shaped,) = await tasks.shaped(session, [task])
    if as_json:
        output.json_document(shaped)
        return
    output.write(f"task {task.id} is {task.status}: `task show {task.id}` follows it")
