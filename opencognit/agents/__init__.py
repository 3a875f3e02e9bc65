"""The agents of a home. Owns reading `agents/*.toml` and what must be true of all of them together.

Knows no database and starts nothing: a set of files is good as a whole, or it is refused with one line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from opencognit.agents.adapter_config import (
    ADAPTER_CONFIGS,
    ADAPTERS,
    BashConfig,
    CeoConfig,
    ClaudeCodeConfig,
    HttpConfig,
    ModelConfig,
)
from opencognit.agents.spec import CEO_ADAPTER, AgentSpec
from opencognit.config.fields import SOUL_LIMIT_BYTES
from opencognit.config.files import read_text_inside, resolve_inside
from opencognit.config.problems import Models, first_of, nearest, problems
from opencognit.config.tomlfile import TomlFile, read_toml
from opencognit.errors import ConfigError

__all__ = [
    "ADAPTERS",
    "AgentSpec",
    "BashConfig",
    "CeoConfig",
    "ClaudeCodeConfig",
    "HttpConfig",
    "ModelConfig",
    "load_agents",
]


def load_agents(home_root: Path, *, known_adapters: Iterable[str] = ()) -> dict[str, AgentSpec]:
    """Return every agent of the home by name, in the order of names.

    `known_adapters` are names beside the built-in ones. Raises ConfigError, all or nothing: for the first problem in a
    file, and once each file is good by itself, for the first thing that is wrong between them.
    """
    folder = home_root / "agents"
    try:
        # Anything else beside them (scripts, editors' swap files and backups) is none of ours.
        paths = [path for path in folder.iterdir() if path.suffix == ".toml" and not path.name.startswith(".")]
    except OSError as error:
        raise ConfigError("is no folder that can be read: make it, with one NAME.toml for each agent", path=folder) from error
    adapters = frozenset((*ADAPTERS, *known_adapters))
    specs: dict[str, AgentSpec] = {}
    files: dict[str, TomlFile] = {}
    bad: list[ConfigError] = []
    for path in sorted(paths, key=lambda each: each.stem):
        try:
            file = files[path.stem] = read_toml(path)
            spec = specs[path.stem] = _read_spec(file)
        except ConfigError as error:
            bad.append(error)
        except ValidationError as error:
            bad.extend(problems(error, AgentSpec, file, _nested(file)))
        else:
            bad.extend(_alone(spec, file, home_root, adapters))
    if bad := bad or list(_between(specs, files)):
        raise first_of(bad)
    return specs


def _read_spec(file: TomlFile) -> AgentSpec:
    spec = AgentSpec.model_validate(file.data)
    spec.remember_path(file.path)
    return spec


def _nested(file: TomlFile) -> Models:
    model = ADAPTER_CONFIGS.get(str(file.data.get("adapter")))
    return {("adapter_config",): model} if model else {}


def _alone(spec: AgentSpec, file: TomlFile, home_root: Path, adapters: frozenset[str]) -> Iterator[ConfigError]:
    """Yield what is wrong with one agent in its place, though its keys are right."""
    if spec.name != file.path.stem:
        yield file.problem(f"name {spec.name!r} must be the file's own, {file.path.stem!r}: rename one of them", "name")
    if spec.adapter not in adapters:
        yield file.problem(f"unknown adapter {spec.adapter!r}: {nearest(spec.adapter, adapters)}", "adapter")
    planner = spec.adapter_config.get("adapter") if spec.adapter == CEO_ADAPTER else None
    if planner is not None and planner not in adapters:
        yield file.problem(f"unknown adapter {planner!r}: {nearest(planner, adapters)}", "adapter_config", "adapter")
    try:
        if spec.soul is not None and (spec.prompt is None or os.path.lexists(resolve_inside(home_root, spec.soul))):
            read_text_inside(home_root, spec.soul, limit=SOUL_LIMIT_BYTES)
    except ConfigError as error:
        yield file.problem(f"soul {str(error.path)!r}: {error.problem}", "soul")


def _between(specs: Mapping[str, AgentSpec], files: Mapping[str, TomlFile]) -> Iterator[ConfigError]:
    """Yield what is wrong between files that are each good by themselves."""
    for name, spec in specs.items():
        if spec.reports_to is not None and spec.reports_to not in specs:
            known = nearest(spec.reports_to, specs)
            yield files[name].problem(f"reports_to names no agent {spec.reports_to!r}: {known}", "reports_to")
    for ring in _rings(specs):
        way = " → ".join((*ring, ring[0]))
        yield files[ring[0]].problem(f"the managers form a ring, {way}: one of them must report to nobody", "reports_to")
    ceos = [name for name, spec in specs.items() if spec.adapter == CEO_ADAPTER]
    for name in ceos[1:]:
        yield files[name].problem(f"a second CEO beside {ceos[0]!r}: give one of them another adapter", "adapter")


def _rings(specs: Mapping[str, AgentSpec]) -> list[list[str]]:
    """Return each ring of managers once, from its first name on."""
    rings, seen = [], set[str]()
    for start in specs:
        way: list[str] = []
        name: str | None = start
        while name is not None and name in specs and name not in seen:
            seen.add(name)
            way.append(name)
            name = specs[name].reports_to
        if name is not None and name in way:
            ring = way[way.index(name) :]
            first = ring.index(min(ring))
            rings.append(ring[first:] + ring[:first])
    return rings
