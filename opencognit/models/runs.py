"""How work is done: wakeups, runs, their log and their cost. The partial unique indexes here are the arbiters."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, Sequence, SmallInteger, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from opencognit.models.base import Base, Created, Id, Money, one_of
from opencognit.states import CancelMode, RunState, TaskState, WakeupSource, WakeupState

FENCE = Sequence("fencing_token", metadata=Base.metadata, data_type=BigInteger())
"""A new number at every claim and every reap; a write that carries an old one matches no row."""


class Wakeup(Base):
    """A wish that an agent looks at something. One queued per agent and subject: a second adds its reason.

    `subject` is `task:ID`, or the source where there is no task; `cause_run_id` and `depth` bound causal chains.
    `talk`: a person or a colleague said something, so that a run is due even where the task has ended.
    """

    __tablename__ = "wakeups"
    __table_args__ = (
        one_of("status", WakeupState),
        one_of("source", WakeupSource),
        Index("uq_wakeups_queued", "agent", "subject", unique=True, postgresql_where=text("status = 'queued'")),
        Index("ix_wakeups_due", "rank", "id", postgresql_where=text("status = 'queued'")),
        Index("ix_wakeups_task_id", "task_id", postgresql_where=text("status = 'queued'")),
        Index("ix_wakeups_run_id", "run_id"),
    )

    id: Mapped[Id]
    agent: Mapped[str] = mapped_column(ForeignKey("agents.name"))
    task_id: Mapped[int | None] = mapped_column(ForeignKey("tasks.id"))
    subject: Mapped[str]
    status: Mapped[str] = mapped_column(server_default=text("'queued'"))
    source: Mapped[str]
    reasons: Mapped[list[Any]] = mapped_column(JSONB, server_default=text("'[]'"))
    count: Mapped[int] = mapped_column(server_default=text("1"))
    rank: Mapped[int] = mapped_column(SmallInteger, server_default=text("2"))
    depth: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    cause_run_id: Mapped[int | None]
    talk: Mapped[bool] = mapped_column(server_default=text("false"))
    not_before: Mapped[Created]
    requested_at: Mapped[Created]
    aged_at: Mapped[datetime | None]
    run_id: Mapped[int | None]
    ended_at: Mapped[datetime | None]
    outcome: Mapped[str] = mapped_column(server_default=text("''"))


class Run(Base):
    """One execution that has started. While it runs it owns a slot of its agent, one of its adapter where
    that is limited, and its task if it has one.

    `resumes_status` is the task's state before an ended task was looked at again (a comment on a finished task).
    """

    __tablename__ = "runs"
    __table_args__ = (
        one_of("status", RunState),
        CheckConstraint("(status = 'running') = (ended_at IS NULL)", name="ended"),
        one_of("cancel_mode", CancelMode),
        one_of("resumes_status", TaskState),
        Index("uq_runs_agent_slot", "agent", "slot", unique=True, postgresql_where=text("status = 'running'")),
        Index("uq_runs_adapter_slot", "adapter", "adapter_slot", unique=True, postgresql_where=text("status = 'running'")),
        Index("uq_runs_task", "task_id", unique=True, postgresql_where=text("status = 'running'")),
        Index("ix_runs_lease", "lease_expires_at", postgresql_where=text("status = 'running'")),
        Index("ix_runs_task_id", "task_id", "id"),
        Index("ix_runs_agent", "agent", "id"),
    )

    id: Mapped[Id]
    task_id: Mapped[int | None] = mapped_column(ForeignKey("tasks.id"))
    agent: Mapped[str] = mapped_column(ForeignKey("agents.name"))
    adapter: Mapped[str]
    status: Mapped[str] = mapped_column(server_default=text("'running'"))
    reason: Mapped[str] = mapped_column(server_default=text("''"))
    attempt: Mapped[int] = mapped_column(server_default=text("0"))
    depth: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    node_id: Mapped[str | None]
    slot: Mapped[int] = mapped_column(SmallInteger)
    adapter_slot: Mapped[int | None] = mapped_column(SmallInteger)
    token: Mapped[int]
    resumes_status: Mapped[str | None]
    lease_expires_at: Mapped[datetime]
    cancel_requested_at: Mapped[datetime | None]
    cancel_requested_by: Mapped[str | None]
    cancel_mode: Mapped[str | None]
    started_at: Mapped[Created]
    ended_at: Mapped[datetime | None]
    cost_usd: Mapped[Decimal | None] = mapped_column(Money)
    tokens_in: Mapped[int | None]
    tokens_out: Mapped[int | None]
    soul_hash: Mapped[str | None]
    error: Mapped[str | None]
    exit_code: Mapped[int | None]
    result: Mapped[str | None]
    notes: Mapped[list[Any]] = mapped_column(JSONB, server_default=text("'[]'"))


class RunLog(Base):
    """A piece of what a run printed, in order of `seq`. `token` is the fence under which it was written."""

    __tablename__ = "run_log"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    token: Mapped[int]
    stream: Mapped[str]
    chunk: Mapped[str]
    at: Mapped[Created]


class Cost(Base):
    """One provider call, booked once however often it is reported. `cost_usd` NULL: unknown, never zero."""

    __tablename__ = "costs"
    __table_args__ = (
        Index("uq_costs_run_id_call_no", "run_id", "call_no", unique=True),
        Index("ix_costs_agent_booked_at", "agent", "booked_at"),
        Index("ix_costs_goal_id", "goal_id"),
    )

    id: Mapped[Id]
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    call_no: Mapped[int]
    agent: Mapped[str] = mapped_column(ForeignKey("agents.name"))
    task_id: Mapped[int | None] = mapped_column(ForeignKey("tasks.id"))
    goal_id: Mapped[int | None] = mapped_column(ForeignKey("goals.id"))
    adapter: Mapped[str]
    model: Mapped[str]
    cost_usd: Mapped[Decimal | None] = mapped_column(Money)
    tokens_in: Mapped[int | None]
    tokens_out: Mapped[int | None]
    price_source: Mapped[str] = mapped_column(server_default=text("'provider'"))
    booked_at: Mapped[Created]
