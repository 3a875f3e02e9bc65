"""Any model of the sentence-transformers library, by its name or folder. Needs the extra `torch`, and never the network.

Its vectors are kept under a name made of the files' content: a model that was trained on has the same folder and other vectors.
"""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opencognit.brain.embed.batches import spans
from opencognit.brain.embed.places import DEFAULT, SHA256, TRUNCATION, WEIGHTS, digest
from opencognit.brain.embed.port import readable, unit
from opencognit.errors import ModelUnavailable

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from opencognit.brain.embed.port import Vectors

_IGNORED = frozenset({".md", ".png", ".lock"})
"""Endings of files that no vector depends on."""
_BATCH = 16


class Sentences:
    """Loads the model at once, which takes seconds."""

    def __init__(self, folder: Path) -> None:
        self._model = _load(folder)
        self._running = threading.Lock()
        dimensions = self._model.get_embedding_dimension()
        if dimensions is None:
            raise ModelUnavailable(f"{folder}: the model does not tell its dimensions, so it makes no vectors: choose another")
        self.dimensions: int = dimensions
        self.name = self._name(folder)

    def encode(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for part in spans(len(texts)):
            read = [readable(text) for text in texts[part]]
            with self._running:  # the library changes its tokenizer's settings at every call
                found = self._model.encode(read, batch_size=_BATCH, show_progress_bar=False, convert_to_numpy=True)
            vectors[part] = unit(np.asarray(found, np.float32))
        return vectors

    def _name(self, folder: Path) -> str:
        """Return the default model's own name where the vectors are the same, so that a change of backend costs nothing."""
        weights = folder / WEIGHTS
        if weights.is_file() and digest(weights) == SHA256[WEIGHTS] and self._model.max_seq_length == TRUNCATION:
            from opencognit.brain.embed.reference import COSINE, nearness

            if nearness(self.encode) > COSINE:
                return DEFAULT
        return fingerprint(folder)


def check_library() -> None:
    """Raise ModelUnavailable where the library is not installed."""
    if importlib.util.find_spec("sentence_transformers") is None:
        raise ModelUnavailable(
            'brain.embedder in config.toml is "sentence-transformers", a library that is not installed: '
            "run `pip install 'opencognit[torch]'`, or write embedder = \"onnx\""
        )


def fingerprint(folder: Path) -> str:
    """Return the folder's name with a digest of all the files that may shape the vectors."""
    content = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and path.suffix not in _IGNORED and not any(part.startswith(".") for part in name.parts):
            content.update(f"{name} {digest(path)}\n".encode())
    return f"{folder.name}@{content.hexdigest()[:12]}"


def _load(folder: Path) -> SentenceTransformer:
    check_library()
    try:
        from sentence_transformers import SentenceTransformer
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # it would draw on the daemon's standard error
        return SentenceTransformer(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise ModelUnavailable(
            f"{folder}: sentence-transformers cannot load it ({type(error).__name__}: {said}): mend the folder"
        ) from error
