"""The bash adapter: what its command gets, what its output becomes, and how each ending is told."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from opencognit.adapters.bash import BashAdapter
from opencognit.contracts import (
    Adapter,
    Briefing,
    BriefingAgent,
    BriefingCompany,
    BriefingMemory,
    BriefingTask,
    RunContext,
    RunLimits,
    RunResult,
    TeamMember,
)
from opencognit.errors import AdapterError, AdapterFailed, AdapterTimeout, AdapterUnavailable
from opencognit.states import Priority, TaskKind

LONG = RunLimits(timeout_s=60, idle_timeout_s=60)


@dataclass
class World:
    """A context as the engine gives it, which remembers what the adapter told it."""

    home: Path
    config: dict[str, Any]
    limits: RunLimits = LONG
    run_id: int = 7
    token: int = 41
    team: Sequence[TeamMember] = ()
    child_env: dict[str, str] = field(default_factory=dict)
    logged: list[tuple[str, str]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)

    workspace: Path = field(init=False)

    def __post_init__(self) -> None:
        self.workspace = self.home / "data" / "workspaces" / "task-3"

    async def log(self, chunk: str, *, stream: str = "stdout") -> None:
        self.logged.append((stream, chunk))

    def spawned(self, pgid: int) -> None:
        self.groups.append(pgid)

    def reaped(self, pgid: int) -> None:
        self.groups.remove(pgid)

    async def recall(self, query: str, *, limit: int = 10) -> Sequence[BriefingMemory]:
        return ()


def briefing(*, task: bool = True) -> Briefing:
    return Briefing(
        run_id="7",
        token="41",
        agent=BriefingAgent(name="surveyor", role="analyst", title="Surveyor"),
        company=BriefingCompany(name="Überblick", goal="know"),
        goal=None,
        task=BriefingTask(id="3", kind=TaskKind.WORK, title="Count", description="Count €", priority=Priority.MEDIUM, attempt=1)
        if task
        else None,
        reason="assigned",
        soul="You count.",
    )


async def run(home: Path, command: object, *, world: World | None = None, task: bool = True, **config: Any) -> RunResult:
    world = world or World(home, {})
    world.config = {"command": command, **config}
    context: RunContext = world
    adapter: Adapter = BashAdapter()
    try:
        return await adapter.run(briefing(task=task), context)
    finally:
        assert world.groups == []
        assert list((home / "data" / "runtime").glob("*")) == []


# --- what the command gets ----------------------------------------------------------------------------------------


async def test_the_briefing_comes_by_stdin_and_by_a_private_file(tmp_path: Path) -> None:
    """Both are the whole briefing as JSON; the file is readable by its owner alone and lies outside the workspace."""
    script = 'cat > copy; stat -c %a "$OPENCOGNIT_BRIEFING" "${OPENCOGNIT_BRIEFING%/*}"; cat "$OPENCOGNIT_BRIEFING"'
    result = await run(tmp_path, script)
    modes, content = result.text.split("\n", 2)[:2], result.text.split("\n", 2)[2]
    workspace = tmp_path / "data" / "workspaces" / "task-3"
    assert modes == ["600", "700"]
    assert json.loads(content) == json.loads((workspace / "copy").read_text()) == json.loads(briefing().model_dump_json())
    assert [path.name for path in workspace.iterdir()] == ["copy"]
    assert workspace.stat().st_mode & 0o777 == 0o700


async def test_the_environment_is_the_contract_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No secret of the daemon is in it; what `env` names and the engine adds is."""
    for name in ("HOME", "LANG", "TZ", "TMPDIR"):
        monkeypatch.setenv(name, f"/{name}")
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "s3cret")
    monkeypatch.setenv("OPENCOGNIT_DATABASE__URL", "postgresql://u:p@h/d")
    monkeypatch.setenv("WANTED", "yes")
    world = World(tmp_path, {}, child_env={"OPENCOGNIT_URL": "http://127.0.0.1:1", "OPENCOGNIT_TOKEN": "oc_run"})
    result = await run(tmp_path, ["env"], world=world, env=["WANTED", "UNSET_HERE"])
    env = dict(line.split("=", 1) for line in result.text.splitlines())
    folder = Path(env.pop("OPENCOGNIT_BRIEFING")).parent
    assert folder.parent == tmp_path / "data" / "runtime"
    assert env == {
        "PATH": os.environ["PATH"],
        "HOME": "/HOME",
        "LANG": "/LANG",
        "TZ": "/TZ",
        "TMPDIR": "/TMPDIR",
        "WANTED": "yes",
        "OPENCOGNIT_RUN_ID": "7",
        "OPENCOGNIT_TASK_ID": "3",
        "OPENCOGNIT_AGENT": "surveyor",
        "OPENCOGNIT_WORKSPACE": str(world.workspace),
        "OPENCOGNIT_URL": "http://127.0.0.1:1",
        "OPENCOGNIT_TOKEN": "oc_run",
    }
    assert any("'UNSET_HERE'" in note for note in result.notes)


async def test_a_wake_without_a_task_has_an_empty_task_id(tmp_path: Path) -> None:
    """The name is there even so, for scripts under `set -u`."""
    assert (await run(tmp_path, "set -u; echo [$OPENCOGNIT_TASK_ID]", task=False)).text == "[]\n"


async def test_no_secret_is_on_the_command_line(tmp_path: Path) -> None:
    """The run's token reaches the child by environment and files alone (F07-08)."""
    world = World(tmp_path, {}, child_env={"OPENCOGNIT_TOKEN": "oc_run_secret"})
    result = await run(tmp_path, "tr '\\0' ' ' < /proc/$$/cmdline", world=world)
    assert "oc_run_secret" not in result.text
    assert "tr " in result.text


async def test_a_list_is_an_argument_vector_with_placeholders(tmp_path: Path) -> None:
    """`{python}` and `{home}` are replaced, other braces and shell characters mean nothing."""
    code = "import sys; print(sys.argv[1:], sys.executable)"
    result = await run(tmp_path, ["{python}", "-c", code, "{home}/x", "{other}", "$HOME; `id`\n&& rm"])
    assert result.text == f"{[f'{tmp_path}/x', '{other}', '$HOME; `id`' + chr(10) + '&& rm']} {sys.executable}\n"


async def test_the_command_works_in_the_workspace(tmp_path: Path) -> None:
    """The working folder is the task's own, made on first use and kept between runs."""
    assert (await run(tmp_path, "pwd; echo kept > file")).text == f"{tmp_path / 'data' / 'workspaces' / 'task-3'}\n"
    assert (await run(tmp_path, ["cat", "file"])).text == "kept\n"


# --- what its output becomes --------------------------------------------------------------------------------------


async def test_stdout_is_the_result_and_stderr_only_logged(tmp_path: Path) -> None:
    """Colours go, tags stay for the engine to read; the log has both streams under their names."""
    world = World(tmp_path, {})
    result = await run(tmp_path, r"printf '\033[31mred\033[0m [REMEMBER:facts] x\n'; echo noise >&2", world=world)
    assert result == RunResult(text="red [REMEMBER:facts] x\n", exit_code=0)
    assert ("stderr", "noise\n") in world.logged
    assert not result.usage


@pytest.mark.parametrize("size", [200_000_000, 65_536, 65_537])
async def test_a_long_result_is_head_and_tail(tmp_path: Path, size: int) -> None:
    """64 KB are whole; beyond, the middle is counted and left out, and the run says so."""
    result = await run(tmp_path, f"printf start; yes | head -c {size - 8}; printf end")
    assert result.text.startswith("starty\n")
    assert result.text.endswith("end")
    assert len(result.text) <= 65_536 + 100
    assert bool(result.notes) == (size > 65_536)
    assert ("bytes left out" in result.text) == (size > 65_536)


async def test_noise_is_readable_bounded_and_no_crash(tmp_path: Path) -> None:
    """Ten megabytes of random bytes with NUL: valid text for the database, of the same size as any other."""
    world = World(tmp_path, {})
    result = await run(tmp_path, "head -c 10000000 /dev/urandom; printf '\\0\\377'", world=world)
    assert "\0" not in result.text
    assert all("\0" not in chunk for _, chunk in world.logged)
    assert len(result.text.encode()) <= 65_536 + 200


async def test_a_background_child_is_not_left_behind(tmp_path: Path) -> None:
    """The result is that of the command; what it left running is gone when the run is."""
    result = await run(tmp_path, "setsid sleep 300 & echo $!; echo started")
    pid, word = result.text.split()
    assert word == "started"
    stat = Path(f"/proc/{pid}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


# --- how it ends --------------------------------------------------------------------------------------------------


async def test_exit_75_asks_for_another_attempt(tmp_path: Path) -> None:
    """The one exit code that is retryable."""
    with pytest.raises(AdapterUnavailable, match=r"'sh' exited with 75, try again later; it said last:\nbusy$") as caught:
        await run(tmp_path, "echo out; echo busy >&2; exit 75")
    assert caught.value.retryable
    assert (caught.value.process_exit, caught.value.output) == (75, "out\n")


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("echo only out; exit 3", 3, "exited with 3; it said last:\nonly out"),
        ("exit 1", 1, "exited with 1; it said nothing"),
        ("kill -9 $$", -9, "was killed by SIGKILL"),
        ("sh -c 'kill -11 $$'; exit $?", 139, r"exited with 139 \(128 and SIGSEGV\)"),
        ("no-such-tool-here", 127, r"exited with 127 \(a command was not found\)"),
        ("exit 255", 255, "exited with 255; it said nothing"),
    ],
)
async def test_any_other_exit_is_a_failure_with_the_last_lines(tmp_path: Path, script: str, code: int, words: str) -> None:
    """The message says how it ended and what it said last, stderr before stdout; it is not retried."""
    with pytest.raises(AdapterFailed, match=words) as caught:
        await run(tmp_path, script)
    assert caught.value.process_exit == code
    assert not caught.value.retryable


async def test_a_long_complaint_is_cut_to_its_end(tmp_path: Path) -> None:
    """Twenty lines and four kilobytes at most, colours removed, the end kept."""
    with pytest.raises(AdapterFailed) as many:
        await run(tmp_path, r"for i in $(seq 1 500); do printf '\033[1mline %s\n' $i >&2; done; exit 1")
    assert str(many.value).splitlines()[1:] == [f"line {i}" for i in range(481, 501)]
    with pytest.raises(AdapterFailed) as wide:
        await run(tmp_path, "head -c 100000 /dev/zero | tr '\\0' x >&2; echo end >&2; exit 1")
    assert str(wide.value).endswith("xend")
    assert len(str(wide.value)) < 4096 + 200


async def test_a_missing_program_is_named(tmp_path: Path) -> None:
    """The task fails with the binary's name and what to do; the daemon does not care (F01-12)."""
    with pytest.raises(AdapterFailed, match=r"'no-such-cli' cannot be started: it is not installed"):
        await run(tmp_path, ["no-such-cli", "--version"])


async def test_silence_is_told_as_a_timeout(tmp_path: Path) -> None:
    """The idle limit ends the run as retryable, with the output so far."""
    world = World(tmp_path, {}, limits=RunLimits(timeout_s=60, idle_timeout_s=0.3, kill_grace_s=0.1))
    with pytest.raises(AdapterTimeout) as caught:
        await run(tmp_path, "echo first; sleep 300", world=world)
    assert caught.value.output == "first\n"


async def test_a_cancelled_run_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    """Cancellation comes through; `run` checks that the group and the private folder are gone."""
    world = World(tmp_path, {}, limits=RunLimits(timeout_s=60, idle_timeout_s=60, kill_grace_s=0.1))
    task = asyncio.ensure_future(run(tmp_path, "trap '' TERM; echo ready; sleep 300", world=world))
    async with asyncio.timeout(30):
        while not world.logged:  # noqa: ASYNC110  the condition is another process's doing
            await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- what an agent file may say -----------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [{"command": "true"}, {"command": ["true"], "env": ["A"], "allow_task_commands": False}])
def test_a_good_configuration_has_no_complaint(config: dict[str, Any]) -> None:
    """None means that the adapter can work with it."""
    assert BashAdapter().check(config) is None


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "bash needs `command`"),
        ({"command": "  "}, "`command` is empty"),
        ({"command": []}, "must be a shell line, or a list"),
        ({"command": ["a", 1]}, "must be a shell line, or a list"),
        ({"command": 5}, "must be a shell line, or a list"),
        ({"command": ["", "x"]}, "its first entry must name a program"),
        ({"command": "true", "env": "HOME"}, "`env` must be a list"),
        ({"command": "true", "env": ["A=1"]}, "'A=1' cannot be the name"),
        ({"command": "true", "env": ["OPENCOGNIT_TOKEN"]}, "'OPENCOGNIT_TOKEN' is set for each run"),
        ({"command": "true", "allow_task_commands": True}, "`allow_task_commands = true` is not offered by this version"),
    ],
)
async def test_a_bad_configuration_is_told_in_one_line(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    """`check` names the key and the mend; a run with it fails with the same words and starts nothing."""
    problem = BashAdapter().check(config)
    assert problem is not None
    assert words in problem
    assert "\n" not in problem
    with pytest.raises(AdapterError, match="'surveyor'"):
        await BashAdapter().run(briefing(), World(tmp_path, config))
