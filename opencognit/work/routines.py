"""Routines: work that comes by the clock. Exactly one firing per slot, however many nodes look.

The key of a firing is its slot; whoever inserts it first makes the task, in the same transaction. A slot that is not fired
(late, or the one before is still open) is stored too, with the reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import structlog
from sqlalchemy import func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import events
from opencognit.errors import NotFound, Refused
from opencognit.events import SYSTEM, Happened
from opencognit.models import Agent, Approval, Routine, RoutineFiring
from opencognit.schedule import Schedule, Slot
from opencognit.states import ApprovalKind, WakeupSource
from opencognit.work import approvals, flow, tasks

log = structlog.get_logger(__name__)

LATE_S = 90.0
"""A slot found later than this was missed: what becomes of it is `catch_up`'s."""
CATCH_UP_LIMIT = 24
"""So many missed slots of `catch_up = "all"` are made up for at most, the newest of them."""
LOOK_BACK = (timedelta(hours=1), timedelta(days=2), timedelta(days=40))
"""How far back missed slots are looked for, until enough are found: each minute of a month need not be."""
STUCK_LIMIT = 3
"""So many firings in a row that ended blocked are enough: then the board has to look."""
FIRED, OVERLAPPED, MISSED = "fired", "skipped: the one before is still open", "missed: nobody was there at its time"
QUEUED = "skipped: one waits already behind the one that is open"
STUCK = f"skipped: the last {STUCK_LIMIT} are blocked, and the board is asked"


class Spec(Protocol):
    """What is needed of a routine in the configuration."""

    @property
    def name(self) -> str: ...
    @property
    def cron(self) -> str: ...
    @property
    def timezone(self) -> str: ...
    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class _Due:
    routine: Routine
    schedule: Schedule
    slots: Sequence[Slot]


async def sync(session: AsyncSession, specs: Sequence[Spec], *, timezone: str) -> None:
    """Make the table agree with the configuration. A new or changed routine starts with its first future slot."""
    now = (await session.execute(select(func.now()))).scalar_one()
    known = {row.name: row for row in (await session.scalars(select(Routine))).all()}
    for spec in specs:
        stored = {**spec.model_dump(mode="json"), "timezone": spec.timezone or timezone}
        digest = hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()
        old = known.get(spec.name)
        if old is not None and old.digest == digest and old.present:
            continue
        values = {"spec": stored, "digest": digest, "present": True, "next_at": _schedule(stored).next_after(now).at}
        row = insert(Routine).values(name=spec.name, **values)
        await session.execute(row.on_conflict_do_update(index_elements=["name"], set_={**values, "updated_at": func.now()}))
    gone = [name for name in known if name not in {spec.name for spec in specs}]
    if gone:
        await session.execute(update(Routine).where(Routine.name.in_(gone)).values(present=False, next_at=None))


def _schedule(spec: Mapping[str, Any]) -> Schedule:
    return Schedule(spec["cron"], spec["timezone"])


async def tick(session: AsyncSession) -> int:
    """Fire what is due; return how many tasks were made. Idempotent, and safe on every node at once.

    A routine that breaks is undone by itself and tried again at the next tick; the others fire.
    """
    query = select(Routine).where(Routine.present, Routine.next_at <= func.now()).order_by(Routine.name)
    now = (await session.execute(select(func.now()))).scalar_one()
    made = 0
    for routine in (await session.scalars(query.with_for_update(skip_locked=True))).all():
        name = routine.name
        try:
            async with session.begin_nested():
                made += await _catch_up(session, routine, now)
        except Exception as error:
            if isinstance(error, DBAPIError) and error.connection_invalidated:
                raise
            log.exception("routine.failed", routine=name)
    return made


async def _catch_up(session: AsyncSession, routine: Routine, now: datetime) -> int:
    """Fire what of one routine is due, and set its next slot; return how many tasks were made."""
    due = _due(routine, now)
    wanted = _wanted(due, now)
    await _miss(session, routine, [slot for slot in due.slots if slot not in wanted])
    late = any(_is_late(slot, now) for slot in wanted)  # then they come together, however many `catch_up` makes of them
    made = 0
    for slot in wanted:
        made += await _fire(session, routine, slot, late=late)
    routine.next_at = due.schedule.next_after(now).at
    await session.flush()
    return made


def _due(routine: Routine, now: datetime) -> _Due:
    """Return the slots from the one that was next until now, the newest of too many."""
    schedule = _schedule(routine.spec)
    assert routine.next_at is not None
    slots: list[Slot] = []
    for back in LOOK_BACK:
        start = max(routine.next_at, now - back)
        slots = _between(schedule, start, now)
        if start == routine.next_at or len(slots) >= CATCH_UP_LIMIT:
            break
    return _Due(routine, schedule, slots)


def _between(schedule: Schedule, start: datetime, end: datetime) -> list[Slot]:
    slots: list[Slot] = []
    moment = start - timedelta(microseconds=1)
    while (slot := schedule.next_after(moment)).at <= end:
        slots.append(slot)
        moment = slot.at
    return slots


def _wanted(due: _Due, now: datetime) -> Sequence[Slot]:
    """Return the slots to fire: the one that is due now, and of those that were missed what `catch_up` says."""
    fresh = [slot for slot in due.slots if not _is_late(slot, now)]
    missed = due.slots[: len(due.slots) - len(fresh)]
    match due.routine.spec.get("catch_up", "one"):
        case "all":
            return [*missed, *fresh][-CATCH_UP_LIMIT:]
        case "one":
            return due.slots[-1:]
        case _:
            return fresh[-1:]


def _is_late(slot: Slot, now: datetime) -> bool:
    return (now - slot.at).total_seconds() > LATE_S


async def _miss(session: AsyncSession, routine: Routine, slots: Sequence[Slot]) -> None:
    """Store the newest of the slots that nobody makes up for, and tell once how many there were."""
    if not slots:
        return
    rows = [{"routine": routine.name, "slot": slot.key, "outcome": MISSED} for slot in slots[-CATCH_UP_LIMIT:]]
    row = insert(RoutineFiring).on_conflict_do_nothing().returning(RoutineFiring.routine)
    if (await session.execute(row, rows)).first() is None:
        return
    data = {"slot": slots[-1].at.isoformat(), "reason": MISSED, "slots": len(slots)}
    await events.record(session, Happened("routine.skipped", "routine", routine.name, routine.name, data=data))


async def _fire(session: AsyncSession, routine: Routine, slot: Slot, *, late: bool) -> bool:
    """Fire one slot unless somebody has; return whether a task was made."""
    stands = await _standing(session, routine)
    row = insert(RoutineFiring).values(routine=routine.name, slot=slot.key, outcome=FIRED)
    fresh = (await session.execute(row.on_conflict_do_nothing().returning(RoutineFiring.routine))).scalar_one_or_none()
    if fresh is None:
        return False
    if stands.blocked >= STUCK_LIMIT:
        return await _give_up(session, routine, slot, stands)
    if routine.spec.get("overlap", "skip") == "skip" and stands.open:
        return await _skip(session, routine, slot, OVERLAPPED)
    if stands.open >= CATCH_UP_LIMIT or (not late and (stands.open > 1 or stands.waiting)):
        return await _skip(session, routine, slot, QUEUED)
    task_id = await _make(session, routine, by=f"routine:{routine.name}")
    await _note(session, routine, slot, FIRED, task_id)
    return True


async def _give_up(session: AsyncSession, routine: Routine, slot: Slot, stands: _Standing) -> bool:
    """Leave the slot out; the first in a row is told, and the board asked about the last task. Its word on that ends it."""
    if stands.outcome == STUCK:
        await _note(session, routine, slot, STUCK, None)
        return False
    task = await tasks.get(session, stands.task_id or 0)
    await approvals.ask(
        session,
        kind=ApprovalKind.QUESTION,
        subject=f"routine:{routine.name}",
        question=f"Routine {routine.name} stands still: its last {STUCK_LIMIT} tasks are blocked, the last is task {task.id}"
        f" ({task.title}): {task.reason[:1000]}\n\nRetry it, assign it to the agent in the note, or cancel it?"
        f" (`routine run {routine.name}` tries a new one.)",
        options=approvals.STUCK_OPTIONS,
        task_id=task.id,
        asked_by=SYSTEM,
    )
    return await _skip(session, routine, slot, STUCK)


async def _skip(session: AsyncSession, routine: Routine, slot: Slot, why: str) -> bool:
    await _note(session, routine, slot, why, None)
    data = {"slot": slot.at.isoformat(), "reason": why}
    await events.record(session, Happened("routine.skipped", "routine", routine.name, routine.name, data=data))
    return False


async def _note(session: AsyncSession, routine: Routine, slot: Slot, outcome: str, task_id: int | None) -> None:
    mine = (RoutineFiring.routine == routine.name, RoutineFiring.slot == slot.key)
    await session.execute(update(RoutineFiring).where(*mine).values(outcome=outcome, task_id=task_id))


@dataclass(frozen=True, slots=True)
class _Standing:
    """What has become of a routine's firings.

    `open` tasks of it there are, of which `waiting` were never begun; `blocked` are the last so many (up to STUCK_LIMIT) since
    it was written; the last firing had `outcome`, the last task is `task_id`.
    """

    open: int
    waiting: int
    blocked: int
    outcome: str | None
    task_id: int | None


STANDING = text("""
WITH newest AS (
  SELECT slot, fired_at, task_id FROM routine_firings WHERE routine = :name AND task_id IS NOT NULL
   ORDER BY slot DESC LIMIT 100  -- years of firings need not be looked at
), made AS (
  SELECT n.slot, n.fired_at, t.id, t.status, t.attempt FROM newest n JOIN tasks t ON t.id = n.task_id
), last AS (
  SELECT id, slot, status FROM made WHERE fired_at > :written_at ORDER BY slot DESC LIMIT :limit
)
SELECT (SELECT count(*) FROM made WHERE status NOT IN ('done', 'cancelled', 'blocked')) AS open,
       (SELECT count(*) FROM made WHERE status IN ('backlog', 'todo') AND attempt = 0) AS waiting,
       (SELECT CASE WHEN bool_and(status = 'blocked') THEN count(*) ELSE 0 END FROM last) AS blocked,
       (SELECT outcome FROM routine_firings WHERE routine = :name ORDER BY slot DESC LIMIT 1) AS outcome,
       (SELECT id FROM last ORDER BY slot DESC LIMIT 1) AS task_id
""")


async def _standing(session: AsyncSession, routine: Routine) -> _Standing:
    parameters = {"name": routine.name, "written_at": routine.updated_at, "limit": STUCK_LIMIT}
    return _Standing(**(await session.execute(STANDING, parameters)).mappings().one())


async def _make(session: AsyncSession, routine: Routine, *, by: str) -> int:
    asked = Approval.subject == f"routine:{routine.name}"
    await flow.withdraw_questions(session, asked, "the routine goes on")
    spec = routine.spec
    agent = await session.get(Agent, spec["agent"])
    task = await tasks.create(
        session,
        title=spec["title"],
        description=spec.get("description") or "",
        assignee=agent.name if agent is not None else None,
        reason=f"routine {routine.name}" if agent is not None else f"routine {routine.name} names no agent: {spec['agent']!r}",
        created_by=by,
    )
    await flow.settle_in(session, task, WakeupSource.ROUTINE, by=by)
    await events.record(session, Happened("routine.fired", "routine", routine.name, routine.name, data={"task_id": str(task.id)}))
    return task.id


async def listed(session: AsyncSession) -> Sequence[Routine]:
    return (await session.scalars(select(Routine).where(Routine.present).order_by(Routine.name))).all()


async def firings(session: AsyncSession, name: str, *, limit: int = 5) -> Sequence[RoutineFiring]:
    """Return the last firings of a routine, newest first."""
    query = select(RoutineFiring).where(RoutineFiring.routine == name).order_by(RoutineFiring.fired_at.desc()).limit(limit)
    return (await session.scalars(query)).all()


async def run(session: AsyncSession, name: str, *, by: str) -> int:
    """Make a routine's task now, beside its slots; return the task's id. Raises NotFound, or Refused while one is open."""
    routine = await session.get(Routine, name, with_for_update=True)
    if routine is None or not routine.present:
        names = ", ".join(one.name for one in await listed(session))
        raise NotFound("routine", name, f"config.toml has: {names or 'none'}")
    if (await _standing(session, routine)).open:
        raise Refused(f"routine {name!r} is still at its last task: wait for it, or cancel that")
    task_id = await _make(session, routine, by=by)
    now = (await session.execute(select(func.now()))).scalar_one()
    key = now.astimezone(ZoneInfo(routine.spec["timezone"])).replace(tzinfo=None)
    row = insert(RoutineFiring).values(routine=name, slot=key, outcome=f"run by {by}", task_id=task_id)
    await session.execute(row.on_conflict_do_nothing())
    return task_id
