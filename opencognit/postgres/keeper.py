"""The keeper: one small process per home that owns the server, restarts it when it is killed, and stops it after its last user.

Started by `holding`, never by hand. It belongs to no terminal and to no user of the server. What it promises:
    one keeper    it inherits the keeper lock, taken by the process that started it
    no early end  it stops only while it holds the holders' lock alone, so nobody can join a server that is about to go
    no late end   the kernel tells: a dead holder's lock is free, a dead keeper's server gets a shutdown signal
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from types import FrameType

from opencognit.errors import ServerFailed
from opencognit.postgres import binaries, cluster, launch, leftovers, locks, serverlog, settings, status
from opencognit.postgres.ping import Life, ping
from opencognit.postgres.places import Places, choose_socket_dir
from opencognit.postgres.status import Status

POLL_S = 0.2  # how soon a departed user is noticed
STARTING_POLL_S = 0.01
FAST_STOP_S = 20.0  # sessions are ended and a checkpoint is written
QUICK_STOP_S = 5.0
MAX_DEATHS = 5  # within DEATHS_WINDOW_S: more is a crash loop
DEATHS_WINDOW_S = 60.0
LOG_CHECK_S = 60.0


class Keeper:
    """Owns one server from its start to its end."""

    def __init__(self, places: Places, programs: Path, linger_s: float, lock: int) -> None:
        self.places, self.programs, self.linger_s, self.lock = places, programs, linger_s, lock
        self.holders = locks.open_lock(places.holders_lock)
        self.server: subprocess.Popen[bytes] | None = None
        self.server_code: int | None = None
        self.ready = self.leave_soon = self.leave_now = False
        self.deaths: deque[float] = deque()
        self.log_start = self.last_join = 0
        self.idle_since = self.log_checked = time.monotonic()
        self.wakeup, self._signalled = os.pipe()

    def run(self) -> None:
        """Serve until nobody uses the server any more."""
        self._listen_to_signals()
        try:
            self._prepare()
            self._start()
            while not self._finished():
                self._pause(POLL_S if self.ready else STARTING_POLL_S)
                self._reap()
                if self.server_code is not None:
                    self._recover()
                elif not self.ready:
                    self._look()
                self._bound_log()
        finally:
            self._stop()

    def _prepare(self) -> None:
        self.launcher = launch.choose(cluster.owner_of(self.places))
        cluster.hand_over(self.places, self.launcher)
        before = status.read(self.places.status).socket_dir
        owners = {os.geteuid(), self.launcher.owner}
        self.socket_dir = choose_socket_dir(self.places, Path(before) if before else None, owners)
        if os.geteuid() == 0:
            os.chown(self.socket_dir, self.launcher.owner, -1)
        self._tell("starting")
        version = self._find_programs()
        lock = leftovers.claim(self.places, self.socket_dir)
        try:
            if not cluster.exists(self.places, version):
                cluster.create(self.places, self.programs, self.launcher, lock)
        finally:
            os.close(lock)

    def _find_programs(self) -> str:
        """Return the server's version, after a copy of the programs when its user cannot run them where they are."""
        try:
            return cluster.version_of(self.programs, self.launcher)
        except ServerFailed:
            if self.launcher.way is not launch.Way.DROP:
                raise
        self.programs = binaries.copy_for_others(self.programs, self.places.runtime / "postgres-programs")
        return cluster.version_of(self.programs, self.launcher)

    def _start(self) -> None:
        """Start the server; it alone holds the server lock afterwards."""
        serverlog.bound(self.places.log)
        self.log_start = serverlog.size(self.places.log)
        self.ready, self.server_code = False, None
        lock = leftovers.claim(self.places, self.socket_dir)
        log = serverlog.open_append(self.places.log)
        argv = [str(self.programs / "postgres"), *settings.arguments(self.places.cluster, self.socket_dir)]
        try:
            self.server = self.launcher.start(argv, stdin=subprocess.DEVNULL, output=log, locks=[lock])
        finally:
            os.close(log)
            os.close(lock)

    def _look(self) -> None:
        if self.server is None or not cluster.says_ready(self.places, self.server.pid):
            return
        answer = ping(self.socket_dir)
        if answer.life is Life.READY:
            self.ready = True
            self._tell("ready")
        elif answer.life is Life.REFUSED:
            raise ServerFailed(
                f"{self.places.cluster}: is not a cluster of OpenCognit's ({answer.message}): move it away, and a new one is made"
            )

    def _recover(self) -> None:
        """Start the server again after its death, but not for ever, and not when it never came up."""
        now = time.monotonic()
        self.deaths.append(now)
        while self.deaths[0] < now - DEATHS_WINDOW_S:
            self.deaths.popleft()
        if len(self.deaths) > MAX_DEATHS or (len(self.deaths) == 1 and not self.ready):
            raise ServerFailed(
                f"{self.places.cluster}: the server does not stay up (it ended with {self.server_code}): "
                f"{serverlog.tail(self.places.log, self.log_start) or 'it said nothing'} (more in {self.places.log})"
            )
        self._tell("starting")
        until = now + 0.2 * (len(self.deaths) - 1)
        while time.monotonic() < until and not self.leave_now:
            self._pause(until - time.monotonic())
        self._start()

    def _finished(self) -> bool:
        """Say whether to stop. True for want of users leaves the holders' lock with us, so that nobody joins any more."""
        if self.leave_now or not locks.is_current(self.lock, self.places.keeper_lock):
            return True
        alone = locks.try_alone(self.holders, self.places.holders_lock)
        joined, now = os.fstat(self.holders).st_mtime_ns, time.monotonic()
        if not alone or joined != self.last_join:  # the second: somebody came and went since the last look
            self.idle_since, self.last_join = now, joined
        if alone and now - self.idle_since >= (0.0 if self.leave_soon else self.linger_s):
            return True
        if alone:
            locks.unlock(self.holders)
        return False

    def _stop(self) -> None:
        """End the server: fast, quick, by force. A home that was deleted or moved away is left untouched: only force."""
        here = locks.is_current(self.lock, self.places.keeper_lock)
        steps = [(signal.SIGINT, FAST_STOP_S), (signal.SIGQUIT, QUICK_STOP_S)] if here else []
        for number, patience_s in [*steps, (signal.SIGKILL, QUICK_STOP_S)]:
            if self.server is None or self.server_code is not None:
                break
            self.server.send_signal(number)
            until = time.monotonic() + patience_s
            while self.server_code is None and time.monotonic() < until:
                self._pause(until - time.monotonic())
                self._reap()
        if here and self.server is not None:
            with contextlib.suppress(OSError, ServerFailed):
                os.close(leftovers.claim(self.places, self.socket_dir))  # its sessions are gone, and so are its files

    def _reap(self) -> None:
        """Collect ended children; sessions of a killed server are ours too (see `launch.adopt_orphans`)."""
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self.server is not None and pid == self.server.pid:
                self.server_code = self.server.returncode = os.waitstatus_to_exitcode(wait_status)

    def _tell(self, phase: status.Phase) -> None:
        status.write(self.places.status, Status(phase, str(self.socket_dir)))

    def _bound_log(self) -> None:
        if time.monotonic() - self.log_checked > LOG_CHECK_S:
            self.log_checked = time.monotonic()
            serverlog.bound(self.places.log)

    def _listen_to_signals(self) -> None:
        """SIGTERM: leave without lingering once nobody uses the server. SIGINT: leave now. SIGHUP: no terminal is ours."""
        os.set_blocking(self._signalled, False)
        signal.set_wakeup_fd(self._signalled, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.leave_soon |= number == signal.SIGTERM
        self.leave_now |= number == signal.SIGINT

    def _pause(self, seconds: float) -> None:
        """Wait, but not past a signal."""
        if select.select([self.wakeup], [], [], max(0.0, seconds))[0]:
            os.read(self.wakeup, 4096)


def main() -> None:
    """Become a process of nobody's, then keep the server. Arguments: data folder, programs, linger in seconds, lock's number."""
    data, programs, linger_s, lock = sys.argv[1:5]
    if os.fork() != 0:
        os._exit(0)  # who started us waits for this exit only, and never has a child to collect
    os.umask(0o077)
    launch.adopt_orphans()
    places = Places(Path(data))
    keeper_lock = int(lock)
    os.set_inheritable(keeper_lock, False)
    try:
        Keeper(places, Path(programs), float(linger_s), keeper_lock).run()
        news = Status("stopped", status.read(places.status).socket_dir)
    except ServerFailed as error:
        news = Status("failed", status.read(places.status).socket_dir, str(error))
    except OSError as error:
        where = f"{error.filename or places.data}"
        news = Status("failed", "", f"{where}: {error.strerror}: the embedded server needs it; see {places.log}")
    if locks.is_current(keeper_lock, places.keeper_lock):
        status.write(places.status, news)


if __name__ == "__main__":
    main()
