"""What the company knows: memories, the entities they name, the edges between them, their vectors."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pgvector.sqlalchemy import VECTOR
from sqlalchemy import CheckConstraint, Computed, Double, ForeignKey, Index, LargeBinary, text
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.orm import Mapped, mapped_column

from opencognit.models.base import Base, Created, Id, one_of
from opencognit.states import EntityRole, Lifecycle, MemoryType, Relation, Scope, Trust

LANGUAGES = ("english", "german")
"""Text search configurations that a row may have. Plain text: a regconfig column would stand in pg_upgrade's way."""


class Memory(Base):
    """One thing known. `owner` is the agent of an `agent_private` memory, the team of a `team` one, else empty.

    `search_text` is the words of context and content, folded the way questions are; `evidence` counts identical writes.
    """

    __tablename__ = "memories"
    __table_args__ = (
        one_of("type", MemoryType),
        one_of("scope", Scope),
        one_of("trust", Trust),
        one_of("lifecycle", Lifecycle),
        CheckConstraint("confidence >= 0 AND confidence <= 1", name="confidence"),
        CheckConstraint("language IN ('english', 'german')", name="language"),
        CheckConstraint("(scope = 'org') = (owner = '')", name="owner"),
        Index(
            "uq_memories_content", "scope", "owner", "content_hash", unique=True, postgresql_where=text("lifecycle = 'active'")
        ),
        Index("ix_memories_search", "search", postgresql_using="gin"),
        Index("ix_memories_room", "room", "id"),
        Index("ix_memories_source_run_id", "source_run_id"),
    )

    id: Mapped[Id]
    type: Mapped[str]
    room: Mapped[str]
    scope: Mapped[str]
    owner: Mapped[str] = mapped_column(server_default=text("''"))
    trust: Mapped[str]
    lifecycle: Mapped[str] = mapped_column(server_default=text("'active'"))
    confidence: Mapped[float] = mapped_column(Double)
    content: Mapped[str]
    content_hash: Mapped[bytes] = mapped_column(LargeBinary)
    context: Mapped[str] = mapped_column(server_default=text("''"))
    language: Mapped[str]
    search_text: Mapped[str] = mapped_column(deferred=True)
    search: Mapped[Any] = mapped_column(
        TSVECTOR,
        Computed(
            "CASE WHEN language = 'german' THEN to_tsvector('german'::regconfig, search_text)"
            " ELSE to_tsvector('english'::regconfig, search_text) END",
            persisted=True,
        ),
        deferred=True,
    )
    evidence: Mapped[int] = mapped_column(server_default=text("1"))
    source_agent: Mapped[str | None]
    source_run_id: Mapped[int | None]
    source_task_id: Mapped[int | None]
    valid_from: Mapped[datetime | None]
    valid_to: Mapped[datetime | None]
    created_at: Mapped[Created]
    updated_at: Mapped[Created]


class Entity(Base):
    __tablename__ = "entities"
    __table_args__ = (Index("uq_entities_kind_key", "kind", "key", unique=True),)

    id: Mapped[Id]
    kind: Mapped[str]
    key: Mapped[str]
    created_at: Mapped[Created]


class MemoryEntity(Base):
    __tablename__ = "memory_entities"
    __table_args__ = (one_of("role", EntityRole), Index("ix_memory_entities_entity_id", "entity_id", "memory_id"))

    memory_id: Mapped[int] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True)
    entity_id: Mapped[int] = mapped_column(ForeignKey("entities.id", ondelete="CASCADE"), primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)


class MemoryEdge(Base):
    """`source_id` RELATION `target_id`: the newer derives from, supersedes, ... the older."""

    __tablename__ = "memory_edges"
    __table_args__ = (
        one_of("relation", Relation),
        CheckConstraint("source_id <> target_id", name="not_itself"),
        Index("uq_memory_edges", "source_id", "relation", "target_id", unique=True),
        Index("ix_memory_edges_target_id", "target_id"),
    )

    id: Mapped[Id]
    source_id: Mapped[int] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"))
    relation: Mapped[str]
    target_id: Mapped[int] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"))
    created_by: Mapped[str]
    created_at: Mapped[Created]


class MemoryEmbedding(Base):
    """A memory's vector under one model, so that the model can change while the brain is in use."""

    __tablename__ = "memory_embeddings"

    memory_id: Mapped[int] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True)
    model: Mapped[str] = mapped_column(primary_key=True)
    embedding: Mapped[Any] = mapped_column(VECTOR())
    created_at: Mapped[Created]
