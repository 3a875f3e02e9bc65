"""The company's memory from the command line: the board writes, and looks through an agent's eyes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from opencognit import brain
from opencognit.brain.embed.hashing import HashEmbedder
from opencognit.config import Home
from opencognit.contracts import MemoryDraft, Viewer
from opencognit.db import Database
from opencognit.states import Scope, Trust
from tests.cli_kit import Cli
from tests.conftest import MakeHome
from tests.integration.brain_kit import settle

EXPERT = 'adapter = "bash"\nteam = "blue"\n[adapter_config]\ncommand = "true"'

AGENTS = {"ceo": 'adapter = "ceo"', "scribe": EXPERT}
WORDS_ALONE = '[brain]\nembedder = "off"'


@pytest.fixture
def home(make_home: MakeHome) -> Home:
    return make_home(agents=AGENTS, config=WORDS_ALONE)


@pytest.fixture
def cli(home: Home) -> Cli:
    return Cli(home.root)


def test_what_the_board_writes_is_verified_and_found_again(cli: Cli) -> None:
    about = ["--entity", "person:Ada Lovelace:subject", "--entity", "url:https://x/y"]
    written = cli.ok(
        "memory", "write", "Ada prefers tea", "--type", "preference", "--room", "Kitchen", "--confidence", "0.9", *about, "--json"
    ).json
    assert (written["id"], written["type"], written["room"], written["trust"]) == ("1", "preference", "kitchen", "verified")
    assert (written["confidence"], written["merged"], written["source"]["agent"]) == (0.9, False, None)
    assert written["entities"] == [
        {"kind": "person", "key": "ada lovelace", "role": "subject"},
        {"kind": "url", "key": "https://x/y", "role": "mentioned"},
    ]
    [hit] = cli.ok("memory", "recall", "what tea?", "--json").json["hits"]
    assert (hit["memory"]["id"], hit["mode"], hit["why"]["text_rank"]) == ("1", "text", 1.0)
    assert hit["score"] > 0
    assert "Ada prefers tea" in cli.ok("memory", "recall", "--entity", "person:ada lovelace").out
    assert cli.ok("memory", "recall", "--room", "cellar", "--json").json == NOTHING
    assert cli.ok("memory", "recall", "tea", "--type", "fact", "--type", "rule", "--json").json == NOTHING
    assert cli.ok("memory", "write", "ada  prefers TEA").out == "memory 1 knows that already: its evidence grew\n"
    assert cli.ok("memory", "show", "1", "--json").json["evidence"] == 2


def test_with_an_embedder_a_question_finds_by_likeness_too(make_home: MakeHome) -> None:
    """A word of neither memory finds the one that is spelled like it, once its vector is made; each hit says how."""
    home = make_home(agents=AGENTS, config='[brain]\nembedder = "hash"')
    cli = Cli(home.root)
    cli.ok("memory", "write", "the authorisation header is mandatory")
    cli.ok("memory", "write", "lunch is at noon")
    _run(home, lambda database: settle(database, HashEmbedder()))
    hit, *_ = cli.ok("memory", "recall", "authorization", "--json").json["hits"]
    assert (hit["memory"]["id"], hit["mode"], hit["why"]["vector_rank"]) == ("1", "hybrid", 1.0)
    assert "text_rank" not in hit["why"] or hit["why"]["text_rank"] == 1.0
    [newest, _] = cli.ok("memory", "recall", "--json").json["hits"]
    assert (newest["memory"]["id"], newest["mode"]) == ("2", "newest")


def _run(home: Home, work: Callable[[Database], Coroutine[Any, Any, object]]) -> None:
    async def run() -> None:
        assert home.config.database_url is not None
        database = Database(home.config.database_url)
        try:
            await work(database)
        finally:
            await database.close()

    asyncio.run(run())


def test_an_agents_eyes_see_less(cli: Cli, home: Home) -> None:
    """The board sees all; with --as, only what that agent would get."""
    cli.ok("agent", "list")

    async def write(database: Database) -> None:
        drafts = [("ceo", None, Scope.AGENT_PRIVATE), ("other", "blue", Scope.TEAM), ("ceo", None, Scope.ORG)]
        async with database.transaction() as session:
            for agent, team, scope in drafts:
                draft = MemoryDraft(content=f"secret of {scope.value}", scope=scope)
                await brain.write(session, draft, viewer=Viewer(agent=agent, team=team), trust=Trust.OBSERVED)

    _run(home, write)

    def seen(*argv: str) -> set[str]:
        hits = cli.ok("memory", "recall", "secret", *argv, "--json").json["hits"]
        return {hit["memory"]["scope"] for hit in hits}

    assert seen() == {"agent_private", "team", "org"}
    assert seen("--as", "scribe") == {"team", "org"}
    assert seen("--as", "ceo") == {"agent_private", "org"}
    cli.refuses(3, "no agent 'scripe': did you mean 'scribe'?", "memory", "recall", "secret", "--as", "scripe")


def test_memories_are_tied_and_put_away(cli: Cli) -> None:
    cli.ok("memory", "write", "the sky is green")
    cli.ok("memory", "write", "the sky is blue")
    assert cli.ok("memory", "relate", "2", "supersedes", "1").out == "memory 2 supersedes memory 1\n"
    told = cli.ok("memory", "show", "1", "--json").json["relations"]
    assert told == [{"source_id": "2", "relation": "supersedes", "target_id": "1"}]
    assert cli.ok("memory", "show", "1", "--json").json["lifecycle"] == "superseded"
    assert [hit["memory"]["id"] for hit in cli.ok("memory", "recall", "sky", "--json").json["hits"]] == ["2"]
    cli.refuses(2, "target: memory 2 already supersedes memory 1", "memory", "relate", "1", "supersedes", "2")
    assert "2 supersedes 1" in cli.ok("memory", "show", "1").out
    assert cli.ok("memory", "archive", "1").out == "memory 1 is archived\n"
    assert [hit["memory"]["id"] for hit in cli.ok("memory", "recall", "sky", "--json").json["hits"]] == ["2"]


NOTHING: dict[str, Any] = {"hits": [], "incomplete": None}
NO_MEMORIES = [
    (2, "content: is empty", ["write", " "]),
    (2, "content: has 1000001 characters", ["write", "y" * 1_000_001]),
    (2, "--confidence: is nan", ["write", "x", "--confidence", "nan"]),
    (2, "--room: '' is no room", ["write", "x", "--room", ""]),
    (2, "--room: ", ["write", "x", "--room", "r" * 101]),
    (2, "scope: the board has no team: use org", ["write", "x", "--scope", "team"]),
    (2, "--entity: 'ada' is no entity: give KIND:KEY", ["write", "x", "--entity", "ada"]),
    (2, "limit: is 0: give 1 to 200", ["recall", "x", "--limit", "0"]),
    (2, "limit: is 201: give 1 to 200", ["recall", "x", "--limit", "201"]),
    (3, "no memory '1': ", ["show", "1"]),
    (3, "no memory 'x': ids are numbers: `opencognit memory recall`", ["archive", "x"]),
    (3, "no memory '1'", ["relate", "1", "supports", "2"]),
]


def test_what_cannot_be_remembered_is_refused_and_not_stored(cli: Cli) -> None:
    for code, told, argv in NO_MEMORIES:
        cli.refuses(code, told, "memory", *argv)
    assert cli.ok("memory", "recall", "--json").json == NOTHING


def test_memories_are_printed_as_text(cli: Cli) -> None:
    cli.ok("memory", "write", "[bold]x[/bold] \x1b[31mred\x1b[0m")
    for said in (cli.ok("memory", "recall"), cli.ok("memory", "show", "1")):
        assert "[bold]x[/bold] red" in said.out
        assert "\x1b" not in said.out
