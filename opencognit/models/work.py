"""What is to be done: goals, tasks and what stands between them, comments, approvals."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ARRAY, CheckConstraint, ForeignKey, Index, SmallInteger, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from opencognit.models.base import Base, Created, Id, Money, one_of
from opencognit.states import ApprovalKind, ApprovalState, GoalState, Priority, TaskKind, TaskState


class Goal(Base):
    __tablename__ = "goals"
    __table_args__ = (one_of("status", GoalState), one_of("priority", Priority), Index("ix_goals_status", "status", "id"))

    id: Mapped[Id]
    title: Mapped[str]
    description: Mapped[str] = mapped_column(server_default=text("''"))
    priority: Mapped[str] = mapped_column(server_default=text("'medium'"))
    status: Mapped[str] = mapped_column(server_default=text("'open'"))
    reason: Mapped[str] = mapped_column(server_default=text("''"))
    budget_usd: Mapped[Decimal | None] = mapped_column(Money)
    report: Mapped[str | None]
    reported_at: Mapped[datetime | None]
    created_by: Mapped[str]
    created_at: Mapped[Created]
    updated_at: Mapped[Created]
    ended_at: Mapped[datetime | None]


class Task(Base):
    """A piece of work and, while a run is on, its execution lock.

    `failures`, `lost` and `stale_runs` count in a row: attempts that failed, whose node died, that changed nothing.
    `rounds` counts how often it was split into sub-tasks.
    `about_id` is the task that an escalation or a review is about.
    The five lock columns are set and cleared together; `lock_token` stays as the last fencing number given out.
    """

    __tablename__ = "tasks"
    __table_args__ = (
        one_of("status", TaskState),
        one_of("kind", TaskKind),
        one_of("priority", Priority),
        CheckConstraint(
            "(execution_run_id IS NULL) = (lock_expires_at IS NULL)"
            " AND (execution_run_id IS NULL) = (execution_locked_at IS NULL)"
            " AND (execution_run_id IS NULL) = (execution_agent_key IS NULL)",
            name="lock_whole",
        ),
        CheckConstraint("status <> 'in_progress' OR execution_run_id IS NOT NULL", name="in_progress_is_locked"),
        Index("ix_tasks_goal_id", "goal_id", "id"),
        Index("ix_tasks_parent_id", "parent_id", postgresql_where=text("parent_id IS NOT NULL")),
        Index("ix_tasks_about_id", "about_id", postgresql_where=text("about_id IS NOT NULL")),
        Index("ix_tasks_ready", "assignee", "id", postgresql_where=text("status = 'todo'")),
        Index("ix_tasks_open", "status", "id", postgresql_where=text("status NOT IN ('done', 'cancelled')")),
        Index("ix_tasks_locked", "lock_expires_at", postgresql_where=text("execution_run_id IS NOT NULL")),
    )

    id: Mapped[Id]
    kind: Mapped[str] = mapped_column(server_default=text("'work'"))
    goal_id: Mapped[int | None] = mapped_column(ForeignKey("goals.id"))
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("tasks.id"))
    title: Mapped[str]
    description: Mapped[str] = mapped_column(server_default=text("''"))
    skills: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default=text("'{}'"))
    status: Mapped[str] = mapped_column(server_default=text("'backlog'"))
    priority: Mapped[str] = mapped_column(server_default=text("'medium'"))
    assignee: Mapped[str | None] = mapped_column(ForeignKey("agents.name"))
    reason: Mapped[str] = mapped_column(server_default=text("''"))
    result: Mapped[str | None]
    files: Mapped[list[Any]] = mapped_column(JSONB, server_default=text("'[]'"))
    attempt: Mapped[int] = mapped_column(server_default=text("0"))
    failures: Mapped[int] = mapped_column(server_default=text("0"))
    lost: Mapped[int] = mapped_column(server_default=text("0"))
    stale_runs: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    rounds: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    depth: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    about_id: Mapped[int | None] = mapped_column(ForeignKey("tasks.id"))
    execution_run_id: Mapped[int | None]
    execution_agent_key: Mapped[str | None]
    execution_locked_at: Mapped[datetime | None]
    lock_token: Mapped[int | None]
    lock_expires_at: Mapped[datetime | None]
    created_by: Mapped[str]
    created_at: Mapped[Created]
    updated_at: Mapped[Created]
    ended_at: Mapped[datetime | None]


class TaskDependency(Base):
    """`task_id` waits for `after_id`."""

    __tablename__ = "task_dependencies"
    __table_args__ = (
        CheckConstraint("task_id <> after_id", name="not_itself"),
        Index("ix_task_dependencies_after_id", "after_id"),
    )

    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True)
    after_id: Mapped[int] = mapped_column(ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True)


class Comment(Base):
    """What somebody said on a task. `author` is an agent's name, `board` or `system`."""

    __tablename__ = "comments"
    __table_args__ = (Index("ix_comments_task_id", "task_id", "id"),)

    id: Mapped[Id]
    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id", ondelete="CASCADE"))
    author: Mapped[str]
    text: Mapped[str]
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id"))
    created_at: Mapped[Created]


class Approval(Base):
    """A decision that the board owes. One pending per kind and subject."""

    __tablename__ = "approvals"
    __table_args__ = (
        one_of("status", ApprovalState),
        one_of("kind", ApprovalKind),
        Index("uq_approvals_pending", "kind", "subject", unique=True, postgresql_where=text("status = 'pending'")),
        Index("ix_approvals_goal_id", "goal_id"),
        Index("ix_approvals_task_id", "task_id"),
    )

    id: Mapped[Id]
    kind: Mapped[str]
    subject: Mapped[str]
    question: Mapped[str]
    options: Mapped[list[Any]] = mapped_column(JSONB, server_default=text("'[]'"))
    status: Mapped[str] = mapped_column(server_default=text("'pending'"))
    goal_id: Mapped[int | None] = mapped_column(ForeignKey("goals.id"))
    task_id: Mapped[int | None] = mapped_column(ForeignKey("tasks.id"))
    asked_by: Mapped[str]
    decision: Mapped[str | None]
    note: Mapped[str | None]
    decided_by: Mapped[str | None]
    decided_at: Mapped[datetime | None]
    created_at: Mapped[Created]
