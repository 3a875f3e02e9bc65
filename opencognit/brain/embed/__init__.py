"""Embedders: what turns texts into vectors. This is their front door; a backend's packages are loaded only when it is used.

Three backends: onnxruntime (the default model, without torch), the sentence-transformers library (any of its models), and
feature hashing (no model). Knows no memory and no database. Nothing in here goes to the network but `pull`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from opencognit.brain.embed.hub import HUB, Pulled, Report, pull
from opencognit.brain.embed.places import DEFAULT, Place, is_default, locate, verified
from opencognit.brain.embed.port import Embedder
from opencognit.errors import ModelUnavailable

if TYPE_CHECKING:
    from opencognit.config.sections import Brain

WITH_MODEL = frozenset({"onnx", "sentence-transformers"})
"""Embedders that need a model's files."""

__all__ = ["DEFAULT", "HUB", "WITH_MODEL", "Embedder", "Place", "Pulled", "Report", "check", "open_embedder", "pull"]

_RUNTIME = ("onnxruntime", "tokenizers", "onnx", "safetensors")


def open_embedder(settings: Brain, models: Path) -> Embedder | None:
    """Return the embedder that `[brain]` names; None for "off". `models` is the home's folder for pulled and built files.

    Looks only whether everything is there: the default model is loaded, and built where it is not yet, by the first text.
    sentence-transformers is loaded here, which takes seconds. Raises ModelUnavailable, naming what is missing and the mend.
    """
    match settings.embedder:
        case "off":
            return None
        case "hash":
            from opencognit.brain.embed.hashing import HashEmbedder

            return HashEmbedder()
        case "onnx":
            candidates = _for_onnx(settings.model, models)
            from opencognit.brain.embed.minilm import MiniLm

            return MiniLm(candidates, models)
        case "sentence-transformers":
            from opencognit.brain.embed.sentences import Sentences

            return Sentences(locate(settings.model, models)[0].folder)
        case _:
            assert_never(settings.embedder)


def check(settings: Brain, models: Path) -> Place | None:
    """Return where the files of the configured model lie; None where there is no model. Loads nothing.

    The default backend's weights are read through and compared with the published ones. Raises ModelUnavailable.
    """
    match settings.embedder:
        case "onnx":
            return verified(_for_onnx(settings.model, models))
        case "sentence-transformers":
            from opencognit.brain.embed.sentences import check_library

            check_library()
            return locate(settings.model, models)[0]
        case "hash" | "off":
            return None
        case _:
            assert_never(settings.embedder)


def _for_onnx(model: str, models: Path) -> list[Place]:
    absent = [name for name in _RUNTIME if importlib.util.find_spec(name) is None]
    if absent:
        raise ModelUnavailable(
            f"not installed: {', '.join(absent)}: run `pip install --upgrade opencognit`, or where this machine has none "
            '(an Intel Mac) write embedder = "off"'
        )
    if not is_default(model) and not model.startswith((".", "~", "/")):
        raise ModelUnavailable(
            f'brain.embedder in config.toml is "onnx", which runs {DEFAULT!r} and not {model!r}: '
            'write that model, or embedder = "sentence-transformers"'
        )
    return locate(model, models)
