"""The list of field cases is whole, says one thing of each, and names tests that exist."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SAYS = {"test", "cannot", "later"}
NUMBERS = {
    "01": "01 02 04 05 06 08 09 12 13 15 16 18 20 21 23 24",
    "02": "01 02 04 07 08 09",
    "03": "01 02 03 05 06 07 08",
    "04": "01 02 03 04 05 08",
    "05": "01 03 05 06 07",
    "06": "01 02 05 06",
    "07": "02 03 05 06 07 08",
    "08": "01 05 06 07 08",
    "09": "01 03 04 06 07 08",
    "10": "01 02 03 05 06 07 08",
    "11": "01 02 04 05 08 09",
    "12": "01 04 06 07 08",
    "13": "01 02 06 07 08",
    "14": "01 02 04 05",
    "15": "01 02 03 04 05",
}
"""The cases of each category. 01 platforms, 02 heartbeats, 06 schedules, 09 locks and 13 PostgreSQL are the engine's."""


def cases() -> dict[str, dict[str, Any]]:
    """Read the list; TOML itself refuses an id that is there twice."""
    return tomllib.loads((ROOT / "tests/field_cases.toml").read_text())


@cache
def found_in(path: str) -> frozenset[str]:
    """Return the tests of a file, a class's as `Class::test`; a parametrised one has the name of its function."""
    return frozenset(_tests(ast.parse((ROOT / path).read_text()).body))


def _tests(body: Sequence[ast.stmt], within: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _tests(node.body, f"{within}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield within + node.name


def named(case: dict[str, Any]) -> list[str]:
    tests = case.get("test", [])
    return [tests] if isinstance(tests, str) else list(tests)


@pytest.mark.parametrize("category", NUMBERS)
def test_every_case_of_a_category_is_listed_once(category: str) -> None:
    """No case is forgotten, and none is invented."""
    listed = [ident.removeprefix(f"F{category}-") for ident in cases() if ident.startswith(f"F{category}-")]
    assert listed == NUMBERS[category].split()


def test_nothing_else_is_listed() -> None:
    assert len(cases()) == sum(len(numbers.split()) for numbers in NUMBERS.values())


def test_each_case_says_one_thing() -> None:
    """A test, or why it cannot happen, or which part brings it; never two of them, never an empty one."""
    for ident, case in cases().items():
        assert len(case) == 1, f"{ident}: give one of {sorted(SAYS)}"
        ((key, value),) = case.items()
        assert key in SAYS, f"{ident}: {key!r} is none of {sorted(SAYS)}"
        assert value, f"{ident}: {key} is empty"
        assert key == "test" or isinstance(value, str), f"{ident}: {key} must be a sentence"


def test_every_named_test_exists() -> None:
    """A test that was renamed or removed takes its case with it, in sight."""
    missing = []
    for ident, case in cases().items():
        assert len(named(case)) == len(set(named(case))), f"{ident}: a test is named twice"
        for name in named(case):
            path, _, function = name.partition("::")
            if not (ROOT / path).is_file() or function not in found_in(path):
                missing.append(f"{ident}: {name}")
    assert missing == []
