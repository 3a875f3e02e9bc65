"""Which files a model consists of, and what each must be. The default model's are fixed here; a hub tells any other's.

The default model is one revision, every file with its SHA-256: whatever hub or mirror serves it, what comes is the published
model or is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from opencognit.brain.embed.places import SHA256
from opencognit.errors import ModelUnavailable

REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"

_KINDS = frozenset({".json", ".txt", ".model", ".safetensors"})
_OTHER_RUNTIMES = frozenset({"onnx", "openvino"})
_PATH = re.compile(r"(?:[\w-][\w.-]{0,127}/){0,4}[\w-][\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class File:
    """`path` is relative to the model's folder; None where the hub does not tell: git keeps no SHA-256 of small files."""

    path: str
    sha256: str | None = None
    size: int | None = None


DEFAULT_FILES = (
    File("1_Pooling/config.json", "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23", 190),
    File("config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41", 612),
    File("config_sentence_transformers.json", "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3", 116),
    File("modules.json", "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf", 349),
    File("sentence_bert_config.json", "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7", 53),
    File("special_tokens_map.json", "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3", 112),
    File("tokenizer_config.json", "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b", 350),
    File("vocab.txt", "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3", 231_508),
    File("tokenizer.json", SHA256["tokenizer.json"], 466_247),
    File("model.safetensors", SHA256["model.safetensors"], 90_868_376),
)


def from_listing(model: str, listing: Any) -> tuple[str, list[File]]:
    """Return revision and files of a hub's answer about `model`: what sentence-transformers loads, and no other runtime's.

    Weights in pickles (.bin) only where there are no others. Raises ModelUnavailable for an answer that makes no sense.
    """
    try:
        revision, told = str(listing["sha"]), list(_files(listing["siblings"]))
    except (AttributeError, KeyError, TypeError) as error:
        raise ModelUnavailable(f"{model}: the hub's answer is no list of a model's files: check HF_ENDPOINT") from error
    chosen = [file for file in told if PurePosixPath(file.path).suffix in _KINDS]
    if not any(file.path.endswith(".safetensors") for file in chosen):
        chosen += [file for file in told if file.path.endswith(".bin")]
    if not any(file.path.endswith((".safetensors", ".bin")) for file in chosen) or _PATH.fullmatch(revision) is None:
        raise ModelUnavailable(f"{model}: the hub lists no weights for it: choose a model of sentence-transformers")
    return revision, sorted(chosen, key=lambda file: file.size or 0)


def _files(siblings: Any) -> Iterator[File]:
    for told in siblings:
        path, large, size = str(told["rfilename"]), told.get("lfs") or {}, told.get("size")
        # A path comes from outside and becomes one of ours: only plain names below the model's own folder.
        if _PATH.fullmatch(path) is None or _OTHER_RUNTIMES.intersection(path.split("/")[:-1]):
            continue
        digest = large.get("sha256")
        is_digest = isinstance(digest, str) and _DIGEST.fullmatch(digest) is not None
        yield File(path, digest if is_digest else None, size if isinstance(size, int) else None)
