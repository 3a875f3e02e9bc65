"""Environment variables that win over `config.toml`. Owns `OPENCOGNIT_SECTION__KEY`: its names and how values are read.

A variable without `__` (OPENCOGNIT_HOME, OPENCOGNIT_RUN_ID, ...) is none of these and is left alone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args, get_origin

from pydantic import BaseModel

from opencognit.config.problems import nearest
from opencognit.config.tomlfile import KeyPath, TomlFile
from opencognit.errors import ConfigError

PREFIX = "OPENCOGNIT_"
_SEPARATOR = "__"


Overrides = Mapping[KeyPath, tuple[str, Any]]
"""For each key that the environment sets: the variable's name and the value."""


@dataclass(frozen=True, slots=True)
class LayeredSource:
    """A file with the environment over it; an error about a variable names the variable in the file's place."""

    file: TomlFile
    overrides: Overrides

    def has(self, key: KeyPath) -> bool:
        return key in self.overrides or self.file.has(key)

    def problem(self, message: str, *key: str | int) -> ConfigError:
        for end in range(len(key), 0, -1):
            if key[:end] in self.overrides:
                return ConfigError(message, path=Path(self.overrides[key[:end]][0]))
        return self.file.problem(message, *key)


def read_overrides(model: type[BaseModel], environ: Mapping[str, str]) -> Overrides:
    """Return {key: (variable, value)}; ConfigError naming the variable for an unknown or unreadable one."""
    known = dict(_variables(model))
    overrides = {}
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and _SEPARATOR in variable:
            key, annotation = _resolve(variable, known)
            overrides[key] = (variable, _value(variable, environ[variable], annotation))
    return overrides


def overlay(data: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Return `data` with each override put in; `data` itself stays as it is."""
    merged = dict(data)
    for key, (_, value) in overrides.items():
        table = merged
        for part in key[:-1]:
            inner = table.get(str(part), {})
            if not isinstance(inner, dict):
                break  # the file has no table there, which is the error to tell
            table[str(part)] = table = dict(inner)
        else:
            table[str(key[-1])] = value
    return merged


def _variables(model: type[BaseModel], key: KeyPath = ()) -> Iterator[tuple[str, tuple[KeyPath, Any]]]:
    """Yield every settable variable with its key and annotation; a free table stands under its own name."""
    for name, field in model.model_fields.items():
        inner, path = field.annotation, (*key, name)
        if _is_model(inner):
            yield from _variables(inner, path)
        elif not (get_origin(inner) is tuple and _is_model(get_args(inner)[0])):  # arrays of tables stay in the file
            yield PREFIX + _SEPARATOR.join(str(part).upper() for part in path), (path, inner)


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _resolve(variable: str, known: Mapping[str, tuple[KeyPath, Any]]) -> tuple[KeyPath, Any]:
    table, _, entry = variable.rpartition(_SEPARATOR)
    if variable in known and get_origin(known[variable][1]) is not dict:
        return known[variable]
    if table in known and entry and get_origin(known[table][1]) is dict:
        path, annotation = known[table]
        # Names of agents and tokens have '-', which a variable cannot have.
        return (*path, entry.lower().replace("_", "-")), get_args(annotation)[1]
    names = [name + _SEPARATOR + "NAME" if get_origin(inner) is dict else name for name, (_, inner) in known.items()]
    # The prefix that all share would make everything look near.
    near = nearest(variable.removeprefix(PREFIX), [name.removeprefix(PREFIX) for name in names], "config.toml has every key")
    raise ConfigError("no such setting: " + near.replace("mean '", f"mean '{PREFIX}"), path=Path(variable))


def _value(variable: str, text: str, annotation: Any) -> Any:
    """Read a value as TOML where it is TOML, else as text; always as text where the setting is text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError("is not UTF-8: set it again", path=Path(variable)) from None
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    if set(parsed) != {"value"} or isinstance(parsed["value"], dict):
        return text
    return text if _is_text(annotation) and not isinstance(parsed["value"], str) else parsed["value"]


def _is_text(annotation: Any) -> bool:
    if get_origin(annotation) is Literal:
        return True
    return annotation is str or str in get_args(annotation)
