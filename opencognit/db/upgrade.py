"""Brings a database to this version's schema, one process at a time. Synchronous: alembic is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from opencognit.db.session import first_line, is_lost, path_option
from opencognit.errors import OpenCognitError, Unreachable

ADVISORY_KEY = 0x6F70636F67  # "opcog": whoever holds it migrates
WAIT_S = 120
"""How long one process waits for another that migrates."""
MINIMUM_POSTGRES = 150000
MINIMUM_PGVECTOR = (0, 8, 4)


def upgrade(url: str, revision: str = "head", *, search_path: str | None = None, lock_timeout_s: float = 5.0) -> bool:
    """Migrate to `revision`; return whether anything was done. Several callers at once: one migrates, others wait.

    Raises OpenCognitError when the database is newer than this version, or when a running daemon holds a table for
    longer than the lock timeout: then nothing has changed.
    """
    with _connected(url, search_path) as connection:
        config = _config(connection)
        if revision == "head" and _revision(connection) == ScriptDirectory.from_config(config).get_current_head():
            return False
        with _alone(connection, lock_timeout_s):
            before = _revision(connection)
            command.upgrade(config, revision)
            return _revision(connection) != before


def downgrade(url: str, revision: str, *, search_path: str | None = None, lock_timeout_s: float = 5.0) -> None:
    """Migrate back to `revision` (`base`: an empty database)."""
    with _connected(url, search_path) as connection, _alone(connection, lock_timeout_s):
        command.downgrade(_config(connection), revision)


def check_server(url: str) -> str:
    """Return `PostgreSQL X, pgvector Y`; raises Unreachable or OpenCognitError naming what is too old or missing."""
    with _connected(url, None) as connection:
        number = int(connection.execute(text("SHOW server_version_num")).scalar_one())
        version = connection.execute(text("SHOW server_version")).scalar_one()
        found = connection.execute(
            text(
                "SELECT coalesce((SELECT extversion FROM pg_extension WHERE extname = 'vector'),"
                " (SELECT default_version FROM pg_available_extensions WHERE name = 'vector'))"
            )
        ).scalar_one()
    return judge(number, version, found)


def judge(number: int, version: str, pgvector: str | None) -> str:
    """Return the line of check_server for a server's versions; raises OpenCognitError for one that will not do."""
    needed = ".".join(map(str, MINIMUM_PGVECTOR))
    if number < MINIMUM_POSTGRES:
        raise OpenCognitError(f"PostgreSQL {version} is too old: use 15 or newer, or leave database.url empty")
    if pgvector is None:
        raise OpenCognitError(f"PostgreSQL {version} has no pgvector: install pgvector {needed} or newer on the server")
    if tuple(int(part) for part in re.findall(r"\d+", pgvector)[:3]) < MINIMUM_PGVECTOR:
        raise OpenCognitError(
            f"pgvector {pgvector} is too old: install {needed} or newer, then `ALTER EXTENSION vector UPDATE` in this database"
        )
    return f"PostgreSQL {version.split()[0]}, pgvector {pgvector}"


@contextmanager
def _connected(url: str, search_path: str | None) -> Iterator[Connection]:
    options = {"options": path_option(search_path)} if search_path else {}
    engine = create_engine(
        make_url(url).set(drivername="postgresql+psycopg"),
        poolclass=NullPool,
        connect_args={"application_name": "opencognit-upgrade", "connect_timeout": 10, **options},
    )
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        if not is_lost(error):
            raise
        raise Unreachable(f"the database does not answer ({first_line(error)}): check database.url") from error
    finally:
        engine.dispose()


@contextmanager
def _alone(connection: Connection, lock_timeout_s: float) -> Iterator[None]:
    """Hold the advisory lock around one migration; it is given back with the connection.

    DDL gives up after `lock_timeout_s` rather than freeze a running daemon.
    """
    try:
        connection.execute(text(f"SET lock_timeout = '{WAIT_S}s'"))
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": ADVISORY_KEY})
        connection.execute(text(f"SET lock_timeout = {int(lock_timeout_s * 1000)}"))
        connection.commit()
        yield
        connection.commit()
    except DBAPIError as error:
        reason = _reason(error)
        if reason is None:
            raise
        raise OpenCognitError(reason) from error
    except CommandError as error:
        raise OpenCognitError(
            f"this database was made by another version ({error}): use that version, or `opencognit backup restore`"
        ) from error


def _reason(error: DBAPIError) -> str | None:
    if isinstance(error.orig, psycopg.errors.LockNotAvailable):
        return (
            "the schema was not changed: another session holds a table, or is migrating for too long;"
            " end that session (see pg_stat_activity) and try again"
        )
    if isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
        return (
            f"the database refuses ({first_line(error)}): let its owner `CREATE EXTENSION vector` and"
            " `GRANT CREATE ON SCHEMA public` to this role first"
        )
    return None


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_scripts()))
    config.attributes["connection"] = connection
    return config


def _scripts() -> Path:
    """The migrations of a wheel, else those of the checkout."""
    package = Path(__file__).resolve().parent.parent
    packed = package / "_packed" / "migrations"
    return packed if packed.is_dir() else package.parent / "migrations"
