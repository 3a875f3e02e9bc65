"""One command as a child: starts it in a session of its own, talks to it, and leaves nothing of it behind.

The exit of the process ends a run, not the end of its output: whoever still holds the pipes then gets a short moment
and is killed, with the whole group and with all that left the group but carries the run's mark. The child stays
uncollected until then, so that its process group's number cannot become somebody else's.
Knows nothing of agents, briefings or the database; must not be told a secret in `argv`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, cast

from opencognit.adapters import orphans
from opencognit.adapters.pipes import Reader, Transcript, feed
from opencognit.adapters.spawn import Command, start
from opencognit.contracts import RunLimits
from opencognit.errors import AdapterError, AdapterTimeout

DRAIN_S = 0.5
"""How long after the child's exit others may still write into its pipes."""
STDERR_BYTES = 16 * 1024
GROUP_POLL_S = 0.02
LOST_EXIT_CODE = 255
"""Stands for an exit code that somebody else collected (SIGCHLD ignored); never taken for success."""

OutputReceiver = Callable[[str, str], Awaitable[None]]
"""Gets each chunk of text and the stream's name, `stdout` or `stderr`; while it waits, the child waits too."""
GroupNotice = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended. `exit_code` is minus the signal's number where one killed it.

    `answered`: it had said all that was wanted and did not leave by itself, so that its exit code means nothing.
    """

    exit_code: int
    stdout: str
    stderr: str
    stdout_left_out_bytes: int = 0
    answered: bool = False


async def run(
    command: Command,
    limits: RunLimits,
    *,
    on_output: OutputReceiver,
    spawned: GroupNotice,
    reaped: GroupNotice,
    answered: asyncio.Event | None = None,
    drain_s: float = DRAIN_S,
) -> Finished:
    """Run `command` to its exit and return how it ended; whatever happens, no process of it is left.

    `answered`, set by the caller, says that nothing more is wanted: the child has `limits.kill_grace_s` to leave.
    Raises AdapterFailed or AdapterUnavailable when it cannot be started, AdapterTimeout with what was said so far.
    On cancellation it gets SIGTERM, `limits.kill_grace_s`, SIGKILL; a second cancellation skips the grace.
    """
    child = _Child(command, limits, on_output)
    try:
        spawned(child.pgid)
        try:
            return await child.converse(answered, drain_s)
        except BaseException:
            await child.ask_to_leave()
            raise
    finally:
        child.bury(reaped)


class _Child:
    """A started command, its pipes and its exit."""

    def __init__(self, command: Command, limits: RunLimits, on_output: OutputReceiver) -> None:
        self._command, self._limits, self._on_output = command, limits, on_output
        self._loop = asyncio.get_running_loop()
        self._popen = start(command)
        self.pgid = self._popen.pid
        orphans.held.add(self.pgid)
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self._pidfd: int | None = None
        self._swept = False
        self._heard_at, self._handing_over = self._loop.time(), 0
        self._stdout, self._stderr = Transcript(limits.output_bytes), Transcript(STDERR_BYTES)
        self._readers = (
            Reader(cast(IO[bytes], self._popen.stdout), self._receiver(self._stdout, "stdout")),
            Reader(cast(IO[bytes], self._popen.stderr), self._receiver(self._stderr, "stderr")),
        )

    def _receiver(self, transcript: Transcript, stream: str) -> Callable[[bytes], Awaitable[None]]:
        async def receive(chunk: bytes) -> None:
            text = transcript.take(chunk)
            self._handing_over += 1
            try:
                if text:
                    await self._on_output(text, stream)
            finally:
                self._handing_over -= 1
                self._heard_at = self._loop.time()

        return receive

    async def converse(self, answered: asyncio.Event | None, drain_s: float) -> Finished:
        """Feed and read until the child exits, then drain, clear up and tell how it ended."""
        error: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                meanwhile = [
                    tasks.create_task(feed(cast(IO[bytes], self._popen.stdin), self._command.stdin)),
                    tasks.create_task(self._watch_silence()),
                    tasks.create_task(self._watch_exit()),
                ]
                reading = [tasks.create_task(reader.pump()) for reader in self._readers]
                left = await self._until_exit(answered)
                for task in meanwhile:
                    task.cancel()
                await self._drain(reading, drain_s)
        except BaseExceptionGroup as group:
            error = _foremost(group)
        if error is not None:
            raise error  # out here, so that its own cause stays
        for transcript, stream in ((self._stdout, "stdout"), (self._stderr, "stderr")):
            if rest := transcript.rest():
                await self._on_output(rest, stream)
        return Finished(
            exit_code=self._exited.result() if self._exited.done() else -signal.SIGKILL,
            stdout=self._stdout.text(),
            stderr=self._stderr.text(),
            stdout_left_out_bytes=self._stdout.left_out_bytes,
            answered=not left,
        )

    async def _until_exit(self, answered: asyncio.Event | None) -> bool:
        """Wait for the exit; False if the child had answered and had to be sent away."""
        try:
            async with asyncio.timeout(self._limits.timeout_s) as deadline:
                if answered is None:
                    await asyncio.shield(self._exited)
                    return True
                hint = asyncio.ensure_future(answered.wait())
                try:
                    await asyncio.wait((self._exited, hint), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    hint.cancel()
        except TimeoutError:
            if not deadline.expired():
                raise
            raise self._timeout(f"was still running after {self._limits.timeout_s:g} s") from None
        if not self._exited.done():
            await asyncio.wait((self._exited,), timeout=self._limits.kill_grace_s)
        return self._exited.done()

    async def _watch_silence(self) -> None:
        """Raise after too long a silence; a receiver that takes its time is not the child's silence."""
        limit_s = self._limits.idle_timeout_s
        while True:
            left_s = limit_s if self._handing_over else self._heard_at + limit_s - self._loop.time()
            if left_s <= 0:
                raise self._timeout(f"said nothing for {limit_s:g} s")
            await asyncio.sleep(left_s)

    def _timeout(self, what: str) -> AdapterTimeout:
        return AdapterTimeout(
            f"{self._command.argv[0]!r} {what} and was stopped: find out what it waits for, or raise the agent's limit",
            output=self._stdout.text(),
        )

    async def _watch_exit(self) -> None:
        """Resolve `_exited` as soon as the child is dead, and leave it uncollected where the system can tell so."""
        try:
            self._pidfd = os.pidfd_open(self.pgid)
        except (AttributeError, OSError):
            await self._poll_exit()
        else:
            self._loop.add_reader(self._pidfd, self._note_exit)

    async def _poll_exit(self) -> None:
        while True:
            if (code := self._popen.poll()) is not None:
                self._exited.set_result(code)
                return
            await asyncio.sleep(GROUP_POLL_S)

    def _note_exit(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
        if not self._exited.done():
            self._exited.set_result(_exit_code(self.pgid))

    async def _drain(self, reading: Sequence[asyncio.Task[None]], drain_s: float) -> None:
        """Hear out whoever still holds the pipes, kill them all, and read what they had said by then."""
        for reader in self._readers:
            reader.hurry()
        await asyncio.wait(reading, timeout=drain_s)
        orphans.kill_group(self.pgid)
        await asyncio.to_thread(orphans.sweep, self._command.mark)
        self._swept = True
        for reader in self._readers:
            reader.finish()
        await asyncio.wait(reading)

    async def ask_to_leave(self) -> None:
        """Send SIGTERM to the group and wait for all of it, at most the grace."""
        orphans.kill_group(self.pgid, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.kill_grace_s):
                pause_s = GROUP_POLL_S / 8
                while await asyncio.to_thread(orphans.group_alive, self.pgid):
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, 4 * GROUP_POLL_S)

    def bury(self, reaped: GroupNotice) -> None:
        """Kill what is left, collect the child, close everything. Never awaits, so that no cancellation can cut it short."""
        orphans.kill_group(self.pgid)
        if not self._swept:
            orphans.sweep(self._command.mark)
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            cast(IO[bytes], pipe).close()
        try:
            reaped(self.pgid)
        finally:
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout=2)
            orphans.held.discard(self.pgid)
            orphans.reap_adopted()


def _foremost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that a caller should see: one of ours before any other."""
    flat: list[BaseException] = []
    pending: list[BaseException] = [group]
    while pending:
        error = pending.pop(0)
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)
        else:
            flat.append(error)
    return next((error for error in flat if isinstance(error, AdapterError)), flat[0])


def _exit_code(pid: int) -> int:
    try:
        status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return LOST_EXIT_CODE
    if status is None:
        return LOST_EXIT_CODE
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
