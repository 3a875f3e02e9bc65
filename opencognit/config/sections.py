"""Every section of `config.toml`: its keys, their defaults, what each may be. Owns no file and no environment.

A key that can be left out says what that means; "off" is always a value of its own, never a missing or odd one.
The commented `config.toml` of the scaffold explains each key to people; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from opencognit.config.fields import Count, Days, EnvName, Language, Line, Name, Seconds, Section, Text, Url, Usd, check_zone
from opencognit.config.problems import AtKey, Source, found
from opencognit.errors import ConfigError, InvalidInput
from opencognit.schedule import Schedule

Tier = Literal["verified", "observed", "asserted"]


def _check_cron(value: str) -> str:
    try:
        Schedule(value, "UTC")
    except InvalidInput as error:
        raise ValueError(f"{error.problem}, such as '0 9 * * 1-5'") from error
    return " ".join(value.split())


def _check_clock(value: str) -> str:
    if value and not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", value):
        raise ValueError(f"{found(value)} is not a time: write HH:MM such as '03:00', or '' for none")
    return value


def _check_database(value: str) -> str:
    if value and not re.match(r"postgres(ql)?(\+psycopg)?://", value):
        raise ValueError("is not a PostgreSQL address: write postgresql://USER@HOST/DATABASE, or '' for the embedded server")
    return re.sub(r"^postgres://", "postgresql://", value)


class Company(Section):
    name: Line = "My company"
    goal: Text = ""
    timezone: Annotated[str, AfterValidator(check_zone)] = "UTC"
    language: Language = "en"


class Database(Section):
    url: Annotated[str, AfterValidator(_check_database)] = ""
    url_env: EnvName = ""
    pool_size: Annotated[int, Field(ge=2, le=500)] = 10

    @model_validator(mode="after")
    def _one_address(self) -> Database:
        if self.url and self.url_env:
            raise AtKey("database.url and database.url_env are both set: keep one", ("url_env",), ("url",))
        return self


class Server(Section):
    host: Line = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 7717
    url: Url = ""


class Heartbeat(Section):
    interval_s: Seconds = 30


class Locks(Section):
    ttl_s: Seconds = 1800


class Runs(Section):
    timeout_s: Seconds = 1740
    idle_timeout_s: Seconds = 600
    capacity: Count = 8
    lease_s: Annotated[float, Field(ge=0.5, le=3600)] = 30
    drain_s: Annotated[float, Field(ge=0, le=86_400)] = 30
    log_limit_bytes: Annotated[int, Field(ge=1024, le=1_000_000_000)] = 10_000_000


class Retry(Section):
    delays_s: Annotated[tuple[Seconds, ...], Field(strict=False, max_length=20)] = (300, 900, 2700)
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.1


class Critic(Section):
    enabled: bool = False
    adapter: Line = "claude"
    model: Text = ""
    max_rejections: Annotated[int, Field(ge=0, le=10)] = 2


class Budget(Section):
    monthly_usd: Usd | None = None
    warn_fraction: Annotated[float, Field(gt=0, le=1)] = 0.8


class Brain(Section):
    embedder: Literal["onnx", "sentence-transformers", "hash", "off"] = "onnx"
    model: Line = "all-MiniLM-L6-v2"
    recall_limit: Annotated[int, Field(ge=1, le=200)] = 10
    trust: dict[str, Tier] = Field(default_factory=dict)


class AdapterSettings(Section):
    """What every adapter has. `capacity` None: no limit of its own."""

    capacity: Count | None = None


class ModelAdapterSettings(AdapterSettings):
    """A connection to a model. Empty `base_url` and `model`: the adapter's own."""

    api_key_env: EnvName = ""
    base_url: Url = ""
    model: Text = ""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 8192


class ClaudeSettings(ModelAdapterSettings):
    api_key_env: EnvName = "ANTHROPIC_API_KEY"


class OpenRouterSettings(ModelAdapterSettings):
    api_key_env: EnvName = "OPENROUTER_API_KEY"


class OpenAiSettings(ModelAdapterSettings):
    api_key_env: EnvName = "OPENAI_API_KEY"


class OllamaSettings(ModelAdapterSettings):
    base_url: Url = "http://127.0.0.1:11434"


class Adapters(Section):
    claude: ClaudeSettings = ClaudeSettings()
    claude_code: ModelAdapterSettings = ModelAdapterSettings()
    openrouter: OpenRouterSettings = OpenRouterSettings()
    openai: OpenAiSettings = OpenAiSettings()
    ollama: OllamaSettings = OllamaSettings()
    bash: AdapterSettings = AdapterSettings()
    http: AdapterSettings = AdapterSettings()
    ceo: AdapterSettings = AdapterSettings()


class CliLocks(Section):
    agent_wait_s: Seconds = 300
    chat_wait_s: Seconds = 300
    agent_slots: Annotated[int, Field(ge=1, le=100)] = 1


class Cleanup(Section):
    every_s: Seconds = 21_600
    run_logs_days: Days = 30
    runs_days: Days = 90
    events_days: Days = 90
    wakeups_days: Days = 7
    tokens_days: Days = 30
    sessions_days: Days = 30
    workspaces_days: Days = 14
    summary_versions: Annotated[int, Field(ge=1, le=100)] = 3


class Backup(Section):
    at: Annotated[str, AfterValidator(_check_clock)] = "03:00"
    keep_days: Days = 7


class Notify(Section):
    webhook_url_env: EnvName = ""


class Routine(Section):
    """Work that comes by the clock. Empty `timezone`: the company's."""

    name: Name
    cron: Annotated[str, AfterValidator(_check_cron)]
    timezone: Annotated[str, AfterValidator(lambda zone: check_zone(zone) if zone else zone)] = ""
    agent: Name
    title: Line
    description: Annotated[str, Field(max_length=1_000_000)] = ""
    catch_up: Literal["none", "one", "all"] = "one"
    overlap: Literal["skip", "queue"] = "skip"


_HEARTBEAT_HINT = "to wake an agent only by events, set heartbeat_interval_s = 0 in its file under agents/"


class Config(Section):
    """The whole of `config.toml`."""

    company: Company = Company()
    database: Database = Database()
    server: Server = Server()
    heartbeat: Annotated[Heartbeat, Field(json_schema_extra={"hint": _HEARTBEAT_HINT})] = Heartbeat()
    locks: Locks = Locks()
    runs: Runs = Runs()
    retry: Retry = Retry()
    critic: Critic = Critic()
    budget: Budget = Budget()
    brain: Brain = Brain()
    adapters: Adapters = Adapters()
    cli_locks: CliLocks = CliLocks()
    cleanup: Cleanup = Cleanup()
    backup: Backup = Backup()
    notify: Notify = Notify()
    routines: Annotated[tuple[Routine, ...], Field(strict=False, max_length=1000)] = ()

    _database_url: str | ConfigError | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _agree(self) -> Config:
        if self.runs.timeout_s >= self.locks.ttl_s:
            raise AtKey(
                f"runs.timeout_s ({self.runs.timeout_s:g}) must be less than locks.ttl_s ({self.locks.ttl_s:g}), or a run "
                "outlives its lock: lower the one or raise the other",
                ("runs", "timeout_s"),
                ("locks", "ttl_s"),
            )
        names = [routine.name for routine in self.routines]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise AtKey(f"two routines are named {name!r}: rename one", ("routines", number, "name"))
        return self

    def resolve_database(self, environ: Mapping[str, str], source: Source) -> None:
        """Look up what `database.url_env` names, once; a failure is kept for whoever asks for `database_url`."""
        name = self.database.url_env
        if not name:
            return
        key = ("database", "url_env")
        if not environ.get(name):
            self._database_url = source.problem(
                f"database.url_env names {name!r}, a variable that is not set: set it, or empty the key for the embedded server",
                *key,
            )
            return
        try:
            self._database_url = _check_database(environ[name])
        except ValueError as error:
            self._database_url = source.problem(f"what the variable {name!r} holds {error}", *key)

    @property
    def database_url(self) -> str | None:
        """The effective address, None for the embedded server; ConfigError if `database.url_env` names no usable variable."""
        kept = self._database_url
        if isinstance(kept, ConfigError):
            raise ConfigError(kept.problem, path=kept.path, line=kept.line)
        return self.database.url or kept
