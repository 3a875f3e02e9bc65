"""`python -m benchmarks.chaos`: rounds of the chaos test with a random killer, each with its seed and what it took.

A round that loses or doubles anything ends it with what was wrong and the seed: `--seed N --rounds 1` plays the same
orders again (not the same moments). Brings its own servers and ends by itself.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import psycopg

from tests.chaos import ledger
from tests.chaos.killer import run_round
from tests.chaos.kit import Site, command, embedded, until


def main() -> int:
    """Print a line a round; exit with 1 after the first that fails."""
    asked = _arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    failed = 0
    for number in range(asked.rounds):
        seed = asked.seed + number
        started = time.monotonic()
        try:
            print(f"{number + 1}/{asked.rounds} {_round(asked, seed)}", flush=True)
        except (AssertionError, OSError, psycopg.Error, subprocess.SubprocessError):
            traceback.print_exc()
            print(f"{number + 1}/{asked.rounds} FAILED: seed {seed} after {time.monotonic() - started:.0f} s", flush=True)
            failed += 1
            if not asked.keep_going:
                break
    print(f"{asked.rounds - failed} of {asked.rounds} rounds without a loss or a double" if not failed else f"{failed} failed")
    with tempfile.TemporaryDirectory(prefix="opencognit-chaos-", ignore_cleanup_errors=True) as folder:
        print(_people(Path(folder)), flush=True)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--lease", type=float, default=2.0, help="seconds of a node's lease (2; the default of a home is 30)")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="of the first round; others count up")
    parser.add_argument("--keep-going", action="store_true", help="play all rounds, also after a failure")
    return parser.parse_args()


def _config(lease_s: float) -> str:
    return f"[runs]\nlease_s = {lease_s:g}\ndrain_s = {lease_s / 4:g}\n[heartbeat]\ninterval_s = {max(lease_s / 2, 1):g}\n"


def _round(asked: argparse.Namespace, seed: int) -> str:
    """One round in a home and on a server of its own. Steps are long enough for a lease to pass under the work."""
    agents = ledger.company(step_s=max(asked.lease / 20, 0.1))
    with (
        tempfile.TemporaryDirectory(prefix="opencognit-chaos-", ignore_cleanup_errors=True) as folder,
        embedded(Path(folder) / "home", agents=agents, config=_config(asked.lease)) as site,
    ):
        return run_round(site, tasks=asked.tasks, nodes=asked.nodes, lease_s=asked.lease, seed=seed)


def _people(folder: Path) -> str:
    """How soon a pause and a cancel hold, with default settings, on three nodes; the commands' own start is not counted."""
    with embedded(folder / "home", agents={**ledger.company(), "stubborn": ledger.STUBBORN}, config="") as site:
        for _ in range(3):
            site.start()
        until(lambda: all(node.claims for node in site.nodes), "all claim")
        ledger.give(site, 1, to=["stubborn"])
        ledger.give(site, 200)
        until(lambda: site.value("SELECT count(*) FROM tasks WHERE status = 'done'"), "work is on")
        return f"{_pause(site)}; {_cancel(site)}"


def _pause(site: Site) -> str:
    command(site.home, "pause")
    until(lambda: site.running() == 1, "what runs finishes")
    last = site.value("SELECT extract(epoch FROM max(started_at) - max(paused_at))::float8 FROM runs, company")
    return f"the last claim came {max(last, 0.0) * 1000:.0f} ms after the pause"


def _cancel(site: Site) -> str:
    run_id = site.value("SELECT id FROM runs WHERE status = 'running' AND agent = 'stubborn'")
    command(site.home, "run", "cancel", str(run_id))
    until(lambda: not site.running(), "the run has ended")
    took_s = site.value("SELECT extract(epoch FROM ended_at - cancel_requested_at)::float8 FROM runs WHERE id = %s", run_id)
    return f"a run that ignores SIGTERM was cancelled, with its group, {took_s:.1f} s after the wish"


if __name__ == "__main__":
    sys.exit(main())
