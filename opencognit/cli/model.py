"""`model`: the embedding model, which finds memories by meaning. Works on the home's files alone, without a database."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from opencognit.cli import output
from opencognit.cli.common import Json, uses_home
from opencognit.errors import ModelUnavailable

if TYPE_CHECKING:
    from opencognit.brain.embed import Report
    from opencognit.config import Home

app = typer.Typer(help="The model that finds memories by meaning: show, pull.")

_ORIGINS = {"config": "named in config.toml", "package": "an installed package", "pulled": "pulled"}


@app.command()
@uses_home
def show(home: Home, as_json: Json = False) -> int:
    """Show which embedder is active and where its files lie; exit status 1 if it cannot work."""
    from opencognit.brain import embed

    settings = home.config.brain
    place, embedder, problem = None, None, None
    try:
        place = embed.check(settings, home.models)
        embedder = embed.open_embedder(settings, home.models)
    except ModelUnavailable as error:
        problem = str(error)
    told = {
        "embedder": settings.embedder,
        "model": settings.model if settings.embedder in embed.WITH_MODEL else None,
        "name": None if embedder is None else embedder.name,
        "dimensions": None if embedder is None else embedder.dimensions,
        "origin": None if place is None else place.origin,
        "folder": None if place is None else str(place.folder),
        "problem": problem,
    }
    if as_json:
        output.json_document(told)
    else:
        origin = f"{place.folder} ({_ORIGINS[place.origin]})" if place is not None else None
        shown = told | {
            "folder": origin,
            "origin": None,
            "problem": problem and f"{problem} (until then words alone find memories)",
        }
        output.fields("embedder", ((name, None if value is None else str(value)) for name, value in shown.items()))
    return 0 if problem is None else 1


@app.command()
@uses_home
def pull(
    home: Home,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="NAME or PUBLISHER/NAME; else the one in config.toml.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch a model from the Hugging Face hub, or the mirror in HF_ENDPOINT; one that is usable already is left as it is."""
    from opencognit.brain import embed

    model = name if name is not None else home.config.brain.model
    endpoint = os.environ.get("HF_ENDPOINT") or embed.HUB
    with _progress() as report:
        pulled = embed.pull(model, home.models, endpoint=endpoint, report=report)
    place, fetched = pulled.place, pulled.bytes_fetched
    if as_json:
        told = {"model": model, "origin": place.origin, "folder": str(place.folder), "bytes_fetched": fetched}
        output.json_document(told)
    elif fetched:
        output.write(f"{model} is in {place.folder} ({fetched / 1e6:.1f} MB fetched)")
    else:
        output.write(f"{model} is usable already, in {place.folder} ({_ORIGINS[place.origin]}): nothing to do")


@contextmanager
def _progress() -> Iterator[Report]:
    """Yield what a pull tells its progress: bars where people look at standard error, else a line for each file."""
    if not sys.stderr.isatty():
        named: set[str] = set()

        def by_line(path: str, done: int, total: int | None) -> None:
            if path not in named:
                named.add(path)
                output.note(f"fetching {output.line(path)}" + ("" if total is None else f" ({total / 1e6:.1f} MB)"))

        yield by_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks = {}

        def by_bar(path: str, done: int, total: int | None) -> None:
            if path not in tasks:
                tasks[path] = bars.add_task(output.line(path), total=total)
            bars.update(tasks[path], completed=done, total=total)

        yield by_bar
