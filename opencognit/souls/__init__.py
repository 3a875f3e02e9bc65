"""Souls: who an agent is, as text. Owns the variables a soul may use and which text an agent gets.

Reads a soul file afresh for each call and renders it in the sandbox; keeps nothing, logs nothing, falls back to no
unrendered text: a broken soul is a ConfigError with file and line, and the caller keeps the last good one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from opencognit.config.fields import SOUL_LIMIT_BYTES
from opencognit.config.files import read_text, read_text_inside, resolve_inside
from opencognit.config.tomlfile import read_toml
from opencognit.errors import ConfigError
from opencognit.souls.sandbox import Compiled, Fault

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "agent.name": "the agent's name, as in agents/NAME.toml",
        "agent.display_name": "its name for people",
        "agent.role": "what it is for",
        "agent.title": "its title",
        "agent.skills": "the list of its skills; printed as it is, they stand with commas between",
        "agent.team": "its team, nothing without one",
        "agent.reports_to": "its manager's name, nothing without one",
        "company.name": "the company's name",
        "company.goal": "what the company is for",
        "company.language": "the language to write in, such as en or de",
        "company.timezone": "the company's time zone",
    }
)
"""Every variable of a soul and what it stands for."""

DEFAULT_SOUL = """\
You are {{ agent.display_name }}, {{ agent.title }} of {{ company.name }}.
{% if company.goal %}The company's goal: {{ company.goal }}
{% endif %}{% if agent.skills %}Your skills: {{ agent.skills | join(", ") }}.
{% endif %}"""
"""What an agent gets that has neither a soul nor a prompt."""


class SoulSpec(Protocol):
    """What is needed of an agent: an `AgentSpec` has it."""

    @property
    def name(self) -> str: ...
    @property
    def display_name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def skills(self) -> tuple[str, ...]: ...
    @property
    def team(self) -> str | None: ...
    @property
    def reports_to(self) -> str | None: ...
    @property
    def soul(self) -> str | None: ...
    @property
    def prompt(self) -> str | None: ...
    @property
    def path(self) -> Path | None: ...


class Company(Protocol):
    """What is needed of the company: a `BriefingCompany` or `config.company` has it."""

    @property
    def name(self) -> str: ...
    @property
    def goal(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Soul:
    """An agent's text for one run. `sha256` is the text's; `source_path` is None where no soul file gave it."""

    text: str
    sha256: str
    source_path: Path | None


def render(spec: SoulSpec, *, home: Path, company: Company, language: str = "en", timezone: str = "UTC") -> Soul:
    """Return the soul of `spec` from its file as it is now, else from its prompt, else the default one.

    Raises ConfigError, with file and line, for a soul that cannot be read, is not allowed, or renders to nothing.
    """
    source, path, fault = _source(spec, home)
    text = Compiled(source, VARIABLES, fault).render(_values(spec, company, language, timezone))
    if not text.strip():
        raise fault("renders to no text: write who the agent is", None)
    return Soul(text, hashlib.sha256(text.encode()).hexdigest(), path)


Fingerprint = tuple[int, int, int, int] | None
"""What tells one state of a soul file from any other, however it was saved; None where no file gives the soul."""


def fingerprint(spec: SoulSpec, *, home: Path) -> Fingerprint:
    """Return what changes with the soul's file: any difference means that the text must be rendered again."""
    if spec.soul is None:
        return None
    try:
        found = (home / spec.soul).stat()
    except OSError:
        return (0, 0, 0, 0)
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def check(
    specs: Iterable[SoulSpec], *, home: Path, company: Company, language: str = "en", timezone: str = "UTC"
) -> list[ConfigError]:
    """Render the soul of each agent and return what went wrong, in the order of `specs`."""
    problems = []
    for spec in specs:
        try:
            render(spec, home=home, company=company, language=language, timezone=timezone)
        except ConfigError as error:
            problems.append(error)
    return problems


def check_file(path: Path) -> ConfigError | None:
    """Return what is wrong with a soul file that perhaps no agent uses: reading, syntax, unknown names."""
    try:
        Compiled(read_text(path, limit=SOUL_LIMIT_BYTES), VARIABLES, _in_file(path))
    except ConfigError as error:
        return error
    return None


def _source(spec: SoulSpec, home: Path) -> tuple[str, Path | None, Fault]:
    if spec.soul is not None:
        path = resolve_inside(home, spec.soul)
        if spec.prompt is None or os.path.lexists(path):
            return read_text_inside(home, spec.soul, limit=SOUL_LIMIT_BYTES), path, _in_file(path)
    if spec.prompt is not None:
        return spec.prompt, None, _in_prompt(spec, home)
    return DEFAULT_SOUL, None, _in_prompt(spec, home)


def _in_file(path: Path) -> Fault:
    return lambda message, line: ConfigError(message, path=path, line=line)


def _in_prompt(spec: SoulSpec, home: Path) -> Fault:
    """Errors of a prompt stand at its key, and say the line within it."""
    path = spec.path or home / "agents" / f"{spec.name}.toml"

    def fault(message: str, line: int | None) -> ConfigError:
        within = f"prompt, line {line}: " if line is not None else "prompt: "
        try:
            at = read_toml(path).line(("prompt",))
        except ConfigError:  # the file changed or went away meanwhile; the prompt's error is the one to tell
            at = None
        return ConfigError(within + message, path=path, line=at)

    return fault


def _values(spec: SoulSpec, company: Company, language: str, timezone: str) -> Mapping[str, Mapping[str, object]]:
    agent = {
        "name": spec.name,
        "display_name": spec.display_name,
        "role": spec.role,
        "title": spec.title,
        "skills": tuple(spec.skills),
        "team": spec.team,
        "reports_to": spec.reports_to,
    }
    about = {"name": company.name, "goal": company.goal, "language": language, "timezone": timezone}
    return MappingProxyType({"agent": MappingProxyType(agent), "company": MappingProxyType(about)})
