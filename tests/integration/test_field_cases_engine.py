"""Field cases of the engine that no other file tells whole: each test's docstring names its case."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

import opencognit
from opencognit.config import Retry
from opencognit.contracts import (
    Answer,
    AskBoard,
    BlockTask,
    Briefing,
    Comment,
    CompleteTask,
    CreateTask,
    RunContext,
    RunResult,
    Usage,
    Viewer,
)
from opencognit.db import Database
from opencognit.engine import booking, brief, heartbeat
from opencognit.engine.booking import Outcome
from opencognit.engine.heartbeat import Heartbeat
from opencognit.errors import OpenCognitError
from opencognit.states import RunState, TaskState
from opencognit.testing import ScriptedAdapter, until
from opencognit.work import approvals, roster, steering
from opencognit.work.claims import Claimed
from tests.conftest import MakeHome
from tests.integration import company, testclock
from tests.integration.test_booking import ENDINGS
from tests.integration.test_node import AGENTS, running

HOUR, DAY = 3600, 86_400


@pytest.fixture
async def team(db: Database) -> Database:
    await company.hire(db, company.spec("ceo"), company.spec("ann"), company.spec("bob"), company.spec("cid"))
    return db


@pytest.fixture
async def clock(server: str) -> AsyncIterator[Database]:
    """The same company on a database whose time the test moves."""
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS test_field_cases WITH (FORCE)")
        admin.execute("CREATE DATABASE test_field_cases")
    url = re.sub(r"/opencognit\?", "/test_field_cases?", server)
    await asyncio.to_thread(testclock.install, url)
    db = Database(url, search_path=testclock.PATH)
    await company.hire(db, company.spec("ceo"), company.spec("ann"), company.spec("bob"))
    yield db
    await db.close()


async def _beats(db: Database, *, for_s: float, every_s: float) -> list[Claimed]:
    """Let heartbeats and reapers tick while time passes; finish whatever starts, and return it."""
    started: list[Claimed] = []
    for _ in range(round(for_s / every_s)):
        await testclock.advance(db, every_s)
        await heartbeat.beat(db)
        await heartbeat.reap(db)
        for run in await company.claim(db):
            started.append(run)
            await company.finish(db, run)
    return started


# --- 01: locks, own words, loops ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [*ENDINGS, "node lost"])
async def test_after_every_ending_another_agent_can_take_the_task(team: Database, how: str) -> None:
    """F01-01: no ending leaves a lock behind; the second agent's run starts with the next claim."""
    task_id = await company.give(team, "ann")
    (run,) = await company.claim(team)
    if how == "node lost":
        await company.lapse(team, run.run_id)
        assert await heartbeat.reap(team) == 1
    else:
        await company.finish(team, run, **ENDINGS[how][0])  # type: ignore[arg-type]
    async with team.transaction() as session:
        await steering.assign(session, task_id, "bob", by="board")
    assert [(one.agent, one.task_id) for one in await company.claim(team)] == [("bob", task_id)]


async def test_waiting_work_owns_nothing_and_is_taken_once(team: Database) -> None:
    """F01-02: while ann is at X, her queued Y has no lock and anybody may be given it; cancelled and retried, it runs once."""
    first, waiting = await company.give(team, "ann", "X"), await company.give(team, "ann", "Y")
    (run,) = await company.claim(team)
    assert run.task_id == first
    assert await company.claim(team) == []
    assert (await company.task(team, waiting)).execution_run_id is None
    async with team.transaction() as session:
        await steering.cancel(session, waiting, by="board")
    async with team.transaction() as session:
        await steering.retry(session, waiting, by="board")
    await company.finish(team, run)
    taken = [one for batch in await asyncio.gather(*(company.claim(team) for _ in range(4))) for one in batch]
    assert [one.task_id for one in taken] == [waiting]


async def test_an_agents_word_at_the_end_of_each_run_causes_no_run(clock: Database) -> None:
    """F01-05: ann comments by text and by action on her own blocked task, bob on his done one; an hour starts nothing."""
    await company.give(clock, "ann")
    await company.give(clock, "bob")
    ann, bob = sorted(await company.claim(clock), key=lambda run: run.agent)
    assert ann.task_id is not None
    words = (Comment(text="still blocked"), Comment(task_id=str(ann.task_id), text="@ann"), BlockTask(reason="needs a key"))
    await company.finish(clock, ann, Answer(text="I am blocked", actions=words))
    await company.finish(clock, bob, Answer(text="done", actions=(Comment(text="finished, says bob"),)))
    assert await company.value(clock, "SELECT count(*) FROM comments") == 5
    assert (await company.task(clock, ann.task_id)).status == TaskState.BLOCKED
    assert await _beats(clock, for_s=HOUR, every_s=60) == []


@pytest.mark.parametrize("by", ["reaper", "operator"])
async def test_a_lock_of_a_run_that_has_ended_is_freed(team: Database, by: str) -> None:
    """F01-04: however it came about, the next look or `task release` frees it, and the task runs again once."""
    task_id = await company.give(team, "ann")
    (run,) = await company.claim(team)
    assert await heartbeat.reap(team) == 0
    async with team.transaction() as session:
        await session.execute(text("UPDATE runs SET status = 'succeeded', ended_at = now()"))
    if by == "reaper":
        await asyncio.gather(*(heartbeat.reap(team) for _ in range(4)))
    else:
        async with team.transaction() as session:
            await steering.release(session, task_id, by="board")
    (again,) = await company.claim(team)
    assert (again.task_id, again.attempt) == (task_id, run.attempt + 1)
    await company.finish(team, again)
    assert await company.claim(team) == []


async def test_the_boards_word_during_a_run_that_then_fails_is_not_lost(team: Database) -> None:
    """F01-18: it makes the task go on, as the same word a second later would; the further run completes it."""
    task_id = await company.give(team, "ann")
    (run,) = await company.claim(team)
    async with team.transaction() as session:
        await steering.comment(session, task_id, "use the other key", by="board")
    await company.finish(team, run, status=RunState.FAILED, error="no key")
    (again,) = await company.claim(team)
    await company.finish(team, again, "worked")
    assert (await company.task(team, task_id)).status == TaskState.DONE
    assert await company.claim(team) == []


async def test_an_answer_during_a_run_on_the_waiting_task_is_not_lost(team: Database) -> None:
    """F01-18: the task waits for the board, a comment has it looked at, the board answers meanwhile: one run goes on with it."""
    task_id = await company.give(team, "ann")
    (run,) = await company.claim(team)
    await company.finish(team, run, Answer(text="?", actions=(AskBoard(question="which?", options=("a", "b")),)))
    async with team.transaction() as session:
        await steering.comment(session, task_id, "hm", by="bob")
    (run,) = await company.claim(team)
    async with team.transaction() as session:
        (question,) = await approvals.listed(session, pending_only=True)
        await approvals.approve(session, question.id, option="a", by="board")
    await company.finish(team, run, "I will wait")
    (again,) = await company.claim(team)
    await company.finish(team, again, "worked")
    assert await company.claim(team) == []
    assert (await company.task(team, task_id)).status == TaskState.DONE


async def test_work_that_only_splits_itself_ends_blocked_and_told_once(team: Database) -> None:
    """F01-06: each run says "go on" to itself under another name; a few runs, then one question to the board and silence."""
    await company.give(team, "ann")
    runs = 0
    while started := await company.claim(team):
        for run in started:
            runs += 1
            actions = (CreateTask(title=f"go on {runs}", assignee="ann"), Comment(text="continue"))
            await company.finish(team, run, Answer(text="more to do", actions=actions))
        assert runs < 20
    assert await company.value(team, "SELECT count(*) FROM approvals WHERE status = 'pending'") == 1
    assert await company.value(team, "SELECT count(*) FROM tasks WHERE status = 'blocked'") == 1


async def test_who_cannot_hand_work_back_is_blocked_and_the_board_is_told(team: Database) -> None:
    """F01-20: bob can do no more than ann who asked him: his task is not done, and one question names both."""
    await company.give(team, "ann")
    (run,) = await company.claim(team)
    await company.finish(team, run, Answer(text="", actions=(CreateTask(title="for bob", assignee="bob"),)))
    (run,) = await company.claim(team)
    await company.finish(team, run, Answer(text="I cannot", actions=(CreateTask(title="back", assignee="ann"),)))
    assert run.task_id is not None
    assert (await company.task(team, run.task_id)).status == TaskState.BLOCKED
    (question,) = [row.question for row in await company.rows(team, "SELECT question FROM approvals")]
    assert "ann" in question
    assert "bob" in question


@pytest.mark.parametrize("after", ["its parent", "what comes after its parent"])
async def test_a_part_never_waits_for_its_whole(team: Database, after: str) -> None:
    """F01-23: refused when the link is made, with the reason, and everything comes to its end."""
    task_id = await company.give(team, "ann")
    later = await company.give(team, "cid", "later", after=(task_id,))
    (run,) = await company.claim(team)
    link = str(task_id if after == "its parent" else later)
    await company.finish(team, run, Answer(text="", actions=(CreateTask(title="part", assignee="bob", after=(link,)),)))
    assert "waits for your own task" in str(await company.value(team, "SELECT notes FROM runs"))
    while started := await company.claim(team):
        for one in started:
            await company.finish(team, one)
    assert await company.value(team, "SELECT bool_and(status = 'done') FROM tasks")


async def test_two_reapers_at_once_take_a_run_over_once(team: Database) -> None:
    """F01-09: reclaim is compare-and-set; of six nodes that saw the same dead run one wins, and one new run follows."""
    await company.give(team, "ann")
    (run,) = await company.claim(team)
    await company.lapse(team, run.run_id)
    assert sorted(await asyncio.gather(*(heartbeat.reap(team) for _ in range(6)))) == [0, 0, 0, 0, 0, 1]
    assert await company.value(team, "SELECT lost FROM tasks") == 1
    batches = await asyncio.gather(*(company.claim(team, f"node-{n}") for n in range(6)))
    assert sum(map(len, batches)) == 1


async def test_heartbeats_of_all_nodes_at_once_ask_once(team: Database) -> None:
    """F01-09: eight ticks find the same forgotten task at the same moment: one wakeup, one run."""
    await company.give(team, "ann")
    async with team.transaction() as session:
        await session.execute(text("DELETE FROM wakeups"))
        await session.execute(text("UPDATE agents SET next_beat_at = now() - interval '1 s'"))
    await asyncio.gather(*(heartbeat.beat(team) for _ in range(8)))
    assert await company.value(team, "SELECT count(*) FROM wakeups WHERE status = 'queued'") == 1
    assert len(await company.claim(team)) == 1


async def test_a_busy_model_is_left_alone_for_minutes_that_grow(clock: Database) -> None:
    """F01-15: read timeout, a 429 with a longer wish, connection refused: heartbeats every 30 s never shorten the wait,
    jitter only adds to it, attempts are counted and the fourth failure blocks."""
    task_id = await company.give(clock, "ann")
    retry = Retry(jitter=0.1)
    failures = [(RunState.TIMED_OUT, None), (RunState.FAILED, 1200.0), (RunState.FAILED, None), (RunState.TIMED_OUT, None)]
    waits = []
    for attempt, (status, wish_s) in enumerate(failures, 1):
        waited_s = 0
        while not (started := await company.claim(clock)):
            await testclock.advance(clock, 30)
            await heartbeat.beat(clock)
            waited_s += 30
        waits.append(waited_s)
        (run,) = started
        assert run.attempt == attempt
        outcome = Outcome(status, Viewer(agent="ann"), error="slow", retryable=True, retry_after_s=wish_s)
        async with clock.transaction() as session:
            await booking.book(session, run, outcome, retry=retry)
    assert waits[0] == 0
    assert all(least <= wait <= least * 1.1 + 30 for wait, least in zip(waits[1:], (300, 1200, 2700), strict=True))
    assert (await company.task(clock, task_id)).status == TaskState.BLOCKED
    assert await _beats(clock, for_s=HOUR, every_s=300) == []


async def test_a_ring_of_three_is_refused_at_its_last_link(team: Database) -> None:
    """F01-20: ann, bob, cid and back to ann: refused where it would close; splitting a task for oneself stays possible."""
    await company.give(team, "ann")
    for agent, target in (("ann", "bob"), ("bob", "cid")):
        (run,) = await company.claim(team)
        assert run.agent == agent
        await company.finish(team, run, Answer(text="", actions=(CreateTask(title=f"for {target}", assignee=target),)))
    (run,) = await company.claim(team)
    actions = (CreateTask(title="back", assignee="ann"), CreateTask(title="mine", assignee="cid"))
    await company.finish(team, run, Answer(text="", actions=actions))
    assert {row.title for row in await company.rows(team, "SELECT title FROM tasks")} == {"work", "for bob", "for cid", "mine"}


async def test_a_blocker_that_is_gone_already_holds_nobody_up(team: Database) -> None:
    """F01-23: a task after one that is done and one that is cancelled is ready at once, with one wakeup."""
    done, cancelled = await company.give(team, "ann", "done"), await company.give(team, "bob", "cancelled")
    for run in await company.claim(team):
        if run.task_id == done:
            await company.finish(team, run)
        else:
            await company.finish(team, run, status=RunState.FAILED, error="no")
    async with team.transaction() as session:
        await steering.cancel(session, cancelled, by="board")
    later = await company.give(team, "ann", "later", after=(done, cancelled))
    assert [run.task_id for run in await company.claim(team)] == [later]


# --- 02: heartbeats -----------------------------------------------------------------------------------------------


async def test_three_idle_weeks_cost_no_run_and_a_comment_costs_one(clock: Database) -> None:
    """F02-01: heartbeats find no work and start nothing; one unread comment is one run."""
    task_id = await company.give(clock, "ann")
    for run in await company.claim(clock):
        await company.finish(clock, run)
    assert await _beats(clock, for_s=21 * DAY, every_s=4 * HOUR) == []
    async with clock.transaction() as session:
        await steering.comment(session, task_id, "are you there?", by="board")
    assert [run.task_id for run in await _beats(clock, for_s=DAY, every_s=4 * HOUR)] == [task_id]


async def test_the_twentieth_beat_is_told_no_more_than_the_first(team: Database) -> None:
    """F02-04: what an agent gets at a wake has nothing of the wakes before it."""
    sizes = []
    for _ in range(20):
        async with team.transaction() as session:
            await roster.wake(session, "ann", by="board")
        (run,) = await company.claim(team)
        async with team.transaction() as session:
            known = (await brief.collect(session, [run]))[run.run_id]
        sizes.append((known.task, known.goal, list(known.comments), list(known.inputs), list(known.memories)))
        await company.finish(team, run, "nothing happened, at some length")
    assert all(size == (None, None, [], [], []) for size in sizes)


async def test_a_tick_that_breaks_comes_again() -> None:
    """F02-07: neither an expected nor an unexpected error ends a timer, and another timer does not notice."""
    ticks, others, beats = 0, 0, Heartbeat()

    async def breaks() -> None:
        nonlocal ticks
        ticks += 1
        raise OpenCognitError("delivery target none") if ticks % 2 else ValueError("a bug in post-processing")

    async def fine() -> None:
        nonlocal others
        others += 1

    async def enough() -> bool:
        return ticks >= 4 and others >= 4

    beats.every(0.02, "breaks", breaks)
    beats.every(0.02, "fine", fine)
    beats.start()
    try:
        await until(enough)
    finally:
        beats.stop()


async def test_silence_leaves_no_word_behind(db: Database, make_home: MakeHome) -> None:
    """F02-08, F02-09: thirty runs that have nothing to say leave no comment and no memory; their tasks are done."""
    home = make_home(agents=AGENTS)
    async with running(db, home, ScriptedAdapter({"ann": "**HEARTBEAT_OK**", "bob": "a word"})):
        for _ in range(30):
            await company.give(db, "ann")
        await company.give(db, "bob")

        async def all_are_done() -> bool:
            return bool(await company.value(db, "SELECT bool_and(status = 'done') FROM tasks"))

        await until(all_are_done)
    assert [row.author for row in await company.rows(db, "SELECT author FROM comments")] == ["bob"]
    assert await company.value(db, "SELECT count(*) FROM memories") == 0
    assert await company.value(db, "SELECT count(*) FROM runs WHERE result LIKE '%HEARTBEAT%'") == 0


# --- 09: leases and fences ----------------------------------------------------------------------------------------


async def test_a_run_longer_than_its_lease_is_renewed_and_never_doubled(db: Database, make_home: MakeHome) -> None:
    """F09-01: two leases pass while another node's reaper looks all the time; one run, and its result is kept."""
    home = make_home(agents=AGENTS, config="[runs]\nlease_s = 1\n")
    release = asyncio.Event()

    async def long(_: Briefing, __: RunContext) -> str:
        await release.wait()
        return "in the end"

    async with running(db, home, ScriptedAdapter({"ann": long})):
        task_id = await company.give(db, "ann")

        async def two_leases_are_over() -> bool:
            assert await heartbeat.reap(db) == 0
            query = "SELECT now() > started_at + interval '2.5 s' FROM runs"
            return bool([row for row in await company.rows(db, query) if row[0]])

        await until(two_leases_are_over)
        release.set()

        async def done() -> bool:
            return (await company.task(db, task_id)).status == TaskState.DONE

        await until(done)
    assert await company.value(db, "SELECT array_agg(status) FROM runs") == [RunState.SUCCEEDED]
    assert (await company.task(db, task_id)).result == "in the end"


async def test_every_time_that_is_stored_has_its_zone(db: Database) -> None:
    """F09-04: only a routine's slot is a wall time, which is its name and not a moment."""
    query = (
        "SELECT table_name || '.' || column_name FROM information_schema.columns"
        " WHERE table_schema = 'public' AND data_type = 'timestamp without time zone'"
    )
    assert [row[0] for row in await company.rows(db, query)] == ["routine_firings.slot"]


def test_a_machines_own_clock_decides_nothing() -> None:
    """F09-04: no module that owns work reads the wall clock; intervals are monotonic, all else is the database's `now()`."""
    reading = re.compile(r"\btime\.time\(|\bdatetime\.(now|utcnow|today)\(|\bdate\.today\(|\btime_ns\(|\blocaltime\(|\bgmtime\(")
    package = Path(opencognit.__file__).parent
    files = [path for part in ("work", "engine", "db", "models") for path in (package / part).rglob("*.py")]
    files += [package / name for name in ("daemon.py", "events.py", "schedule.py")]
    assert len(files) > 30
    assert [str(path) for path in files if reading.search(path.read_text())] == []


async def test_a_reaper_that_meets_a_booking_waits_and_takes_nothing(team: Database) -> None:
    """F09-06: the lease is over while a slow result is being written; the reaper's statement sees the finished run."""
    task_id = await company.give(team, "ann")
    (run,) = await company.claim(team)
    await company.lapse(team, run.run_id)
    outcome = Outcome(RunState.SUCCEEDED, Viewer(agent="ann"), answer=Answer(text="finished"))
    async with team.transaction() as session:
        await booking.book(session, run, outcome, retry=company.RETRY)
        reaping = asyncio.create_task(heartbeat.reap(team))

        async def reaper_waits() -> bool:
            query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            return bool(await company.value(team, query))

        await until(reaper_waits)
    assert await reaping == 0
    task = await company.task(team, task_id)
    assert (task.status, task.result, task.lost) == (TaskState.DONE, "finished", 0)


@pytest.mark.parametrize("how", ["paused", "removed"])
async def test_lost_work_of_somebody_who_is_away_waits_and_others_go_on(team: Database, how: str) -> None:
    """F09-07: ten rounds of reaping and beating start nothing for an assignee that takes nothing; bob works meanwhile."""
    task_id = await company.give(team, "ann")
    (run,) = await company.claim(team)
    await company.lapse(team, run.run_id)
    async with team.transaction() as session:
        if how == "paused":
            await roster.pause(session, "ann", by="board")
        else:
            rest = [company.spec(name) for name in ("ceo", "bob", "cid")]
            await roster.sync(session, {one.name: one for one in rest}, interval_s=30)
    for _ in range(10):
        await heartbeat.reap(team)
        await heartbeat.beat(team)
        await company.give(team, "bob")
        (other,) = await company.claim(team)
        assert other.agent == "bob"
        await company.finish(team, other)
    task = await company.task(team, task_id)
    assert (task.status, task.lost, task.execution_run_id) == (TaskState.TODO, 1, None)
    async with team.transaction() as session:
        await steering.assign(session, task_id, "cid", by="board")
    assert [one.agent for one in await company.claim(team)] == ["cid"]


async def test_waiting_tasks_are_asked_for_once_however_long_they_wait(clock: Database) -> None:
    """F09-08: one runs and eight wait for ten minutes under three nodes' heartbeats: each keeps its one wakeup of count one."""
    for _ in range(9):
        await company.give(clock, "ann")
    (held,) = await company.claim(clock, lease_s=HOUR)
    for _ in range(20):
        await testclock.advance(clock, 30)
        for node in ("a", "b", "c"):
            await heartbeat.beat(clock)
            assert await heartbeat.reap(clock) == 0
            assert await company.claim(clock, node) == []
    rows = await company.rows(clock, "SELECT task_id, count FROM wakeups WHERE status = 'queued'")
    assert len({row.task_id for row in rows}) == len(rows) == 8
    assert {row.count for row in rows} == {1}
    await company.finish(clock, held)


# --- 13: PostgreSQL -----------------------------------------------------------------------------------------------


NASTY = "a\0b \ud800"


@pytest.mark.parametrize(
    "result",
    [
        RunResult(NASTY),
        RunResult("t", notes=(NASTY,)),
        RunResult("t", usage=(Usage(1, NASTY, None),)),
        RunResult("t", actions=(CompleteTask(result="x\0"), Comment(text="c\0"), CreateTask(title="t\0", assignee="bob"))),
    ],
    ids=["text", "notes", "usage", "actions"],
)
async def test_nothing_an_adapter_returns_is_refused_by_the_database(
    db: Database, make_home: MakeHome, result: RunResult
) -> None:
    """F13-01: by every way out of an adapter, NUL and half characters are replaced and the work is kept."""

    async def work(_: Briefing, __: RunContext) -> RunResult:
        return result

    async with running(db, make_home(agents=AGENTS), ScriptedAdapter({"ann": work})):
        await company.give(db, "ann")

        async def ended() -> bool:
            return bool(await company.value(db, "SELECT count(*) FROM runs WHERE ended_at IS NOT NULL"))

        await until(ended)
    assert await company.value(db, "SELECT status FROM runs ORDER BY id LIMIT 1") == RunState.SUCCEEDED


async def test_no_transaction_is_open_while_an_adapter_works(db: Database, make_home: MakeHome) -> None:
    """F13-02: seen from inside the adapter, no session of the database is in a transaction but the one that looks."""
    seen: list[int] = []

    async def looks(_: Briefing, __: RunContext) -> str:
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND state LIKE 'idle in transaction%' AND pid <> pg_backend_pid()"
        )

        async def none_is_open() -> bool:
            seen.append(await company.value(db, query))
            return seen[-1] == 0

        await until(none_is_open, timeout_s=5)
        return "looked"

    async with running(db, make_home(agents=AGENTS), ScriptedAdapter({"ann": looks})):
        task_id = await company.give(db, "ann")

        async def ended() -> bool:
            return bool(await company.value(db, "SELECT count(*) FROM runs WHERE ended_at IS NOT NULL"))

        await until(ended)
    assert (await company.task(db, task_id)).status == TaskState.DONE
