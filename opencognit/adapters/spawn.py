"""The start of a child process: what is started, in a session of its own, and in what words it tells that it cannot be.

Translates every error of the system into one that names the binary and the mend. Does not wait for anything.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opencognit.errors import AdapterError, AdapterFailed, AdapterUnavailable

PASSING_ERRORS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY, errno.EINTR})
"""The machine is short of something for the moment; nothing is wrong with the command."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to start. `env` is all the environment it gets; `mark` is the random part of its `OPENCOGNIT_BRIEFING`."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    mark: str
    stdin: bytes = b""


def start(command: Command) -> subprocess.Popen[bytes]:
    """Start `command` as the leader of a new session, its three streams unbuffered pipes; raises AdapterError."""
    try:
        return subprocess.Popen(
            list(command.argv),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=command.cwd,
            env=dict(command.env),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise _cannot_start(command, error) from error


def _cannot_start(command: Command, error: OSError | ValueError) -> AdapterError:
    """Name the binary, why it does not start, and what to do."""
    binary = command.argv[0]
    code = error.errno if isinstance(error, OSError) else None
    if code in PASSING_ERRORS:
        return AdapterUnavailable(
            f"{binary!r} could not be started for now: {error}: the machine lacks memory, processes or files"
        )
    found = shutil.which(binary, path=command.env.get("PATH")) or ((command.cwd / binary).exists() if "/" in binary else None)
    if not command.cwd.is_dir():
        why = f"its working folder {str(command.cwd)!r} is not a folder: create it, or mend the agent's `workdir`"
    elif not os.access(command.cwd, os.X_OK):
        why = f"its working folder {str(command.cwd)!r} may not be entered: mend its mode or owner"
    elif isinstance(error, ValueError):
        why = f"its arguments or environment hold what no system can pass ({error}): mend the agent's `command` and `env`"
    elif code == errno.ENOENT and found:
        why = "the interpreter that its first line names does not exist: install it, or mend that line"
    elif code == errno.ENOENT:
        why = "it is not installed, or not on the daemon's PATH: install it, or give its full path in `command`"
    elif code in (errno.EACCES, errno.EPERM):
        why = "it is not an executable file: `chmod +x` it, or mend `command`"
    elif code == errno.ENOEXEC:
        why = "it is no program of this machine and has no `#!` line: add one, or start it by its interpreter"
    elif code == errno.E2BIG:
        why = "its arguments and environment are too long: pass large data by a file or by standard input"
    else:
        why = f"{error}: mend the agent's `command`"
    return AdapterFailed(f"{binary!r} cannot be started: {why}")
