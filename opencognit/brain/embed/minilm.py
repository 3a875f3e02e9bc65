"""The default embedder: all-MiniLM-L6-v2 by onnxruntime and tokenizers, equal to sentence-transformers without torch.

Loads at the first text and proves itself then: one stored text must give its stored vector, which vouches for weights,
tokenizer and graph together. Runs on half the cores, so that the machine stays usable.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from opencognit.brain.embed import batches, built
from opencognit.brain.embed.places import DEFAULT, TOKENIZER, TRUNCATION, Place, verified
from opencognit.brain.embed.port import readable, unit
from opencognit.brain.embed.reference import COSINE, nearness
from opencognit.errors import ModelUnavailable

if TYPE_CHECKING:
    from opencognit.brain.embed.port import Vectors

DIMENSIONS = 384
_MOST_THREADS = 4
_READ = 32_768
"""Characters that are split into tokens: 256 tokens are seldom more than 2,000, and 100,000 take a tenth of a second."""
_SERIOUS = 3
_REINSTALL = "run `pip install --upgrade --force-reinstall opencognit`, or ./start after removing .venv"


@dataclass(frozen=True, slots=True)
class _Loaded:
    tokenizer: Tokenizer
    session: onnxruntime.InferenceSession


class MiniLm:
    """`candidates` are the places of the model's files, the preferred first; the graph is built into `models`."""

    name = DEFAULT
    dimensions = DIMENSIONS

    def __init__(self, candidates: list[Place], models: Path) -> None:
        self._candidates, self._models = candidates, models
        self._loading = threading.Lock()
        self._loaded: _Loaded | None = None

    def encode(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for part in batches.spans(len(texts)):
            vectors[part] = _encode(self._ready(), texts[part])
        return vectors

    def _ready(self) -> _Loaded:
        """Return the model, loaded once however many threads ask; one that failed is tried again by the next call."""
        with self._loading:
            if self._loaded is None:
                loaded = _load(self._candidates, self._models)
                _prove(loaded)
                self._loaded = loaded
            return self._loaded


def _load(candidates: list[Place], models: Path) -> _Loaded:
    folder = verified(candidates).folder
    graph = built.ensure(folder, models)
    with _translated(f"{folder / TOKENIZER}: cannot be read"):
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        tokenizer.no_padding()  # the file pads each text to 128 tokens
        tokenizer.enable_truncation(TRUNCATION)
    with _translated(f"{graph}: cannot be loaded"):
        session = onnxruntime.InferenceSession(str(graph), _options(), providers=["CPUExecutionProvider"])
    return _Loaded(tokenizer, session)


def _options() -> onnxruntime.SessionOptions:
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _threads()
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # it keeps a plan for every shape, and no two batches have the same
    options.log_severity_level = _SERIOUS
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads sleep
    return options


def _threads() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MOST_THREADS, cores // 2))


def _encode(loaded: _Loaded, texts: Sequence[str]) -> Vectors:
    """Return the unit vectors of so many texts as may be split into tokens at once."""
    # As a batch also where it is one text: only then the tokenizer lets other threads of Python run.
    read = [readable(text)[:_READ] for text in texts]
    tokens = [found.ids for found in loaded.tokenizer.encode_batch_fast(read)]
    vectors = np.empty((len(texts), DIMENSIONS), np.float32)
    for batch in batches.by_length([len(ids) for ids in tokens]):
        vectors[batch] = _run(loaded.session, [tokens[index] for index in batch])
    return unit(vectors)


def _run(session: onnxruntime.InferenceSession, tokens: Sequence[Sequence[int]]) -> Vectors:
    ids = np.zeros((len(tokens), max(map(len, tokens))), np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(tokens):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    with _translated(f"{DEFAULT}: the graph failed"):
        (vectors,) = session.run(None, {"input_ids": ids, "attention_mask": mask})
    return np.asarray(vectors, np.float32)


def _prove(loaded: _Loaded) -> None:
    """Refuse a model whose vectors are not the published one's."""
    cosine = nearness(lambda texts: _encode(loaded, texts))
    if not cosine > COSINE:  # nor is NaN
        raise ModelUnavailable(
            f"{DEFAULT} gives a wrong vector here (cosine {cosine:.4f} to the published one), though its files are right: "
            f"the installed onnxruntime or tokenizers is at fault: {_REINSTALL}"
        )


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Make one of our errors of whatever onnxruntime and tokenizers raise: plain exceptions of their own."""
    try:
        yield
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise ModelUnavailable(f"{what} ({type(error).__name__}: {said}): {_REINSTALL}") from error
