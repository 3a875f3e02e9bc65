"""The graph's file: what counts as whole, what is built anew, what is left behind. On a stand-in for the 90 MB."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from opencognit.brain.embed import built, lock
from opencognit.errors import ModelUnavailable

CONTENT = b"graph" * 1000


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every build is noted."""
    noted: list[Path] = []

    def build(weights: Path) -> bytes:
        noted.append(weights)
        return CONTENT

    monkeypatch.setattr(built, "_graph", build)
    return noted


def test_it_is_built_once(builds: list[Path], tmp_path: Path) -> None:
    models = tmp_path / "data" / "models"
    path = built.ensure(tmp_path / "w", models)
    assert path.read_bytes() == CONTENT
    assert built.ensure(tmp_path / "w", models) == path
    assert builds == [tmp_path / "w" / "model.safetensors"]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_bytes(CONTENT[:-1]), id="cut off"),
        pytest.param(lambda path: path.write_bytes(b"x" + CONTENT[1:]), id="altered"),
        pytest.param(lambda path: path.unlink(), id="gone"),
        pytest.param(lambda path: built._seal(path).unlink(), id="no seal"),
        pytest.param(lambda path: built._seal(path).write_bytes(b""), id="empty seal"),
        pytest.param(lambda path: built._seal(path).write_bytes(b"\xff\xfe"), id="odd seal"),
    ],
)
def test_what_is_not_whole_is_built_anew(damage: Callable[[Path], object], builds: list[Path], tmp_path: Path) -> None:
    path = built.ensure(tmp_path, tmp_path)
    damage(path)
    assert not built.is_whole(path)
    assert built.ensure(tmp_path, tmp_path).read_bytes() == CONTENT
    assert built.is_whole(path)
    assert len(builds) == 2


@pytest.mark.usefixtures("builds")
def test_what_killed_builders_and_older_versions_left_is_removed(tmp_path: Path) -> None:
    for name in (".all-MiniLM-L6-v2.dead1", "all-MiniLM-L6-v2.r0.onnx", "all-MiniLM-L6-v2.r0.onnx.sha256"):
        (tmp_path / name).write_bytes(b"old")
    (tmp_path / "all-MiniLM-L6-v2").mkdir()  # pulled: not ours
    path = built.ensure(tmp_path, tmp_path)
    left = {found.name for found in tmp_path.iterdir()}
    assert left == {path.name, f"{path.name}.sha256", ".build.lock", "all-MiniLM-L6-v2"}


def test_a_failed_build_leaves_nothing_and_is_done_again(
    builds: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk names the file and what it takes."""

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(ModelUnavailable, match=r"cannot be written \(no space left on device\): it takes 90 MB"):
            built.ensure(tmp_path, tmp_path)
    assert [found.name for found in tmp_path.iterdir()] == [".build.lock"]
    assert built.is_whole(built.ensure(tmp_path, tmp_path))
    assert len(builds) == 2


def test_without_locks_two_builders_are_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that has none both build; each moves a whole file into place."""
    both = threading.Barrier(2)

    @contextlib.contextmanager
    def unlocked(path: Path, *, wait: bool) -> Iterator[bool]:
        yield False

    def build(weights: Path) -> bytes:
        both.wait(timeout=30)
        return CONTENT

    monkeypatch.setattr(lock, "held", unlocked)
    monkeypatch.setattr(built, "_graph", build)
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: built.ensure(tmp_path, tmp_path), range(2)))
    assert built.is_whole(paths[0])
    assert {found.name for found in tmp_path.iterdir()} == {paths[0].name, f"{paths[0].name}.sha256"}
