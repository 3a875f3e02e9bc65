"""What happened is told in order, by the verbs themselves, and only when it became true."""

from __future__ import annotations

import contextlib

from opencognit import events
from opencognit.contracts import Answer, CreateTask, Report
from opencognit.db import Database
from opencognit.events import Happened
from opencognit.models import Event
from opencognit.work import goals
from tests.integration import company


async def _all(db: Database, **filters: int | str) -> list[Event]:
    async with db.transaction() as session:
        return list(await events.newest(session, limit=1000, **filters))  # type: ignore[arg-type]


def _line(event: Event) -> str:
    """One event as people read it: its type, what it is about, the step, who did it."""
    step = f" {event.data['from']}>{event.data['to']}" if "to" in event.data else ""
    return f"{event.type} {event.subject_title}{step} by {event.actor}"


async def test_the_way_of_a_goal_is_told_in_order(db: Database) -> None:
    """From the board's post over plan, work and report to the end: every step once, in the order in which it happened."""
    await company.hire(db, company.spec("ceo"), company.spec("ann"))
    async with db.transaction() as session:
        await goals.post(session, "ship it")
    (plan,) = await company.claim(db)
    await company.finish(db, plan, Answer(text="planned", actions=(CreateTask(title="build", assignee="ann"),)))
    (build,) = await company.claim(db)
    await company.finish(db, build, "built")
    (report,) = await company.claim(db)
    await company.finish(db, report, Answer(text="all is well", actions=(Report(text="all is well"),)))
    told = [_line(event) for event in await _all(db) if event.subject_kind != "agent"]
    assert told == [
        "goal.posted ship it by board",
        "task.created Plan: ship it by board",
        "task.status_changed Plan: ship it backlog>todo by board",
        "run.started ceo by ceo",
        "task.created build by ceo",
        "task.status_changed build backlog>todo by ceo",
        "run.succeeded ceo by ceo",
        "task.commented Plan: ship it by ceo",
        "task.status_changed Plan: ship it in_progress>done by ceo",
        "goal.active ship it open>active by system",
        "run.started ann by ann",
        "run.succeeded ann by ann",
        "task.commented build by ann",
        "task.status_changed build in_progress>done by ann",
        "goal.achieved ship it active>achieved by system",
        "task.created Report: ship it by system",
        "task.status_changed Report: ship it backlog>todo by system",
        "run.started ceo by ceo",
        "goal.reported ship it by ceo",
        "run.succeeded ceo by ceo",
        "task.commented Report: ship it by ceo",
        "task.status_changed Report: ship it in_progress>done by ceo",
    ]


async def test_what_was_rolled_back_is_not_told(db: Database) -> None:
    """An event is a row of the change's own transaction."""
    await company.hire(db, company.spec("ceo"))
    before = len(await _all(db))
    with contextlib.suppress(RuntimeError):
        async with db.transaction() as session:
            await goals.post(session, "never")
            raise RuntimeError
    assert len(await _all(db)) == before


async def test_events_are_stored_in_the_order_given_and_nothing_is_no_statement(db: Database) -> None:
    async with db.transaction() as session:
        await events.record(session)
        await events.record(session, *(Happened("thing.done", "thing", number, f"no. {number}") for number in range(100)))
    told = await _all(db)
    assert [event.subject_id for event in told] == [str(number) for number in range(100)]
    assert (told[0].actor, told[0].data, told[0].subject_title) == (events.SYSTEM, {}, "no. 0")


async def test_the_newest_are_cut_at_the_old_end_and_follow_an_id(db: Database) -> None:
    """A reader gets the last few first, then what came after the last that it has, of one kind if it wants."""
    async with db.transaction() as session:
        for number in range(6):
            await events.record(session, Happened("x.done", "even" if number % 2 == 0 else "odd", number))
        last = await events.newest(session, limit=2)
        assert [event.subject_id for event in last] == ["4", "5"]
        assert await events.newest(session, after_id=last[-1].id) == []
        await events.record(session, Happened("x.done", "even", 6))
        assert [event.subject_id for event in await events.newest(session, after_id=last[-1].id)] == ["6"]
        assert [event.subject_id for event in await events.newest(session, kind="even", limit=3)] == ["2", "4", "6"]
