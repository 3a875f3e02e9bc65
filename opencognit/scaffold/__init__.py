"""A new home: what `opencognit init` writes. Owns the files under `home/` beside it; never overwrites one that exists.

`config.toml` is written last: a folder becomes a home only when everything else is there.
"""

from __future__ import annotations

import os
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from opencognit.errors import OpenCognitError, Refused

CONFIG_NAME = "config.toml"
IGNORE_ALL = "# What runs here is not for version control.\n*\n!.gitignore\n"


def write_home(target: Path) -> list[Path]:
    """Write a new home to `target`, which is made with its parents, and return its files.

    Raises Refused before anything is written if it is a home already or a file of the new home is in the way, and
    OpenCognitError, saying what was written until then, if writing fails.
    """
    target = target.expanduser().absolute()
    contents = _contents()
    _refuse_existing(target, contents)
    written: list[Path] = []
    try:
        for name, text in contents.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_new(path, text)
            written.append(path)
    except OSError as error:
        done = ", ".join(str(path.relative_to(target)) for path in written) or "nothing"
        reason = (error.strerror or str(error)).lower()
        raise OpenCognitError(
            f"{target}: the home could not be written ({reason}); written so far: {done}. Remove that, mend the cause, try again"
        ) from error
    return written


def _contents() -> dict[str, str]:
    """Return {name relative to the home: text}, in the order of writing."""
    root = files("opencognit.scaffold").joinpath("home")
    contents = {"data/.gitignore": IGNORE_ALL}
    for folder in ("agents", "souls"):
        for file in sorted(root.joinpath(folder).iterdir(), key=_name):
            if file.name.endswith((".toml", ".py", ".md")):
                contents[f"{folder}/{file.name}"] = file.read_text(encoding="utf-8")
    contents[CONFIG_NAME] = root.joinpath(CONFIG_NAME).read_text(encoding="utf-8")
    return contents


def _name(file: Traversable) -> str:
    return file.name


def _refuse_existing(target: Path, contents: dict[str, str]) -> None:
    if target.exists() and not target.is_dir():
        raise Refused(f"{target} is a file: name a folder for the new home")
    if (target / CONFIG_NAME).exists():
        raise Refused(f"{target} is a home already, it has a {CONFIG_NAME}: start it with `opencognit up --home {target}`")
    # A link to nowhere counts as taken.
    taken = [name for name in contents if os.path.lexists(target / name)]
    if taken:
        raise Refused(f"{target} already has {', '.join(taken)}: move that away, or name another folder")


def _write_new(path: Path, text: str) -> None:
    """Write a file that must not exist; half a file is taken away again."""
    with path.open("x", encoding="utf-8", newline="\n") as stream:
        try:
            stream.write(text)
            stream.flush()
        except OSError:
            path.unlink(missing_ok=True)
            raise
