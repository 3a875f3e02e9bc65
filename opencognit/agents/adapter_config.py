"""What `[adapter_config]` may say, for each built-in adapter. Owns the keys; what they do belongs to the adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from opencognit.config.fields import Line, Section, Text, check_env_name, check_url
from opencognit.config.problems import AtKey, found

_LIST = Field(strict=False, max_length=1000)  # TOML and JSON both give lists where a tuple is kept


def _check_command(value: Any) -> Any:
    """Return a shell line or a tuple of words; a pydantic union would answer with one complaint for each of the two."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError(f'expected a shell line or a list of words such as ["{{python}}", "job.py"], found {found(value)}')
    if not words or not words[0].strip():
        raise ValueError('is empty: write a shell line, or a list of words such as ["{python}", "job.py"]')
    return value if isinstance(value, str) else tuple(words)


def _check_set_name(value: str) -> str:
    if not value:
        raise ValueError("is empty: name an environment variable")
    return check_env_name(value)


class BashConfig(Section):
    """`command` as a list is argv, as a string it runs by `sh -c`; `env` names what the child may see beside the contract."""

    command: Annotated[str | tuple[str, ...], BeforeValidator(_check_command)]
    allow_task_commands: bool = False
    env: Annotated[tuple[Annotated[str, AfterValidator(_check_set_name)], ...], _LIST] = ()


class HttpConfig(Section):
    """`mode`: the answer itself, a callback, or an address to poll."""

    url: Annotated[Line, AfterValidator(check_url)]
    secret_env: Annotated[str, AfterValidator(check_env_name)] = ""
    mode: Literal["sync", "callback", "poll"] = "sync"


class ModelConfig(Section):
    """A model behind an API. Empty `model`, and `max_tokens` None: as `[adapters.*]` says."""

    model: Text = ""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 20
    workspace_tools: Annotated[tuple[Literal["read", "write", "list", "search"], ...], _LIST] = ()


class ClaudeCodeConfig(Section):
    """The command line tool. Empty `permission_mode`: its own default."""

    model: Text = ""
    allowed_tools: Annotated[tuple[Line, ...], _LIST] = ()
    permission_mode: Annotated[str, Field(max_length=60)] = ""


class CeoConfig(Section):
    """`planner`: by rules, or by a model over the connection of `adapter`."""

    planner: Literal["rules", "llm"] = "rules"
    adapter: Line | None = None

    @model_validator(mode="after")
    def _has_connection(self) -> CeoConfig:
        if self.planner == "llm" and self.adapter is None:
            raise AtKey('planner = "llm" needs a connection: add adapter = "claude", say', ("planner",))
        if self.adapter in ("ceo", "bash", "http"):
            raise AtKey(
                f"the CEO cannot plan with {self.adapter!r}: name an adapter with a model, such as 'claude'",
                ("adapter",),
            )
        return self


ADAPTER_CONFIGS: Mapping[str, type[Section]] = {
    "claude": ModelConfig,
    "claude-code": ClaudeCodeConfig,
    "openrouter": ModelConfig,
    "openai": ModelConfig,
    "ollama": ModelConfig,
    "bash": BashConfig,
    "http": HttpConfig,
    "ceo": CeoConfig,
}
ADAPTERS = tuple(ADAPTER_CONFIGS)
"""The adapters that come with the package."""
