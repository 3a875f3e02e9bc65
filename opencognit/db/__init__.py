"""The database: sessions as units of work, and the listener. Owns no table and no SQL of the domain.

Services are `verb(session, ...)` and never commit; `async with db.transaction() as session` commits once, at its end.
"""

from opencognit.db.listener import CHANNEL, Listener, notify
from opencognit.db.session import Database, libpq_url
from opencognit.db.upgrade import application_role, check_server, downgrade, is_current, upgrade

__all__ = [
    "CHANNEL",
    "Database",
    "Listener",
    "application_role",
    "check_server",
    "downgrade",
    "is_current",
    "libpq_url",
    "notify",
    "upgrade",
]
