"""`approval`: what agents ask the board, and the board's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from opencognit.cli import output
from opencognit.cli.common import BY, Json, Limit, opens_company
from opencognit.errors import InvalidInput

if TYPE_CHECKING:
    from opencognit.daemon import Opened
    from opencognit.models import Approval

app = typer.Typer(help="Questions to the board: list, approve, reject.")

NOTE_LIMIT = 10_000

Id = Annotated[str, typer.Argument(metavar="ID", help="The question's number.")]
Note = Annotated[str | None, typer.Option(metavar="T", help="A word of explanation; for `assign`, the agent's name.")]


@app.command("list")
@opens_company
async def list_(
    company: Opened,
    pending: Annotated[bool, typer.Option("--pending", help="Only those that wait for an answer.")] = False,
    limit: Limit = 200,
    as_json: Json = False,
) -> None:
    """List the questions to the board, oldest first."""
    from opencognit.work import approvals, shapes

    async with company.db.transaction() as session:
        found = await approvals.listed(session, pending_only=pending, limit=limit)
    if as_json:
        output.json_items(shapes.approval(one) for one in found)
        return
    head = ("id", "status", "kind", "asked by", "question", "options", "decision")
    rows = ((str(one.id), one.status, one.kind, one.asked_by, one.question, _options(one), one.decision) for one in found)
    output.table(head, rows, empty="nothing was asked")


def _options(approval: Approval) -> str:
    return ", ".join(f"{number} {option}" for number, option in enumerate(approval.options, 1))


@app.command()
@opens_company
async def approve(
    company: Opened,
    ident: Id,
    option: Annotated[str | None, typer.Option(metavar="N", help="The option: its number, from 1, or its text.")] = None,
    note: Note = None,
    as_json: Json = False,
) -> None:
    """Say yes, or choose an option."""
    from opencognit.work import approvals, shapes

    _check(option, note)
    async with company.db.transaction() as session:
        approval = await approvals.approve(session, ident, option=option, note=note, by=BY)
        await session.refresh(approval)
    if as_json:
        output.json_document(shapes.approval(approval))
        return
    chosen = f": {output.line(approval.decision)}" if approval.decision else ""
    output.write(f"approval {approval.id} is {approval.status}{chosen}")


@app.command()
@opens_company
async def reject(company: Opened, ident: Id, note: Note = None, as_json: Json = False) -> None:
    """Say no; whoever asked is told the note."""
    from opencognit.work import approvals, shapes

    _check(None, note)
    async with company.db.transaction() as session:
        approval = await approvals.reject(session, ident, note=note, by=BY)
        await session.refresh(approval)
    if as_json:
        output.json_document(shapes.approval(approval))
    else:
        output.write(f"approval {approval.id} is {approval.status}")


def _check(option: str | None, note: str | None) -> None:
    if option is not None and len(option) > 200:
        raise InvalidInput("--option", f"has {len(option)} characters: give the option's number")
    if note is not None and len(note) > NOTE_LIMIT:
        raise InvalidInput("--note", f"has {len(note)} characters, at most {NOTE_LIMIT}: shorten it")
