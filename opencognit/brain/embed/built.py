"""The graph's file in a home's data/models: built once from checked weights, and known for whole by a SHA-256 beside it.

A file that was cut off or altered, or is an older version's, is built anew. Nothing half written is ever under the name.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from opencognit.brain.embed import lock
from opencognit.brain.embed.places import DEFAULT, WEIGHTS, digest
from opencognit.errors import ModelUnavailable

REVISION = 1
"""Of graph.py: goes up with every change there, so that what an older version built is not taken for this one's."""
_SCRATCH = f".{DEFAULT}."


def graph_path(models: Path) -> Path:
    return models / f"{DEFAULT}.r{REVISION}.onnx"


def is_whole(path: Path) -> bool:
    """Whether the file is the one that was built."""
    try:
        return _seal(path).read_text(encoding="ascii").split()[:1] == [digest(path)]
    except (OSError, UnicodeDecodeError):
        return False


def ensure(weights: Path, models: Path) -> Path:
    """Return the graph's file, built from the weights in the folder `weights` where it is not whole.

    Whoever comes while another process builds waits for it. Raises ModelUnavailable where `models` cannot be written.
    """
    path = graph_path(models)
    if is_whole(path):
        return path
    try:
        models.mkdir(parents=True, exist_ok=True)
        with lock.held(models / ".build.lock", wait=True) as is_alone:
            if not is_whole(path):
                _remove_leftovers(models, path, is_alone)
                _write(path, _graph(weights / WEIGHTS))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ModelUnavailable(
            f"{path}: the graph cannot be written ({why}): it takes 90 MB; let this user write there"
        ) from error
    return path


def _graph(weights: Path) -> bytes:
    from safetensors.numpy import load_file

    from opencognit.brain.embed import graph

    return graph.build(load_file(weights))


def _remove_leftovers(models: Path, path: Path, is_alone: bool) -> None:
    """Remove what killed builders (only while none can be at work) and older versions left."""
    old = [found for found in models.glob(f"{DEFAULT}.r*.onnx*") if not found.name.startswith(path.name)]
    for found in [*old, *(models.glob(f"{_SCRATCH}*") if is_alone else ())]:
        found.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    """Put the file and then its seal into place, each whole; between the two it counts as not built."""
    _replace(path, content)
    _replace(_seal(path), f"{hashlib.sha256(content).hexdigest()}  {path.name}\n".encode())
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _replace(path: Path, content: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=_SCRATCH, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), 0o644)  # nothing secret, and another user's worker reads it too
            os.fsync(stream.fileno())
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def _seal(path: Path) -> Path:
    """The file that holds the SHA-256, as `sha256sum --check` reads it."""
    return path.with_name(f"{path.name}.sha256")
