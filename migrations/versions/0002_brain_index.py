"""How the brain finds: terms and counts for BM25+, a backlog of what is not indexed yet, vectors that know their scope.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

CONTENT = ("uq_memories_content", "memories", ["scope", "owner", "content_hash"])


def upgrade() -> None:
    op.add_column("memories", sa.Column("terms", sa.LargeBinary(), server_default=sa.text("''"), nullable=False))
    op.add_column("memories", sa.Column("content_terms", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.add_column("memories", sa.Column("index_version", sa.SmallInteger(), server_default=sa.text("0"), nullable=False))
    op.add_column("memories", sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE memories SET retired_at = updated_at WHERE lifecycle NOT IN ('active', 'stale')")
    op.create_check_constraint(
        op.f("ck_memories_retired"), "memories", "(lifecycle IN ('active', 'stale')) = (retired_at IS NULL)"
    )
    op.drop_index("uq_memories_content", table_name="memories")
    op.create_index(*CONTENT, unique=True, postgresql_where=sa.text("lifecycle IN ('active', 'stale')"))
    op.create_index("ix_memories_ageing", "memories", ["type", "updated_at"], postgresql_where=sa.text("lifecycle = 'active'"))

    op.add_column("memory_embeddings", sa.Column("scope", sa.Text(), nullable=True))
    op.add_column("memory_embeddings", sa.Column("owner", sa.Text(), nullable=True))
    op.execute("UPDATE memory_embeddings e SET scope = m.scope, owner = m.owner FROM memories m WHERE m.id = e.memory_id")
    op.alter_column("memory_embeddings", "scope", nullable=False)
    op.alter_column("memory_embeddings", "owner", nullable=False)
    op.create_index("ix_memory_embeddings_owner", "memory_embeddings", ["model", "scope", "owner", "memory_id"])

    op.create_table(
        "memory_backlog",
        _memory_id(),
        sa.Column("counted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("tries", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("taken_until", sa.DateTime(timezone=True), server_default=sa.text("'-infinity'"), nullable=False),
        *_keys("memory_backlog", "memory_id"),
    )
    op.create_index("ix_memory_backlog_uncounted", "memory_backlog", ["memory_id"], postgresql_where=sa.text("NOT counted"))
    op.execute("INSERT INTO memory_backlog (memory_id) SELECT id FROM memories")
    op.create_table(
        "memory_terms",
        sa.Column("term", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("memories", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("term", name=op.f("pk_memory_terms")),
    )
    op.create_table(
        "memory_counts",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("memories", sa.BigInteger(), nullable=False),
        sa.Column("content_terms", sa.BigInteger(), nullable=False),
        sa.Column("all_terms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "owner", name=op.f("pk_memory_counts")),
    )
    op.create_table(
        "memory_keys",
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        _memory_id(),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        *_keys("memory_keys", "writer", "key"),
    )
    op.create_table(
        "memory_uses",
        _memory_id(),
        sa.Column("uses", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        *_keys("memory_uses", "memory_id"),
    )


def downgrade() -> None:
    for table in ("memory_uses", "memory_keys", "memory_counts", "memory_terms", "memory_backlog"):
        op.drop_table(table)
    op.drop_index("ix_memory_embeddings_owner", table_name="memory_embeddings")
    op.drop_column("memory_embeddings", "owner")
    op.drop_column("memory_embeddings", "scope")
    op.drop_index("ix_memories_ageing", table_name="memories")
    op.drop_index("uq_memories_content", table_name="memories")
    op.create_index(*CONTENT, unique=True, postgresql_where=sa.text("lifecycle = 'active'"))
    op.drop_constraint("ck_memories_retired", "memories")
    for column in ("retired_at", "index_version", "content_terms", "terms"):
        op.drop_column("memories", column)


def _memory_id() -> sa.Column[int]:
    return sa.Column("memory_id", sa.BigInteger(), nullable=False)


def _keys(table: str, *primary: str) -> tuple[sa.Constraint, ...]:
    of_memory = sa.ForeignKeyConstraint(["memory_id"], ["memories.id"], name=op.f(f"fk_{table}_memory_id"), ondelete="CASCADE")
    return of_memory, sa.PrimaryKeyConstraint(*primary, name=op.f(f"pk_{table}"))
