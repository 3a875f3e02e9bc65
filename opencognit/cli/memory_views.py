"""`memory diary` and `memory stats`: what an agent did and learned, and how much the brain holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from opencognit.cli import output
from opencognit.cli.common import Json, opens_company

if TYPE_CHECKING:
    from opencognit.brain import Entry
    from opencognit.daemon import Opened


@opens_company
async def diary(
    company: Opened,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Whose diary.")],
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many runs, 1 to 200, the newest.")] = 20,
    before: Annotated[int | None, typer.Option("--before", metavar="RUN", min=1, help="Only runs before this one.")] = None,
    as_json: Json = False,
) -> None:
    """Tell what an agent did when, how it ended, and what it remembered of it."""
    from opencognit import brain
    from opencognit.contracts import BOARD
    from opencognit.work import roster

    async with company.db.transaction() as session:
        name = (await roster.get(session, agent)).name
        entries = await brain.diary(session, name, viewer=BOARD, limit=limit, before=before)
    if as_json:
        output.json_items(one.shape() for one in entries)
        return
    if not entries:
        output.note(f"{name} has not run yet" if before is None else f"{name} has no run before {before}")
    for one in entries:
        pairs = [
            ("when", f"{output.when(one.started_at, company.home)} to {output.when(one.ended_at, company.home)}"),
            ("task", None if one.task_id is None else f"{one.task_id} {one.task}"),
            ("why", one.reason),
            ("status", one.status),
            ("result", one.result),
            ("error", one.error),
            ("remembered", _remembered(one)),
        ]
        output.fields(f"run {one.run_id}", pairs)


def _remembered(entry: Entry) -> str | None:
    told = [f"{one.id} [{one.room}] {output.line(one.content)}" for one in entry.memories]
    if entry.remembered > len(told):
        told.append(f"and {entry.remembered - len(told)} more")
    return "\n".join(told) or None


@opens_company
async def stats(company: Opened, as_json: Json = False) -> None:
    """Count memories, and what waits to be indexed."""
    from opencognit import brain
    from opencognit.contracts import BOARD

    async with company.db.transaction() as session:
        found = await brain.stats(session, viewer=BOARD)
    if as_json:
        output.json_document(found.shape())
        return
    waiting = {"not counted": found.uncounted, "without a vector": found.unembedded, "given up": found.given_up}
    more = f", and {found.more_rooms} more" if found.more_rooms else ""
    pairs = [
        ("memories", str(found.memories)),
        ("scope", _counts(found.scopes)),
        ("type", _counts(found.types)),
        ("trust", _counts(found.trusts)),
        ("lifecycle", _counts(found.lifecycles)),
        ("room", _counts(found.rooms) + more),
        ("backlog", _counts({name: count for name, count in waiting.items() if count}) or "nothing waits"),
        ("vectors", _counts(found.vectors) or "none"),
    ]
    output.fields("memory", pairs)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {output.line(name)}" for name, count in counts.items())
