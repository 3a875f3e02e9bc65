"""`python -m benchmarks.engine`: what the engine does in a second and a millisecond, beside the raw limit of the same run.

Brings its own server, with fsync and synchronous_commit on, and ends by itself. Take figures on an idle machine: the load
stands beside each.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Iterator

from benchmarks import daemons, loop, rig, tables
from benchmarks.figures import Figure, line

PARTS = ("latency", "throughput", "tick", "growth", "idle", "takeover")


def main() -> int:
    """Print one line a figure, as they come; exit with 1 when one misses its target."""
    asked = _arguments()
    missed = 0
    for figure in _measured(asked):
        print(line(figure), flush=True)
        missed += figure.met is False
    return 1 if missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--only", type=_parts, default=PARTS, help=f"parts, by commas: {','.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it works, not what it does")
    parser.add_argument("--runs", type=int, help="runs of a throughput figure (4000)")
    parser.add_argument("--nodes", type=_numbers, default=[1, 2, 4], help="node counts of throughput, by commas (1,2,4)")
    parser.add_argument("--agents", type=_numbers, help="sizes of the tick, by commas (10,1000,100000)")
    parser.add_argument("--finished", type=int, help="finished runs that the claim grows to (1000000)")
    parser.add_argument("--idle-s", type=float, help="seconds of watching an idle daemon (60)")
    return parser.parse_args()


def _parts(given: str) -> tuple[str, ...]:
    parts = tuple(given.split(","))
    if unknown := [part for part in parts if part not in PARTS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(PARTS)}")
    return parts


def _numbers(given: str) -> list[int]:
    return [int(number) for number in given.split(",")]


def _measured(asked: argparse.Namespace) -> Iterator[Figure]:
    quick = asked.quick
    with rig.server() as url:
        if "latency" in asked.only:
            yield from _run(loop.latency(url, samples=50 if quick else 300, loaded_per_s=200))
        if "throughput" in asked.only:
            runs = asked.runs or (1000 if quick else 4000)
            yield from _run(loop.throughput(url, runs=runs, node_counts=asked.nodes))
        if "tick" in asked.only:
            yield from _run(tables.tick(url, sizes=asked.agents or ([10, 1000] if quick else [10, 1000, 100_000])))
        if "growth" in asked.only:
            yield from _run(tables.growth(url, sizes=(1000, asked.finished or (50_000 if quick else 1_000_000))))
    if "idle" in asked.only:
        yield from daemons.idle(seconds=asked.idle_s or (10 if quick else 60))
    if "takeover" in asked.only:
        yield from daemons.takeover()


def _run(figures: AsyncIterator[Figure]) -> Iterator[Figure]:
    """Turn an asynchronous measure into one that prints as it goes."""
    with asyncio.Runner() as runner:
        while (figure := runner.run(_next(figures))) is not None:
            yield figure


async def _next(figures: AsyncIterator[Figure]) -> Figure | None:
    return await anext(figures, None)


if __name__ == "__main__":
    sys.exit(main())
