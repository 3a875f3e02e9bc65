"""A whole node against a real database: goals go through, and every way of going wrong ends in order."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from opencognit import adapters, brain, daemon
from opencognit.adapters.ceo import CeoAdapter
from opencognit.brain import Indexer
from opencognit.config import Home
from opencognit.contracts import Briefing, RunContext
from opencognit.db import Database
from opencognit.engine import brief, loops
from opencognit.engine.node import Node
from opencognit.errors import AdapterFailed, AdapterUnavailable, Unreachable
from opencognit.states import GoalState, RunState, TaskState
from opencognit.testing import Script, ScriptedAdapter, until
from opencognit.work import goals, roster, runs, steering
from tests.conftest import MakeHome
from tests.integration import company

EXPERT = 'adapter = "bash"\nskills = ["{skill}"]\n[adapter_config]\ncommand = "true"\n'
AGENTS = {
    "ceo": 'adapter = "ceo"',
    "ann": EXPERT.format(skill="parsing"),
    "bob": EXPERT.format(skill="painting"),
}
CONFIG = "[runs]\nlease_s = 2\ndrain_s = 0.2\n[heartbeat]\ninterval_s = 0.5\n"


@asynccontextmanager
async def running(db: Database, home: Home, scripted: ScriptedAdapter) -> AsyncIterator[Node]:
    """A node that works on the home with scripted experts and the real rules CEO; drained at the end."""
    opened = daemon.Opened(home, db, None)
    await daemon.sync_agents(opened)
    node, stop = Node(db, home, registry=scripted.only(CeoAdapter())), asyncio.Event()
    task = asyncio.create_task(node.run(stop))
    try:
        await asyncio.wait({task, asyncio.create_task(node.ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
        yield node
    finally:
        stop.set()
        await task


@pytest.fixture
def home(make_home: MakeHome) -> Home:
    return make_home(agents=AGENTS, config=CONFIG)


async def _post(db: Database, text: str) -> int:
    async with db.transaction() as session:
        return (await goals.post(session, "Ship it", description=text)).id


async def _over(db: Database, goal_id: int) -> GoalState:
    async def state() -> GoalState | None:
        async with db.transaction() as session:
            over = await goals.is_over(session, goal_id)
            return GoalState((await goals.get(session, goal_id)).status) if over else None

    found: GoalState = await until(state)
    return found


async def test_a_goal_goes_from_post_to_report(db: Database, home: Home) -> None:
    """Plan, two experts, a memory that the second finds in its briefing, the first's result as its input, a report."""
    scripted = ScriptedAdapter({"ann": "the parser is ready\n[REMEMBER:api] parsing happens in grammar.py", "bob": "painted"})
    async with running(db, home, scripted):
        goal_id = await _post(db, "- [ ] parsing of the file\n  - [ ] painting of the parsing tree")
        assert await _over(db, goal_id) is GoalState.ACHIEVED
    ann, bob = scripted.briefings
    assert (ann.agent.name, bob.agent.name) == ("ann", "bob")
    assert [one.result.strip() for one in bob.inputs] == ["the parser is ready"]
    assert [memory.content for memory in bob.memories] == ["parsing happens in grammar.py"]
    async with db.transaction() as session:
        report = (await goals.get(session, goal_id)).report
    assert report is not None
    assert "the parser is ready" in report
    assert await company.value(db, "SELECT count(*) FROM runs WHERE status = 'running'") == 0
    assert await company.value(db, "SELECT count(*) FROM wakeups WHERE status IN ('queued', 'claimed')") == 0


async def test_a_goal_without_a_checklist_is_one_task(db: Database, home: Home) -> None:
    """The whole goal is given to whoever fits."""
    async with running(db, home, ScriptedAdapter()):
        goal_id = await _post(db, "please do the parsing")
        assert await _over(db, goal_id) is GoalState.ACHIEVED
    assert [tuple(row) for row in await company.rows(db, "SELECT title, assignee FROM tasks WHERE kind = 'work'")] == [
        ("Ship it", "ann")
    ]


@pytest.mark.parametrize(
    ("error", "run_state", "task_state"),
    [
        (AdapterFailed("exit 3"), RunState.FAILED, TaskState.BLOCKED),
        (AdapterUnavailable("busy"), RunState.FAILED, TaskState.TODO),
        (ValueError("a bug\0 with NUL \ud800"), RunState.FAILED, TaskState.BLOCKED),
    ],
)
async def test_an_adapter_that_breaks_ends_its_run_and_nothing_else(
    db: Database, home: Home, error: Exception, run_state: RunState, task_state: TaskState
) -> None:
    """The node goes on; run and task say what happened."""
    async with running(db, home, ScriptedAdapter({"ann": error})):
        broken = await company.give(db, "ann")
        fine = await company.give(db, "bob")

        async def both_ended() -> bool:
            return bool(await company.value(db, "SELECT count(*) FROM runs WHERE ended_at IS NOT NULL") == 2)

        await until(both_ended)
    assert await company.value(db, "SELECT status FROM runs WHERE agent = 'ann'") == run_state
    assert (await company.task(db, broken)).status == task_state
    assert (await company.task(db, fine)).status == TaskState.DONE


def hanging(started: asyncio.Event, ended: asyncio.Event) -> Script:
    """An agent that works until it is stopped."""

    async def work(_: Briefing, context: RunContext) -> str:
        await context.log("working\n")
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()
        return "never"

    return work


async def test_cancelling_a_run_stops_it_and_blocks_its_task(db: Database, home: Home) -> None:
    """The adapter is stopped at once, not at the next renewal; what it logged is kept."""
    started, ended = asyncio.Event(), asyncio.Event()
    async with running(db, home, ScriptedAdapter({"ann": hanging(started, ended)})):
        task_id = await company.give(db, "ann")
        await asyncio.wait_for(started.wait(), 10)
        run_id = await company.value(db, "SELECT execution_run_id FROM tasks")
        async with db.transaction() as session:
            await runs.cancel(session, run_id, by="board")
        await asyncio.wait_for(ended.wait(), 10)

        async def booked() -> bool:
            return bool(await company.value(db, "SELECT status FROM runs") == RunState.CANCELLED)

        await until(booked)
    task = await company.task(db, task_id)
    assert (task.status, task.execution_run_id) == (TaskState.BLOCKED, None)
    assert await company.value(db, "SELECT chunk FROM run_log") == "working\n"


async def test_a_drain_gives_the_work_back_without_an_attempt_used(db: Database, home: Home) -> None:
    """Stopped by its node: the task is ready, nothing is locked, and the next node's run is attempt 1."""
    started, ended = asyncio.Event(), asyncio.Event()
    async with running(db, home, ScriptedAdapter({"ann": hanging(started, ended)})):
        task_id = await company.give(db, "ann")
        await asyncio.wait_for(started.wait(), 10)
    task = await company.task(db, task_id)
    assert (task.status, task.execution_run_id, task.attempt) == (TaskState.TODO, None, 0)
    async with running(db, home, ScriptedAdapter()):

        async def done() -> bool:
            return (await company.task(db, task_id)).status == TaskState.DONE

        await until(done)
    assert (await company.task(db, task_id)).attempt == 1


async def test_a_run_that_was_taken_over_is_stopped_and_books_nothing(db: Database, home: Home) -> None:
    """The node finds at its next renewal that the run is another's, kills the adapter, and writes nothing."""
    started, ended = asyncio.Event(), asyncio.Event()
    async with running(db, home, ScriptedAdapter({"ann": hanging(started, ended)})):
        await company.give(db, "ann")
        await asyncio.wait_for(started.wait(), 10)
        async with db.transaction() as session:
            await roster.pause(session, "ann", by="board")
        from sqlalchemy import text

        async with db.transaction() as session:
            await session.execute(text("UPDATE runs SET node_id = 'other', token = nextval('fencing_token')"))
        await asyncio.wait_for(ended.wait(), 10)
    assert await company.value(db, "SELECT count(*) FROM comments") == 0


async def test_two_comments_during_a_run_give_one_more_run_that_sees_both(db: Database, home: Home) -> None:
    """Events during a run wait for its end; one further run has them all, though the first completed the task."""
    started, release = asyncio.Event(), asyncio.Event()

    async def first_waits(briefing: Briefing, _: RunContext) -> str:
        started.set()
        await release.wait()
        return f"run with {len(briefing.comments)} comments"

    scripted = ScriptedAdapter({"ann": first_waits})
    async with running(db, home, scripted):
        task_id = await company.give(db, "ann")
        await asyncio.wait_for(started.wait(), 10)
        for words in ("one", "two"):
            async with db.transaction() as session:
                await steering.comment(session, task_id, words, by="board")
        release.set()

        async def two_runs() -> bool:
            return bool(await company.value(db, "SELECT count(*) FROM runs WHERE status = 'succeeded'") == 2)

        await until(two_runs)
    seen = [[comment.text for comment in briefing.comments] for briefing in scripted.briefings]
    assert seen[0] == []
    assert seen[1][:2] == ["one", "two"]
    task = await company.task(db, task_id)
    assert (task.status, task.result) == (TaskState.DONE, "run with 0 comments")


async def test_a_real_bash_agent_gets_its_briefing_and_nothing_of_the_daemons_secrets(
    db: Database, make_home: MakeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child sees the contract's variables only; its stdout is the task's result."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    agents = {"ceo": 'adapter = "ceo"', "ann": 'adapter = "bash"\n[adapter_config]\ncommand = "env | sort; cat > /dev/null"\n'}
    home = make_home(agents=agents, config=CONFIG)
    opened = daemon.Opened(home, db, None)
    await daemon.sync_agents(opened)
    stop = asyncio.Event()
    node = asyncio.create_task(Node(db, home).run(stop))
    task_id = await company.give(db, "ann")

    async def done() -> bool:
        return (await company.task(db, task_id)).status == TaskState.DONE

    await until(done)
    stop.set()
    await node
    shown = (await company.task(db, task_id)).result or ""
    names = {line.partition("=")[0] for line in shown.splitlines() if "=" in line}
    assert "sk-secret" not in shown
    allowed = {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "PWD", "SHLVL", "_", "OLDPWD"}
    assert {name for name in names if not name.startswith("OPENCOGNIT_")} <= allowed
    assert {"OPENCOGNIT_RUN_ID", "OPENCOGNIT_TASK_ID", "OPENCOGNIT_AGENT", "OPENCOGNIT_WORKSPACE", "OPENCOGNIT_BRIEFING"} <= names
    assert "bash" in adapters.names()
    assert json.loads(json.dumps(shown))


async def test_a_result_that_cannot_be_stored_fails_its_run_and_not_the_node(
    db: Database, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When booking breaks, the run says so and the node works on."""

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the index is full")

    monkeypatch.setattr(brain, "write", broken)
    async with running(db, home, ScriptedAdapter({"ann": "fine\n[REMEMBER:room] something"})):
        first = await company.give(db, "ann")
        second = await company.give(db, "bob")

        async def ended() -> bool:
            return bool(await company.value(db, "SELECT count(*) FROM runs WHERE ended_at IS NOT NULL") == 2)

        await until(ended)
    task = await company.task(db, first)
    assert task.status == TaskState.BLOCKED
    assert "the index is full" in task.reason
    assert (await company.task(db, second)).status == TaskState.DONE


async def test_a_long_runs_lock_is_renewed_up_to_its_own_timeout(db: Database, make_home: MakeHome) -> None:
    """An agent whose file allows more than the lock's time keeps its task until its own timeout, and not longer."""
    slow = 'adapter = "bash"\ntimeout_s = 100\n[adapter_config]\ncommand = "true"\n'
    config = "[runs]\nlease_s = 1\ntimeout_s = 1\ndrain_s = 0.1\n[locks]\nttl_s = 2\n"
    home = make_home(agents={"ceo": 'adapter = "ceo"', "ann": slow}, config=config)
    started, ended = asyncio.Event(), asyncio.Event()
    async with running(db, home, ScriptedAdapter({"ann": hanging(started, ended)})):
        await company.give(db, "ann")
        await asyncio.wait_for(started.wait(), 10)
        first = await company.value(db, "SELECT lock_expires_at FROM tasks")

        async def renewed() -> bool:
            query = "SELECT lock_expires_at > :first + interval '2 s' FROM tasks WHERE execution_run_id IS NOT NULL"
            return bool([row for row in await company.rows(db, query, first=first) if row[0]])

        await until(renewed)
        assert not ended.is_set()
    assert await company.value(db, "SELECT count(*) FROM runs") == 1


@pytest.mark.parametrize("error", [TypeError, RuntimeError])
async def test_a_briefing_that_breaks_costs_no_place(
    db: Database, make_home: MakeHome, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Whatever goes wrong when a batch is briefed together, its run goes on alone and its place comes free."""
    home = make_home(agents=AGENTS, config="[runs]\nlease_s = 2\ndrain_s = 0.2\ncapacity = 1\n")
    plain, calls = brief.collect, []

    async def collect(*args: Any, **fields: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            raise error("boom")
        return await plain(*args, **fields)

    monkeypatch.setattr(brief, "collect", collect)
    async with running(db, home, ScriptedAdapter()):
        tasks = [await company.give(db, "ann"), await company.give(db, "bob")]

        async def done() -> bool:
            return {(await company.task(db, one)).status for one in tasks} == {TaskState.DONE}

        await until(done)


async def _leaks(_: Briefing, __: RunContext) -> str:
    inner = asyncio.create_task(asyncio.sleep(60))
    inner.cancel()
    await inner
    return "never"


async def _leaves(_: Briefing, __: RunContext) -> str:
    raise SystemExit(3)


@pytest.mark.parametrize("script", [_leaks, _leaves])
async def test_an_adapter_that_cancels_or_exits_fails_its_run_and_not_the_node(db: Database, home: Home, script: Script) -> None:
    """A cancelled call inside it is not the node's cancel, and its exit not the node's: the run failed, the node works on."""
    async with running(db, home, ScriptedAdapter({"ann": script})):
        await company.give(db, "ann")
        other = await company.give(db, "bob")

        async def ended() -> bool:
            return bool(await company.value(db, "SELECT count(*) FROM runs WHERE ended_at IS NOT NULL") == 2)

        await until(ended)
        assert (await company.task(db, other)).status == TaskState.DONE
    assert await company.value(db, "SELECT status FROM runs WHERE agent = 'ann'") == RunState.FAILED


async def test_the_providers_wish_for_a_pause_reaches_the_wakeup(db: Database, home: Home) -> None:
    """Two hours, said by the adapter's error, and not the five minutes of the first retry."""
    async with running(db, home, ScriptedAdapter({"ann": AdapterUnavailable("429", retry_after_s=7200)})):
        await company.give(db, "ann")

        async def waits() -> bool:
            query = "SELECT count(*) FROM wakeups WHERE status = 'queued' AND not_before > now() + interval '110 min'"
            return bool(await company.value(db, query))

        await until(waits)


STUBBORN = """adapter = "bash"
[adapter_config]
command = '''
trap "" TERM
[ -e trace ] && { echo "$OPENCOGNIT_RUN_ID" >> trace; exit 0; }
i=0
while [ $i -lt 35 ]; do echo "$OPENCOGNIT_RUN_ID" >> trace; sleep 0.1; i=$((i+1)); done
'''
"""


async def test_a_run_that_is_being_stopped_keeps_its_lease_until_it_is_over(db: Database, make_home: MakeHome) -> None:
    """Released, and its process does not listen: no other node starts the task beside it."""
    home = make_home(agents={"ceo": 'adapter = "ceo"', "ann": STUBBORN}, config="[runs]\nlease_s = 1\ndrain_s = 0.2\n")
    await daemon.sync_agents(daemon.Opened(home, db, None))
    other, stop = Database(db.url), asyncio.Event()
    nodes = [asyncio.create_task(Node(one, home).run(stop)) for one in (db, other)]
    try:
        task_id = await company.give(db, "ann")
        trace = home.workspaces / f"task-{task_id}" / "trace"

        async def on() -> bool:
            return trace.exists()

        async def done() -> bool:
            return (await company.task(db, task_id)).status == TaskState.DONE

        await until(on)
        async with db.transaction() as session:
            await steering.release(session, task_id, by="board")
        await until(done, timeout_s=40)
    finally:
        stop.set()
        await asyncio.gather(*nodes)
        await other.close()
    order = [run_id for run_id, _ in itertools.groupby(trace.read_text().split())]
    assert len(order) == len(set(order)) == 2
    assert await company.value(db, "SELECT count(*) FROM runs WHERE status = 'lost'") == 0


async def test_a_brain_that_is_away_for_a_moment_costs_no_attempt(
    db: Database, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server restarts between the claim and the briefing: the run waits for it and does not fail for five minutes."""
    plain, calls = brief.remembering, []

    async def remembering(*args: Any, **fields: Any) -> Any:
        calls.append(args)
        if len(calls) < 3:
            raise Unreachable("the server is starting up")
        return await plain(*args, **fields)

    monkeypatch.setattr(brief, "remembering", remembering)
    async with running(db, home, ScriptedAdapter()):
        task_id = await company.give(db, "ann")

        async def done() -> bool:
            return (await company.task(db, task_id)).status == TaskState.DONE

        await until(done)
    assert await company.value(db, "SELECT count(*) FROM runs") == 1


async def test_a_stop_that_the_driver_swallows_holds_all_the_same(
    db: Database, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped while it is briefed, by a session that is lost in this moment: the adapter is not begun."""
    asked = asyncio.Event()

    async def remembering(_: Any, known: brief.Collected, **__: Any) -> brief.Collected:
        if asked.is_set():
            return known
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Unreachable("terminating connection due to idle-in-transaction timeout") from None
        return known

    monkeypatch.setattr(brief, "remembering", remembering)
    scripted = ScriptedAdapter()
    async with running(db, home, scripted):
        await company.give(db, "ann")
        await asyncio.wait_for(asked.wait(), 10)
        async with db.transaction() as session:
            await runs.cancel(session, 1, by="board")

        async def ended() -> bool:
            return bool(await company.value(db, "SELECT count(*) FROM runs WHERE ended_at IS NOT NULL"))

        await until(ended)
    assert await company.value(db, "SELECT status FROM runs") == RunState.CANCELLED
    assert scripted.briefings == []


async def test_a_loop_that_swallows_its_cancel_ends_with_its_node(
    db: Database, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver may turn a cancel into an error, which a loop is made to survive: the node stops all the same."""
    swallowed = 0

    async def keep(_: Indexer) -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed > 2:
                    raise

    monkeypatch.setattr(Indexer, "keep", keep)
    monkeypatch.setattr(loops, "AGAIN_S", 0.02)
    async with asyncio.timeout(30):
        async with running(db, home, ScriptedAdapter()):
            pass
    assert swallowed == 3
