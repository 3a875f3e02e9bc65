"""The side of a process that uses the server: join it, start a keeper where none lives, leave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from opencognit.errors import ServerFailed
from opencognit.postgres import binaries, cluster, locks, serverlog, status
from opencognit.postgres.ping import DATABASE, USER, Life, ping
from opencognit.postgres.places import Places
from opencognit.postgres.status import Status

LINGER_ENV = "OPENCOGNIT_POSTGRES_LINGER_S"
LINGER_S = 2.0  # a burst of commands starts the server once
MAX_KEEPERS = 3  # started by one call: more die faster than they can be asked
_POLL_S = 0.01
# By this way the keeper needs neither `site` nor the caller's PYTHON variables, and starts in 40 ms.
_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from opencognit.postgres.keeper import main; main()"


class Holding:
    """One process's share in the server: the server stays up until the last one is closed or its process is gone."""

    def __init__(self, places: Places, linger_s: float) -> None:
        self._places, self._linger_s = places, linger_s
        self._fd = -1
        self._socket_dir = Path()

    @property
    def dsn(self) -> str:
        """Return the connection string for SQLAlchemy and libpq. It stays the same when the server is restarted."""
        return f"postgresql://{USER}@/{DATABASE}?host={quote(str(self._socket_dir))}"

    @property
    def socket_dir(self) -> Path:
        """Return the folder of the server's socket, which is what `pg_dump --host` takes."""
        return self._socket_dir

    def ensure(self, *, timeout_s: float = 60.0) -> None:
        """Return once the server takes connections, starting a new keeper when the old one is gone.

        Costs a few milliseconds while the server is up: call it whenever a connection is lost.
        """
        if self._fd < 0:
            raise ServerFailed(f"{self._places.data}: this holding was closed: call `hold` again")
        deadline = time.monotonic() + timeout_s
        started, saw_keeper = 0, False
        log_start = serverlog.size(self._places.log)
        old = status.read(self._places.status)  # a failure that was told before this call is not ours
        while True:
            lock = self._keeper_lock_if_free()
            if lock is None:
                saw_keeper = True
                if self._answers(old):
                    return
            else:
                try:
                    if saw_keeper:
                        self._raise_failure(old)
                    if started == MAX_KEEPERS:
                        raise ServerFailed(f"{self._places.data}: the server's keeper ends at once: see {self._places.log}")
                    self._start_keeper(lock)
                finally:
                    os.close(lock)
                started, saw_keeper, old = started + 1, True, Status("starting")
            if time.monotonic() > deadline:
                raise ServerFailed(
                    f"{self._places.cluster}: the server is not ready after {timeout_s:g} s: "
                    f"{serverlog.tail(self._places.log, log_start) or 'it said nothing'} (more in {self._places.log}); "
                    "a long recovery goes on only while somebody waits for it"
                )
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Give the share back; calling it twice does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Holding:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _join(self, timeout_s: float) -> None:
        """Take the shared lock. A keeper that stops holds it alone until its server is gone, then this goes on."""
        path = self._places.holders_lock
        deadline = time.monotonic() + timeout_s
        self._fd = locks.open_lock(path)
        while not locks.try_shared(self._fd, path) or not locks.is_current(self._fd, path):
            if time.monotonic() > deadline:
                raise ServerFailed(f"{path}: the server has been stopping for {timeout_s:g} s: see {self._places.log}")
            if not locks.is_current(self._fd, path):
                os.close(self._fd)
                self._fd = locks.open_lock(path)
            time.sleep(_POLL_S)
        os.utime(self._fd)  # tells the keeper that somebody was here, even if we are gone before it looks

    def is_kept(self) -> bool:
        """Return whether a keeper lives, at the cost of one look at a lock: as long as it does, it brings the server back."""
        lock = self._keeper_lock_if_free()
        if lock is None:
            return True
        os.close(lock)
        return False

    def _keeper_lock_if_free(self) -> int | None:
        """Return the keeper's lock when no keeper lives: whoever has it is the one that starts the next."""
        lock = locks.open_lock(self._places.keeper_lock)
        if locks.try_alone(lock, self._places.keeper_lock):
            return lock
        os.close(lock)
        return None

    def _start_keeper(self, lock: int) -> None:
        """Start a keeper that inherits the lock: from here to its end there is no moment without an owner."""
        programs = binaries.bin_dir()
        before = status.read(self._places.status).socket_dir
        root = Path(__file__).resolve().parents[2]
        argv: list[str | Path] = [sys.executable, "-I", "-S", "-c", _BOOT, root, self._places.data, programs]
        argv += [str(self._linger_s), str(lock)]
        try:
            status.write(self._places.status, Status("starting", before))
            log = serverlog.open_append(self._places.log)
            try:
                done = subprocess.run(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[lock],
                    start_new_session=True,
                    cwd="/",
                    check=False,
                )
            finally:
                os.close(log)
        except OSError as error:
            raise ServerFailed(
                f"{error.filename or self._places.data}: {error.strerror}: the home must be writable, with space left"
            ) from error
        if done.returncode != 0:
            raise ServerFailed(f"{self._places.data}: the server's keeper does not start, python says why in {self._places.log}")

    def _answers(self, old: Status) -> bool:
        self._raise_failure(old)
        news = status.read(self._places.status)
        if news.phase != "ready" or ping(Path(news.socket_dir)).life is not Life.READY:
            return False
        self._socket_dir = Path(news.socket_dir)
        return True

    def _raise_failure(self, old: Status) -> None:
        news = status.read(self._places.status)
        if news.phase == "failed" and news != old:
            raise ServerFailed(news.message)


def hold(data: Path, *, timeout_s: float = 60.0, linger_s: float | None = None) -> Holding:
    """Return a share in the server of the home whose `data/` folder is given, and start that server if it is down.

    The first call in a home makes the cluster. `linger_s` is how long the server outlives its last user (None: the
    environment's OPENCOGNIT_POSTGRES_LINGER_S, else 2); the process that starts the server decides. Blocks: call it in
    a thread. Raises ServerFailed with what was wrong, where, and what to do.
    """
    binaries.bin_dir()  # before a file is made in a home where the server cannot run
    places = Places(data.resolve())
    cluster.check_owner(places)
    places.make()
    holding = Holding(places, _linger() if linger_s is None else linger_s)
    try:
        holding._join(timeout_s)
        holding.ensure(timeout_s=timeout_s)
    except BaseException:
        holding.close()
        raise
    return holding


def _linger() -> float:
    text = os.environ.get(LINGER_ENV, "")
    try:
        return max(0.0, float(text)) if text else LINGER_S
    except ValueError:
        raise ServerFailed(f"{LINGER_ENV}: {text!r} is not a number of seconds: set one, or unset it") from None
