"""The bash adapter: a run is one command, which reads its briefing as JSON and whose standard output is the result.

Owns what the agent file's `command` means and how an exit code is told. Parses nothing of what the command says.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

from opencognit.adapters import childenv, process
from opencognit.adapters.spawn import Command
from opencognit.contracts import Briefing, RunContext, RunResult
from opencognit.errors import AdapterError, AdapterFailed, AdapterUnavailable
from opencognit.textclean import strip_ansi

TRY_AGAIN_LATER = 75
"""EX_TEMPFAIL of sysexits.h: the command itself says that a later attempt may do."""
LAST_LINES = 20
LAST_BYTES = 4096
HINTS = {126: " (found, but cannot be executed)", 127: " (a command was not found)"}


class BashAdapter:
    """Runs `command`: a list is an argument vector, a string goes to `sh -c`."""

    name = "bash"

    def check(self, config: dict[str, Any]) -> str | None:
        """Return what is wrong with `[adapter_config]` and its mend, or None."""
        if config.get("allow_task_commands"):
            return "`allow_task_commands = true` is not offered by this version: remove it and give the agent a `command`"
        command = config.get("command")
        if command is None:
            return 'bash needs `command` in [adapter_config]: a list such as ["{python}", "{home}/agents/x.py"], or a shell line'
        if isinstance(command, str):
            if not command.strip():
                return "`command` is empty: give a shell line, or a list of program and arguments"
        elif not isinstance(command, list | tuple) or not command or not all(isinstance(part, str) for part in command):
            return "`command` must be a shell line, or a list of strings: the program and its arguments"
        elif not command[0]:
            return "`command` starts with an empty string: its first entry must name a program"
        return childenv.bad_names(config.get("env", []))

    async def run(self, briefing: Briefing, context: RunContext) -> RunResult:
        """Run the command in the workspace. Exit 0 gives its output, 75 AdapterUnavailable, anything else AdapterFailed."""
        if problem := self.check(context.config):
            raise AdapterFailed(f"agent {briefing.agent.name!r}: {problem}")
        argv = _argv(context.config["command"], context.home)

        async def log(text: str, stream: str) -> None:
            await context.log(text, stream=stream)

        with childenv.prepare(briefing, context, context.config.get("env", [])) as world:
            finished = await process.run(
                Command(argv=argv, cwd=context.workspace, env=world.env, mark=world.mark, stdin=world.briefing_json),
                context.limits,
                on_output=log,
                spawned=context.spawned,
                reaped=context.reaped,
            )
        text = strip_ansi(finished.stdout)
        if finished.exit_code != 0:
            raise _failure(argv[0], finished, text)
        return RunResult(text=text, exit_code=0, notes=_notes(world, finished))


def _argv(command: str | list[str], home: Path) -> list[str]:
    if isinstance(command, str):
        return ["sh", "-c", command]
    return [part.replace("{home}", str(home.resolve())).replace("{python}", sys.executable) for part in command]


def _notes(world: childenv.ChildWorld, finished: process.Finished) -> tuple[str, ...]:
    notes = [f"`env` names {name!r}, which the daemon does not have: set it before `opencognit up`" for name in world.unset]
    if finished.stdout_left_out_bytes:
        notes.append(f"the output was cut: {finished.stdout_left_out_bytes} bytes between its head and its tail were left out")
    return tuple(notes)


def _failure(program: str, finished: process.Finished, output: str) -> AdapterError:
    code = finished.exit_code
    said = _last_lines(strip_ansi(finished.stderr)) or _last_lines(output)
    tail = f"; it said last:\n{said}" if said else "; it said nothing"
    if code == TRY_AGAIN_LATER:
        return AdapterUnavailable(f"{program!r} exited with 75, try again later{tail}", output=output, exit_code=code)
    return AdapterFailed(f"{program!r} {_ending(code)}{tail}", output=output, exit_code=code)


def _ending(code: int) -> str:
    """Say how it ended; a shell reports a signal to its own child as 128 and the signal's number."""
    if code < 0:
        return f"was killed by {_signal_name(-code)}"
    if code > 128 and (name := _signal_name(code - 128)).startswith("SIG"):
        return f"exited with {code} (128 and {name})"
    return f"exited with {code}{HINTS.get(code, '')}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_lines(text: str) -> str:
    lines = "\n".join(text.rstrip().splitlines()[-LAST_LINES:])
    return lines.encode()[-LAST_BYTES:].decode(errors="ignore")
