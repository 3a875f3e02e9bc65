"""The company as a whole from the command line: init, status, the switch, activity, cost, souls, the database, doctor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from opencognit.config import Home
from opencognit.contracts import Usage
from opencognit.db import Database
from opencognit.work import locks, runs, tasks
from tests.cli_kit import Cli, say
from tests.conftest import MakeHome
from tests.integration import company

ROOT = Path(__file__).parents[2]
EXPERT = 'adapter = "bash"\n[adapter_config]\ncommand = "true"'
SOUL = "I am {{ agent.name }} of {{ company.name }}."


@pytest.fixture
def home(make_home: MakeHome) -> Home:
    return make_home(agents={"ceo": 'adapter = "ceo"', "scribe": EXPERT}, config='[company]\nname = "Ink"\n')


@pytest.fixture
def cli(home: Home) -> Cli:
    return Cli(home.root)


def within(home: Home, work: Callable[[Database], Awaitable[None]]) -> None:
    async def do() -> None:
        assert home.config.database_url is not None
        database = Database(home.config.database_url)
        try:
            await work(database)
        finally:
            await database.close()

    asyncio.run(do())


# --- init ---------------------------------------------------------------------------------------------------------


def test_a_new_home_is_one_that_commands_accept(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "new"
    said = say("init", str(root))
    assert (said.code, said.err) == (0, "")
    assert f"next: cd {root} && opencognit up" in said.out
    monkeypatch.setenv("OPENCOGNIT_DATABASE__URL", database_url)
    monkeypatch.setenv("OPENCOGNIT_HOME", str(root))
    names = [one["name"] for one in say("agent", "list", "--json").json["items"]]
    assert names == ["ceo", "inspector", "scribe"]
    assert say("soul", "check").code == 0


def test_a_home_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("# mine\n")
    Cli(tmp_path).refuses(4, "is a home already", "init")
    Cli(tmp_path).refuses(2, "is given twice", "init", "elsewhere")
    assert (tmp_path / "config.toml").read_text() == "# mine\n"


# --- status and the switch ----------------------------------------------------------------------------------------


async def _node(db: Database, *, host: str = "", pid: int = 0) -> None:
    async with db.transaction() as session:
        await locks.seen(session, "node-a", pid=pid or os.getpid(), host=host or socket.gethostname(), capacity=8)


def test_status_says_who_runs_what(cli: Cli, home: Home) -> None:
    assert cli.ok("status", "--json").json == {
        "paused": False,
        "paused_at": None,
        "paused_by": None,
        "company": "Ink",
        "nodes": [],
        "running": [],
        "goals": [],
        "waiting": 0,
        "approvals": [],
    }
    said = cli.ok("status")
    assert said.err == ""
    assert said.out.endswith("\nRunning\nnothing runs\n\nGoals\nno open goals\n\nAsked of the board\nnothing\n")
    cli.ok("goal", "post", "Write a book")
    cli.ok("task", "create", "Write", "--assignee", "scribe")

    async def start(db: Database) -> None:
        await _node(db)
        await company.claim(db, "node-a", capacity=1)

    within(home, start)
    status = cli.ok("status", "--json").json
    assert status["nodes"] == [{"id": "node-a", "pid": os.getpid(), "host": socket.gethostname(), "capacity": 8, "running": 1}]
    assert [one["agent"] for one in status["running"]] == ["ceo"]
    assert [one["title"] for one in status["goals"]] == ["Write a book"]
    assert status["waiting"] == 1
    assert f"process {os.getpid()} on {socket.gethostname()}: 1 of 8 runs" in cli.ok("status").out


def test_a_node_that_is_gone_is_none(cli: Cli, home: Home) -> None:
    async def leave(db: Database) -> None:
        await _node(db)
        async with db.transaction() as session:
            await session.execute(text("UPDATE nodes SET seen_at = now() - interval '1 hour'"))

    within(home, leave)
    assert cli.ok("status", "--json").json["nodes"] == []


def test_the_switch_is_said_first_and_stops_the_claim(cli: Cli, home: Home) -> None:
    cli.ok("task", "create", "Write", "--assignee", "scribe")
    assert cli.ok("pause").out.startswith("the company is paused: ")
    assert cli.ok("pause").out.startswith("the company is paused already: ")
    assert cli.ok("status").out.startswith("PAUSED by board: ")
    assert cli.ok("status", "--json").json["paused"] is True

    async def claims_nothing(db: Database) -> None:
        assert await company.claim(db) == []

    within(home, claims_nothing)
    assert "the company is paused" in cli.ok("goal", "post", "x").err
    assert cli.ok("resume").out == "the company works again\n"
    assert cli.ok("resume").out == "the company was not paused\n"
    assert not cli.ok("status").out.startswith("PAUSED")

    async def claims(db: Database) -> None:
        assert len(await company.claim(db)) == 2

    within(home, claims)


def test_the_switch_is_told_to_the_nodes_by_its_commit(cli: Cli, home: Home) -> None:
    """A node hears of it at once: pausing and resuming notify, and leave one event each."""
    assert home.config.database_url is not None
    with psycopg.connect(home.config.database_url, autocommit=True) as listening:
        listening.execute("LISTEN opencognit")
        for command in ("pause", "pause", "resume", "resume"):
            cli.ok(command)
        heard = [note.payload for note in listening.notifies(timeout=0.2)]
    assert [one for one in heard if one == "pause"] == ["pause"]
    assert heard[-1] == "wakeup"
    events = [one["type"] for one in cli.ok("activity", "--json").json["items"]]
    assert [one for one in events if one.startswith("company.")] == ["company.paused", "company.resumed"]


# --- activity and cost --------------------------------------------------------------------------------------------


def test_activity_is_told_oldest_first(cli: Cli) -> None:
    cli.ok("goal", "post", "Write [bold]a[/bold] book")
    items = cli.ok("activity", "--json").json["items"]
    posted = next(one for one in items if one["type"] == "goal.posted")
    assert posted["subject"] == {"kind": "goal", "id": "1", "title": "Write [bold]a[/bold] book"}
    assert (posted["actor"], posted["at"][-1]) == ("board", "Z")
    assert [int(one["id"]) for one in items] == sorted(int(one["id"]) for one in items)
    assert len(cli.ok("activity", "--limit", "1", "--json").json["items"]) == 1
    assert "goal 1 Write [bold]a[/bold] book" in cli.ok("activity").out


def process(home: Home, *argv: str) -> subprocess.Popen[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OPENCOGNIT_")}
    command = [sys.executable, "-m", "opencognit", "--home", str(home.root), *argv]
    return subprocess.Popen(command, env=environ, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_followed_activity_goes_on_until_an_interrupt(cli: Cli, home: Home) -> None:
    """What is committed meanwhile is printed; Ctrl-C ends it in silence with 130."""
    cli.ok("goal", "post", "first")
    with process(home, "activity", "-f", "--json") as following:
        assert following.stdout is not None
        seen = [json.loads(following.stdout.readline())["type"]]
        while seen[-1] != "task.status_changed":
            seen.append(json.loads(following.stdout.readline())["type"])
        cli.ok("pause")
        assert json.loads(following.stdout.readline())["type"] == "company.paused"
        following.send_signal(signal.SIGINT)
        out, err = following.communicate(timeout=30)
    assert (following.returncode, out, err) == (130, "", "")


async def _spend(db: Database) -> None:
    claimed = {one.agent: one for one in await company.claim(db)}
    async with db.transaction() as session:
        prices_of: dict[str, list[Decimal | None]] = {
            "ceo": [Decimal("0.25"), Decimal("0.5")],
            "scribe": [Decimal("1"), None],
        }
        for agent, prices in prices_of.items():
            run = await runs.get(session, claimed[agent].run_id)
            task = await tasks.get(session, run.task_id or 0)
            usage = [Usage(call_no=no, model=f"m{no}", cost_usd=usd, tokens_in=10) for no, usd in enumerate(prices, 1)]
            await runs.book(session, run, task, usage)
        await session.execute(text("UPDATE costs SET booked_at = '2026-01-31T23:30:00Z' WHERE call_no = 1"))
        await session.execute(text("UPDATE costs SET booked_at = '2026-02-01T12:00:00Z' WHERE call_no = 2"))


def test_costs_are_summed_and_an_unknown_price_is_not_zero(cli: Cli, home: Home) -> None:
    cli.ok("goal", "post", "Write a book")
    cli.ok("task", "create", "Write", "--assignee", "scribe")
    within(home, _spend)

    def sums(*argv: str) -> dict[str, tuple[str | None, str, int]]:
        items = cli.ok("cost", *argv, "--json").json["items"]
        return {one["key"]: (one["cost_usd"], one["known_usd"], one["unpriced_calls"]) for one in items}

    assert sums() == {"scribe": (None, "1.000000", 1), "ceo": ("0.750000", "0.750000", 0)}
    assert sums("--by", "model") == {"m1": ("1.250000", "1.250000", 0), "m2": (None, "0.500000", 1)}
    assert sums("--by", "goal") == {"1": ("0.750000", "0.750000", 0), "": (None, "1.000000", 1)}
    assert list(sums("--by", "day")) == ["2026-01-31", "2026-02-01"]
    assert sums("--by", "day", "--since", "2026-02-01") == {"2026-02-01": (None, "0.500000", 1)}
    assert "unknown ($1.000000 and 1 unpriced calls)" in cli.ok("cost").out
    assert "Write a book" in cli.ok("cost", "--by", "goal").out


def test_a_day_is_one_of_the_companys_zone(cli: Cli, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.ok("goal", "post", "x")
    cli.ok("task", "create", "Write", "--assignee", "scribe")
    within(home, _spend)
    monkeypatch.setenv("OPENCOGNIT_COMPANY__TIMEZONE", "Europe/Berlin")
    assert [one["key"] for one in cli.ok("cost", "--by", "day", "--json").json["items"]] == ["2026-02-01"]
    assert cli.ok("cost", "--since", "2026-02-01", "--json").json["items"][0]["calls"] == 2


# --- souls and the database ---------------------------------------------------------------------------------------


def test_a_soul_is_rendered_and_written_out(cli: Cli, home: Home, tmp_path: Path) -> None:
    (home.souls_dir / "scribe.md").write_text(SOUL)
    (home.agents_dir / "scribe.toml").write_text(f'name = "scribe"\nsoul = "souls/scribe.md"\n{EXPERT}\n')
    assert cli.ok("soul", "render", "scribe").out == "I am scribe of Ink.\n"
    told = cli.ok("soul", "render", "scribe", "--json").json
    assert (told["text"], told["source"], len(told["sha256"])) == (
        "I am scribe of Ink.",
        str(home.souls_dir / "scribe.md"),
        64,
    )
    target = tmp_path / "out.md"
    cli.ok("soul", "export", "scribe", "--to", str(target))
    assert target.read_text() == "I am scribe of Ink."
    cli.refuses(4, "is there already", "soul", "export", "scribe", "--to", str(target))
    target.write_text("old and longer than the soul itself")
    cli.ok("soul", "export", "scribe", "--to", str(target), "--force")
    assert target.read_text() == "I am scribe of Ink."
    cli.refuses(1, "cannot be written (no such file or directory)", "soul", "export", "scribe", "--to", "/nowhere/x.md")
    cli.refuses(3, "no agent 'scribbe': did you mean 'scribe'?", "soul", "render", "scribbe")


def test_a_wrong_soul_names_its_line(cli: Cli, home: Home, tmp_path: Path) -> None:
    """Every problem is told, and a program gets them too; a file that no agent uses can be checked as well."""
    assert cli.ok("soul", "check").out == "the souls of ceo, scribe are good\n"
    (home.souls_dir / "scribe.md").write_text("I am\n{{ agent.nme }}\n")
    (home.agents_dir / "scribe.toml").write_text(f'name = "scribe"\nsoul = "souls/scribe.md"\n{EXPERT}\n')
    cli.refuses(2, "scribe.md:2: ", "soul", "check")
    said = cli("soul", "check", "--json")
    assert said.code == 2
    assert [one["line"] for one in json.loads(said.out)["items"]] == [2]
    lonely = tmp_path / "lonely.md"
    lonely.write_text("{% if %}")
    cli.refuses(2, "lonely.md:1: ", "soul", "check", str(lonely))
    lonely.write_text(SOUL)
    cli.ok("soul", "check", str(lonely))


def test_the_databases_address_is_one_that_others_can_use(cli: Cli, home: Home) -> None:
    assert cli.ok("db", "upgrade").out == "the database is up to date\n"
    told = cli.ok("db", "dsn", "--json").json
    assert told["embedded"] is False
    assert cli.ok("db", "dsn").out == told["dsn"] + "\n"
    with psycopg.connect(told["dsn"]) as connection:
        assert connection.execute("SELECT count(*) FROM goals").fetchone() == (0,)


@pytest.mark.parametrize("url", ["postgresql://x@127.0.0.1:1/nope", "gone"])
def test_a_database_that_does_not_answer_is_exit_5(cli: Cli, home: Home, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """A dead server, and a live one without this database."""
    there = str(home.config.database_url)
    wrong = url if "://" in url else there.replace("test_", f"{url}_")
    monkeypatch.setenv("OPENCOGNIT_DATABASE__URL", wrong)
    for command in (["status"], ["goal", "post", "x"], ["db", "upgrade"]):
        cli.refuses(5, "the database does not answer", *command)


# --- doctor -------------------------------------------------------------------------------------------------------


def findings(cli: Cli, code: int) -> dict[str, tuple[str, str]]:
    said = cli("doctor", "--json")
    assert (said.code, said.err) == (code, "")
    told = json.loads(said.out)["items"]
    assert all(one["mend"] for one in told if one["status"] != "ok"), told
    return {one["name"]: (one["status"], one["detail"]) for one in told}


def test_a_sound_company_has_no_failure(cli: Cli, home: Home) -> None:
    found = findings(cli, 0)
    assert {name for name, (status, _) in found.items() if status == "warn"} == {"isolation", "daemon"}
    assert found["ceo"] == ("ok", "ceo")
    assert found["database"][1].startswith("PostgreSQL ")
    assert "nothing stops them from writing elsewhere: scribe" in found["isolation"][1]
    within(home, _node)
    assert findings(cli, 0)["daemon"] == ("ok", "at work")
    assert "warn  isolation" in cli.ok("doctor").out


def test_doctor_tells_what_does_not_go_on(cli: Cli, home: Home) -> None:
    cli.ok("task", "create", "Write", "--assignee", "scribe")
    cli.ok("goal", "post", "x")
    cli.ok("agent", "pause", "ceo")
    cli.ok("pause")

    async def break_things(db: Database) -> None:
        async with db.transaction() as session:
            await session.execute(text("UPDATE company SET paused = false"))
        [claimed] = await company.claim(db)
        await company.lapse(db, claimed.run_id)
        async with db.transaction() as session:
            await session.execute(text("UPDATE tasks SET lock_expires_at = now() WHERE execution_run_id IS NOT NULL"))
            await session.execute(text("UPDATE goals SET status = 'blocked', reason = 'why not'"))
            await session.execute(text("UPDATE company SET paused = true"))

    within(home, break_things)
    found = findings(cli, 0)
    assert found["goal 1"] == ("warn", "blocked: why not")
    assert found["agent ceo"] == ("warn", "paused: paused by board")
    assert found["company"][0] == "warn"
    assert "its lease ran out" in found["run 1"][1]
    assert "has run out" in found["task 1"][1]


def test_doctor_works_on_broken_agent_files(cli: Cli, home: Home) -> None:
    """The rest is still looked at."""
    (home.agents_dir / "scribe.toml").write_text("name = ")
    found = findings(cli, 1)
    assert found["agents"][0] == "fail"
    assert "scribe.toml:1" in found["agents"][1]
    assert found["database"][0] == "ok"


def test_doctor_works_on_a_broken_config(cli: Cli, home: Home) -> None:
    (home.root / "config.toml").write_text("[compny]\n")
    found = findings(cli, 1)
    assert found["config"][0] == "fail"
    assert "did you mean 'company'?" in found["config"][1]
    assert found["agents"][0] == "ok"


def test_doctor_works_without_a_database(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCOGNIT_DATABASE__URL", "postgresql://x@127.0.0.1:1/nope")
    found = findings(cli, 1)
    assert found["database"][0] == "fail"
    assert found["ceo"][0] == "ok"


def test_doctor_works_without_a_home(tmp_path: Path) -> None:
    found = findings(Cli(tmp_path / "nowhere"), 1)
    assert set(found) == {"python", "home"}
    assert found["home"][0] == "fail"


def test_doctor_names_who_cannot_work(cli: Cli, home: Home) -> None:
    """An adapter that this version lacks, a setting that an adapter refuses, a soul that does not render, no CEO."""
    (home.agents_dir / "ceo.toml").write_text('name = "ceo"\nadapter = "claude"\n')
    (home.agents_dir / "scribe.toml").write_text(
        f'name = "scribe"\nprompt = "{{{{ nobody }}}}"\n{EXPERT}\nallow_task_commands = true\n'
    )
    found = findings(cli, 1)
    assert found["adapter of ceo"][0] == "fail"
    assert "allow_task_commands" in found["adapter of scribe"][1]
    assert found["ceo"][0] == "fail"
    assert "scribe.toml" in found["souls"][1]


def test_doctor_names_settings_that_this_version_does_not_act_on(make_home: MakeHome) -> None:
    """A key that is read and has no effect is said, so that nobody relies on it."""
    ann = 'adapter = "bash"\nworkdir = "src"\nneeds_approval = ["rm"]\n[adapter_config]\ncommand = "true"'
    home = make_home(agents={"ceo": 'adapter = "ceo"', "ann": ann}, config="[critic]\nenabled = true\n")
    status, detail = findings(Cli(home.root), 0)["settings"]
    assert status == "warn"
    assert all(name in detail for name in ("critic.enabled", "workdir of ann", "needs_approval of ann"))
