"""The warden: a tiny helper process per node that outlives a `kill -9` of it, and then ends what the node had started.

Owns the registry of running process groups on both sides of one pipe. The node writes `+ pgid run_id started` and
`- pgid`; the end of the file means that the node is gone, and a deadline `~ seconds` that passes without a later one that
it is frozen: in both cases another node may soon do its work. Standard library only: the helper must start in milliseconds
and stay small. A fork without exec of the node would keep its pipe open: let nothing fork so while a warden runs.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from opencognit.adapters import orphans

GOODBYE_S = 5.0
SHORT_LIFE_S = 1.0
LONGEST_PAUSE_S = 5.0


class Warden:
    """The node's end. Safe to use from any thread; `on_death` is told the exit code of a helper that had to be replaced."""

    def __init__(self, *, on_death: Callable[[int], None] | None = None) -> None:
        self._lock = threading.RLock()
        self._groups: dict[int, str] = {}
        self._helper: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._deadline = ""
        self._stopping = threading.Event()
        self._on_death = on_death

    @property
    def pid(self) -> int | None:
        """The helper's process id, None while there is none."""
        helper = self._helper
        return helper.pid if helper is not None else None

    def start(self) -> None:
        """Start the helper; raises OSError when the system gives no process."""
        self._stopping.clear()
        self._launch()

    def stop(self) -> None:
        """Let the helper end what is still registered or marked, and wait for it (milliseconds, at most `GOODBYE_S`)."""
        self._stopping.set()
        with self._lock:
            helper, self._helper = self._helper, None
            self._close_pipe()
            self._groups.clear()
        if helper is not None:
            try:
                helper.wait(timeout=GOODBYE_S)
            except subprocess.TimeoutExpired:
                helper.kill()
                helper.wait()

    def add(self, pgid: int, run_id: int) -> None:
        """Have group `pgid` of run `run_id` die with this node. Call it while the group's leader is not yet collected."""
        with self._lock:
            self._groups[pgid] = f"+ {pgid} {run_id} {orphans.started_at(pgid) or 0}\n"
            self._tell(self._groups[pgid])

    def remove(self, pgid: int) -> None:
        """Forget a group. Call it before its leader is collected, so that its number cannot be another's yet."""
        with self._lock:
            if self._groups.pop(pgid, None) is not None:
                self._tell(f"- {pgid}\n")

    def keep_until(self, deadline: float) -> None:
        """Let the groups live until `deadline` (time.monotonic()) unless a later one comes: a frozen node loses them then."""
        with self._lock:
            self._deadline = f"~ {deadline:.6f}\n"
            self._tell(self._deadline)

    def _tell(self, text: str) -> None:
        """Write to the helper. One that is dead or does not read is killed: its replacement is told everything."""
        if self._pipe < 0:
            return
        try:
            os.write(self._pipe, text.encode())
        except OSError:
            if self._helper is not None:
                self._helper.kill()  # before the pipe is closed: its end would tell a living helper that the node is dead
            self._close_pipe()

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def _launch(self) -> None:
        with self._lock:
            if self._stopping.is_set() or (self._helper is not None and self._helper.poll() is None):
                return
            self._close_pipe()
            theirs, self._pipe = os.pipe()
            try:
                self._helper = helper = subprocess.Popen(
                    [sys.executable, "-S", "-P", "-m", __name__],
                    stdin=theirs,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env={"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
                    start_new_session=True,
                )
            except OSError:
                self._close_pipe()
                raise
            finally:
                os.close(theirs)
            self._tell("".join([f"= {orphans.NODE_MARK}\n", *self._groups.values(), self._deadline]))
            if self._pipe >= 0:
                os.set_blocking(self._pipe, False)
        threading.Thread(target=self._replace_when_dead, args=(helper,), name="warden-watch", daemon=True).start()

    def _replace_when_dead(self, helper: subprocess.Popen[bytes]) -> None:
        born, pause_s = time.monotonic(), 0.1
        code = helper.wait()
        if self._stopping.is_set():
            return
        if self._on_death is not None:
            self._on_death(code)
        if time.monotonic() - born < SHORT_LIFE_S:
            self._stopping.wait(SHORT_LIFE_S)
        while not self._stopping.is_set():
            with suppress(OSError):
                self._launch()
                return
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


class Watch:
    """The helper's end: what is registered, and until when the node may go on without a word."""

    def __init__(self) -> None:
        self._groups: dict[int, int] = {}
        self._mark = ""
        self.deadline: float | None = None
        self.over = False
        """A deadline has passed and no later one came: what is started now has no right to run."""

    def hear(self, line: bytes) -> None:
        match line.decode(errors="replace").split():
            case ["=", mark]:
                self._mark = mark
            case ["+", group, _run_id, start] if group.isdigit() and start.isdigit():
                self._groups[int(group)] = int(start)
                if self.over:
                    self.end_all()
            case ["-", group] if group.isdigit():
                self._groups.pop(int(group), None)
            case ["~", until]:
                with suppress(ValueError):
                    self.deadline = float(until)
                    self.over = False

    def left_s(self) -> float | None:
        """Seconds until the deadline, None without one."""
        return None if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)

    def end_all(self) -> None:
        """Kill every group still registered and all that carries the node's mark."""
        self.deadline = None
        for pgid, started in self._groups.items():
            if orphans.started_at(pgid) in (None, started) or not started:
                orphans.kill_group(pgid)
        self._groups.clear()
        if self._mark:
            orphans.sweep(self._mark, patience_s=GOODBYE_S - 1)


def follow(descriptor: int) -> None:
    """Follow the node's lines to their end, then end all; end all as well when a deadline passes in silence."""
    watch, rest = Watch(), b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], watch.left_s())
        if not ready:
            watch.over = True
            watch.end_all()
            continue
        read = os.read(descriptor, 65536)
        if not read:
            break
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            watch.hear(line)
    watch.end_all()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    follow(0)


if __name__ == "__main__":
    main()
