"""The role that the application works as: it owns nothing, so that row-level security binds it. Synchronous.

A server that lets us make no role has one only: then the predicate in every query guards alone, and `doctor` says so.
"""

from __future__ import annotations

import structlog
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

log = structlog.get_logger(__name__)

ROLE = "opencognit_app"

_MAKE = f"""
DO $$ BEGIN
  CREATE ROLE {ROLE} NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- another company on the same server has made it
END $$
"""
_GRANTS = f"""
GRANT {ROLE} TO CURRENT_USER;
GRANT USAGE ON SCHEMA public TO {ROLE};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {ROLE};
GRANT EXECUTE ON FUNCTION memories_by_words, memories_by_likeness TO {ROLE};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {ROLE};
"""


def grant(connection: Connection) -> bool:
    """Make the role and let it work on this database's tables; return whether it may. Needs a transaction of its own."""
    try:
        with connection.begin():
            connection.execute(text(_MAKE))
            connection.execute(text(_GRANTS))
    except DBAPIError as error:
        log.info("database.one_role_only", error=str(error.orig).splitlines()[0][:200])
        return False
    return True


def usable(connection: Connection) -> str | None:
    """Return the role's name where this session may take it on and it may read here; else None."""
    query = text("""
        SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = :role AND NOT rolsuper AND NOT rolbypassrls)
           AND pg_has_role(current_user, :role, 'MEMBER') AND has_table_privilege(:role, 'memories', 'INSERT')
    """)
    found = text("SELECT 1 FROM pg_roles WHERE rolname = :role")
    if connection.execute(found, {"role": ROLE}).first() is None:
        return None
    return ROLE if connection.execute(query, {"role": ROLE}).scalar_one() else None
