"""`run`: what agents did, and what they are doing now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from opencognit.cli import output
from opencognit.cli.common import BY, Json, Limit, opens_company
from opencognit.states import RunState

if TYPE_CHECKING:
    from opencognit.daemon import Opened
    from opencognit.models import Run, RunLog

app = typer.Typer(help="Runs: list, read, follow the log, stop.")

FOLLOW_S = 0.3
PAGE = 1000

Id = Annotated[str, typer.Argument(metavar="ID", help="The run's number.")]


@app.command("list")
@opens_company
async def list_(
    company: Opened,
    agent: Annotated[str | None, typer.Option(metavar="AGENT", help="Only runs of this agent.")] = None,
    task: Annotated[str | None, typer.Option(metavar="ID", help="Only runs on this task.")] = None,
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """List runs, oldest first."""
    from opencognit.work import runs, shapes, tasks

    async with company.db.transaction() as session:
        task_id = (await tasks.get(session, task)).id if task is not None else None
        found = await runs.listed(session, agent=agent, task_id=task_id, limit=limit)
    if as_json:
        output.json_items(shapes.run(one) for one in found)
        return
    head = ("id", "status", "agent", "task", "started", "took", "cost", "why")
    output.table(
        head,
        (
            (
                str(one.id),
                one.status,
                one.agent,
                None if one.task_id is None else str(one.task_id),
                output.when(one.started_at, company.home),
                _took(one),
                _cost(one),
                one.error or one.reason,
            )
            for one in found
        ),
        empty="no such runs",
    )


def _took(run: Run) -> str | None:
    from opencognit.reporting import duration

    return None if run.ended_at is None else duration((run.ended_at - run.started_at).total_seconds())


def _cost(run: Run) -> str | None:
    return None if run.cost_usd is None else f"${run.cost_usd:f}"


@app.command()
@opens_company
async def show(company: Opened, ident: Id, as_json: Json = False) -> None:
    """Show a run: how it came about, how it ended, what it gave."""
    from opencognit.work import runs, shapes

    async with company.db.transaction() as session:
        run = await runs.get(session, ident)
    if as_json:
        output.json_document({**shapes.run(run), "result": run.result})
        return
    tokens = None if run.tokens_in is None and run.tokens_out is None else f"{run.tokens_in} in, {run.tokens_out} out"
    pairs = [
        ("status", run.status),
        ("agent", f"{run.agent} ({run.adapter})"),
        ("task", None if run.task_id is None else f"{run.task_id}, attempt {run.attempt}"),
        ("why", run.reason),
        ("started", output.when(run.started_at, company.home)),
        ("ended", None if run.ended_at is None else output.when(run.ended_at, company.home)),
        ("took", _took(run)),
        ("cost", _cost(run)),
        ("tokens", tokens),
        ("soul", run.soul_hash),
        ("exit code", None if run.exit_code is None else str(run.exit_code)),
        ("error", run.error),
        ("notes", "\n".join(str(one) for one in run.notes)),
        ("result", run.result),
        ("log", f"`opencognit run log {run.id}`"),
    ]
    output.fields(f"run {run.id}", pairs)


@app.command()
@opens_company
async def log(
    company: Opened,
    ident: Id,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the run ends; with --json, JSON Lines.")] = False,
    as_json: Json = False,
) -> None:
    """Print what a run has printed."""
    from opencognit.work import runs, shapes

    async with company.db.transaction() as session:
        run_id = (await runs.get(session, ident)).id
    pieces = _pieces(company, run_id, follow)
    if as_json and not follow:
        output.json_items([shapes.log_piece(one) async for one in pieces])
        return
    rest = ""
    async for one in pieces:
        if as_json:
            output.json_line(shapes.log_piece(one))
            continue
        # Whole lines only: a terminal escape that two pieces share would else get through.
        *lines, rest = (rest + one.chunk).split("\n")
        if lines:
            output.write("\n".join(output.block(text) for text in lines))
    if rest:
        output.write(output.block(rest))


async def _pieces(company: Opened, run_id: int, follow: bool) -> AsyncIterator[RunLog]:
    """Yield the log's pieces in order; with `follow` until the run has ended and nothing more can come."""
    from opencognit.work import runs

    seen = -1
    while True:
        async with company.db.transaction() as session:
            # The state first: what is read after it ended is all there will be.
            running = (await runs.get(session, run_id)).status == RunState.RUNNING
            page = await runs.log(session, run_id, after_seq=seen, limit=PAGE)
        for piece in page:
            seen = piece.seq
            yield piece
        if len(page) == PAGE:
            continue
        if not (follow and running):
            return
        await asyncio.sleep(FOLLOW_S)


@app.command()
@opens_company
async def cancel(company: Opened, ident: Id) -> None:
    """Stop a run; its task is blocked until somebody retries it."""
    from opencognit.work import runs

    async with company.db.transaction() as session:
        run = await runs.cancel(session, ident, by=BY)
    then = "" if run.task_id is None else f"; then `opencognit task retry {run.task_id}` starts the task again"
    output.write(f"run {run.id} is stopped by its node{then}")
