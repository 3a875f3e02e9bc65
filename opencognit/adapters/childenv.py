"""What a child process of a run gets of the world: its environment and a private folder with its briefing.

The environment is built from nothing, so that no secret of the daemon or of another adapter is in it. The folder's name
carries the run's mark, by which all that the run started is found again.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opencognit.adapters.orphans import NODE_MARK
from opencognit.contracts import Briefing, RunContext

INHERITED = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")
RESERVED_PREFIX = "OPENCOGNIT_"

_serial = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ChildWorld:
    """`briefing_json` is the briefing as the child reads it; `unset` are names it should get but the daemon lacks."""

    env: dict[str, str]
    mark: str
    briefing_json: bytes
    unset: tuple[str, ...]


def bad_names(names: object) -> str | None:
    """Return what is wrong with `adapter_config.env`, or None."""
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return "`env` must be a list of names of environment variables"
    for name in names:
        if not name or "=" in name or "\0" in name:
            return f"`env`: {name!r} cannot be the name of an environment variable: give names only, values stay outside the file"
        if name.startswith(RESERVED_PREFIX):
            return f"`env`: {name!r} is set for each run, or is the daemon's own affair: leave it out"
    return None


@contextmanager
def prepare(briefing: Briefing, context: RunContext, names: Sequence[str] = ()) -> Iterator[ChildWorld]:
    """Make the workspace and the private folder (both 0700) and yield the child's world; the folder goes afterwards.

    A node that dies leaves its folder in `data/runtime`; nothing in it is of use to anybody then.
    """
    context.workspace.mkdir(parents=True, exist_ok=True, mode=0o700)
    mark = f"run-{context.run_id}-{NODE_MARK}-{next(_serial)}"
    folder = context.home.resolve() / "data" / "runtime" / mark
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.mkdir(mode=0o700)
    try:
        content = briefing.model_dump_json().encode()
        path = folder / "briefing.json"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        yield ChildWorld(
            env=_environment(briefing, context, path, names),
            mark=mark,
            briefing_json=content,
            unset=tuple(name for name in names if name not in os.environ),
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment(briefing: Briefing, context: RunContext, path: Path, names: Sequence[str]) -> dict[str, str]:
    env = {name: os.environ[name] for name in (*INHERITED, *names) if name in os.environ}
    env.setdefault("PATH", os.defpath)
    env |= getattr(context, "child_env", {})
    return env | {
        "OPENCOGNIT_RUN_ID": briefing.run_id,
        "OPENCOGNIT_TASK_ID": briefing.task.id if briefing.task else "",
        "OPENCOGNIT_AGENT": briefing.agent.name,
        "OPENCOGNIT_WORKSPACE": str(context.workspace),
        "OPENCOGNIT_BRIEFING": str(path),
    }
