"""The demo company: where its files lie, and its goal as it is posted. Runs nothing."""

from __future__ import annotations

import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from opencognit.errors import InvalidInput, NotFound

GOAL_FILE = Path("agents") / "survey" / "goal.md"
PLACE = "{path}"


@dataclass(frozen=True, slots=True)
class DemoGoal:
    title: str
    description: str


def read_goal(home: Path, tree: Path | None = None) -> DemoGoal:
    """Return the home's demo goal over `tree` (None: the running interpreter's standard library).

    Raises NotFound where the home has no demo goal, InvalidInput where `tree` is no folder.
    """
    path = home / GOAL_FILE
    if not path.is_file():
        raise NotFound("demo goal", str(path), "`opencognit demo` runs one in a throw-away home")
    where = (tree or Path(sysconfig.get_path("stdlib"))).expanduser().absolute()
    if not where.is_dir():
        raise InvalidInput("--path", f"{str(where)!r} is not a folder: name a source tree")
    title, _, description = path.read_text(encoding="utf-8").strip().partition("\n")
    return DemoGoal(title.lstrip("# ").strip(), description.strip().replace(PLACE, str(where)))


def write_company(target: Path) -> None:
    """Copy the demo company's files to an empty folder and make it a home."""
    source = _source()
    for folder in ("agents", "souls"):
        shutil.copytree(source / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    shutil.copyfile(source / "config.toml", target / "config.toml")
    (target / "data").mkdir()


def _source() -> Path:
    """The files of a wheel, else those of the checkout."""
    package = Path(__file__).resolve().parent
    packed = package / "_packed" / "demo"
    return packed if packed.is_dir() else package.parent
