"""The one tree of errors. Owns what each kind means to a caller: its code, its exit status, whether a retry helps.

    OpenCognitError                 1  failed
    ├── UsageError                  2  usage: what a person or program gave is wrong
    │   ├── ConfigError                a file of the home: names file and line
    │   └── InvalidInput               an argument or a field
    ├── NotFound                    3  not_found
    ├── Refused                     4  refused: right in form, not allowed now
    │   ├── Locked                     somebody else holds the task
    │   ├── InvalidTransition          the state table does not allow it
    │   ├── HomeInUse                  another `up` runs this home
    │   └── StaleToken                 the run lost its task: its write matches no row
    ├── Unreachable                 5  unreachable: database or daemon
    │   └── ServerFailed               the embedded server does not start
    ├── ModelUnavailable            1  model_unavailable: no vectors, the brain works on words alone
    └── AdapterError                1  adapter: how a run went wrong
        ├── AdapterUnavailable         retryable: try again later
        ├── AdapterFailed              not retryable: somebody must act
        └── AdapterTimeout             retryable: the run's own deadline or silence

Every message names what was wrong, where, and what to do. Constructors have no effects.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar


class OpenCognitError(Exception):
    """Base of every error that this package raises on purpose."""

    code: ClassVar[str] = "failed"
    exit_code: ClassVar[int] = 1


class UsageError(OpenCognitError):
    """What was given is wrong in form or content."""

    code = "usage"
    exit_code = 2


class ConfigError(UsageError):
    """A file of the home is wrong; `path` and `line` (1-based, None: the whole file) say where."""

    def __init__(self, message: str, *, path: Path, line: int | None = None) -> None:
        self.path, self.line, self.problem = path, line, message
        where = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {message}")


class InvalidInput(UsageError):
    """An argument or a field has an impossible value; `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        self.field, self.problem = field, message
        super().__init__(f"{field}: {message}")


class NotFound(OpenCognitError):
    """No such thing, or not one that the caller may see."""

    code = "not_found"
    exit_code = 3

    def __init__(self, kind: str, ident: object, hint: str = "") -> None:
        self.kind, self.ident = kind, ident
        super().__init__(f"no {kind} {ident!r}" + (f": {hint}" if hint else ""))


class Refused(OpenCognitError):
    """Right in form, but not allowed as things stand."""

    code = "refused"
    exit_code = 4


class Locked(Refused):
    """Another run holds the task; the fields say who and until when (RFC 3339)."""

    code = "locked"

    def __init__(self, task_id: int, *, locked_by: str, locked_at: str, expires_at: str) -> None:
        self.task_id, self.locked_by, self.locked_at, self.expires_at = task_id, locked_by, locked_at, expires_at
        super().__init__(f"task {str(task_id)!r} is held by {locked_by!r} until {expires_at}: wait, or `task release {task_id}`")


class InvalidTransition(Refused):
    """The table in states.py has no such step."""

    code = "invalid_transition"

    def __init__(self, kind: str, ident: object, current: str, wanted: str, allowed: list[str]) -> None:
        self.kind, self.ident, self.current, self.wanted = kind, ident, current, wanted
        ways = ", ".join(allowed) if allowed else "nothing: it has ended"
        super().__init__(f"{kind} {str(ident)!r} is {current} and cannot become {wanted}; from there: {ways}")


class HomeInUse(Refused):
    """Another `up` runs this home already."""

    code = "home_in_use"

    def __init__(self, home: Path, pid: int | None) -> None:
        self.home, self.pid = home, pid
        who = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"{home}: {who} already runs this company: stop it first, or add a node with `opencognit worker`")


class StaleToken(Refused):
    """The run's fencing token is not the current one: what it wanted to write is dropped."""

    code = "stale_token"

    def __init__(self, run_id: int, token: int) -> None:
        self.run_id, self.token = run_id, token
        super().__init__(f"run {str(run_id)!r} no longer holds its task (token {token} is old): its write was dropped")


class Unreachable(OpenCognitError):
    """The database or the daemon does not answer."""

    code = "unreachable"
    exit_code = 5


class ServerFailed(Unreachable):
    """The embedded PostgreSQL server could not be made or started."""

    code = "server_failed"


class ModelUnavailable(OpenCognitError):
    """The embedding model, or what runs it, is missing or is not what it should be."""

    code = "model_unavailable"


class AdapterError(OpenCognitError):
    """A run went wrong in its adapter.

    `output` is what the agent said until then, `retry_after_s` the provider's own wish (None: none).
    """

    code = "adapter"
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, output: str = "", exit_code: int | None = None, retry_after_s: float | None = None
    ) -> None:
        self.output, self.process_exit, self.retry_after_s = output, exit_code, retry_after_s
        super().__init__(message)


class AdapterUnavailable(AdapterError):
    """What the adapter needs is not there for the moment."""

    code = "adapter_unavailable"
    retryable = True


class AdapterFailed(AdapterError):
    """The same attempt would fail again."""

    code = "adapter_failed"


class AdapterTimeout(AdapterError):
    """The run passed its own deadline, or was silent for too long."""

    code = "adapter_timeout"
    retryable = True
