"""Brings a database to this version's schema, one process at a time. Synchronous: alembic is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import psycopg
from sqlalchemy import Connection, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from opencognit.db import roles
from opencognit.db.session import first_line, is_lost, path_option
from opencognit.errors import OpenCognitError, Unreachable
from opencognit.models import Base

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
        if revision == "head" and _revision(connection) == head():
            if roles.usable(connection) is None:
                connection.rollback()
                roles.grant(connection)
            return False
        with _alone(connection, lock_timeout_s):
            before = _revision(connection)
            if before is None:
                _refuse_foreign(connection)
            _alembic(connection, "upgrade", revision)
            changed = _revision(connection) != before
            connection.commit()
            roles.grant(connection)
            return changed


def application_role(url: str) -> str | None:
    """Return the role to work as; None where this server has one for us only."""
    with _connected(url, None) as connection:
        return roles.usable(connection)


def head() -> str:
    """Return this version's revision: migrations are named by it, in order."""
    return max(path.name for path in (_scripts() / "versions").glob("[0-9]*.py")).partition("_")[0]


def is_current(url: str) -> bool:
    """Return whether the database is at this version's schema; changes nothing."""
    with _connected(url, None) as connection:
        return _revision(connection) == head()


def downgrade(url: str, revision: str, *, search_path: str | None = None, lock_timeout_s: float = 5.0) -> None:
    """Migrate back to `revision` (`base`: an empty database)."""
    with _connected(url, search_path) as connection, _alone(connection, lock_timeout_s):
        _alembic(connection, "downgrade", revision)


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
    """Return the revision that the database is at, None where there is no schema of ours."""
    if connection.execute(text("SELECT to_regclass('alembic_version') IS NULL")).scalar_one():
        return None
    return connection.execute(text("SELECT max(version_num) FROM alembic_version")).scalar_one_or_none()


def _refuse_foreign(connection: Connection) -> None:
    """A database without our schema but with tables of the same names is somebody else's."""
    names = sorted(Base.metadata.tables)
    query = text("SELECT name FROM unnest(CAST(:names AS text[])) AS name WHERE to_regclass(name) IS NOT NULL LIMIT 1")
    found = connection.execute(query, {"names": names}).scalar_one_or_none()
    if found is not None:
        raise OpenCognitError(
            f"this database has a table {found!r} that is not OpenCognit's: give it a database of its own in database.url"
        )


def _alembic(connection: Connection, verb: Literal["upgrade", "downgrade"], revision: str) -> None:
    from alembic import command  # takes a fifth of a second to load, and most commands find nothing to migrate
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", str(_scripts()))
    config.attributes["connection"] = connection
    try:
        (command.upgrade if verb == "upgrade" else command.downgrade)(config, revision)
    except CommandError as error:
        raise OpenCognitError(
            f"this database was made by another version ({error}): use that version, or a database of its own for this one"
        ) from error


def _scripts() -> Path:
    """The migrations of a wheel, else those of the checkout."""
    package = Path(__file__).resolve().parent.parent
    packed = package / "_packed" / "migrations"
    return packed if packed.is_dir() else package.parent / "migrations"
