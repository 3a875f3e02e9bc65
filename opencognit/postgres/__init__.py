"""The embedded PostgreSQL server of one home, shared by every process that works on it.

Owns finding, making, starting, sharing and stopping the server. Knows no schema, no configuration and no SQLAlchemy:
it takes the home's `data/` folder and gives a connection string. What happens where:

    holding   a process that uses the server: joins it, starts a keeper where none lives
    keeper    one small process per home that owns the server and ends with its last user
    cluster   the data folder: made whole or not at all, checked before it is started
    launch    under which rights a server process runs (never root's, and never longer than its keeper)
    leftovers what a killed server leaves behind
"""

from opencognit.postgres.binaries import bin_dir
from opencognit.postgres.holding import Holding, hold

__all__ = ["Holding", "bin_dir", "hold"]
