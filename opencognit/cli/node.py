"""`up`, `worker`, `demo` as typer sees them; what they do is in up.py, whose imports take their time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opencognit.cli.common import Debug, Json, uses_home

if TYPE_CHECKING:
    from opencognit.config import Home


@uses_home
def up(
    home: Home,
    demo: Annotated[bool, typer.Option("--demo", help="Post the demo goal, or follow the one still open.")] = False,
) -> None:
    """Run the company in the foreground.

    Database, heartbeat and agents in one process. Ctrl-C lets runs finish, then stops; a second one stops at once.
    """
    from opencognit.cli.up import up as run

    asyncio.run(run(home, demo=demo))


@uses_home
def worker(
    home: Home,
    capacity: Annotated[int | None, typer.Option(metavar="N", min=1, max=10_000, help="Runs at the same time.")] = None,
) -> None:
    """Run one more node on the same database and home."""
    from opencognit.cli.up import worker as run

    asyncio.run(run(home, capacity=capacity))


def demo(
    path: Annotated[Path | None, typer.Option(metavar="DIR", help="The source tree to survey; else Python's own.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Run the demo goal in a throw-away home.

    Prints the report; exit status 0 only if the goal was achieved.
    """
    from opencognit.cli.up import demo as run

    return asyncio.run(run(tree=path, as_json=as_json))
