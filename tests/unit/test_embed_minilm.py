"""The default embedder on its real weights: equal to sentence-transformers, proven at load, safe with any text and any thread."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from opencognit.brain.embed import Embedder, built, graph, minilm, open_embedder, places, reference
from opencognit.config.sections import Brain
from opencognit.errors import ModelUnavailable
from tests.unit.test_embed import ODD

LONG = "Die Abnahme der Brücke über den Rhein verzögert sich. " * 400
TEXTS = [
    "How do we deploy the billing service to production?",
    "The invoice for March was paid twice.",
    "Wie wird der Rechnungsdienst in Betrieb genommen?",
    "Die Donaudampfschifffahrtsgesellschaft fährt über Köln nach Düsseldorf.",
    "Straße, Maß, Füße, ÄÖÜ, ß",
    "ok 👍🏽 🚲 👩‍👩‍👧",
    "😀😀😀😀",
    "日本語のメモを短く書く。",
    "我们明天部署计费服务",
    "결제 서비스를 배포합니다",
    "Привет, как дела?",
    "مرحبا بالعالم",
    "",
    " \t\n ",
    "a",
    "ValueError: invalid literal for int() with base 10: '0x1f' at src/main.py:42",
    "https://example.org/a/b?c=d&e=%20f#g bc1qxy2kgdygjrsqtzq2n0yrf2493p83kkfjhx0wlh",
    "cafe\u0301 na\u00efve \u200bzero\u00a0width",
    "x" * 500,
    LONG,
    "one two " * 126,
]


def onnx_in(models: Path, model: str = places.DEFAULT) -> Embedder:
    embedder = open_embedder(Brain(model=model), models)
    assert embedder is not None
    return embedder


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the graph is built once for all tests that do not change it."""
    folder = tmp_path_factory.mktemp("models")
    onnx_in(folder).encode(["x"])
    return folder


@pytest.fixture
def embedder(models: Path) -> Embedder:
    return onnx_in(models)


@pytest.fixture
def weights() -> Path:
    """The folder of the installed package, whose files are the published ones."""
    return places.locate(places.DEFAULT, Path("/nowhere"))[0].folder


# --- vectors ------------------------------------------------------------------------------------------------------


def test_the_graph_is_valid_and_gives_the_stored_vector(models: Path, embedder: Embedder) -> None:
    """The stored vector was computed by torch; the graph conforms to the operator set that it declares."""
    onnx.checker.check_model(str(built.graph_path(models)))
    assert reference.nearness(embedder.encode) > 0.999999
    assert (embedder.name, embedder.dimensions) == ("all-MiniLM-L6-v2", 384)


@pytest.mark.skipif(importlib.util.find_spec("sentence_transformers") is None, reason="the extra `torch` is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_vectors_equal_those_of_sentence_transformers(models: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cosine above .9999 on English, German, emoji, other scripts, empty and very long texts; and no network for either."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("an embedder went to the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    library = open_embedder(Brain(embedder="sentence-transformers"), models)
    assert library is not None
    assert (library.name, library.dimensions) == (embedder.name, embedder.dimensions)
    cosines = np.sum(library.encode(TEXTS) * embedder.encode(TEXTS), axis=1)
    print(f"\nlowest cosine to sentence-transformers over {len(TEXTS)} texts: {cosines.min():.7f}")
    assert cosines.min() > 0.9999


def test_order_and_company_do_not_change_a_vector(embedder: Embedder) -> None:
    """Batches are sorted by length and padded: each text still gets its own row, the same as alone."""
    texts = [text for text in TEXTS for _ in range(3)][::-1]
    together = embedder.encode(texts)
    alone = np.concatenate([embedder.encode([text]) for text in texts])
    assert together.dtype == np.float32
    assert np.sum(together * alone, axis=1).min() > 0.99999
    assert np.argmax(together @ alone.T, axis=1).shape == (len(texts),)


def test_meaning_is_found_across_words(embedder: Embedder) -> None:
    question, answer, other = embedder.encode(["Who repairs bicycles?", "Anna fixes bikes.", "The invoice was paid twice."])
    assert question @ answer > question @ other + 0.2


def test_any_text_has_a_vector(embedder: Embedder) -> None:
    """F13-01: NUL, lone surrogates, megabytes, nothing at all."""
    vectors = embedder.encode(ODD)
    assert vectors.shape == (len(ODD), 384)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert embedder.encode([]).shape == (0, 384)


def test_no_texts_load_no_model(tmp_path: Path) -> None:
    assert onnx_in(tmp_path).encode([]).shape == (0, 384)
    assert list(tmp_path.iterdir()) == []


def test_what_lies_past_256_tokens_changes_nothing(embedder: Embedder) -> None:
    """254 words and the two marks around them are read, the 255th is not."""
    full = "one " * 254
    whole, longer, shorter = embedder.encode([full, full + "invoice", "one " * 253])
    assert np.allclose(whole, longer, atol=1e-6)
    assert not np.allclose(whole, shorter, atol=1e-6)


# --- load ---------------------------------------------------------------------------------------------------------


def test_many_threads_load_once_and_agree(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Any] = []
    load = minilm._load
    monkeypatch.setattr(minilm, "_load", lambda *given: loads.append(given) or load(*given))  # type: ignore[func-returns-value]
    shared, start = onnx_in(models), threading.Barrier(4)

    def work(_: int) -> Any:
        start.wait()
        return shared.encode(TEXTS[:8])

    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(work, range(4))
    assert len(loads) == 1
    assert all(np.allclose(first, other, atol=1e-6) for other in others)


def test_altered_weights_are_refused(weights: Path, tmp_path: Path) -> None:
    """One changed byte: nothing is built from it, and the error names the file and the mend."""
    folder = shutil.copytree(weights, tmp_path / "altered")
    with (folder / places.WEIGHTS).open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        (last,) = stream.read(1)
        stream.seek(-1, os.SEEK_END)
        stream.write(bytes([last ^ 1]))
    with pytest.raises(ModelUnavailable, match=r"model.safetensors is not the published file .*SHA-256.*put the right one there"):
        onnx_in(tmp_path / "models", str(folder)).encode(["x"])
    assert not (tmp_path / "models").exists()


def test_an_altered_tokenizer_is_refused(weights: Path, tmp_path: Path) -> None:
    folder = tmp_path / "altered"
    folder.mkdir()
    for name in ("config.json", places.WEIGHTS):
        (folder / name).symlink_to(weights / name)
    (folder / places.TOKENIZER).write_text((weights / places.TOKENIZER).read_text().replace('"the"', '"teh"'))
    with pytest.raises(ModelUnavailable, match=r"tokenizer\.json is not the published file"):
        onnx_in(tmp_path / "models", str(folder)).encode(["x"])


def test_a_damaged_package_is_passed_over(weights: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was pulled takes its place, so that `model pull` mends it."""
    damaged = places.Place(models / "damaged", "package")
    good = places.Place(weights, "pulled")
    assert places.verified([damaged, good]) == good
    with pytest.raises(ModelUnavailable, match=r"cannot be read .*run `opencognit model pull`"):
        places.verified([damaged])


def test_a_graph_that_gives_other_vectors_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer less is a valid graph with plausible vectors: only the stored vector finds out."""
    monkeypatch.setattr(graph, "LAYERS", 5)
    with pytest.raises(ModelUnavailable, match=r"gives a wrong vector here \(cosine [-.0-9]+ to the published one\)"):
        onnx_in(tmp_path).encode(["x"])


def test_a_graph_whose_mask_does_not_hide_the_padding_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is right for every text alone, and wrong for the shorter ones of each batch."""
    monkeypatch.setattr(graph, "_MASKED", 0.0)
    with pytest.raises(ModelUnavailable, match="gives a wrong vector here"):
        onnx_in(tmp_path).encode(["x"])


def test_a_cut_off_graph_is_built_anew(models: Path, tmp_path: Path) -> None:
    """As after a full disk or a power cut; the next start mends it by itself."""
    folder = shutil.copytree(models, tmp_path / "models")
    path = built.graph_path(folder)
    size = path.stat().st_size
    os.truncate(path, size // 2)
    assert reference.nearness(onnx_in(folder).encode) > 0.9999
    assert path.stat().st_size == size
    assert built.is_whole(path)


SCRIPT = """
import sys
from pathlib import Path
from opencognit.brain.embed import open_embedder
from opencognit.config.sections import Brain
print("ready", flush=True)
sys.stdin.readline()
print(open_embedder(Brain(), Path(sys.argv[1])).encode(["x"]).tobytes().hex())
"""


@pytest.fixture
def builders(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes that wait for a line before they build into one folder."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "models")]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, **pipes) for _ in range(2)]
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_two_processes_that_build_at_once_are_harmless(builders: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    """Both get the same vectors, and one whole graph is left, with nothing beside it."""
    for process in builders:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in builders:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=120) for process in builders]
    assert [errors for _, errors in said] == ["", ""]
    assert said[0][0] == said[1][0] != ""
    path = built.graph_path(tmp_path / "models")
    assert built.is_whole(path)
    assert {found.name for found in path.parent.iterdir()} == {path.name, f"{path.name}.sha256", ".build.lock"}


def test_the_time_of_one_short_query_is_told(embedder: Embedder) -> None:
    """Printed for people (`pytest -s`): a machine at work says nothing about the code."""
    embedder.encode(["warm"])
    times = []
    for _ in range(50):
        start = time.perf_counter()
        embedder.encode(["How do we deploy the billing service to production?"])
        times.append(time.perf_counter() - start)
    print(f"\nencode of one short query: p50 {sorted(times)[25] * 1e3:.1f} ms")
    assert json.dumps(times)
