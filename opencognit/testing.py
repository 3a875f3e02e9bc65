"""A kit for tests of this package and of other packages' adapters. Shipped; nothing else here imports it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opencognit.contracts import Adapter, Briefing, RunContext, RunResult

Script = Callable[[Briefing, RunContext], Awaitable[RunResult | str]]


@dataclass(slots=True)
class ScriptedAdapter:
    """An adapter whose answers are given: by agent, a text, an exception, or a coroutine function.

    Keeps every briefing it was run with in `briefings`, in order. An agent without an answer says "done".
    """

    answers: Mapping[str, str | Exception | Script] = field(default_factory=dict)
    name: str = "scripted"
    briefings: list[Briefing] = field(default_factory=list)

    async def run(self, briefing: Briefing, context: RunContext) -> RunResult:
        self.briefings.append(briefing)
        answer = self.answers.get(briefing.agent.name, "done")
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, str):
            said = await answer(briefing, context)
            return said if isinstance(said, RunResult) else RunResult(text=said)
        return RunResult(text=answer)

    def check(self, config: dict[str, Any]) -> str | None:
        return None

    def only(self, *others: Adapter) -> Callable[[str], Adapter]:
        """Return a registry that knows this adapter under every name, except those of `others`."""
        known = {other.name: other for other in others}
        return lambda name: known.get(name, self)


async def until(condition: Callable[[], Awaitable[Any]], *, timeout_s: float = 20.0, every_s: float = 0.02) -> Any:
    """Wait until `condition()` is truthy and return its value; raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not (value := await condition()):  # noqa: ASYNC110 (what is waited for lives in a database or a process)
            await asyncio.sleep(every_s)
        return value
