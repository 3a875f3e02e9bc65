"""Alembic's entry: migrates the connection that opencognit.db.upgrade hands over, in one transaction."""

from alembic import context
from sqlalchemy import Connection

from opencognit.models import Base

connection: Connection | None = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("run migrations with `opencognit db upgrade`: it holds the lock that keeps two of them apart")

context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    compare_type=True,
    compare_server_default=True,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
