"""Asking for an agent, and what becomes of it until it is claimed. Owns the wakeups table."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, case, func, literal, literal_column, select, text, update
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.db import notify
from opencognit.events import BOARD
from opencognit.models import Wakeup
from opencognit.states import Priority, WakeupSource, WakeupState

TALK = frozenset({WakeupSource.COMMENT, WakeupSource.MENTION, WakeupSource.BOARD, WakeupSource.APPROVAL})
"""Sources that are worth a run even when the task has ended."""
REASONS_KEPT = 20


async def request(
    session: AsyncSession,
    agent: str,
    source: WakeupSource,
    *,
    task_id: int | None = None,
    note: str = "",
    by: str = "system",
    priority: Priority = Priority.MEDIUM,
    delay_s: float = 0.0,
    cause_run_id: int | None = None,
    depth: int = 0,
) -> int:
    """Wish that `agent` runs, `delay_s` seconds from now; return the wakeup's id.

    A second wish for the same agent and subject joins the queued one: it adds its reason, and the higher priority holds.
    Only the board's wish makes it earlier: a retry's wait is not cut short by colleagues. Wakes the dispatchers when the
    caller's transaction commits.
    """
    reason = {"source": source.value, "by": by, "note": note}
    due = func.now() + func.make_interval(0, 0, 0, 0, 0, 0, float(delay_s))
    row = insert(Wakeup).values(
        agent=agent,
        task_id=task_id,
        subject=f"task:{task_id}" if task_id is not None else source.value,
        source=source.value,
        reasons=literal([reason], JSONB),
        rank=priority.rank,
        depth=depth,
        cause_run_id=cause_run_id,
        not_before=due,
        talk=source in TALK,
    )
    old, new = Wakeup.__table__.c, row.excluded
    joined = row.on_conflict_do_update(
        index_elements=["agent", "subject"],
        index_where=text("status = 'queued'"),
        set_={
            "count": old.count + 1,
            "reasons": func.jsonb_path_query_array(
                old.reasons.op("||")(new.reasons), text(f"'$[last - {REASONS_KEPT - 1} to last]'::jsonpath")
            ),
            "rank": func.least(old.rank, new.rank),
            "depth": func.least(old.depth, new.depth),
            "not_before": _joined_due(by, delay_s),
            "talk": old.talk | new.talk,
        },
    ).returning(Wakeup.id)
    wakeup_id = (await session.execute(joined)).scalar_one()
    await notify(session, "wakeup")
    return wakeup_id


def _joined_due(by: str, delay_s: float) -> ColumnElement[datetime]:
    """The board's wish makes the queued one earlier; a wait makes it later unless the board has spoken; else it stays."""
    old = Wakeup.__table__.c
    new: ColumnElement[datetime] = literal_column("excluded.not_before")
    if by == BOARD:
        return func.least(old.not_before, new)
    if delay_s <= 0:
        return old.not_before
    return case((old.reasons.contains([{"by": BOARD}]), old.not_before), else_=func.greatest(old.not_before, new))


async def skip(session: AsyncSession, task_id: int, outcome: str, *, talk: bool = False) -> None:
    """Close the queued wakeups of a task that no longer needs a run.

    What was said stays queued; with `talk` it is just that which is closed, except what the board said.
    """
    which = Wakeup.reasons.contains([{"by": BOARD}]).is_(False) if talk else Wakeup.talk.is_(False)
    await session.execute(
        update(Wakeup)
        .where(Wakeup.task_id == task_id, Wakeup.status == WakeupState.QUEUED, Wakeup.talk.is_(talk), which)
        .values(status=WakeupState.SKIPPED, ended_at=func.now(), outcome=outcome)
        .execution_options(synchronize_session=False)
    )


async def drop(session: AsyncSession, task_id: int, outcome: str) -> None:
    """Close whatever is queued on a task, what was said too."""
    await session.execute(
        update(Wakeup)
        .where(Wakeup.task_id == task_id, Wakeup.status == WakeupState.QUEUED)
        .values(status=WakeupState.SKIPPED, ended_at=func.now(), outcome=outcome)
    )


async def hand_over(session: AsyncSession, task_id: int, agent: str) -> None:
    """Close what is queued for others on a task that is `agent`'s now; what they were told stands in its comments."""
    await session.execute(
        update(Wakeup)
        .where(Wakeup.task_id == task_id, Wakeup.status == WakeupState.QUEUED, Wakeup.agent != agent)
        .values(status=WakeupState.SKIPPED, ended_at=func.now(), outcome=f"assigned to {agent}")
    )


async def has_word_of(session: AsyncSession, task_id: int, who: str) -> bool:
    """Return whether something that `who` said about a task waits for its agent."""
    waits = (Wakeup.task_id == task_id, Wakeup.status == WakeupState.QUEUED, Wakeup.talk)
    query = select(Wakeup.id).where(*waits, Wakeup.reasons.contains([{"by": who}])).limit(1)
    return (await session.scalars(query)).first() is not None


async def close(session: AsyncSession, run_id: int, outcome: str) -> None:
    """Mark the wakeup that a run answered as done."""
    await session.execute(
        update(Wakeup)
        .where(Wakeup.run_id == run_id, Wakeup.status == WakeupState.CLAIMED)
        .values(status=WakeupState.DONE, ended_at=func.now(), outcome=outcome)
    )


async def seconds_to_next(session: AsyncSession) -> float | None:
    """Return how long until the next queued wakeup becomes due; None when none waits for a later time."""
    query = text(
        "SELECT extract(epoch FROM min(not_before) - now())::float8 FROM wakeups WHERE status = 'queued' AND not_before > now()"
    )
    seconds: float | None = (await session.execute(query)).scalar_one()
    return seconds
