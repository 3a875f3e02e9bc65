"""A database whose clock a test moves: the same SQL, with another `now()` in front of the server's.

Column defaults bind when they are made, so the migrations run under the same path; the tables then stand in the clock's
schema, and every connection needs `Database(url, search_path=PATH)`.
"""

from __future__ import annotations

import psycopg
from sqlalchemy import text

from opencognit.db import Database, libpq_url, upgrade

SCHEMA = "testclock"
PATH = f"{SCHEMA}, pg_catalog, public"

_CLOCK = f"""
CREATE SCHEMA {SCHEMA};
CREATE TABLE {SCHEMA}.clock (ahead interval NOT NULL);
INSERT INTO {SCHEMA}.clock VALUES ('0');
"""
_READINGS = ("now", "transaction_timestamp", "statement_timestamp", "clock_timestamp")


def install(url: str) -> None:
    """Make the clock in an empty database, then the schema under it."""
    with psycopg.connect(libpq_url(url), autocommit=True) as connection:
        connection.execute(_CLOCK)
        for reading in _READINGS:
            connection.execute(
                f"CREATE FUNCTION {SCHEMA}.{reading}() RETURNS timestamptz LANGUAGE sql STABLE"
                f" RETURN pg_catalog.{reading}() + (SELECT ahead FROM {SCHEMA}.clock)"
            )
    upgrade(url, search_path=PATH)


async def advance(db: Database, seconds: float) -> None:
    """Move the time of every session forward, from its next statement on."""
    async with db.transaction() as session:
        await session.execute(text(f"UPDATE {SCHEMA}.clock SET ahead = ahead + make_interval(secs => :s)"), {"s": float(seconds)})
