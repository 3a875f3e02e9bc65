"""`memory summarise` and `memory restore`, and the warnings that `memory recall` says."""

from __future__ import annotations

import pytest

from tests.cli_kit import Cli
from tests.conftest import MakeHome


@pytest.fixture
def cli(make_home: MakeHome) -> Cli:
    return Cli(make_home(config='[brain]\nembedder = "off"').root)


def _write(cli: Cli, content: str, *about: str) -> str:
    entities = [part for one in about for part in ("--entity", one)]
    return str(cli.ok("memory", "write", content, "--room", "ops", *entities, "--json").json["id"])


def test_a_room_is_summed_up_and_the_former_summary_comes_back(cli: Cli) -> None:
    """Said once where nothing has changed; each new one names what it replaces; restoring undoes that."""
    source = _write(cli, "billing is fast", "service:billing")
    first = cli.ok("memory", "summarise", "Ops", "--json").json
    assert (first["sources"], first["replaced"], first["made"], first["trust"]) == ([source], [], True, "verified")
    again = cli.ok("memory", "summarise", "ops")
    assert "- billing is fast" in again.out
    assert f"memory {first['id']} says that already" in again.err
    _write(cli, "mail is slow", "service:mail")
    second = cli.ok("memory", "summarise", "ops", "--json").json
    assert second["replaced"] == [first["id"]]
    assert cli.ok("memory", "show", first["id"], "--json").json["lifecycle"] == "superseded"
    assert cli.ok("memory", "restore", first["id"]).out == f"memory {first['id']} is active\n"
    assert cli.ok("memory", "show", first["id"], "--json").json["lifecycle"] == "active"


def test_a_room_without_names_is_said_and_nothing_is_stored(cli: Cli) -> None:
    _write(cli, "nothing in particular")
    failed = cli("memory", "summarise", "ops")
    assert (failed.code, "names anything" in failed.err) == (3, True)
    assert len(cli.ok("memory", "recall", "--json").json["hits"]) == 1


def test_an_archived_memory_is_restored(cli: Cli) -> None:
    ident = _write(cli, "billing is fast")
    cli.ok("memory", "archive", ident)
    assert cli.ok("memory", "recall", "billing", "--json").json["hits"] == []
    cli.ok("memory", "restore", ident)
    assert [hit["memory"]["id"] for hit in cli.ok("memory", "recall", "billing", "--json").json["hits"]] == [ident]
    assert cli("memory", "restore", "99").code == 3


def test_recall_says_who_contradicts_a_hit(cli: Cli) -> None:
    """On standard error for people, in the hit for programs."""
    hit, other = _write(cli, "the harbour is open"), _write(cli, "ships are turned away")
    cli.ok("memory", "relate", other, "contradicts", hit)
    warning = f"contradicts memory {other} (verified)"
    assert f"memory {hit} {warning}" in cli.ok("memory", "recall", "harbour").err
    first, second = cli.ok("memory", "recall", "harbour", "--json").json["hits"]
    assert (first["memory"]["id"], first["warning"], second["memory"]["id"]) == (hit, warning, other)
