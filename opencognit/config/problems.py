"""Turns what pydantic finds into one line that says what is wrong, where, and what to do.

Owns the wording for every file of the home that pydantic checks; knows no section or agent by name.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from opencognit.config.tomlfile import KeyPath, dotted
from opencognit.errors import ConfigError

Models = Mapping[KeyPath, type[BaseModel]]
"""Models of tables that the parent model only calls a `dict`."""

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "string_too_short": "text that is not empty",
    "greater_than": "a number greater than {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number less than {lt}",
    "less_than_equal": "a number of at most {le}",
    "string_too_long": "at most {max_length} characters",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
}


class Source(Protocol):
    """Where values came from: a `TomlFile`, or one with the environment over it."""

    def has(self, key: KeyPath) -> bool:
        """Return whether `key` itself was set."""

    def problem(self, message: str, *key: str | int) -> ConfigError:
        """Return the error that `message` is true of `key`, at its place."""


class AtKey(ValueError):
    """A model's complaint about several of its keys: it stands where the first of `keys` that was set stands."""

    def __init__(self, message: str, *keys: KeyPath) -> None:
        self.keys = keys
        super().__init__(message)


def nearest(word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return "did you mean 'x'?"; where none is near, `otherwise` or all known words."""
    by_lower = {each.lower(): each for each in sorted(known)}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if close:
        return f"did you mean {by_lower[close[0]]!r}?"
    return otherwise or f"known: {', '.join(by_lower.values())}"


def found(value: object) -> str:
    """Return how a value reads in TOML's words."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text {value if len(value) <= 60 else value[:57] + '...'!r}"
        case dict():
            return "a table"
        case list() | tuple():
            return "a list"
        case datetime.date() | datetime.time():
            return f"the date or time {value}"
        case None:
            return "nothing"
        case _:
            return f"{value}"[:60]


def problems(error: ValidationError, model: type[BaseModel], source: Source, nested: Models | None = None) -> list[ConfigError]:
    """Return each problem with its place, in the order of the file; what is missing last, as a typo often explains it."""
    present: list[ConfigError] = []
    missing: list[ConfigError] = []
    for detail in error.errors(include_url=False):
        if detail["type"] == "default_factory_not_called":
            continue  # another key failed, and that is said
        key, cause = detail["loc"], detail.get("ctx", {}).get("error")
        if isinstance(cause, AtKey):
            keys = [(*key, *each) for each in cause.keys]
            key = next(filter(source.has, keys), keys[0])
        problem = source.problem(_describe(detail, model, nested or {}), *key)
        (missing if detail["type"] == "missing" else present).append(problem)
    return [*sorted(present, key=lambda each: (str(each.path), each.line or 0)), *missing]


def first_of(listed: Sequence[ConfigError]) -> ConfigError:
    """Return the first problem, which also says how many more there are."""
    first, more = listed[0], len(listed) - 1
    if not more:
        return first
    rest = f" (and {more} more {'problem' if more == 1 else 'problems'})"
    return ConfigError(first.problem + rest, path=first.path, line=first.line)


def _describe(detail: ErrorDetails, model: type[BaseModel], nested: Models) -> str:
    key, kind = detail["loc"], detail["type"]
    name = dotted(key)
    if kind == "extra_forbidden":
        table = _model_at(model, key[:-1], nested)
        place = f" in [{dotted(key[:-1])}]" if key[:-1] else ""
        known = nearest(str(key[-1]), table.model_fields) if table else "remove it"
        return f"unknown key {str(key[-1])!r}{place}: {known}"
    hint = _hint(model, key, nested)
    if kind == "missing":
        return f"the key {name!r} is missing: add it{hint}"
    if kind == "literal_error":
        choices = _choices(_annotation(model, key, nested))
        near = nearest(detail["input"], choices) if isinstance(detail["input"], str) else f"known: {', '.join(choices)}"
        return f"{name}: {found(detail['input'])} is not a choice: {near}{hint}"
    if kind == "value_error":
        cause = detail.get("ctx", {}).get("error", detail["msg"])
        return f"{cause}{hint}" if isinstance(cause, AtKey) else f"{name}: {cause}{hint}"
    expected = _EXPECTED.get(kind)
    if expected is None:
        return f"{name}: {detail['msg']}{hint}"
    bounds = {each: f"{bound:.15g}" for each, bound in detail.get("ctx", {}).items() if isinstance(bound, int | float)}
    return f"{name}: expected {expected.format(**bounds)}, found {found(detail['input'])}{hint}"


def _model_at(model: type[BaseModel], key: KeyPath, nested: Models) -> type[BaseModel] | None:
    """Return the model of the table at `key`, None where it is not one."""
    current: type[BaseModel] | None = model
    for end in range(1, len(key) + 1):
        if isinstance(key[end - 1], int):
            continue  # an item of a list has the model that the list's own key led to
        if key[:end] in nested:
            current = nested[key[:end]]
            continue
        if current is None or (field := current.model_fields.get(str(key[end - 1]))) is None:
            return None
        inner = get_args(field.annotation)[0] if get_origin(field.annotation) is tuple else field.annotation
        current = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None
    return current


def _annotation(model: type[BaseModel], key: KeyPath, nested: Models) -> Any:
    names = [number for number, part in enumerate(key) if isinstance(part, str)]
    for last in reversed(names):
        table = _model_at(model, key[:last], nested)
        if table is not None and (field := table.model_fields.get(str(key[last]))) is not None:
            return field.annotation
    return None


def _choices(annotation: Any) -> list[str]:
    """Return the words of the literal inside `annotation` (`Literal`, or a tuple or mapping of one)."""
    words = [each for each in get_args(annotation) if isinstance(each, str)]
    return words or [word for inner in get_args(annotation) for word in _choices(inner)]


def _hint(model: type[BaseModel], key: KeyPath, nested: Models) -> str:
    """Return the advice that a field on the way to `key` carries, as the end of a sentence."""
    for end in range(len(key), 0, -1):
        table = _model_at(model, key[: end - 1], nested)
        field = table.model_fields.get(str(key[end - 1])) if table else None
        extra = field.json_schema_extra if field else None
        if isinstance(extra, dict) and "hint" in extra:
            return f"; {extra['hint']}"
    return ""
