"""The company as a whole: `status`, `pause`, `resume`, `activity`, `cost`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from opencognit.cli import output, values
from opencognit.cli.common import BY, Json, Limit, opens_company

if TYPE_CHECKING:
    from datetime import datetime

    from opencognit.daemon import Opened
    from opencognit.models import Event
    from opencognit.work.costs import Total

WATCH_S = 1.0
FOLLOW_S = 0.3
FOLLOW_PAGE = 10_000
WINDOW = 500
"""Events that `-f` reads again."""


@opens_company
async def status(
    company: Opened,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, once a second; with --json, JSON Lines.")] = False,
    as_json: Json = False,
) -> None:
    """Show who runs what, what waits, and what is asked of the board."""
    last = ""
    while True:
        document = await _status(company)
        told = json.dumps(document)
        if told != last:
            _show_status(company, document, as_json, watch)
        last = told
        if not watch:
            return
        await asyncio.sleep(WATCH_S)


async def _status(company: Opened) -> dict[str, Any]:
    from opencognit.work import approvals, goals, runs, shapes
    from opencognit.work import company as companies

    async with company.db.transaction() as session:
        row = await companies.get(session)
        nodes = await companies.nodes(session, lease_s=company.home.config.runs.lease_s)
        return {
            "paused": row.paused,
            "paused_at": shapes.time(row.paused_at),
            "paused_by": row.paused_by,
            "company": company.home.config.company.name,
            "nodes": [shapes.node(node, running=running) for node, running in nodes],
            "running": [shapes.run(one) for one in await runs.listed(session, running=True, limit=1000)],
            "goals": [shapes.goal(one) for one in await goals.unfinished(session)],
            "waiting": await companies.waiting(session),
            "approvals": [shapes.approval(one) for one in await approvals.listed(session, pending_only=True)],
        }


def _show_status(company: Opened, document: dict[str, Any], as_json: bool, watch: bool) -> None:
    if as_json:
        (output.json_line if watch else output.json_document)(document)
        return
    if watch:
        output.clear()
    if document["paused"]:
        output.write(f"PAUSED by {document['paused_by']}: nothing starts until `opencognit resume`")
    nodes = document["nodes"]
    node_text = "\n".join(f"process {one['pid']} on {one['host']}: {one['running']} of {one['capacity']} runs" for one in nodes)
    pairs = [
        ("nodes", node_text or "none: start one with `opencognit up`"),
        ("waiting", f"{document['waiting']} wakeups"),
        ("home", str(company.home.root)),
    ]
    output.fields(document["company"], pairs)
    rows = ((one["id"], one["agent"], one["task_id"], one["reason"]) for one in document["running"])
    output.section("Running", ("run", "agent", "task", "why"), rows, empty="nothing runs")
    rows = ((one["id"], one["status"], one["title"], one["reason"]) for one in document["goals"])
    output.section("Goals", ("goal", "status", "title", "why"), rows, empty="no open goals")
    rows = ((one["id"], one["kind"], one["asked_by"], one["question"]) for one in document["approvals"])
    output.section("Asked of the board", ("id", "kind", "asked by", "question"), rows, empty="nothing")


@opens_company
async def pause(company: Opened) -> None:
    """Stop all claiming at once; runs that are on finish."""
    from opencognit.work import company as companies

    async with company.db.transaction() as session:
        changed = await companies.pause(session, by=BY)
    again = "" if changed else " already"
    output.write(f"the company is paused{again}: nothing starts until `opencognit resume`")


@opens_company
async def resume(company: Opened) -> None:
    """Let the company work again."""
    from opencognit.work import company as companies

    async with company.db.transaction() as session:
        changed = await companies.resume(session, by=BY)
    output.write("the company works again" if changed else "the company was not paused")


@opens_company
async def activity(
    company: Opened,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as things happen; with --json, JSON Lines.")] = False,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """Show what happened, oldest first."""
    from opencognit import events
    from opencognit.work import shapes

    async with company.db.transaction() as session:
        found = await events.newest(session, limit=max(limit, WINDOW) if follow else limit)
    if as_json and not follow:
        output.json_items(shapes.event(one) for one in found)
        return
    if not found and not follow:
        output.note("nothing has happened yet")
    _print_events(company, found[-limit:], as_json)
    if follow:
        async for fresh in _following(company, found):
            _print_events(company, fresh, as_json)


async def _following(company: Opened, found: Sequence[Event]) -> AsyncIterator[Sequence[Event]]:
    """Yield what is new, for ever. A transaction may commit after one with higher ids: a window is read again each time."""
    from opencognit import events

    seen = {one.id for one in found}
    while True:
        await asyncio.sleep(FOLLOW_S)
        newest = max(seen, default=0)
        seen = {one for one in seen if one > newest - 2 * WINDOW}
        async with company.db.transaction() as session:
            window = await events.newest(session, after_id=newest - WINDOW, limit=FOLLOW_PAGE)
        fresh = [one for one in window if one.id not in seen]
        seen.update(one.id for one in fresh)
        yield fresh


def _print_events(company: Opened, found: Sequence[Event], as_json: bool) -> None:
    from opencognit.work import shapes

    for one in found:
        if as_json:
            output.json_line(shapes.event(one))
        else:
            output.write(_told(company, one))


def _told(company: Opened, event: Event) -> str:
    """One event on one line; of its data, only what says why."""
    why = next((str(event.data[key]) for key in ("reason", "error", "question", "text", "note") if event.data.get(key)), "")
    about = f"{event.subject_kind} {event.subject_id}"
    title = "" if event.subject_title in ("", event.subject_id) else f" {event.subject_title}"
    told = f"{about}{title}" + (f": {why}" if why else "")
    return (
        f"{output.when(event.at, company.home)}  {event.type:<20}  {output.line(event.actor, 40):<12}  {output.line(told, 300)}"
    )


@opens_company
async def cost(
    company: Opened,
    by: Annotated[Literal["agent", "goal", "model", "day"], typer.Option(help="What to sum by.")] = "agent",
    since: Annotated[str | None, typer.Option(metavar="D", help="From this date or time on, or for a span such as 7d.")] = None,
    as_json: Json = False,
) -> None:
    """Show what work has cost. A sum with a call of unknown price is unknown, and says how much of it is known."""
    from opencognit.work import costs, shapes

    zone = company.home.config.company.timezone
    start: datetime | None = values.since("--since", since, zone)
    async with company.db.transaction() as session:
        found = await costs.totals(session, by, since=start, zone=zone)
    if as_json:
        output.json_items(
            {
                "by": by,
                "key": one.key,
                "title": one.title or None,
                "calls": one.calls,
                "cost_usd": shapes.money(one.cost_usd),
                "known_usd": shapes.money(one.known_usd),
                "unpriced_calls": one.unpriced,
                "tokens_in": one.tokens_in,
                "tokens_out": one.tokens_out,
            }
            for one in found
        )
        return
    output.table((by, "cost", "calls", "tokens in", "tokens out", "title"), _cost_rows(found), empty="nothing has cost anything")


def _cost_rows(found: Sequence[Total]) -> Iterator[tuple[str | None, ...]]:
    for one in found:
        known = f"${one.known_usd:f}"
        said = known if not one.unpriced else f"unknown ({known} and {one.unpriced} unpriced calls)"
        tokens = (None if count is None else str(count) for count in (one.tokens_in, one.tokens_out))
        yield one.key or "none", said, str(one.calls), *tokens, one.title
