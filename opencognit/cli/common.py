"""How a function becomes a command: the options that all share, the home it works on, the company it opens.

Everything heavy is imported when a command runs, never before: `--help` must answer at once.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar, get_type_hints

import typer

if TYPE_CHECKING:
    from opencognit.config import Home
    from opencognit.daemon import Opened

P = ParamSpec("P")
R = TypeVar("R")
Command = Callable[..., Any]

BY = "board"
"""Whoever can open the home's database is the board."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="At most so many, the newest.")]
HomeOption = Annotated[
    Path | None,
    typer.Option("--home", metavar="DIR", help="The company's folder; else OPENCOGNIT_HOME, else the nearest config.toml above."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Say all that is logged, and where an error came from.")]

_LATER = {"Home": object, "Opened": object}
"""Names that commands import for type checking only."""


def uses_home(function: Callable[Concatenate[Home, P], R]) -> Command:
    """Make a command of a function that works on the files of a home."""

    def call(option: Path | None, debug: bool, body: Callable[[Home], R]) -> R:
        return body(open_home(option))

    return _command(function, call)


def opens_company(function: Callable[Concatenate[Opened, P], Coroutine[Any, Any, R]]) -> Command:
    """Make a command of a coroutine function that works on a company: its database is open while it runs."""

    def call(option: Path | None, debug: bool, body: Callable[[Opened], Coroutine[Any, Any, R]]) -> R:
        async def within() -> R:
            async with open_company(open_home(option), debug=debug) as company:
                return await body(company)

        return asyncio.run(within())

    return _command(function, call)


def open_home(option: Path | None) -> Home:
    from opencognit import config

    return config.open_home(option, os.environ, Path.cwd())


@asynccontextmanager
async def open_company(home: Home, *, debug: bool = False) -> AsyncIterator[Opened]:
    """Yield the company with its agents as their files say. A wrong file is told and the last good version holds.

    Raises the file's ConfigError only where there is no good version yet.
    """
    from opencognit import daemon, logs
    from opencognit.cli.output import line, note
    from opencognit.errors import ConfigError
    from opencognit.work import roster

    logs.setup("DEBUG" if debug else "WARNING")
    async with daemon.opened(home) as company:
        try:
            await daemon.sync_agents(company)
        except ConfigError as error:
            async with company.db.transaction() as session:
                if not await roster.everyone(session):
                    raise
            note(f"warning: {line(str(error))} (until then the agents stay as they were)")
        yield company


def _command(function: Callable[..., Any], call: Callable[..., Any]) -> Command:
    """Return a function for typer: the parameters of `function` but its first, and the options that all commands share."""

    @functools.wraps(function)
    def command(ctx: typer.Context, home: Path | None, debug: bool, **given: Any) -> Any:
        option = home if home is not None else ctx.obj
        return call(option, debug, lambda first: function(first, **given))

    hints = get_type_hints(function, localns=_LATER, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]
    named = inspect.Parameter.KEYWORD_ONLY
    shown = [
        inspect.Parameter("ctx", named, annotation=typer.Context),
        *(one.replace(annotation=hints[one.name], kind=named) for one in own),
        inspect.Parameter("home", named, annotation=HomeOption, default=None),
        inspect.Parameter("debug", named, annotation=Debug, default=False),
    ]
    command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in shown}
    return command
