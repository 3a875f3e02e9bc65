"""`soul`: who an agent is, as text. Works on the home's files alone, without a database."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opencognit.cli import output
from opencognit.cli.common import Json, uses_home
from opencognit.errors import ConfigError, NotFound, OpenCognitError, Refused

if TYPE_CHECKING:
    from opencognit.agents import AgentSpec
    from opencognit.config import Home
    from opencognit.souls import Soul

app = typer.Typer(help="Souls: check, render, write to a file.")

Name = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name.")]


@app.command()
@uses_home
def check(
    home: Home,
    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILE ...]", help="Soul files; none: every agent's.")] = None,
    as_json: Json = False,
) -> int:
    """Check souls: reading, syntax, names. Each problem is one line; exit status 2 if there is any."""
    from opencognit import souls

    if files:
        found = [error for path in files if (error := souls.check_file(path)) is not None]
        checked = f"{len(files)} soul files are good"
    else:
        specs = _specs(home)
        found = souls.check(specs.values(), home=home.root, **_about(home))
        checked = f"the souls of {', '.join(specs) or 'nobody'} are good"
    if as_json:
        output.json_items({"path": str(one.path), "line": one.line, "problem": one.problem} for one in found)
    else:
        for error in found:
            output.note(f"error: {output.line(str(error))}")
        if not found:
            output.write(checked)
    return ConfigError.exit_code if found else 0


@app.command()
@uses_home
def render(home: Home, name: Name, as_json: Json = False) -> None:
    """Print the text that an agent is told about itself."""
    soul = _render(home, name)
    if as_json:
        source = None if soul.source_path is None else str(soul.source_path)
        output.json_document({"agent": name, "text": soul.text, "sha256": soul.sha256, "source": source})
    else:
        output.write(output.block(soul.text))


@app.command()
@uses_home
def export(
    home: Home,
    name: Name,
    to: Annotated[Path | None, typer.Option(metavar="F", help="The file to write; else AGENT.soul.md in this folder.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write the text that an agent really uses to a file, its prompt if it has no soul file."""
    soul = _render(home, name)
    path = (to if to is not None else Path(f"{name}.soul.md")).expanduser()
    try:
        _write(path, soul.text, force)
    except FileExistsError:
        raise Refused(f"{path} is there already: name another with --to, or write over it with --force") from None
    except OSError as error:
        raise OpenCognitError(
            f"{path}: cannot be written ({(error.strerror or str(error)).lower()}): name another with --to"
        ) from error
    output.write(f"the soul of {name} is in {path}")


def _write(path: Path, text: str, force: bool) -> None:
    """Write the whole text or leave the old file as it is: first beside it, then moved into its place."""
    if not force:
        with path.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8", newline="\n")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _render(home: Home, name: str) -> Soul:
    from opencognit import souls

    return souls.render(_spec(home, name), home=home.root, **_about(home))


def _specs(home: Home) -> dict[str, AgentSpec]:
    from opencognit import adapters
    from opencognit.agents import load_agents

    return load_agents(home.root, known_adapters=adapters.names())


def _spec(home: Home, name: str) -> AgentSpec:
    from opencognit.config.problems import nearest

    specs = _specs(home)
    if name not in specs:
        raise NotFound("agent", name[:80], nearest(name[:80], specs, f"the agents here are: {', '.join(specs) or 'none yet'}"))
    return specs[name]


def _about(home: Home) -> dict[str, Any]:
    company = home.config.company
    return {"company": company, "language": company.language, "timezone": company.timezone}
