"""The registry of adapters: what it knows, what it says about the rest, and how little it imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opencognit import adapters
from opencognit.errors import NotFound

ROOT = Path(__file__).resolve().parents[2]


def install(folder: Path, name: str, value: str) -> None:
    """Lay out what an installed package with one entry point looks like."""
    info = folder / "acme_adapter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-adapter\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[opencognit.adapters]\n{name} = {value}\n")
    (folder / "acme_adapter.py").write_text("class Acme:\n    name = 'acme'\n")


@pytest.mark.parametrize("name", ["bash", "ceo"])
def test_a_built_in_adapter_is_found_by_its_name(name: str) -> None:
    """Each built-in name is listed, and gives a new adapter that calls itself so."""
    assert name in adapters.names()
    assert adapters.get(name).name == name


@pytest.mark.parametrize("name", ["claude", "claude-code", "openrouter", "openai", "ollama", "http"])
def test_a_planned_adapter_says_that_this_version_lacks_it(name: str) -> None:
    """A name of the contract is not a typo: the message says so, and what there is."""
    with pytest.raises(NotFound, match=r"does not have that adapter yet; it has bash, ceo") as caught:
        adapters.get(name)
    assert repr(name) in str(caught.value)
    assert name not in adapters.names()


@pytest.mark.parametrize(
    ("typo", "hint"), [("bahs", "did you mean 'bash'"), ("Bash", "did you mean 'bash'"), ("cloude", "nearest is 'claude'")]
)
def test_a_typo_names_the_nearest_adapter(typo: str, hint: str) -> None:
    """A misspelt name leads to the right one, or to the one that is not there yet."""
    with pytest.raises(NotFound, match=hint):
        adapters.get(typo)


def test_a_name_like_no_other_lists_what_there_is() -> None:
    """Where nothing is near, the message lists the names."""
    with pytest.raises(NotFound, match="it has bash, ceo"):
        adapters.get("zzzzzz")


def test_an_installed_package_adds_an_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point of the group is listed and constructed like a built-in one."""
    install(tmp_path, "acme", "acme_adapter:Acme")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "acme" in adapters.names()
    assert type(adapters.get("acme")).__name__ == "Acme"


def test_an_installed_package_cannot_replace_a_built_in_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`bash` stays ours whatever is installed."""
    install(tmp_path, "bash", "acme_adapter:Acme")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert type(adapters.get("bash")).__module__ == "opencognit.adapters.bash"


def test_a_broken_package_is_named_with_its_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point that cannot be loaded is an error that names the package, not a traceback of it."""
    install(tmp_path, "broken", "acme_adapter:Missing")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NotFound, match=r"acme_adapter:Missing of package acme-adapter cannot be loaded .*mend or remove"):
        adapters.get("broken")


@pytest.mark.parametrize("module", ["opencognit.adapters", "opencognit.adapters.warden"])
def test_the_registry_and_the_warden_import_nothing_heavy(module: str) -> None:
    """Both work with the standard library alone: `-S` hides every installed package."""
    code = f"import {module}, sys; print([m for m in sys.modules if m.split('.')[0] in ('pydantic', 'asyncio', 'sqlalchemy')])"
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", code], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
