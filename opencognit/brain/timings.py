"""How often this process wrote and recalled, and how long it took. Knows no database; a restart begins anew."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import wraps
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper ends; what took longer is in a bucket of its own, the last."""


@dataclass(frozen=True, slots=True)
class Timing:
    """`buckets` are not cumulative: each holds what took longer than the one before. `failed` ones count nowhere else."""

    count: int = 0
    failed: int = 0
    total_s: float = 0.0
    buckets: tuple[int, ...] = (0,) * (len(BUCKETS_S) + 1)

    def shape(self) -> dict[str, Any]:
        ends = [*map(str, BUCKETS_S), "inf"]
        total = round(self.total_s, 6)
        return {
            "count": self.count,
            "failed": self.failed,
            "total_s": total,
            "buckets": dict(zip(ends, self.buckets, strict=True)),
        }


@dataclass(slots=True)
class Timings:
    """By verb. Any thread may add to it."""

    _seen: dict[str, Timing] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def observe(self, verb: str, took_s: float) -> None:
        at = bisect_left(BUCKETS_S, took_s)
        with self._lock:
            was = self._seen.get(verb, Timing())
            buckets = (*was.buckets[:at], was.buckets[at] + 1, *was.buckets[at + 1 :])
            self._seen[verb] = Timing(was.count + 1, was.failed, was.total_s + took_s, buckets)

    def fail(self, verb: str) -> None:
        with self._lock:
            was = self._seen.get(verb, Timing())
            self._seen[verb] = Timing(was.count, was.failed + 1, was.total_s, was.buckets)

    def read(self) -> dict[str, Timing]:
        with self._lock:
            return dict(sorted(self._seen.items()))


TIMINGS = Timings()
"""This process's."""


Verb = Callable[P, Coroutine[Any, Any, R]]


def timed(verb: str, into: Timings = TIMINGS) -> Callable[[Verb[P, R]], Verb[P, R]]:
    """Make a coroutine function that is counted and timed as `verb`; one that is cancelled or raises has failed."""

    def decorate(function: Verb[P, R]) -> Verb[P, R]:
        @wraps(function)
        async def measured(*args: P.args, **kwargs: P.kwargs) -> R:
            began = perf_counter()
            try:
                answer = await function(*args, **kwargs)
            except BaseException:
                into.fail(verb)
                raise
            into.observe(verb, perf_counter() - began)
            return answer

        return measured

    return decorate
