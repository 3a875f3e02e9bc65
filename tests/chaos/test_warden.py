"""The warden: what a node has started dies with the node, however the node dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opencognit.adapters import orphans, warden

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 30.0

NODE = """
import os, subprocess, sys
from opencognit.adapters import orphans, warden

guard = warden.Warden()
guard.start()
print(guard.pid, flush=True)
env = {"PATH": os.environ["PATH"], "OPENCOGNIT_BRIEFING": f"/nowhere/run-1-{orphans.NODE_MARK}-1/briefing.json"}
bare = {"PATH": os.environ["PATH"]}
def start(env, *argv):
    return subprocess.Popen(argv, env=env, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
group = start(bare, "sh", "-c", "sleep 300 & wait")  # known by its number alone
stray = start(env, "sleep", "300")                   # known by its mark alone
freed = start(bare, "sleep", "300")
guard.add(group.pid, 1)
guard.add(freed.pid, 2)
guard.remove(freed.pid)
print(group.pid, stray.pid, freed.pid, flush=True)
for line in sys.stdin:
    if line == "pid\\n": print(guard.pid, flush=True)
    if line == "stop\\n":
        guard.stop()
        print("stopped", flush=True)
"""


class Node:
    """A node in a process of its own, with two runs and one that has ended."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", NODE],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.helper = int(self.read())
        self.group, self.stray, self.freed = map(int, self.read().split())

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ask(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.read().strip()

    def die(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    try:
        yield node
    finally:
        node.die()
        for pid in (node.group, node.stray, node.freed):
            orphans.kill_group(pid)
        for pipe in (node.process.stdin, node.process.stdout):
            assert pipe is not None
            pipe.close()


def gone(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:g} s in vain until {what}"
        time.sleep(0.005)


def test_a_killed_node_takes_its_children_along(node: Node) -> None:
    """kill -9: the registered group and the marked stray die, a group that had ended is left alone, the helper goes."""
    assert not any(map(gone, (node.group, node.stray, node.freed, node.helper)))
    node.die()
    until(lambda: not orphans.group_alive(node.group), "the registered group is gone")
    until(lambda: gone(node.stray), "the stray is gone")
    until(lambda: gone(node.helper), "the helper is gone")
    assert not gone(node.freed)


def test_a_stopped_warden_leaves_nothing(node: Node) -> None:
    """An orderly stop ends the same way, at once: `stop` returns when all is gone."""
    assert node.ask("stop") == "stopped"
    assert not orphans.group_alive(node.group)
    assert gone(node.stray)
    assert gone(node.helper)


def test_ctrl_c_reaches_the_node_and_not_its_warden(node: Node) -> None:
    """The terminal signals the whole foreground group: the helper is not in it, and cleans up after the node."""
    os.killpg(node.process.pid, signal.SIGINT)
    node.process.wait()
    until(lambda: not orphans.group_alive(node.group), "the registered group is gone")
    until(lambda: gone(node.helper), "the helper is gone")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_the_helper_outlives_a_signal_of_its_own(node: Node, number: signal.Signals) -> None:
    """A service manager's SIGTERM reaches every process of the service: the helper must see the node out."""
    until(lambda: ignores(node.helper, number), "the helper is ready")
    os.kill(node.helper, number)
    assert int(node.ask("pid")) == node.helper
    node.die()
    until(lambda: not orphans.group_alive(node.group), "the registered group is gone")


def ignores(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn")), 16)
    return bool(mask >> (number - 1) & 1)


def test_a_killed_helper_is_replaced_and_told_everything(node: Node) -> None:
    """Without a word from the node: the next helper knows the groups, kills nothing before its time, and then all of them."""
    os.kill(node.helper, signal.SIGKILL)
    until(lambda: int(node.ask("pid")) != node.helper, "a new helper is there")
    successor = int(node.ask("pid"))
    assert not any(map(gone, (node.group, node.stray)))
    until(lambda: ignores(successor, signal.SIGTERM), "the new helper is ready")
    node.die()
    until(lambda: not orphans.group_alive(node.group), "the registered group is gone")
    until(lambda: gone(node.stray), "the stray is gone")


def test_the_helper_holds_no_file_of_the_node(node: Node) -> None:
    """Its one pipe, and /dev/null twice: a reader of the node's output sees its end; its session is its own."""
    files = {path.name: str(path.readlink()) for path in Path(f"/proc/{node.helper}/fd").iterdir()}
    pipe = files.pop("0")
    assert pipe.startswith("pipe:")
    assert {files[name] for name in ("1", "2")} == {"/dev/null"}
    until(lambda: set(os.listdir(f"/proc/{node.helper}/fd")) == {"0", "1", "2"}, "nothing else is open")  # noqa: PTH208
    assert os.getsid(node.helper) == node.helper
    assert Path(f"/proc/{node.helper}/cwd").readlink() == Path("/")


def test_the_helper_is_small_and_carries_no_secret(node: Node) -> None:
    """Its environment is one path, and its command line has neither mark nor token."""
    environ = Path(f"/proc/{node.helper}/environ").read_bytes().split(b"\0")
    assert [entry.split(b"=")[0] for entry in environ if entry] == [b"PYTHONPATH"]
    assert orphans.NODE_MARK not in Path(f"/proc/{node.helper}/cmdline").read_text()


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "300"], start_new_session=True)


def follow(*lines: bytes) -> None:
    """Be the helper for these lines and the node's end after them."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(lines))
    os.close(writing)
    try:
        warden.follow(reading)
    finally:
        os.close(reading)


def test_a_node_that_is_silent_past_its_deadline_loses_its_groups() -> None:
    """A frozen node renews nothing: its warden ends what it runs before another may start it, and goes on watching."""
    guard = warden.Warden()
    guard.start()
    first, second = sleeper(), sleeper()
    try:
        guard.add(first.pid, 1)
        guard.keep_until(time.monotonic() + 0.3)
        guard.keep_until(time.monotonic() + 300)
        with pytest.raises(subprocess.TimeoutExpired):
            first.wait(timeout=1)
        guard.keep_until(time.monotonic() + 0.2)
        assert first.wait(timeout=PATIENCE_S) == -signal.SIGKILL
        guard.add(second.pid, 2)
        guard.keep_until(time.monotonic())
        assert second.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    finally:
        guard.stop()
        for process in (first, second):
            process.kill()
            process.wait()


def test_a_reused_group_number_is_not_killed() -> None:
    """The leader's start time tells a stranger with the same number from the one that was registered."""
    stranger, ours = sleeper(), sleeper()
    try:
        start = orphans.started_at(ours.pid)
        assert start
        follow(f"+ {stranger.pid} 1 {start + 1_000_000}\n".encode(), f"+ {ours.pid} 2 {start}\n".encode())
        assert ours.wait() == -signal.SIGKILL
        assert stranger.poll() is None
    finally:
        for process in (stranger, ours):
            process.kill()
            process.wait()


def test_lines_that_make_no_sense_are_passed_over() -> None:
    """Half a line, as a dying node leaves it, neither raises nor kills; whole ones before it count."""
    ours = sleeper()
    try:
        good = f"+ {ours.pid} 1 {orphans.started_at(ours.pid)}\n".encode()
        follow(b"\xff\n", b"+ x y z\n", b"- \n", b"~ soon\n", b"\n", good, b"+ 1")
        assert ours.wait() == -signal.SIGKILL
    finally:
        ours.kill()
        ours.wait()


def test_a_helper_that_does_not_read_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen helper whose pipe is full never blocks the node, and its end kills nobody that is alive and well."""
    deaths: list[int] = []
    guard = warden.Warden(on_death=deaths.append)
    guard.start()
    ours = sleeper()
    try:
        frozen = guard.pid
        assert frozen is not None
        os.kill(frozen, signal.SIGSTOP)
        while not deaths and guard.pid == frozen and guard._pipe >= 0:
            guard.add(ours.pid, 1)
        until(lambda: guard.pid != frozen, "the frozen helper is replaced")
        assert deaths == [-signal.SIGKILL]
        assert ours.poll() is None
    finally:
        guard.stop()
        assert ours.wait() == -signal.SIGKILL
