"""`init` makes a home; `doctor` looks at one, however broken it is."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from opencognit.cli import output
from opencognit.cli.common import Debug, HomeOption, Json
from opencognit.errors import InvalidInput

_WIDTHS = {"ok": "ok    ", "warn": "warn  ", "fail": "fail  "}


def init(
    ctx: typer.Context,
    folder: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="The new home; else this folder.")] = None,
    home: HomeOption = None,
    debug: Debug = False,
) -> None:
    """Write a new home: configuration, a CEO, two experts."""
    from opencognit import scaffold

    named = home if home is not None else ctx.obj
    if folder is not None and named is not None:
        raise InvalidInput("DIR", f"is given twice, as {str(folder)!r} and as --home {str(named)!r}: keep one")
    target = folder or named or Path()
    written = scaffold.write_home(target)
    root = target.expanduser().absolute()
    for path in written:
        output.write(f"wrote {path}")
    output.write(f"\nnext: cd {root} && opencognit up")


def doctor(ctx: typer.Context, as_json: Json = False, home: HomeOption = None, debug: Debug = False) -> int:
    """Check everything that a company needs.

    Each finding comes with its mend; exit status 1 if something fails.
    """
    from opencognit import logs
    from opencognit.cli import checks

    logs.setup("DEBUG" if debug else "ERROR")
    findings = checks.examine(home if home is not None else ctx.obj)
    if as_json:
        output.json_items(asdict(one) for one in findings)
    else:
        width = max(len(one.name) for one in findings)
        for one in findings:
            output.marked(_WIDTHS[one.status], f"{one.name:<{width}}  {output.line(one.detail, 1000)}")
            if one.mend:
                output.write(f"      {'':<{width}}  → {one.mend}")
    return 1 if any(one.status == "fail" for one in findings) else 0
