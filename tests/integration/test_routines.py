"""Routines on a moved clock: each slot once, missed ones as the file says, none on top of an open one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from opencognit.config import Routine
from opencognit.db import Database
from opencognit.errors import NotFound, Refused
from opencognit.states import ApprovalState, RunState
from opencognit.work import approvals, flow, routines, steering
from opencognit.work import company as board
from tests.integration import company, testclock

HOUR = 3600


@pytest.fixture
async def clock(server: str) -> AsyncIterator[Database]:
    """A company on a database whose time the test moves, beginning at a full hour."""
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS test_routines WITH (FORCE)")
        admin.execute("CREATE DATABASE test_routines")
    url = re.sub(r"/opencognit\?", "/test_routines?", server)
    await asyncio.to_thread(testclock.install, url)
    db = Database(url, search_path=testclock.PATH)
    await company.hire(db, company.spec("ceo"), company.spec("ann"))
    into = await company.value(db, "SELECT extract(epoch FROM now() - date_trunc('hour', now()))")
    await testclock.advance(db, HOUR - float(into) + 10)
    yield db
    await db.close()


def hourly(**fields: Any) -> Routine:
    return Routine(**{"name": "look", "cron": "0 * * * *", "agent": "ann", "title": "look around", **fields})


async def _sync(db: Database, *specs: Routine) -> None:
    async with db.transaction() as session:
        await routines.sync(session, specs, timezone="UTC")


async def _tick(db: Database) -> int:
    async with db.transaction() as session:
        return await routines.tick(session)


async def _work(db: Database) -> None:
    for run in await company.claim(db):
        await company.finish(db, run)


async def test_a_slot_fires_once_on_however_many_nodes(clock: Database) -> None:
    """Nothing before its time; then eight ticks at once make one task, and the next slot one more."""
    await _sync(clock, hourly())
    assert await _tick(clock) == 0
    for _ in range(2):
        await testclock.advance(clock, HOUR)
        assert sum(await asyncio.gather(*(_tick(clock) for _ in range(8)))) == 1
        assert await _tick(clock) == 0
        await _work(clock)
    assert await company.value(clock, "SELECT count(*) FROM tasks WHERE created_by = 'routine:look' AND status = 'done'") == 2


async def test_the_slot_key_is_the_arbiter(clock: Database) -> None:
    """A node that comes late with an old idea of the next slot makes nothing: the firing is there already."""
    await _sync(clock, hourly())
    await testclock.advance(clock, HOUR)
    assert await _tick(clock) == 1
    await _work(clock)
    async with clock.transaction() as session:
        await session.execute(text("UPDATE routines SET next_at = now() - interval '60 s'"))
    assert await _tick(clock) == 0


@pytest.mark.parametrize(("catch_up", "tasks"), [("none", 0), ("one", 1), ("all", 3)])
async def test_missed_slots_are_made_up_for_as_the_file_says(clock: Database, catch_up: str, tasks: int) -> None:
    """Three slots passed while nothing ran (F06-06): none, one or all of them run, the others are told."""
    await _sync(clock, hourly(catch_up=catch_up, overlap="queue"))
    await testclock.advance(clock, 3 * HOUR + 600)
    assert await _tick(clock) == tasks
    async with clock.transaction() as session:
        outcomes = [firing.outcome for firing in await routines.firings(session, "look")]
    assert sorted(outcomes) == [routines.FIRED] * tasks + [routines.MISSED] * (3 - tasks)
    assert await company.value(clock, "SELECT count(*) FROM events WHERE type = 'routine.skipped'") == (tasks < 3)
    for _ in range(tasks):
        await _work(clock)
    await testclock.advance(clock, HOUR - 600)
    assert await _tick(clock) == 1


async def test_catching_up_is_bounded(clock: Database) -> None:
    """A month of missed hours is at most a day's worth of tasks."""
    await _sync(clock, hourly(catch_up="all", overlap="queue"))
    await testclock.advance(clock, 40 * 24 * HOUR)
    assert await _tick(clock) == routines.CATCH_UP_LIMIT


async def test_a_slot_is_skipped_and_told_while_the_last_task_is_open(clock: Database) -> None:
    """No overlap with itself; the skipped slot stands in the firings and in the events."""
    await _sync(clock, hourly())
    await testclock.advance(clock, HOUR)
    assert await _tick(clock) == 1
    await testclock.advance(clock, HOUR)
    assert await _tick(clock) == 0
    async with clock.transaction() as session:
        outcomes = [firing.outcome for firing in await routines.firings(session, "look")]
    assert outcomes == [routines.OVERLAPPED, routines.FIRED]
    assert await company.value(clock, "SELECT count(*) FROM events WHERE type = 'routine.skipped'") == 1
    await testclock.advance(clock, HOUR)
    assert await _tick(clock) == 0
    await _work(clock)
    await testclock.advance(clock, HOUR)
    assert await _tick(clock) == 1


async def test_a_changed_routine_starts_with_its_next_future_slot(clock: Database) -> None:
    """A restart or an edit never runs a slot of the past, and a removed routine never fires (F06-05)."""
    await _sync(clock, hourly())
    await testclock.advance(clock, HOUR)
    await _sync(clock, hourly(title="look again"))
    assert await _tick(clock) == 0
    await testclock.advance(clock, HOUR)
    assert await _tick(clock) == 1
    await _sync(clock)
    await testclock.advance(clock, HOUR)
    assert await _tick(clock) == 0


@pytest.mark.parametrize("seconds", [-1, 0, 1])
async def test_a_restart_around_a_slot_neither_loses_nor_doubles_it(clock: Database, seconds: int) -> None:
    """One second before, at, after the full hour: that slot fires once, and a clock set back fires nothing (F06-05)."""
    await _sync(clock, hourly())
    into = await company.value(clock, "SELECT extract(epoch FROM now() - date_trunc('hour', now()))")
    await testclock.advance(clock, HOUR - float(into) + seconds)
    await _sync(clock, hourly())
    fired = await _tick(clock)
    await testclock.advance(clock, 2)
    assert fired + await _tick(clock) == 1
    await _work(clock)
    await testclock.advance(clock, -HOUR)
    await _sync(clock, hourly())
    assert await _tick(clock) == 0
    await testclock.advance(clock, HOUR)
    assert await _tick(clock) == 0
    await testclock.advance(clock, HOUR)
    assert await _tick(clock) == 1


async def test_a_restart_in_the_afternoon_leaves_tomorrows_mornings(clock: Database) -> None:
    """Two daily routines that fired this morning: after a restart the next slots are tomorrow's, not later ones (F06-05)."""
    daily = [hourly(name=f"at-{hour}", cron=f"0 {hour} * * *") for hour in (6, 9)]
    into = await company.value(clock, "SELECT extract(epoch FROM now() - date_trunc('day', now()))")
    await testclock.advance(clock, 24 * HOUR - float(into))
    await _sync(clock, *daily)
    for hours, fired in ((6.01, 1), (3, 1), (6, 0)):
        await testclock.advance(clock, hours * HOUR)
        assert await _tick(clock) == fired
        await _work(clock)
    await _sync(clock, *daily)
    assert await _tick(clock) == 0
    rows = await company.rows(clock, "SELECT next_at - date_trunc('day', now()) AS ahead FROM routines ORDER BY name")
    assert [row.ahead.total_seconds() / HOUR for row in rows] == [30, 33]


async def test_run_now_makes_one_task_and_refuses_a_second(clock: Database) -> None:
    """Beside its slots, and not on top of itself."""
    await _sync(clock, hourly())
    async with clock.transaction() as session:
        await routines.run(session, "look", by="board")
    with pytest.raises(Refused):
        async with clock.transaction() as session:
            await routines.run(session, "look", by="board")
    with pytest.raises(NotFound, match="look"):
        async with clock.transaction() as session:
            await routines.run(session, "lok", by="board")


# --- what would pile up --------------------------------------------------------------------------------------------------


async def _fail(db: Database) -> None:
    for run in await company.claim(db):
        await company.finish(db, run, status=RunState.FAILED, error="bad key")


async def _slots(db: Database, count: int, *, fail: bool = True) -> int:
    """Let so many slots come, each looked at in time; return how many tasks were made."""
    made = 0
    for _ in range(count):
        await testclock.advance(db, HOUR)
        made += await _tick(db)
        if fail:
            await _fail(db)
    return made


async def _outcomes(db: Database) -> list[str]:
    async with db.transaction() as session:
        return [firing.outcome for firing in reversed(await routines.firings(session, "look", limit=100))]


async def test_a_routine_whose_tasks_are_blocked_stands_still_and_asks_once(clock: Database) -> None:
    """Three blocked in a row are enough: what follows is skipped, told in one event, and the board is asked one question."""
    await _sync(clock, hourly())
    assert await _slots(clock, 12) == routines.STUCK_LIMIT
    assert await _outcomes(clock) == [routines.FIRED] * routines.STUCK_LIMIT + [routines.STUCK] * (12 - routines.STUCK_LIMIT)
    assert await company.value(clock, "SELECT count(*) FROM events WHERE type = 'routine.skipped'") == 1
    assert await company.value(clock, "SELECT count(*) FROM approvals") == 1


async def test_a_routine_that_the_board_leaves_alone_is_not_asked_about_again(clock: Database) -> None:
    """The board said no: it stands still in silence."""
    await _sync(clock, hourly())
    await _slots(clock, 4)
    async with clock.transaction() as session:
        (question,) = await approvals.listed(session)
        await approvals.reject(session, question.id, by="board")
    assert await _slots(clock, 3) == 0
    assert await company.value(clock, "SELECT count(*) FROM approvals") == 1


@pytest.mark.parametrize("word", ["retry", "cancel", "option", "run", "file"])
async def test_the_boards_word_lets_a_routine_go_on(clock: Database, word: str) -> None:
    """A task of it that is retried with success or cancelled, its question answered, one run by hand, or another file."""
    await _sync(clock, hourly())
    await _slots(clock, 4)
    newest = await company.value(clock, "SELECT max(id) FROM tasks")
    async with clock.transaction() as session:
        match word:
            case "retry":
                await steering.retry(session, newest - 1, by="board")
            case "cancel":
                await steering.cancel(session, newest, by="board")
            case "option":
                (question,) = await approvals.listed(session)
                await approvals.approve(session, question.id, option="cancel", by="board")
            case "run":
                await routines.run(session, "look", by="board")
    if word == "file":
        await _sync(clock, hourly(description="with the new key"))
    await _work(clock)
    assert await _slots(clock, 1, fail=False) == 1
    assert await company.value(clock, "SELECT count(*) FROM approvals WHERE status = :s", s=ApprovalState.PENDING) == 0


async def test_a_routine_that_waits_does_not_pile_up_in_a_paused_company(clock: Database) -> None:
    """`overlap = "queue"` keeps one waiting, not one for each slot, and says so in the firing."""
    await _sync(clock, hourly(overlap="queue"))
    async with clock.transaction() as session:
        await board.pause(session, by="board")
    assert await _slots(clock, 6, fail=False) == 1
    assert await _outcomes(clock) == [routines.FIRED] + [routines.QUEUED] * 5


async def test_a_routine_queues_one_behind_the_one_that_is_on(clock: Database) -> None:
    """And the next when that one has begun."""
    await _sync(clock, hourly(overlap="queue"))
    assert await _slots(clock, 1, fail=False) == 1
    (run,) = await company.claim(clock, lease_s=9 * HOUR, ttl_s=9 * HOUR)
    assert await _slots(clock, 3, fail=False) == 1
    await company.finish(clock, run)
    assert len(await company.claim(clock)) == 1
    assert await _slots(clock, 3, fail=False) == 1


async def test_a_routine_that_breaks_does_not_stop_the_others(clock: Database) -> None:
    """What cannot be read is left for the next tick, whole; the one after it fires."""
    await _sync(clock, hourly(name="a"), hourly(name="b"))
    async with clock.transaction() as session:
        await session.execute(text("""UPDATE routines SET spec = spec || '{"timezone": "Mars/Base"}' WHERE name = 'a'"""))
    await testclock.advance(clock, HOUR)
    assert await _tick(clock) == 1
    assert [row.routine for row in await company.rows(clock, "SELECT routine FROM routine_firings")] == ["b"]
    async with clock.transaction() as session:
        await session.execute(text("""UPDATE routines SET spec = spec || '{"timezone": "UTC"}' WHERE name = 'a'"""))
    assert await _tick(clock) == 1


async def test_a_firing_that_breaks_half_way_leaves_nothing(clock: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot is not used up by a task that could not be made."""
    await _sync(clock, hourly())
    await testclock.advance(clock, HOUR)

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(flow, "settle_in", broken)
        assert await _tick(clock) == 0
    assert await company.value(clock, "SELECT count(*) FROM routine_firings") == 0
    assert await _tick(clock) == 1


async def test_a_tick_does_not_wait_for_a_routine_that_another_node_fires(clock: Database) -> None:
    """It is that node's; the others are fired meanwhile."""
    await _sync(clock, hourly(name="a"), hourly(name="b"))
    await testclock.advance(clock, HOUR)
    async with clock.transaction() as session:
        await session.execute(text("SELECT 1 FROM routines WHERE name = 'a' FOR UPDATE"))
        async with asyncio.timeout(8):
            assert await _tick(clock) == 1
    assert await _tick(clock) == 1
