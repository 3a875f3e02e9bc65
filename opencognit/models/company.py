"""Who works here: the company's one row, its nodes, its agents, its routines and its tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, DateTime, Double, ForeignKey, Index, LargeBinary, SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column

from opencognit.models.base import NOW, Base, Created, Id, one_of
from opencognit.states import STORED_AGENT_STATES, TokenKind


class Company(Base):
    """One row: the switch that stops every claim."""

    __tablename__ = "company"
    __table_args__ = (CheckConstraint("id = 1", name="single"),)

    id: Mapped[int] = mapped_column(SmallInteger, primary_key=True, server_default=text("1"))
    paused: Mapped[bool] = mapped_column(server_default=text("false"))
    paused_at: Mapped[datetime | None]
    paused_by: Mapped[str | None]


class Node(Base):
    """One process that claims and runs. `seen_at` is renewed with its runs' leases."""

    __tablename__ = "nodes"

    id: Mapped[str] = mapped_column(primary_key=True)
    pid: Mapped[int]
    host: Mapped[str]
    capacity: Mapped[int]
    started_at: Mapped[Created]
    seen_at: Mapped[Created]
    ended_at: Mapped[datetime | None]


class Agent(Base):
    """An agent as its file says; `spec` is the whole file, the columns beside it are what SQL decides by."""

    __tablename__ = "agents"
    __table_args__ = (
        one_of("status", sorted(STORED_AGENT_STATES)),
        CheckConstraint("max_concurrent_runs >= 1", name="max_concurrent_runs"),
        Index("ix_agents_next_beat_at", "next_beat_at", postgresql_where=text("next_beat_at IS NOT NULL AND status = 'idle'")),
    )

    name: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(server_default=text("'idle'"))
    status_reason: Mapped[str] = mapped_column(server_default=text("''"))
    present: Mapped[bool] = mapped_column(server_default=text("true"))
    adapter: Mapped[str]
    max_concurrent_runs: Mapped[int] = mapped_column(SmallInteger, server_default=text("1"))
    heartbeat_interval_s: Mapped[float] = mapped_column(Double)
    next_beat_at: Mapped[datetime | None]
    reports_to: Mapped[str | None]
    spec: Mapped[dict[str, Any]]
    digest: Mapped[str]
    created_at: Mapped[Created]
    updated_at: Mapped[Created]


class Routine(Base):
    """A schedule of the configuration. `next_at` is the first future slot."""

    __tablename__ = "routines"

    name: Mapped[str] = mapped_column(primary_key=True)
    present: Mapped[bool] = mapped_column(server_default=text("true"))
    spec: Mapped[dict[str, Any]]
    digest: Mapped[str]
    next_at: Mapped[datetime | None]
    updated_at: Mapped[Created]


class RoutineFiring(Base):
    """One slot of a routine. The key is the slot's local wall time: an hour that comes twice in autumn fires once."""

    __tablename__ = "routine_firings"

    routine: Mapped[str] = mapped_column(ForeignKey("routines.name", ondelete="CASCADE"), primary_key=True)
    slot: Mapped[datetime] = mapped_column(DateTime(timezone=False), primary_key=True)
    fired_at: Mapped[Created]
    task_id: Mapped[int | None]
    outcome: Mapped[str]


class Token(Base):
    """A credential; only its hash is stored. A token of kind `run` dies with its run."""

    __tablename__ = "tokens"
    __table_args__ = (
        one_of("kind", TokenKind),
        Index("uq_tokens_name", "name", unique=True, postgresql_where=text("revoked_at IS NULL AND kind <> 'run'")),
        Index("uq_tokens_hash", "hash", unique=True),
    )

    id: Mapped[Id]
    name: Mapped[str]
    kind: Mapped[str]
    hash: Mapped[bytes] = mapped_column(LargeBinary)
    agent: Mapped[str | None] = mapped_column(ForeignKey("agents.name"))
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=NOW)
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
