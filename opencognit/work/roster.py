"""The agents as the database knows them: a copy of their files plus what people switched. Owns the agents table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import events
from opencognit.config.problems import nearest
from opencognit.contracts import TeamMember
from opencognit.db import notify
from opencognit.errors import NotFound, Refused
from opencognit.events import Happened
from opencognit.models import Agent
from opencognit.states import AgentState, WakeupSource
from opencognit.work import wakeups


class Spec(Protocol):
    """What the roster needs of an agent's file."""

    @property
    def name(self) -> str: ...
    @property
    def adapter(self) -> str: ...
    @property
    def max_concurrent_runs(self) -> int: ...
    @property
    def heartbeat_interval_s(self) -> float | None: ...
    @property
    def reports_to(self) -> str | None: ...
    @property
    def enabled(self) -> bool: ...
    @property
    def digest(self) -> str: ...
    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


async def sync(session: AsyncSession, specs: Mapping[str, Spec], *, interval_s: float) -> list[str]:
    """Make the table agree with the files; return the names that changed. `interval_s` is the beat of who names none.

    An agent whose file is gone takes nothing any more, keeps its tasks and its history, and comes back with its file.
    """
    known = {row.name: row for row in (await session.scalars(select(Agent))).all()}
    changed: list[Happened] = []
    for name, spec in specs.items():
        old = known.get(name)
        present = spec.enabled
        if old is not None and old.digest == spec.digest and old.present == present:
            continue
        await session.execute(_upsert(spec, present, interval_s))
        changed.append(Happened("agent.changed" if old is not None else "agent.added", "agent", name, name))
    for name, old in known.items():
        if name not in specs and old.present:
            await session.execute(update(Agent).where(Agent.name == name).values(present=False, updated_at=func.now()))
            changed.append(Happened("agent.removed", "agent", name, name))
    await events.record(session, *changed)
    if changed:
        await notify(session, "wakeup")
    return [str(one.ident) for one in changed]


def _upsert(spec: Spec, present: bool, interval_s: float) -> Any:
    every_s = interval_s if spec.heartbeat_interval_s is None else spec.heartbeat_interval_s
    beat = func.now() + func.make_interval(0, 0, 0, 0, 0, 0, _jitter(spec.name) * every_s) if every_s > 0 else None
    values = {
        "adapter": spec.adapter,
        "max_concurrent_runs": spec.max_concurrent_runs,
        "heartbeat_interval_s": every_s,
        "reports_to": spec.reports_to,
        "spec": spec.model_dump(mode="json"),
        "digest": spec.digest,
        "present": present,
        "next_beat_at": beat,
    }
    row = insert(Agent).values(name=spec.name, **values)
    return row.on_conflict_do_update(index_elements=["name"], set_={**values, "updated_at": func.now()})


def _jitter(name: str) -> float:
    """A stable fraction in [0, 1) by the agent's name, so that a thousand agents do not beat in the same second."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32


async def get(session: AsyncSession, name: str) -> Agent:
    """Return the agent; raises NotFound with the nearest name, or naming those there are."""
    agent = await session.get(Agent, name)
    if agent is None:
        names = (await session.scalars(select(Agent.name).where(Agent.present).order_by(Agent.name))).all()
        everybody = f"the agents here are: {', '.join(names) or 'none yet, add agents/NAME.toml'}"
        raise NotFound("agent", name[:80], nearest(name[:80], names, everybody))
    return agent


async def working(session: AsyncSession, name: str) -> Agent:
    """Return the agent if it can be given work; raises NotFound, or Refused where its file is gone or says no."""
    agent = await get(session, name)
    if not agent.present:
        raise Refused(
            f"agent {name!r} does not work here any more: restore agents/{name}.toml with enabled = true, or name another"
        )
    return agent


async def everyone(session: AsyncSession) -> Sequence[Agent]:
    return (await session.scalars(select(Agent).order_by(Agent.name))).all()


WORKLOAD = text("""
SELECT a.name, (SELECT count(*) FROM runs r WHERE r.agent = a.name AND r.status = 'running') AS running,
       (SELECT count(*) FROM tasks t WHERE t.assignee = a.name AND t.status NOT IN ('done', 'cancelled')) AS load
  FROM agents a
""")


async def workload(session: AsyncSession) -> dict[str, tuple[int, int]]:
    """Return for every agent its runs that are on and its tasks that have not ended."""
    return {row.name: (row.running, row.load) for row in await session.execute(WORKLOAD)}


async def ceo(session: AsyncSession) -> Agent:
    """Return the agent that plans; raises Refused where there is none."""
    query = select(Agent).where(Agent.adapter == "ceo", Agent.present)
    agent = (await session.scalars(query.order_by(Agent.name).limit(1))).one_or_none()
    if agent is None:
        raise Refused('this company has no CEO: add an agents/NAME.toml with adapter = "ceo" and enabled = true')
    return agent


TEAM = text("""
SELECT a.name, a.spec, a.status, a.present, (SELECT count(*) FROM tasks t WHERE t.assignee = a.name
       AND t.status NOT IN ('done', 'cancelled')) AS load
  FROM agents a WHERE a.present AND a.adapter <> 'ceo' ORDER BY a.name
""")


async def team(session: AsyncSession) -> list[TeamMember]:
    """Return everybody but the CEO, with their open tasks as load."""
    return [
        TeamMember(
            name=row.name,
            role=row.spec.get("role") or "",
            title=row.spec.get("title") or "",
            skills=tuple(row.spec.get("skills") or ()),
            available=row.status == AgentState.IDLE,
            load=row.load,
        )
        for row in await session.execute(TEAM)
    ]


async def pause(session: AsyncSession, name: str, *, by: str) -> Agent:
    """Stop giving work to the agent; a run that is on finishes."""
    return await _switch(session, name, AgentState.PAUSED, f"paused by {by}", by)


async def resume(session: AsyncSession, name: str, *, by: str) -> Agent:
    """Give work to the agent again; what was queued meanwhile starts at once."""
    agent = await _switch(session, name, AgentState.IDLE, "", by)
    await notify(session, "wakeup")
    return agent


async def _switch(session: AsyncSession, name: str, status: AgentState, reason: str, by: str) -> Agent:
    agent = await get(session, name)
    agent.status, agent.status_reason = status, reason
    await session.flush()
    verb = "agent.paused" if status is AgentState.PAUSED else "agent.resumed"
    await events.record(session, Happened(verb, "agent", name, name, actor=by))
    return agent


async def wake(session: AsyncSession, name: str, *, by: str) -> int:
    """Ask for one run of the agent, with its oldest ready task or without any; return the wakeup's id."""
    agent = await get(session, name)
    if not agent.present:
        raise Refused(f"agent {name!r} has no enabled file: restore agents/{name}.toml")
    query = text("SELECT id FROM tasks WHERE assignee = :name AND status = 'todo' ORDER BY id LIMIT 1")
    task_id = (await session.execute(query, {"name": name})).scalar_one_or_none()
    return await wakeups.request(session, name, WakeupSource.BOARD, task_id=task_id, by=by, note=f"woken by {by}")
