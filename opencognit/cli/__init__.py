"""The command line: which commands there are, and how an error becomes one line and an exit status. Decides nothing else.

Exit status: 0 done; 1 failed; 2 usage; 3 no such thing; 4 refused; 5 database or daemon not reachable; 130 interrupted.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.main import get_command

from opencognit import __version__
from opencognit.cli import agents, approvals, company, db, goals, home, memory, model, node, routines, runs, souls, tasks
from opencognit.cli.common import Command, Debug, HomeOption
from opencognit.cli.output import line, note
from opencognit.cli.values import check_arguments
from opencognit.errors import OpenCognitError, Unreachable, UsageError

INTERRUPTED = 130

NOUNS = {
    "goal": goals.app,
    "task": tasks.app,
    "agent": agents.app,
    "run": runs.app,
    "approval": approvals.app,
    "routine": routines.app,
    "memory": memory.app,
    "soul": souls.app,
    "model": model.app,
    "db": db.app,
}
VERBS: dict[str, Command] = {
    "init": home.init,
    "up": node.up,
    "worker": node.worker,
    "demo": node.demo,
    "status": company.status,
    "doctor": home.doctor,
    "pause": company.pause,
    "resume": company.resume,
    "activity": company.activity,
    "cost": company.cost,
}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"opencognit {__version__}")
        raise typer.Exit


def _root(
    ctx: typer.Context,
    home: HomeOption = None,
    debug: Debug = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """A company of AI agents on one shared brain: post a goal, and watch it being worked on."""
    ctx.obj = home
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def build() -> typer.Typer:
    """Return the application with every command."""
    app = typer.Typer(
        name="opencognit",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    for name, function in VERBS.items():
        app.command(name)(function)
    for name, noun in NOUNS.items():
        app.add_typer(noun, name=name)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; every error is one line on standard error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _ready_streams()
    try:
        check_arguments(arguments)
        answer = get_command(build()).main(args=arguments, prog_name="opencognit", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as stop:  # typer's own answer to a reader that has gone
        _reader_gone()
        return stop.code if isinstance(stop.code, int) else 1
    except Exception as error:  # noqa: BLE001 - the boundary: whatever went wrong becomes one line here
        if "--debug" in arguments:
            traceback.print_exception(error)
        return _tell(_cause(error))
    return answer if isinstance(answer, int) else 0


def _ready_streams() -> None:
    """Let every text be printed: where the terminal lacks a character, and where the caller has closed a stream."""
    if sys.stdout is None:
        sys.stdout = io.StringIO()
    if sys.stderr is None:
        sys.stderr = io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _cause(error: BaseException) -> BaseException:
    """Return what a group of errors is about: one of ours before any other."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_cause(one) for one in error.exceptions]
    return next((one for one in leaves if isinstance(one, OpenCognitError)), leaves[0])


def _tell(error: BaseException) -> int:
    """Say in one line what went wrong; return the exit status."""
    if isinstance(error, OpenCognitError):
        note(f"error: {line(str(error), 4000)}")
        return error.exit_code
    if (told := _usage(error)) is not None:
        note(f"error: {told}")
        return UsageError.exit_code
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        note(f"error: {line(where + (error.strerror or str(error)).lower())}: mend that and try again")
        return OpenCognitError.exit_code
    if type(error).__module__.startswith(("sqlalchemy.", "psycopg.")):
        said = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        note(f"error: the database refused ({line(said)}): see `opencognit doctor`, or try again with --debug")
        return Unreachable.exit_code if type(error).__name__ == "OperationalError" else OpenCognitError.exit_code
    note(f"error: {type(error).__name__}: {line(str(error))} (a fault of OpenCognit itself: --debug shows where)")
    return OpenCognitError.exit_code


def _usage(error: Any) -> str | None:
    """Return typer's complaint about the arguments in our form; None for any other error."""
    if not isinstance(error, typer.TyperException):
        return None
    context = getattr(error, "ctx", None)
    said = line(error.format_message()).rstrip(".").replace("Value error, ", "")
    said = said[:1].lower() + said[1:]
    if context is None:
        return said
    if said == "missing command":
        return f"{context.command_path}: name a command: {', '.join(context.command.commands)}"
    if hasattr(error, "option_name"):
        said += " (a text that begins with - goes after --)"
    return f"{said}: see `{context.command_path} --help`"


def _reader_gone() -> int:
    """Standard output is a pipe that nobody reads any more: say nothing, now and at the interpreter's end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return OpenCognitError.exit_code
