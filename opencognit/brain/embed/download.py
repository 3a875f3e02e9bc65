"""One file over HTTP: whole and checked under its name, or a `.part` beside it that the next try goes on with.

Owns the words for what goes wrong between here and a hub. Knows no model.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from opencognit import __version__
from opencognit.brain.embed.manifest import File
from opencognit.brain.embed.places import digest
from opencognit.errors import ModelUnavailable, NotFound

Report = Callable[[str, int, int | None], None]
"""Told as it goes: the file's path, how many bytes there are, how many there will be (None: not known)."""

TRIES = 5
TIMEOUT_S = 30.0
_PIECE = 1 << 20
_LISTING_LIMIT = 20_000_000
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")


class _Broken(Exception):
    """The connection ended too early; what came so far is kept."""


def get_json(url: str, model: str) -> Any:
    """Return a JSON answer; raises NotFound and ModelUnavailable."""
    try:
        with _open(url, model) as answer:
            return json.loads(answer.read(_LISTING_LIMIT))
    except ValueError as error:
        raise ModelUnavailable(f"{url}: the answer is not JSON: check HF_ENDPOINT") from error
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(url, error) from error


def fetch(url: str, file: File, folder: Path, model: str, report: Report) -> int:
    """Put `file` into `folder`, unless it is there already; return the bytes that came over the network.

    A part is gone on with only where the file's SHA-256 is known. Raises NotFound, ModelUnavailable, OSError of the disk.
    """
    target = folder / file.path
    part = target.with_name(f"{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_file() and file.sha256 is not None and digest(target) == file.sha256:
        return 0
    if file.sha256 is None:
        part.unlink(missing_ok=True)
    came = 0
    for remaining in reversed(range(TRIES)):
        had = _size(part)
        try:
            came += _receive(url, file, part, model, report)
        except _Broken as error:
            came += _size(part) - had
            if remaining == 0 or _size(part) == had:
                raise ModelUnavailable(
                    f"{url}: the connection broke after {_size(part)} bytes ({error}): run it again, it goes on from there"
                ) from error
            continue
        if file.sha256 is None or digest(part) == file.sha256:
            part.replace(target)
            return came
        part.unlink()
        if had == 0:
            break  # not a bad beginning from an earlier try: this is what the hub serves
    raise ModelUnavailable(f"{url}: not the published file (wrong SHA-256), so it was removed: try again, or check HF_ENDPOINT")


def _receive(url: str, file: File, part: Path, model: str, report: Report) -> int:
    """Append to `part`, or begin it anew, until the answer ends; return how many bytes came. Raises _Broken."""
    start = _size(part)
    try:
        answer = _open(url, model, start)
    except urllib.error.HTTPError as error:  # 416: there is nothing after `start`, so the part is whole or of another file
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise ModelUnavailable(
                f"{url}: the hub refuses (HTTP {error.code}): try again later, or check HF_ENDPOINT"
            ) from error
        return 0
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(url, error) from error
    came = 0
    with answer:
        continued = _RANGE.fullmatch(answer.headers.get("Content-Range") or "")
        if answer.status != http.client.PARTIAL_CONTENT or continued is None or int(continued[1]) != start:
            start = 0
        length = answer.headers.get("Content-Length") or ""
        total = start + int(length) if length.isdecimal() else file.size
        with part.open("ab" if start else "wb") as stream:
            while piece := _read(answer):
                stream.write(piece)
                came += len(piece)
                report(file.path, start + came, total)
            stream.flush()
            os.fsync(stream.fileno())
    if total is not None and start + came < total:
        raise _Broken(f"of {total}")
    return came


def _read(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read1(_PIECE)
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(type(error).__name__) from error


def _open(url: str, model: str, start: int = 0) -> http.client.HTTPResponse:
    """Ask for `url` from byte `start` on. Raises NotFound; HTTPError for any other refusal, OSError for no answer."""
    request = urllib.request.Request(url, headers={"User-Agent": f"opencognit/{__version__}", "Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code in (401, 403, 404):  # a hub says 401 also for what does not exist
            hint = (
                f"{urlsplit(url).netloc} has no {urlsplit(url).path}, or wants a login for it (HTTP {error.code}): "
                "check the name, or put the model's files into a folder and name that as brain.model in config.toml"
            )
            raise NotFound("model", model, hint) from error
        raise
    return answer


def _unreachable(url: str, error: Exception) -> ModelUnavailable:
    if isinstance(error, urllib.error.HTTPError):
        return ModelUnavailable(f"{url}: the hub refuses (HTTP {error.code}): try again later, or check HF_ENDPOINT")
    reason = getattr(error, "reason", error)
    said = str(getattr(reason, "strerror", None) or reason or type(error).__name__).lower()
    return ModelUnavailable(
        f"{urlsplit(url).netloc} cannot be reached ({said}): check the network, name a mirror in HF_ENDPOINT, "
        "or put the model's files into a folder and name that as brain.model in config.toml"
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
