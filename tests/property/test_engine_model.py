"""The engine's model: whatever is done in whatever order, nothing is lost, nothing runs twice, and all comes to rest.

`OPENCOGNIT_LONG=1` runs many more examples with a fresh seed. `OPENCOGNIT_SEED=N` repeats a run, and shrinks what it finds
(minutes: each attempt is a company of its own).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import sibling
from tests.integration import testclock
from tests.property.engine_machine import Engine
from tests.property.engine_world import World

LONG = bool(os.environ.get("OPENCOGNIT_LONG"))
GIVEN = os.environ.get("OPENCOGNIT_SEED")
SEED = int(GIVEN or (random.SystemRandom().getrandbits(32) if LONG else 1))
SETTINGS = settings(
    max_examples=1500 if LONG else 30,
    stateful_step_count=80 if LONG else 50,
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink) if GIVEN else (Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def world(server: str) -> Iterator[World]:
    """A database of its own with the moved clock, emptied for each example."""
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute("CREATE DATABASE engine_model")
        admin.execute("ALTER DATABASE engine_model SET synchronous_commit = off")
    url = sibling(server, "engine_model")
    testclock.install(url)
    made = World(url)
    yield made
    made.close()
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute("DROP DATABASE engine_model WITH (FORCE)")


@pytest.mark.timeout(0 if LONG or GIVEN else 600)
def test_the_engine_loses_nothing_and_runs_nothing_twice(world: World) -> None:
    """Every invariant holds after each step, and in the end everything has ended or waits for somebody who is named."""
    print(f"repeat with OPENCOGNIT_SEED={SEED}" + (" OPENCOGNIT_LONG=1" if LONG else ""))
    run_state_machine_as_test(seed(SEED)(type("Company", (Engine,), {"world": world})), settings=SETTINGS)
