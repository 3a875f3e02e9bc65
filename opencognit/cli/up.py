"""`up`, `worker` and `demo`: the commands that run a node in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from opencognit import __version__, daemon, logs
from opencognit import demo as demo_company
from opencognit.cli.progress import follow
from opencognit.config import Home, load_config
from opencognit.errors import OpenCognitError
from opencognit.outlet import Outlet
from opencognit.states import GoalState
from opencognit.work import goals, reports, shapes


@contextmanager
def _outlets() -> Iterator[tuple[Outlet, Outlet]]:
    """Standard output and error as streams that never make the company wait."""
    out, err = Outlet(sys.stdout), Outlet(sys.stderr)
    try:
        yield out, err
    finally:
        out.close()
        err.close()


async def up(home: Home, *, demo: bool) -> None:
    """Run the company until SIGTERM, SIGINT or SIGHUP; with `demo`, show the demo goal first and print its report."""
    with _outlets() as (out, err):
        logs.setup("WARNING" if demo and sys.stderr.isatty() else "INFO", stream=err)
        goal = demo_company.read_goal(home.root) if demo else None
        with daemon.exclusively(home):
            started = time.monotonic()
            print(f"OpenCognit {__version__} · {home.config.company.name} · {home.root}", file=err)
            async with daemon.opened(home, migrate=True) as company:
                print(f"database ready after {time.monotonic() - started:.1f} s", file=err)
                async with _node(company) as stop:
                    print(f"company running: {home.config.runs.capacity} places; Ctrl-C stops it", file=err)
                    if goal is not None:
                        await _until_stopped(_show_demo(company, goal, out, err), stop)
                    await stop.wait()
                    print("stopping: runs get their time to finish; a second Ctrl-C ends at once", file=err)
        print("stopped", file=err)


async def worker(home: Home, *, capacity: int | None) -> None:
    """Run one more node on the company's database until SIGTERM, SIGINT or SIGHUP."""
    with _outlets() as (_, err):
        logs.setup("INFO", stream=err)
        async with daemon.opened(home, migrate=True) as company, _node(company, capacity=capacity) as stop:
            await stop.wait()


@asynccontextmanager
async def _node(company: daemon.Opened, *, capacity: int | None = None) -> AsyncIterator[asyncio.Event]:
    """Run a node beside the body; yields once it claims. The node drains when the body ends or a signal comes."""
    stop, ready = asyncio.Event(), asyncio.Event()
    with daemon.stopping(stop):
        async with asyncio.TaskGroup() as group:
            node = group.create_task(daemon.run_node(company, stop, capacity=capacity, ready=ready))
            waiting = group.create_task(ready.wait())
            await asyncio.wait({node, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            try:
                if not node.done():
                    yield stop
            finally:
                stop.set()


async def _until_stopped(work: asyncio._CoroutineLike[None], stop: asyncio.Event) -> None:
    """Do `work`, but let a stop interrupt it."""
    doing, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
    finally:
        for one in (doing, stopping):
            one.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(doing, stopping, return_exceptions=True)


async def _show_demo(company: daemon.Opened, wanted: demo_company.DemoGoal, out: Outlet, err: Outlet) -> None:
    """Show the demo goal to its end; whatever becomes of the show, the company goes on."""
    try:
        goal_id = await _open_goal(company, wanted)
        await follow(company, goal_id, stream=err)
        async with company.db.transaction() as session:
            print(await reports.current(session, await goals.get(session, goal_id)), file=out)
    except OpenCognitError as error:
        print(f"error: {error}", file=err)


async def _open_goal(company: daemon.Opened, wanted: demo_company.DemoGoal) -> int:
    """Return the demo goal that is still open, else post it."""
    async with company.db.transaction() as session:
        for goal in reversed(await goals.listed(session)):
            if goal.title == wanted.title and goal.status in (GoalState.OPEN, GoalState.PLANNING, GoalState.ACTIVE):
                return goal.id
        return (await goals.post(session, wanted.title, description=wanted.description)).id


async def demo(*, tree: Path | None, as_json: bool) -> int:
    """Run the demo goal in a throw-away home; print the report; return the exit status."""
    logs.setup("ERROR")
    with tempfile.TemporaryDirectory(prefix="opencognit-demo-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        demo_company.write_company(root)
        wanted = demo_company.read_goal(root, tree)
        home = Home(root, load_config(root, {}))
        async with daemon.opened(home) as company, _node(company):
            goal_id = await _open_goal(company, wanted)
            state = await follow(company, goal_id, quiet=as_json)
            async with company.db.transaction() as session:
                goal = await goals.get(session, goal_id)
                report = await reports.current(session, goal)
                document = {**shapes.goal(goal), "report": report}
        print(json.dumps(document, ensure_ascii=False, indent=2) if as_json else report, flush=True)
    if state is not GoalState.ACHIEVED:
        raise OpenCognitError(f"the demo goal ended {state}: its report says why")
    return 0
