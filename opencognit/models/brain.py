"""What the company knows: memories, the entities they name, the edges between them, their vectors."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pgvector.sqlalchemy import VECTOR
from sqlalchemy import CheckConstraint, Computed, Double, ForeignKey, Index, Integer, LargeBinary, SmallInteger, text
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.orm import Mapped, mapped_column

from opencognit.models.base import Base, Created, Id, one_of
from opencognit.states import EntityRole, Lifecycle, MemoryType, Relation, Scope, Trust

LANGUAGES = ("english", "german")
"""Text search configurations that a row may have. Plain text: a regconfig column would stand in pg_upgrade's way."""


class Memory(Base):
    """One thing known. `owner` is the agent of an `agent_private` memory, the team of a `team` one, else empty.

    `search_text`, `terms` and `content_terms` are how it is found by words (brain/folding.py), as of `index_version`;
    `evidence` counts identical writes; `retired_at` is when it was superseded or archived.
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
        CheckConstraint("(lifecycle IN ('active', 'stale')) = (retired_at IS NULL)", name="retired"),
        Index(
            "uq_memories_content",
            "scope",
            "owner",
            "content_hash",
            unique=True,
            postgresql_where=text("lifecycle IN ('active', 'stale')"),
        ),
        Index("ix_memories_search", "search", postgresql_using="gin"),
        Index("ix_memories_room", "room", "id"),
        Index("ix_memories_source_run_id", "source_run_id"),
        Index("ix_memories_ageing", "type", "updated_at", postgresql_where=text("lifecycle = 'active'")),
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
    terms: Mapped[bytes] = mapped_column(LargeBinary, server_default=text("''"), deferred=True)
    content_terms: Mapped[int] = mapped_column(Integer, server_default=text("0"), deferred=True)
    index_version: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"), deferred=True)
    evidence: Mapped[int] = mapped_column(server_default=text("1"))
    source_agent: Mapped[str | None]
    source_run_id: Mapped[int | None]
    source_task_id: Mapped[int | None]
    valid_from: Mapped[datetime | None]
    valid_to: Mapped[datetime | None]
    created_at: Mapped[Created]
    updated_at: Mapped[Created]
    retired_at: Mapped[datetime | None]


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
    """A memory's vector under one model, so that the model can change while the brain is in use.

    `scope` and `owner` are the memory's, which never change: a search by likeness sees from the vector alone whom it is for.
    """

    __tablename__ = "memory_embeddings"
    __table_args__ = (Index("ix_memory_embeddings_owner", "model", "scope", "owner", "memory_id"),)

    memory_id: Mapped[int] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True)
    model: Mapped[str] = mapped_column(primary_key=True)
    scope: Mapped[str]
    owner: Mapped[str]
    embedding: Mapped[Any] = mapped_column(VECTOR())
    created_at: Mapped[Created]


class MemoryBacklog(Base):
    """A memory whose words are not counted, or whose vector is not made yet. Deleted when they are.

    Until `taken_until` somebody is making the vector; `tries` is how often that was begun.
    """

    __tablename__ = "memory_backlog"
    __table_args__ = (Index("ix_memory_backlog_uncounted", "memory_id", postgresql_where=text("NOT counted")),)

    memory_id: Mapped[int] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True)
    counted: Mapped[bool] = mapped_column(server_default=text("false"))
    tries: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    taken_until: Mapped[datetime] = mapped_column(server_default=text("'-infinity'"))


class MemoryTerm(Base):
    """In how many memories a term stands, by its number (brain/folding.py)."""

    __tablename__ = "memory_terms"

    term: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    memories: Mapped[int]


class MemoryCount(Base):
    """How many memories a scope has, and how many terms stand in them: in content, and in content and context."""

    __tablename__ = "memory_counts"

    scope: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(primary_key=True)
    memories: Mapped[int]
    content_terms: Mapped[int]
    all_terms: Mapped[int]


class MemoryKey(Base):
    """An idempotency key of a writer, and the memory that its first use made."""

    __tablename__ = "memory_keys"

    writer: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    memory_id: Mapped[int] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"))
    created_at: Mapped[Created]


class MemoryUse(Base):
    """When a memory was last given to somebody who asked, and how often."""

    __tablename__ = "memory_uses"

    memory_id: Mapped[int] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True)
    uses: Mapped[int]
    used_at: Mapped[Created]
