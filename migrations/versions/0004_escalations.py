"""Who is asked about a task: looked up whenever one ends, and so by an index of its own.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_tasks_about_id", "tasks", ["about_id"], postgresql_where=sa.text("about_id IS NOT NULL"))


def downgrade() -> None:
    op.drop_index("ix_tasks_about_id", table_name="tasks")
