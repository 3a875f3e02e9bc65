"""The embedders' rules that need no model: what opens, where files lie, batches, hashing, and what stays unloaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opencognit.brain.embed import batches, check, open_embedder, places, sentences
from opencognit.brain.embed.hashing import HashEmbedder
from opencognit.brain.embed.port import unit
from opencognit.config.sections import Brain
from opencognit.errors import InvalidInput, ModelUnavailable

ODD = [
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "half \udcff pair",
    "\ud83d\ude00",
    "\u0301",
    "?!",
    "😀",
    "日本語",
    "ß" * 5000,
    "x" * 1_000_000,
]


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `pip install opencognit` without the model's package."""
    monkeypatch.setattr(places, "_PACKAGE", "no_such_package")


# --- open ---------------------------------------------------------------------------------------------------------


def test_off_is_no_embedder_and_no_error(tmp_path: Path) -> None:
    assert open_embedder(Brain(embedder="off"), tmp_path) is None
    assert check(Brain(embedder="off"), tmp_path) is None


@pytest.mark.usefixtures("no_package")
@pytest.mark.parametrize("embedder", ["onnx", "sentence-transformers"])
def test_a_missing_model_is_said_with_its_mend(embedder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "check_library", lambda: None)
    for opened in (open_embedder, check):
        with pytest.raises(ModelUnavailable, match="'all-MiniLM-L6-v2' is not there: run `opencognit model pull`"):
            opened(Brain.model_validate({"embedder": embedder}), tmp_path)


def test_onnx_names_the_one_model_it_runs(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="runs 'all-MiniLM-L6-v2' and not 'acme/other'"):
        open_embedder(Brain(model="acme/other"), tmp_path)


def test_a_missing_library_is_said_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library the error names the command that brings it, not a module."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelUnavailable, match=r"pip install 'opencognit\[torch\]'"):
        check(Brain(embedder="sentence-transformers"), tmp_path)
    with pytest.raises(ModelUnavailable, match="not installed: onnxruntime, tokenizers, onnx, safetensors"):
        open_embedder(Brain(), tmp_path)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("./here", "depends on the working folder"),
        ("/nowhere/at/all", "/nowhere/at/all: no model lies there"),
        ("~/nowhere-at-all", "no model lies there"),
        ("a b", "'a b' is no model's name"),
        ("a/b/c", "'a/b/c' is no model's name"),
    ],
)
def test_a_wrong_model_in_the_configuration_is_one_clear_error(model: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"brain\.model in config\.toml") as caught:
        places.locate(model, tmp_path)
    assert told in str(caught.value)


def test_places_come_in_order_and_a_path_stands_alone(tmp_path: Path) -> None:
    """The package is preferred to what was pulled; a folder that is named is the only one."""
    pulled = tmp_path / "all-MiniLM-L6-v2"
    pulled.mkdir()
    (pulled / "config.json").touch()
    assert [place.origin for place in places.locate("all-MiniLM-L6-v2", tmp_path)] == ["package", "pulled"]
    assert places.locate(str(pulled), tmp_path) == [places.Place(pulled, "config")]
    assert places.pulled("sentence-transformers/all-MiniLM-L6-v2", tmp_path) == pulled
    assert places.pulled("acme/tiny", tmp_path) == tmp_path / "acme--tiny"


@given(st.text(max_size=12))
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    try:
        folder = places.pulled(name, Path("/models"))
    except InvalidInput:
        return
    assert folder.parent == Path("/models")
    assert not folder.name.startswith(".")


# --- batches ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(2, 256), max_size=80))
def test_batches_hold_every_text_once_and_are_bounded(lengths: list[int]) -> None:
    found = list(batches.by_length(lengths))
    assert sorted(index for batch in found for index in batch) == list(range(len(lengths)))
    for batch in found:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= batches.TOKENS
    longest = [max(lengths[index] for index in batch) for batch in found]
    assert longest == sorted(longest), "texts of like length go together"


@given(st.integers(0, 3 * batches.TEXTS))
def test_spans_cover_a_list_in_order(count: int) -> None:
    assert [index for part in batches.spans(count) for index in range(count)[part]] == list(range(count))


# --- vectors ------------------------------------------------------------------------------------------------------


def test_rows_without_a_direction_become_zeros() -> None:
    """F12-07: neither NaN nor infinity reaches whoever stores or compares."""
    rows = np.array([[3, 4], [0, 0], [np.nan, 1], [np.inf, 1]], np.float32)
    assert unit(rows).tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0, 0], [0, 0], [0, 0]]
    assert unit(rows).dtype == np.float32


def test_hashed_vectors_are_the_same_on_every_machine() -> None:
    """They are stored under the name hash-v1: whoever changes how they come about changes the name."""
    (vector,) = HashEmbedder().encode(["Die Rechnungen"])
    assert {int(at): round(float(vector[at]), 4) for at in np.argsort(-np.abs(vector), kind="stable")[:4]} == {
        107: 0.3978,
        0: -0.1648,
        1: -0.1648,
        20: -0.1648,
    }


def test_hashed_vectors_take_any_text_and_have_length_one() -> None:
    vectors = HashEmbedder().encode(ODD)
    assert vectors.shape == (len(ODD), 384)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert HashEmbedder().encode([]).shape == (0, 384)


def test_hashed_vectors_bring_like_spellings_together() -> None:
    """An inflected or compound German word is nearer than another word, and upper case and umlauts do not matter."""
    base, compound, other, spelled = HashEmbedder().encode(["Rechnung", "Rechnungen", "Fahrrad", "RECHNUNG"])
    assert base @ compound > 0.5 > base @ other
    assert base @ spelled == pytest.approx(1, abs=1e-6)
    one, two = HashEmbedder().encode(["Köln", "koeln"])
    assert one @ two == pytest.approx(1, abs=1e-6)


# --- the library, by a stand-in -----------------------------------------------------------------------------------


class Library(ModuleType):
    """Stands for sentence_transformers: notes how the model is opened; its vectors are the texts' lengths."""

    def __init__(self) -> None:
        super().__init__("sentence_transformers")
        self.opened: list[tuple[str, dict[str, Any]]] = []
        library = self

        class SentenceTransformer:
            max_seq_length = 512

            def __init__(self, folder: str, **options: Any) -> None:
                library.opened.append((folder, options))

            def get_embedding_dimension(self) -> int:
                return 2

            def encode(self, texts: list[str], **options: Any) -> Any:
                return np.array([[len(text), 0] for text in texts], np.float64)

        self.SentenceTransformer = SentenceTransformer


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found, logs = Library(), ModuleType("transformers.utils.logging")
    logs.disable_progress_bar = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr(sentences, "check_library", lambda: None)
    monkeypatch.setitem(sys.modules, "sentence_transformers", found)
    for name in ("transformers", "transformers.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "transformers.utils.logging", logs)
    return found


def test_the_library_is_never_let_onto_the_network_and_its_vectors_are_normalised(library: Library, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    embedder = open_embedder(Brain(embedder="sentence-transformers", model=str(tmp_path)), tmp_path)
    assert embedder is not None
    assert library.opened == [(str(tmp_path), {"local_files_only": True, "trust_remote_code": False})]
    assert embedder.dimensions == 2
    assert embedder.encode(["ab", "", "abc"]).tolist() == [[1, 0], [0, 0], [1, 0]]
    assert embedder.encode([]).shape == (0, 2)


@pytest.mark.usefixtures("library")
def test_another_model_in_the_same_folder_has_another_name(tmp_path: Path) -> None:
    """Vectors are kept under the name, so a model that was trained on must not meet its older vectors."""
    folder = tmp_path / "mine"
    folder.mkdir()
    settings = Brain(embedder="sentence-transformers", model=str(folder))

    def name() -> str:
        embedder = open_embedder(settings, tmp_path)
        assert embedder is not None
        return embedder.name

    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"first")
    first = name()
    assert first.startswith("mine@")
    assert name() == first
    (folder / "README.md").write_text("words")
    assert name() == first
    (folder / "model.safetensors").write_bytes(b"other")
    assert name() != first


# --- what stays unloaded ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("opencognit.cli", {"numpy", "onnx", "onnxruntime", "tokenizers", "torch"}),
        ("opencognit.cli.model", {"numpy", "onnx", "onnxruntime", "tokenizers", "torch"}),
        ("opencognit.brain.embed", {"onnx", "onnxruntime", "tokenizers", "torch", "transformers"}),
    ],
)
def test_what_only_an_embedder_needs_is_not_loaded_before(module: str, unwanted: set[str]) -> None:
    """`--help` must answer at once, and a company with the embedder off pays nothing."""
    script = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert unwanted.isdisjoint(loaded)
