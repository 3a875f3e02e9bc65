"""What happened, in order: one row an event, written in the transaction of the change itself."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Index, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from opencognit.models.base import Base, Created, Id


class Event(Base):
    __tablename__ = "events"
    __table_args__ = (Index("ix_events_subject", "subject_kind", "subject_id", "id"), Index("ix_events_at", "at"))

    id: Mapped[Id]
    type: Mapped[str]
    at: Mapped[Created]
    subject_kind: Mapped[str]
    subject_id: Mapped[str]
    subject_title: Mapped[str] = mapped_column(server_default=text("''"))
    actor: Mapped[str]
    data: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=text("'{}'"))
