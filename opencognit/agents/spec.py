"""One agent's file as a value. Owns its keys and what each may be alone; what holds between agents is the loader's."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PrivateAttr, field_validator
from pydantic_core.core_schema import ValidationInfo

from opencognit.agents.adapter_config import ADAPTER_CONFIGS
from opencognit.config.fields import SOUL_LIMIT_BYTES, YEAR_S, Line, Name, Seconds, Section, Usd

CEO_ADAPTER = "ceo"
RESERVED_NAMES = frozenset({"board", "system", "critic"})
"""Names of authors that are no agent of a file."""

_TIMER_HINT = "0 wakes the agent only by events; left out, it is looked at on every beat of [heartbeat]"


def _check_free(name: str) -> str:
    if name in RESERVED_NAMES:
        raise ValueError(f"{name!r} is reserved: choose another name")
    return name


def _distinct(skills: tuple[str, ...]) -> tuple[str, ...]:
    """Drop repeats, whatever their case; the first spelling stays."""
    return tuple({skill.casefold(): skill for skill in reversed(skills)}.values())[::-1]


class AgentSpec(Section):
    """An agent as its file describes it; `model_dump(mode="json")` gives it as JSON and `model_validate` takes it back.

    `display_name` and `role` left out are the name, `title` left out is the role.
    `soul` is a file inside the home, relative to it; where it is None or not there, `prompt` is the text in its place.
    `heartbeat_interval_s`: 0 wakes it only by events, None looks at it on every beat of the company's heartbeat.
    `monthly_budget_usd`: 0 allows nothing that costs, None sets no limit of its own. `timeout_s` None: as `[runs]` says.
    `workdir` is absolute or relative to the home; None: a workspace of its own for each task.
    `adapter_config` is checked by the adapter's own model (`adapter_config.py`), its defaults filled in. In a bash
    `command` that is a list, `{home}` and `{python}` stand for the home folder and the running interpreter; the bash
    adapter puts them in, and leaves any other `{word}` as it is.
    """

    name: Annotated[Name, AfterValidator(_check_free)]
    display_name: Line = Field(default_factory=lambda data: data["name"])
    role: Line = Field(default_factory=lambda data: data["name"])
    title: Line = Field(default_factory=lambda data: data["role"])
    adapter: Line
    skills: Annotated[tuple[Line, ...], Field(strict=False, max_length=100), AfterValidator(_distinct)] = ()
    team: Line | None = None
    reports_to: Name | None = None
    soul: Line | None = None
    prompt: Annotated[str, Field(min_length=1, max_length=SOUL_LIMIT_BYTES)] | None = None
    monthly_budget_usd: Usd | None = None
    heartbeat_interval_s: Annotated[float | None, Field(ge=0, le=YEAR_S, json_schema_extra={"hint": _TIMER_HINT})] = None
    max_concurrent_runs: Annotated[int, Field(ge=1, le=100)] = 1
    timeout_s: Seconds | None = None
    enabled: bool = True
    workdir: Line | None = None
    needs_approval: Annotated[tuple[Line, ...], Field(strict=False, max_length=100)] = ()
    adapter_config: Annotated[dict[str, Any], Field(validate_default=True)] = Field(default_factory=dict)

    _path: Path | None = PrivateAttr(default=None)

    @field_validator("adapter_config")
    @classmethod
    def _check_adapter_config(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        model = ADAPTER_CONFIGS.get(info.data.get("adapter", ""))
        if model is not None:
            return model.model_validate(value).model_dump(mode="json")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise ValueError("holds a date, time or infinite number: write it as text") from None
        return value

    @property
    def digest(self) -> str:
        """SHA-256 of the content: two files that say the same have the same, however they are written."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def path(self) -> Path | None:
        """The file it was read from; None for a spec that came from elsewhere."""
        return self._path

    def remember_path(self, path: Path) -> None:
        """Note the file, which is no part of the content."""
        self._path = path
