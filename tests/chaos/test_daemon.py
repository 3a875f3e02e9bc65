"""The real daemon as a process: killed, interrupted, started twice. Nothing is lost, nothing doubled, nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opencognit.db import Database
from tests.conftest import MakeHome
from tests.integration import company

PATIENCE_S = 60.0
CONFIG = "[runs]\nlease_s = 2\ndrain_s = 0.5\n[heartbeat]\ninterval_s = 1\n"
SLOW = """adapter = "bash"
skills = ["slow"]
[adapter_config]
command = '''
echo x >> "$OPENCOGNIT_WORKSPACE/starts"
echo "[REMEMBER:lab] attempt saw the lab"
sleep 300 &
n=$(wc -l < "$OPENCOGNIT_WORKSPACE/starts")
[ "$n" -gt 1 ] || sleep 300
echo; echo finished
'''
"""


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("OPENCOGNIT_")}


def command(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One short command beside the daemon."""
    argv = [sys.executable, "-m", "opencognit", "--home", str(home), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, env=_environ(), timeout=PATIENCE_S, check=False)


class Daemon:
    """`opencognit up` in a process group of its own."""

    def __init__(self, home: Path, log: Path, verb: str = "up") -> None:
        argv = [sys.executable, "-m", "opencognit", "--home", str(home), verb]
        self._log = log.open("ab")
        self.process = subprocess.Popen(argv, stdout=self._log, stderr=self._log, env=_environ(), start_new_session=True)

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(timeout=PATIENCE_S)
        self._log.close()
        return code


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Start daemons that the test's end kills."""
    running: list[Daemon] = []

    def go(home: Path, verb: str = "up") -> Daemon:
        running.append(Daemon(home, tmp_path / "daemon.log", verb))
        return running[-1]

    yield go
    for daemon in running:
        if daemon.process.poll() is None:
            daemon.end(signal.SIGKILL)


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)
    return value


def processes_of(workspace: Path) -> list[int]:
    """Every process whose environment names this workspace."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(workspace).encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _tasks(home: Path) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(command(home, "task", "list", "--json").stdout)["items"]
    return items


def test_a_killed_daemons_run_is_done_again_once(make_home: MakeHome, start: Callable[..., Daemon], database_url: str) -> None:
    """kill -9 in mid-run: the child dies with it; `up` again runs the task once more when the lease is over, and once."""
    home = make_home(agents={"ceo": 'adapter = "ceo"', "ann": SLOW}, config=CONFIG).root
    first = start(home)
    assert command(home, "task", "create", "slow work", "--assignee", "ann").returncode == 0
    workspace = home / "data" / "workspaces" / "task-1"
    until(lambda: (workspace / "starts").exists() and processes_of(workspace), "the run has begun")
    first.end(signal.SIGKILL)
    until(lambda: not processes_of(workspace), "what it ran died with it")
    second = start(home)
    until(lambda: _tasks(home)[0]["status"] == "done", "done by the second daemon")
    assert second.end(signal.SIGTERM) == 0
    assert (workspace / "starts").read_text() == "x\nx\n"
    assert not processes_of(workspace)

    async def counted() -> tuple[Any, ...]:
        db = Database(database_url)
        try:
            return (
                await company.value(db, "SELECT array_agg(status ORDER BY id) FROM runs"),
                await company.value(db, "SELECT sum(evidence) FROM memories"),
                await company.value(db, "SELECT count(*) FROM comments WHERE author = 'ann'"),
                await company.value(db, "SELECT count(*) FROM tasks WHERE execution_run_id IS NOT NULL"),
            )
        finally:
            await db.close()

    assert asyncio.run(counted()) == (["lost", "succeeded"], 1, 1, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_daemon_gives_its_work_back(make_home: MakeHome, start: Callable[..., Daemon], number: int) -> None:
    """It exits with 0 after its drain; no process and no lock is left, and the task is ready."""
    home = make_home(agents={"ceo": 'adapter = "ceo"', "ann": SLOW}, config=CONFIG).root
    daemon = start(home)
    command(home, "task", "create", "slow work", "--assignee", "ann")
    workspace = home / "data" / "workspaces" / "task-1"
    until(lambda: (workspace / "starts").exists(), "the run has begun")
    assert daemon.end(number) == 0
    assert not processes_of(workspace)
    (task,) = _tasks(home)
    assert (task["status"], task["lock"]) == ("todo", None)


def test_a_second_up_is_refused_and_a_worker_is_not(make_home: MakeHome, start: Callable[..., Daemon]) -> None:
    """The second names the first and the way out; a worker shares the work; after the first's end another may start."""
    home = make_home(config=CONFIG).root
    first = start(home)
    until(lambda: json.loads(command(home, "status", "--json").stdout)["nodes"], "the first is up")
    refused = command(home, "up")
    assert refused.returncode == 4
    assert str(first.process.pid) in refused.stderr
    assert "worker" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    worker = start(home, "worker")
    until(lambda: len(json.loads(command(home, "status", "--json").stdout)["nodes"]) == 2, "two nodes")
    assert worker.end(signal.SIGTERM) == 0
    assert first.end(signal.SIGTERM) == 0
    again = start(home)
    until(lambda: json.loads(command(home, "status", "--json").stdout)["nodes"], "it starts again at once")
    assert again.end(signal.SIGTERM) == 0


def test_a_frozen_node_loses_its_work_and_cannot_finish_it(make_home: MakeHome, start: Callable[..., Daemon]) -> None:
    """SIGSTOP longer than the lease: its warden kills what it ran, another node does the task, and after SIGCONT it
    writes nothing and goes on as a good node."""
    home = make_home(agents={"ceo": 'adapter = "ceo"', "ann": SLOW}, config=CONFIG).root
    frozen = start(home)
    command(home, "task", "create", "slow work", "--assignee", "ann")
    workspace = home / "data" / "workspaces" / "task-1"
    until(lambda: (workspace / "starts").exists(), "the run has begun")
    os.kill(frozen.process.pid, signal.SIGSTOP)
    until(lambda: not processes_of(workspace), "the warden ended the run")
    worker = start(home, "worker")
    until(lambda: _tasks(home)[0]["status"] == "done", "the other node did it")
    os.kill(frozen.process.pid, signal.SIGCONT)
    command(home, "task", "create", "more slow work", "--assignee", "ann")
    worker.end(signal.SIGTERM)
    until(lambda: (home / "data" / "workspaces" / "task-2" / "starts").exists(), "the thawed node works again")
    shown = json.loads(command(home, "task", "show", "1", "--json").stdout)
    assert (shown["status"], shown["attempt"]) == ("done", 2)
    assert sum(comment["author"] == "ann" for comment in shown["comments"]) == 1
    assert frozen.end(signal.SIGTERM) == 0
