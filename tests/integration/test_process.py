"""One child process: what it may print, how it ends, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from opencognit.adapters import orphans, process
from opencognit.adapters.pipes import Reader, Transcript
from opencognit.adapters.spawn import Command
from opencognit.contracts import RunLimits
from opencognit.errors import AdapterError, AdapterFailed, AdapterTimeout

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 30.0
LONG = RunLimits(timeout_s=60, idle_timeout_s=60)
_serial = itertools.count(1)


def command(argv: Sequence[str], cwd: Path, *, stdin: bytes = b"") -> Command:
    mark = f"run-1-{orphans.NODE_MARK}-test-{next(_serial)}"
    env = {"PATH": os.environ["PATH"], "OPENCOGNIT_BRIEFING": f"/nowhere/{mark}/briefing.json"}
    return Command(argv=argv, cwd=cwd, env=env, mark=mark, stdin=stdin)


class Harness:
    """Starts commands in a folder and remembers what was said and which groups are open."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.said: list[tuple[str, str]] = []
        self.open_groups: set[int] = set()
        self.groups_seen = 0

    def _spawned(self, pgid: int) -> None:
        self.groups_seen += 1
        self.open_groups.add(pgid)

    async def _hear(self, text: str, stream: str) -> None:
        self.said.append((stream, text))

    async def __call__(
        self,
        *argv: str,
        stdin: bytes = b"",
        limits: RunLimits = LONG,
        on_output: process.OutputReceiver | None = None,
        answered: asyncio.Event | None = None,
        drain_s: float = process.DRAIN_S,
    ) -> process.Finished:
        return await process.run(
            command(argv, self.cwd, stdin=stdin),
            limits,
            on_output=on_output or self._hear,
            spawned=self._spawned,
            reaped=self.open_groups.remove,
            answered=answered,
            drain_s=drain_s,
        )

    def heard(self, stream: str = "stdout") -> str:
        return "".join(text for name, text in self.said if name == stream)


@pytest.fixture
def run(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def gone(pid: int) -> bool:
    """Say whether `pid` has been killed: on a busy machine the kernel takes a moment to carry that out."""
    deadline = time.monotonic() + 10
    while not (dead := _is_dead(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return dead


def _is_dead(pid: int) -> bool:
    """A corpse that nobody collected counts as dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  the condition is another process's doing
            await asyncio.sleep(0.005)


def pid_in(path: Path) -> int:
    return int(path.read_text())


# --- talking ------------------------------------------------------------------------------------------------------


async def test_streams_and_exit_code_come_back(run: Harness) -> None:
    """Both streams reach the receiver under their names; the exit code is the command's own."""
    finished = await run("sh", "-c", "cat; echo bad >&2; exit 3", stdin=b"given")
    assert (finished.exit_code, finished.stdout, finished.stderr) == (3, "given", "bad\n")
    assert (run.heard("stdout"), run.heard("stderr")) == ("given", "bad\n")
    assert run.groups_seen == 1
    assert not run.open_groups


@pytest.mark.parametrize("script", ["exit 0", "exec <&-; exit 0", "head -c 1 >/dev/null"])
async def test_a_child_that_does_not_read_its_input_is_no_error(run: Harness, script: str) -> None:
    """More input than a pipe holds, for a child that leaves or closes: neither a deadlock nor a broken pipe."""
    assert (await run("sh", "-c", script, stdin=b"x" * 3_000_000)).exit_code == 0


async def test_a_child_that_lives_on_without_reading_its_input_is_no_error(run: Harness) -> None:
    """Output flows while the input is stuck."""
    finished = await run("sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' y", stdin=b"x" * 3_000_000)
    assert finished.exit_code == 0
    assert len(run.heard()) == 1_000_000


async def test_large_input_and_output_at_once_do_not_deadlock(run: Harness) -> None:
    """`cat` gives back five megabytes: each side waits for the other only as long as it must."""
    finished = await run("cat", stdin=b"0123456789" * 500_000)
    assert finished.exit_code == 0
    assert run.heard() == "0123456789" * 500_000


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
async def test_a_killed_child_tells_the_signal(run: Harness, number: signal.Signals) -> None:
    """Death by a signal is minus its number, never success."""
    assert (await run("sh", "-c", f"kill -{int(number)} $$")).exit_code == -number


async def test_bytes_that_are_no_text_become_readable_text(run: Harness) -> None:
    """Latin-1, NUL and half characters never raise and leave nothing that PostgreSQL refuses."""
    finished = await run("printf", r"gr\374n\000 \342\202 \360\237\230\200 end\303")
    assert finished.stdout == "gr\ufffdn\ufffd \ufffd \U0001f600 end\ufffd"
    assert run.heard() == finished.stdout


@pytest.mark.parametrize("border", range(1, 10))
def test_a_character_over_a_chunk_border_survives(border: int) -> None:
    """Wherever a chunk ends, the text is the same."""
    raw = "a€😀ß".encode()
    transcript = Transcript(1000)
    assert transcript.take(raw[:border]) + transcript.take(raw[border:]) + transcript.rest() == "a€😀ß"
    assert transcript.text() == "a€😀ß"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_transcript_keeps_head_and_tail_and_counts_the_rest(size: int) -> None:
    """Whole up to the limit; beyond it head and tail without half characters, and every byte between them counted."""
    raw = ("äöü" * 20).encode()
    for limit, total in itertools.product(range(8, 40), range(2, len(raw) + 1, 2)):
        transcript = Transcript(limit)
        for at in range(0, total, size):
            transcript.take(raw[at : min(at + size, total)])
        assert transcript.left_out_bytes == max(total - limit, 0)
        head, _, rest = transcript.text().partition("\n[... ")
        count, _, tail = rest.partition(" bytes left out ...]\n")
        assert bool(count) == (total > limit)
        assert raw[:total].startswith(head.encode())
        assert raw[:total].endswith(tail.encode())
        assert len(head.encode()) + int(count or 0) + len(tail.encode()) == total


# --- bounds -------------------------------------------------------------------------------------------------------

MEMORY_SCRIPT = """
import asyncio, resource, sys
from pathlib import Path
from opencognit.adapters import process
from opencognit.adapters.spawn import Command
from opencognit.contracts import RunLimits

async def hear(text, stream): pass

async def main():
    async def go(shell):
        await process.run(Command(["sh", "-c", shell], Path("/"), {"PATH": "/bin:/usr/bin"}, "m" * 40),
            RunLimits(timeout_s=100, idle_timeout_s=100), on_output=hear, spawned=lambda p: None, reaped=lambda p: None)
    await go("echo warm")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await go(sys.argv[1])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "shell",
    [
        "yes a-line-of-output | head -c 200000000",
        "head -c 150000000 /dev/zero | tr '\\0' x",
        "head -c 200000000 /dev/zero >&2",
        "head -c 30000000 /dev/urandom",
        "timeout 1 yes",
    ],
    ids=["200 MB", "one line of 150 MB", "200 MB of NUL on stderr", "noise", "endless"],
)
def test_memory_is_bounded_whatever_a_child_prints(shell: str) -> None:
    """The peak grows by less than 8 MB, measured in a process of its own."""
    done = subprocess.run([sys.executable, "-c", MEMORY_SCRIPT, shell], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert int(done.stdout) * 1024 < 8 * 1024 * 1024


async def test_other_tasks_get_their_turn_while_a_child_floods(run: Harness) -> None:
    """Between two turns of another task at most a few chunks are handed over, even if the receiver never waits."""
    since_turn, worst, chunks = 0, 0, 0

    async def hear(text: str, stream: str) -> None:
        nonlocal since_turn, worst, chunks
        chunks, since_turn = chunks + 1, since_turn + 1
        worst = max(worst, since_turn)

    async def other() -> None:
        nonlocal since_turn
        while True:
            since_turn = 0
            await asyncio.sleep(0)

    neighbour = asyncio.create_task(other())
    await run("sh", "-c", "head -c 20000000 /dev/zero; head -c 20000000 /dev/zero >&2", on_output=hear)
    neighbour.cancel()
    assert chunks > 100
    assert worst <= 4


async def test_a_slow_receiver_holds_the_child_back(run: Harness) -> None:
    """The child cannot run ahead by more than what two pipes' worth of buffers hold, and silence is not its fault."""
    written, gate = run.cwd / "written", asyncio.Event()
    script = f"import os\nfor i in range(40):\n os.write(1, bytes(65536)); open({str(written)!r}, 'a').write('x')"

    async def hear(text: str, stream: str) -> None:
        await gate.wait()

    async def open_gate_when_stuck() -> int:
        await until(written.exists)
        sizes = [-1]
        while True:
            sizes.append(written.stat().st_size)
            if sizes[-1] == sizes[-2]:
                gate.set()
                return sizes[-1]
            await asyncio.sleep(0.3)  # longer than the idle limit below: a child that is held back is not silent

    watcher = asyncio.create_task(open_gate_when_stuck())
    finished = await run(sys.executable, "-c", script, on_output=hear, limits=RunLimits(timeout_s=60, idle_timeout_s=0.2))
    assert await watcher < 10
    assert finished.exit_code == 0
    assert written.stat().st_size == 40


async def test_single_bytes_are_gathered() -> None:
    """A writer that gives one byte per turn of the loop costs far fewer hand-overs than bytes; none is lost."""
    ours, theirs = os.pipe()
    heard: list[bytes] = []

    async def hear(chunk: bytes) -> None:
        heard.append(chunk)

    with os.fdopen(ours, "rb", 0) as pipe:
        reading = asyncio.create_task(Reader(pipe, hear).pump())
        for _ in range(5000):
            os.write(theirs, b"x")
            await asyncio.sleep(0)
        os.close(theirs)
        await reading
    assert b"".join(heard) == b"x" * 5000
    assert len(heard) < 500


async def test_a_child_that_writes_single_bytes_loses_none(run: Harness) -> None:
    """The same with a real child, whose exit ends the gathering."""
    await run(sys.executable, "-c", "import os\nfor i in range(50000): os.write(1, b'x')")
    assert run.heard() == "x" * 50_000


# --- nothing is left ----------------------------------------------------------------------------------------------


async def test_a_background_child_with_the_pipes_open_neither_delays_nor_survives(run: Harness) -> None:
    """The shell's exit ends the run with its code; what it left holding stdout is killed (F07-02)."""
    started = time.monotonic()
    finished = await run("sh", "-c", "sleep 300 & echo $!; echo started")
    pid, word = finished.stdout.split()
    assert (finished.exit_code, word) == (0, "started")
    assert gone(int(pid))
    assert time.monotonic() - started < 300 / 10


async def test_what_a_background_child_still_says_is_heard(run: Harness) -> None:
    """The drain is for output that is on its way: it arrives although the shell has left."""
    finished = await run("sh", "-c", "(sleep 0.2; echo late) & exit 0", drain_s=PATIENCE_S)
    assert finished.stdout == "late\n"


async def test_a_group_member_without_the_mark_is_killed_too(run: Harness) -> None:
    """Who wipes its environment stays in the group, and the group goes as a whole."""
    finished = await run("sh", "-c", "env -i sleep 300 & echo $!", drain_s=0.05)
    assert gone(int(finished.stdout))


ESCAPES = {
    "setsid": "setsid sh -c 'echo $$ > pid; exec sleep 300' &",
    "double fork": "(setsid sh -c 'sh -c \"echo \\$\\$ > pid; exec sleep 300\" &' &)",
    "deaf": "setsid sh -c 'trap \"\" TERM HUP INT; echo $$ > pid; while :; do sleep 1; done' &",
    "no pipes": "setsid sh -c 'echo $$ > pid; exec sleep 300' </dev/null >/dev/null 2>&1 &",
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES.keys())
async def test_a_descendant_that_left_the_group_is_found_and_killed(run: Harness, escape: str) -> None:
    """A session of its own hides nobody: the mark in its environment names the run."""
    finished = await run("sh", "-c", f"{escape}\nwhile [ ! -s pid ]; do sleep 0.01; done", drain_s=0.05)
    assert finished.exit_code == 0
    assert gone(pid_in(run.cwd / "pid"))


def test_strangers_are_left_alone(tmp_path: Path) -> None:
    """A process with the same run's number, but another mark, is not ours to kill; neither is a mark in another variable."""
    mine = command(["true"], tmp_path)
    other = {**mine.env, "OPENCOGNIT_BRIEFING": "/nowhere/run-1-other/briefing.json", "OPENCOGNIT_RUN_ID": "1"}
    elsewhere = {"PATH": os.environ["PATH"], "NOTE": mine.mark}
    strangers = [subprocess.Popen(["sleep", "300"], env=env) for env in (other, elsewhere)]
    try:
        ours = subprocess.Popen(["sleep", "300"], env=mine.env)
        assert orphans.sweep(mine.mark) == 1
        assert ours.wait() == -signal.SIGKILL
        assert [stranger.poll() for stranger in strangers] == [None, None]
    finally:
        for stranger in strangers:
            stranger.kill()
            stranger.wait()


def test_a_short_mark_is_refused() -> None:
    """An empty mark would match everybody."""
    with pytest.raises(ValueError, match="too short"):
        orphans.sweep("")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> int:
    stats = (path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat"))
    return sum(int(fields[1]) == os.getpid() for fields in stats)


async def test_two_hundred_runs_leave_no_file_and_no_child(run: Harness) -> None:
    """Descriptors and children after 200 runs with a background child are as many as after one (F07-02)."""

    async def once() -> process.Finished:
        return await run("sh", "-c", "sleep 300 & echo started; exit 7", drain_s=0.01)

    await once()
    before = open_files(), children()
    for _ in range(10):
        for finished in await asyncio.gather(*(once() for _ in range(20))):
            assert (finished.exit_code, finished.stdout) == (7, "started\n")
    assert (open_files(), children()) == before
    assert (run.groups_seen, run.open_groups) == (201, set())


REAPER_SCRIPT = """
import asyncio, ctypes, os, subprocess, sys
from pathlib import Path
from opencognit.adapters import orphans, process
from opencognit.adapters.spawn import Command
from opencognit.contracts import RunLimits

assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # become a subreaper: what PID 1 of a container is by nature

def zombies():
    stats = (orphans._stat(pid) for pid in orphans._pids())
    return sum(bool(f) and f[0] == "Z" and int(f[1]) == os.getpid() for f in stats)

async def hear(text, stream): pass

async def main():
    slow = subprocess.Popen(["sh", "-c", "exit 9"])
    orphans.held.add(slow.pid)
    async def once():
        done = await process.run(
            Command(["sh", "-c", "(setsid true &); (true &); exit 5"], Path("/"), {"PATH": os.environ["PATH"]}, "m" * 40),
            RunLimits(timeout_s=60, idle_timeout_s=60), on_output=hear, spawned=lambda p: None, reaped=lambda p: None)
        return done.exit_code
    codes = [await once() for _ in range(50)]
    seen = zombies()
    while zombies() > 1:
        orphans.reap_adopted(age_s=0)
    print(set(codes), seen > 1, slow.wait())

asyncio.run(main())
"""


def test_as_first_process_it_buries_orphans_and_steals_no_exit_code() -> None:
    """Orphans that the kernel gives us are collected; own children's exit codes stay right (F07-05)."""
    done = subprocess.run(
        [sys.executable, "-c", REAPER_SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.stdout, done.stderr) == ("{5} True 9\n", "")


# --- endings that we bring about ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "script", "words"),
    [
        (
            RunLimits(timeout_s=0.5, idle_timeout_s=60, kill_grace_s=0.2),
            "echo so far; while :; do sleep 0.05; echo .; done",
            "was still running",
        ),
        (RunLimits(timeout_s=60, idle_timeout_s=0.5, kill_grace_s=0.2), "echo so far; echo $$ > pid; sleep 300", "said nothing"),
        (RunLimits(timeout_s=60, idle_timeout_s=0.5, kill_grace_s=0.2), "trap '' TERM; echo so far; sleep 300", "said nothing"),
    ],
    ids=["total", "silence", "deaf to SIGTERM"],
)
async def test_a_limit_of_time_ends_the_child_and_keeps_what_it_said(
    run: Harness, limits: RunLimits, script: str, words: str
) -> None:
    """The error names the command and the limit and carries the output; no group stays open."""
    with pytest.raises(AdapterTimeout, match=f"'sh' {words}") as caught:
        await run("sh", "-c", script, limits=limits)
    assert caught.value.output.startswith("so far\n")
    assert caught.value.retryable
    assert not run.open_groups


async def test_steady_output_is_no_silence(run: Harness) -> None:
    """Many short pauses together exceed the idle limit, none alone does."""
    limits = RunLimits(timeout_s=60, idle_timeout_s=1.5)
    finished = await run("sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.2; done", limits=limits)
    assert finished.exit_code == 0


async def start_and_cancel(run: Harness, script: str, *, grace_s: float, again: bool = False) -> None:
    task = asyncio.ensure_future(run("sh", "-c", script, limits=RunLimits(60, 60, kill_grace_s=grace_s)))
    await until(lambda: "ready" in run.heard())
    task.cancel()
    if again:
        await until((run.cwd / "asked").exists)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelling_gives_the_whole_group_a_moment(run: Harness) -> None:
    """SIGTERM comes first: a grandchild may still write its last words, although the shell above it is gone at once."""
    worker = "trap 'sleep 0.2; echo saved > note; exit' TERM; echo ready; while :; do sleep 0.01; done"
    await start_and_cancel(run, f'sh -c "{worker}" & wait', grace_s=PATIENCE_S)
    assert (run.cwd / "note").read_text() == "saved\n"
    assert not run.open_groups


@pytest.mark.parametrize("again", [False, True], ids=["once", "again in mid-cleanup"])
async def test_cancelling_kills_what_is_deaf_and_what_escaped(run: Harness, again: bool) -> None:
    """Neither the group nor a stray survives; a second cancellation skips a grace of five minutes and leaks nothing."""
    script = f"""
        trap 'echo > asked' TERM; echo $$ > leader; {ESCAPES["deaf"]}
        while [ ! -s pid ]; do sleep 0.01; done
        echo ready; while :; do sleep 0.05; done"""
    before = open_files()
    await start_and_cancel(run, script, grace_s=300 if again else 0.3, again=again)
    assert gone(pid_in(run.cwd / "leader"))
    assert gone(pid_in(run.cwd / "pid"))
    assert (open_files(), run.open_groups) == (before, set())


async def test_an_error_of_the_receiver_ends_the_child_and_comes_through(run: Harness) -> None:
    """What the engine raises while it stores the log (a lost lock) is what the caller sees."""

    async def hear(text: str, stream: str) -> None:
        (run.cwd / "seen").write_text(text)
        raise LookupError("no longer ours")

    with pytest.raises(LookupError, match="no longer ours"):
        await run("sh", "-c", "echo $$; sleep 300", on_output=hear)
    assert gone(pid_in(run.cwd / "seen"))
    assert not run.open_groups


async def test_a_child_that_has_answered_need_not_be_waited_for(run: Harness) -> None:
    """Once the caller has its answer, the child gets the grace and is killed, servers that it started as well (F03-01)."""
    answered = asyncio.Event()

    async def hear(text: str, stream: str) -> None:
        if "result" in text:
            answered.set()

    limits = RunLimits(60, 60, kill_grace_s=0.1)
    script = "trap '' TERM; sleep 300 & echo $! > pid; printf result; sleep 300"
    finished = await run("sh", "-c", script, on_output=hear, answered=answered, limits=limits, drain_s=0.05)
    assert (finished.answered, finished.stdout) == (True, "result")
    assert gone(pid_in(run.cwd / "pid"))


async def test_a_child_that_has_answered_and_leaves_is_an_ordinary_end(run: Harness) -> None:
    """Leaving within the grace keeps the exit code."""
    answered = asyncio.Event()
    answered.set()
    finished = await run("sh", "-c", "exit 4", answered=answered, limits=RunLimits(60, 60, kill_grace_s=PATIENCE_S))
    assert (finished.answered, finished.exit_code) == (False, 4)


# --- what cannot be started ---------------------------------------------------------------------------------------


def script_file(folder: Path, name: str, text: str, mode: int) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: ["no-such-tool"], r"'no-such-tool' cannot be started: it is not installed"),
        (lambda folder: [script_file(folder, "plain", "x", 0o644)], r"plain' cannot be started: it is not an executable file"),
        (
            lambda folder: [script_file(folder, "odd", "#!/no/such/interpreter\n", 0o755)],
            r"odd' .* interpreter .* does not exist",
        ),
        (lambda folder: ["./local"], r"'./local' cannot be started: it is not installed"),
        (lambda folder: [script_file(folder, "junk", "\x01\x02", 0o755)], r"junk' .* no `#!` line"),
        (lambda folder: [str(folder)], r"is not an executable file"),
        (lambda folder: ["echo", "x" * 10_000_000], r"'echo' cannot be started: its arguments and environment are too long"),
        (lambda folder: ["echo", "a\0b"], r"'echo' cannot be started: .*what no system can pass"),
        (lambda folder: ["echo", "\udce4\ud800"], r"'echo' cannot be started: .*what no system can pass"),
        (lambda folder: [""], r"'' cannot be started"),
    ],
    ids=["missing", "not executable", "interpreter", "relative", "junk", "folder", "too long", "NUL", "surrogate", "empty"],
)
async def test_a_command_that_cannot_start_names_itself_and_the_mend(
    run: Harness, make: Callable[[Path], list[str]], words: str
) -> None:
    """Each reason is an AdapterFailed that names the binary (F01-12), and no group is announced."""
    with pytest.raises(AdapterFailed, match=words):
        await run(*make(run.cwd))
    assert run.groups_seen == 0


async def test_a_missing_folder_is_not_taken_for_a_missing_command(tmp_path: Path) -> None:
    """The message names the folder, since the command itself is fine."""
    with pytest.raises(AdapterFailed, match=r"'true' cannot be started: its working folder '.*absent' is not a folder"):
        await Harness(tmp_path / "absent")("true")


async def test_a_lack_of_descriptors_passes_and_may_be_tried_again(run: Harness) -> None:
    """A full table of files is the machine's state and not the command's fault: the error is retryable."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 2, hard))
    try:
        with pytest.raises(AdapterError, match="could not be started for now") as caught:
            await run("true")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.retryable
