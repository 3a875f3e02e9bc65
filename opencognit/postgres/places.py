"""Where the server's files are, and which folder its socket is in. Owns names and paths, starts nothing."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from opencognit.errors import ServerFailed

SOCKET_FILE = ".s.PGSQL.5432"
SOCKET_PATH_LIMIT = 100  # bytes; the kernels allow 107 (Linux) and 103 (macOS)


@dataclass(frozen=True, slots=True)
class Places:
    """The files of one home's server, all under its `data/` folder."""

    data: Path

    @property
    def cluster(self) -> Path:
        return self.data / "postgres"

    @property
    def unfinished(self) -> Path:
        """Where a cluster is made before it gets its name. Beside it, because a rename must not cross file systems."""
        return self.data / "postgres.unfinished"

    @property
    def runtime(self) -> Path:
        return self.data / "runtime"

    @property
    def log(self) -> Path:
        return self.data / "logs" / "postgres.log"

    @property
    def holders_lock(self) -> Path:
        """Shared by everyone who uses the server; the keeper takes it exclusively to stop."""
        return self.runtime / "postgres.holders.lock"

    @property
    def keeper_lock(self) -> Path:
        """Held by the one keeper for as long as it lives."""
        return self.runtime / "postgres.keeper.lock"

    @property
    def server_lock(self) -> Path:
        """Inherited by every process of the server: free means that none of them lives."""
        return self.runtime / "postgres.server.lock"

    @property
    def status(self) -> Path:
        return self.runtime / "postgres.json"

    def make(self) -> None:
        """Make the folders that the server shares with the rest of the home."""
        for folder in (self.data, self.runtime, self.log.parent):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ServerFailed(
                    f"{folder}: cannot be made ({error.strerror}): give this user a home it may write to"
                ) from error


def choose_socket_dir(places: Places, before: Path | None, owners: set[int]) -> Path:
    """Return a private folder for the socket: in the home, or where its path is too long or odd, in a runtime folder.

    `before` is the folder of the server before this one. It is used again whenever it still can be, because running
    processes have connection strings with it. `owners` are the users whose folder it may be.
    """
    home = places.runtime / "pg"
    if _usable(home):
        home.mkdir(mode=0o700, exist_ok=True)
        return home
    # The name depends on the home, so that a copied home does not go on with the original's socket.
    name = f"opencognit-{os.geteuid()}-{hashlib.sha256(os.fsencode(places.data)).hexdigest()[:12]}"
    bases = [Path(base) for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp") if base]
    candidates = [base / f"{name}{suffix}" for base in bases for suffix in ("", "-2", "-3")]
    if before is not None and before.name.startswith(name):
        candidates.insert(0, before)
    for folder in candidates:
        if _usable(folder) and _made_private(folder, owners):
            return folder
    raise ServerFailed(
        f"{places.data}: no place for the server's socket: this path is too long or odd for one, and no private folder can be "
        f"made in {', '.join(map(str, bases))}: use a shorter path, or set XDG_RUNTIME_DIR"
    )


def _usable(folder: Path) -> bool:
    """Say whether a socket in `folder` has a path that kernels accept and libpq reads as one host."""
    path = os.fsencode(folder / SOCKET_FILE)
    return len(path) <= SOCKET_PATH_LIMIT and re.fullmatch(rb"/[\w./+@:=~ -]*", path) is not None


def _made_private(folder: Path, owners: set[int]) -> bool:
    """Make `folder`, or accept it when nobody else can have prepared it (a shared /tmp is anybody's)."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        return stat.S_ISDIR(found.st_mode) and found.st_uid in owners and not found.st_mode & 0o077
    except OSError:
        return False
    return True
