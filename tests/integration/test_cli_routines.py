"""`routine`: what comes by the clock, as a person sees it."""

from __future__ import annotations

import pytest

from tests.cli_kit import Cli
from tests.conftest import MakeHome

CONFIG = """
[[routines]]
name = "look"
cron = "0 6 * * mon"
timezone = "Europe/Berlin"
agent = "ann"
title = "Look around"
"""
ANN = 'adapter = "bash"\n[adapter_config]\ncommand = "true"'


@pytest.fixture
def cli(make_home: MakeHome) -> Cli:
    return Cli(make_home(agents={"ceo": 'adapter = "ceo"', "ann": ANN}, config=CONFIG).root)


def test_routines_are_listed_with_their_next_slot(cli: Cli) -> None:
    """The table names agent and time; the JSON has the instant in UTC."""
    assert "Look around" in cli.ok("routine", "list").out
    (routine,) = cli.ok("routine", "list", "--json").json["items"]
    assert (routine["name"], routine["agent"], routine["firings"]) == ("look", "ann", [])
    assert routine["next_at"].endswith("Z")


def test_a_routine_runs_now_once(cli: Cli) -> None:
    """It makes a task for its agent; a second time it is refused while that is open; an unknown name is exit 3."""
    task = cli.ok("routine", "run", "look", "--json").json
    assert (task["title"], task["assignee"], task["status"]) == ("Look around", "ann", "todo")
    refused = cli("routine", "run", "look")
    assert (refused.code, len(refused.err.splitlines())) == (4, 1)
    assert cli("routine", "run", "loook").code == 3
    (routine,) = cli.ok("routine", "list", "--json").json["items"]
    assert routine["firings"][0]["task_id"] == task["id"]
