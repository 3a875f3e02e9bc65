"""`model pull`: a model's files from the Hugging Face hub, or a mirror of it, into a home's data/models.

Nothing else in the brain goes to the network. The model's folder appears when all its files are there and checked; until then
they lie in a hidden one that the next pull goes on with.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from opencognit.brain.embed import lock
from opencognit.brain.embed.download import Report, fetch, get_json
from opencognit.brain.embed.manifest import DEFAULT_FILES, REVISION, File, from_listing
from opencognit.brain.embed.places import Place, is_default, locate, pulled, repository, verified
from opencognit.errors import InvalidInput, ModelUnavailable

HUB = "https://huggingface.co"

__all__ = ["HUB", "Pulled", "Report", "pull"]


@dataclass(frozen=True, slots=True)
class Pulled:
    """Where the model is. `bytes_fetched` is what came over the network, 0 where it was usable already."""

    place: Place
    bytes_fetched: int


def pull(model: str, models: Path, *, endpoint: str = HUB, report: Report) -> Pulled:
    """Bring `model` into the folder `models`, unless it is usable already. Blocks.

    Raises InvalidInput for a bad name or endpoint, NotFound, Refused while another pull is at work, ModelUnavailable.
    """
    name, target = repository(model), pulled(model, models)
    if (place := _usable(model, models)) is not None:
        return Pulled(place, 0)
    if urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).netloc:
        raise InvalidInput("HF_ENDPOINT", f"{endpoint!r} is not an address: write https://HOST, or leave it unset")
    hub = endpoint.rstrip("/")
    try:
        models.mkdir(parents=True, exist_ok=True)
        with lock.held(models / ".pull.lock", wait=False):
            scratch = models / f".pull-{target.name}"
            revision, files = _manifest(hub, name)
            came = sum(fetch(f"{hub}/{name}/resolve/{revision}/{file.path}", file, scratch, name, report) for file in files)
            _install(scratch, target)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ModelUnavailable(
            f"{models}: the model cannot be written ({why}): mend that and run it again, it goes on from there"
        ) from error
    return Pulled(Place(target, "pulled"), came)


def _usable(model: str, models: Path) -> Place | None:
    try:
        found = locate(model, models)
        return verified(found) if is_default(model) else found[0]
    except ModelUnavailable:
        return None


def _manifest(hub: str, name: str) -> tuple[str, tuple[File, ...]]:
    if is_default(name):
        return REVISION, DEFAULT_FILES
    revision, files = from_listing(name, get_json(f"{hub}/api/models/{name}?blobs=true", name))
    return revision, tuple(files)


def _install(scratch: Path, target: Path) -> None:
    """Put the finished folder in the place of an unusable one."""
    old = target.with_name(f".old-{target.name}")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    scratch.rename(target)
    descriptor = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    shutil.rmtree(old, ignore_errors=True)
