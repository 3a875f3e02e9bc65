"""Shows how a goal comes along: a live table on a terminal, plain lines elsewhere. Reads; changes nothing."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from opencognit import daemon
from opencognit.errors import OpenCognitError, Unreachable
from opencognit.models import Goal, Task
from opencognit.outlet import Outlet
from opencognit.states import GoalState, TaskKind, TaskState
from opencognit.work import goals

POLL_S = 0.2
ALONE_S = 10.0
"""How long a goal may be followed while no node is alive, before that is an error."""
AWAY_S = 60.0
"""How long the database may be away, as while its server comes back, before following gives up."""
COLOURS = {
    TaskState.DONE: "green",
    TaskState.BLOCKED: "red",
    TaskState.IN_PROGRESS: "cyan",
    TaskState.TODO: "yellow",
    TaskState.CANCELLED: "dim",
}


class View(Protocol):
    def show(self, goal: Goal, tasks: Sequence[Task]) -> None: ...
    def close(self) -> None: ...


async def follow(
    company: daemon.Opened,
    goal_id: int,
    *,
    timeout_s: float | None = None,
    quiet: bool = False,
    stream: TextIO | Outlet | None = None,
) -> GoalState:
    """Wait until the goal is over and reported; return its state.

    Raises OpenCognitError when `timeout_s` passes first, Unreachable when no node works on the company any more.
    """
    view = _view(quiet, stream if stream is not None else sys.stderr)
    started = alive = answered = time.monotonic()
    lonely = False
    try:
        while True:
            now = time.monotonic()
            try:
                async with company.db.reading() as session:
                    goal, tasks = await goals.get(session, goal_id), await goals.tasks_of(session, goal_id)
                    over = await goals.is_over(session, goal_id)
                if now - alive > ALONE_S and not over:
                    lonely, alive = not await daemon.is_running(company), now
            except Unreachable:
                if now - answered > AWAY_S:
                    raise
                await asyncio.sleep(POLL_S)
                continue
            answered = now
            await asyncio.to_thread(view.show, goal, tasks)  # a terminal may be stopped, the company must not
            if over:
                return GoalState(goal.status)
            if timeout_s is not None and now - started > timeout_s:
                raise OpenCognitError(
                    f"goal {goal_id} is still {goal.status} after {timeout_s:g} s: `goal show {goal_id}` follows it"
                )
            if lonely:
                raise Unreachable(f"nobody works on goal {goal_id} any more: start the company with `opencognit up`")
            await asyncio.sleep(POLL_S)
    finally:
        view.close()


def _view(quiet: bool, stream: TextIO | Outlet) -> View:
    if quiet:
        return _Silent()
    console = Console(stderr=True)
    return _LiveTable(console) if console.is_terminal else _Lines(stream)


class _Silent:
    def show(self, goal: Goal, tasks: Sequence[Task]) -> None:
        """Say nothing."""

    def close(self) -> None:
        """Nothing to close."""


class _Lines:
    """One line for each change."""

    def __init__(self, stream: TextIO | Outlet) -> None:
        self._stream = stream
        self._seen: dict[tuple[str, int], str] = {}

    def show(self, goal: Goal, tasks: Sequence[Task]) -> None:
        for task in tasks:
            who = f" ({task.assignee})" if task.assignee else ""
            why = f": {_line(task.reason)}" if task.status == TaskState.BLOCKED or not task.assignee else ""
            self._say("task", task.id, task.status, f"{task.title}{who}{why}")
        self._say("goal", goal.id, goal.status, goal.title + (f": {_line(goal.reason)}" if goal.reason else ""))

    def _say(self, kind: str, ident: int, status: str, rest: str) -> None:
        if self._seen.get((kind, ident)) != status:
            self._seen[kind, ident] = status
            print(f"{time.strftime('%H:%M:%S')} {kind} {ident} {status:<11} {_line(rest)}", file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing to close."""


class _LiveTable:
    """The goal's tasks as a table that changes in place, with a row a task."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=8, transient=False)
        self._live.start()
        self._since: dict[int, float] = {}
        self._took: dict[int, float] = {}

    def show(self, goal: Goal, tasks: Sequence[Task]) -> None:
        table = Table(title=Text(f"{goal.title} · {goal.status}"), title_justify="left", expand=False)
        for name in ("task", "who", "state", "time"):
            table.add_column(name, no_wrap=name != "task")
        for task in tasks:
            state = TaskState(task.status)
            label = task.title if task.kind != TaskKind.WORK else f"  {task.title}"
            table.add_row(
                Text(_line(label)), Text(task.assignee or "nobody"), Text(state, style=COLOURS.get(state, "")), self._time(task)
            )
        self._live.update(table)

    def _time(self, task: Task) -> str:
        now = time.monotonic()
        if task.status == TaskState.IN_PROGRESS:
            return f"{now - self._since.setdefault(task.id, now):.1f} s"
        if task.id in self._since:
            self._took.setdefault(task.id, now - self._since[task.id])
        return f"{self._took[task.id]:.1f} s" if task.id in self._took else ""

    def close(self) -> None:
        self._live.stop()


def _line(text: str) -> str:
    """Text of others on one line, without control characters."""
    return "".join(c if c.isprintable() else " " for c in text)[:300]
