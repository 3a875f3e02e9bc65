"""Goals, tasks, agents, runs and approvals from the command line, on a real database. Nobody claims: runs are by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import text

from opencognit import daemon
from opencognit.cli import progress
from opencognit.config import Home
from opencognit.db import Database
from opencognit.errors import OpenCognitError, Unreachable
from opencognit.states import ApprovalKind, GoalState
from opencognit.work import approvals, runs
from opencognit.work.claims import Claimed
from tests.cli_kit import Cli, assert_one_line
from tests.conftest import MakeHome
from tests.integration import company

T = TypeVar("T")
EXPERT = 'adapter = "bash"\nskills = ["write"]\n[adapter_config]\ncommand = "true"'
AGENTS = {"ceo": 'adapter = "ceo"', "scribe": EXPERT, "inspector": EXPERT}
HOSTILE = "[bold]not bold[/bold] \x1b[31mred\x1b[0m \x1b]0;owned\x07"


@pytest.fixture
def home(make_home: MakeHome) -> Home:
    return make_home(agents=AGENTS, config='[company]\ntimezone = "Asia/Tokyo"\n')


@pytest.fixture
def cli(home: Home) -> Cli:
    return Cli(home.root)


def within(home: Home, work: Callable[[Database], Awaitable[T]]) -> T:
    """Do something to the company's rows, as the engine or an agent would."""

    async def do() -> T:
        assert home.config.database_url is not None
        database = Database(home.config.database_url)
        try:
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(do())


def at_work(home: Home) -> Claimed:
    """Start the one run that is due."""

    async def claim(db: Database) -> Claimed:
        [claimed] = await company.claim(db, capacity=1)
        return claimed

    return within(home, claim)


# --- goals --------------------------------------------------------------------------------------------------------


def test_a_posted_goal_waits_for_up(cli: Cli) -> None:
    """Stored for the CEO, and told on the side; the answer itself is one JSON document."""
    said = cli.ok("goal", "post", "Write a book", "--priority", "high", "--budget-usd", "2.5", "--json")
    posted = said.json
    assert (posted["id"], posted["status"], posted["priority"], posted["budget_usd"]) == ("1", "open", "high", "2.500000")
    assert said.err == "no daemon runs this company: the goal waits for `opencognit up`\n"
    [plan] = cli.ok("task", "list", "--json").json["items"]
    assert (plan["kind"], plan["assignee"], plan["goal_id"], plan["status"]) == ("plan", "ceo", "1", "todo")
    assert cli.ok("goal", "post", "Another").out == "goal 2 posted: Another\n"


def test_waiting_without_a_daemon_stores_nothing(cli: Cli) -> None:
    """Exit 5 means that nobody can work on it; a script that tries again must not post twice."""
    cli.refuses(5, "nothing was stored", "goal", "post", "Write a book", "--wait")
    assert cli.ok("goal", "list", "--json").json == {"items": []}


def test_a_description_comes_from_a_file_or_standard_input(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "goal.md"
    path.write_text("- [ ] Überblick\n")
    assert cli.ok("goal", "post", "One", "--file", str(path), "--json").json["description"] == "- [ ] Überblick\n"
    assert cli.ok("goal", "post", "Two", "-", "--json", stdin="水".encode()).json["description"] == "水"
    assert cli.ok("goal", "post", "Three", "--file", "-", "--json", stdin=b"x").json["description"] == "x"


NO_GOALS = [
    ("title: is empty", ["  "]),
    ("title: has 501 characters, at most 500: put the rest into --description", ["x" * 501]),
    ("description: has 1000001 characters, at most 1000000", ["x", "--description", "y" * 1_000_001]),
    ("description: is given twice", ["x", "-", "--description", "y"]),
    ("goal.md: no such file", ["x", "--file", "/nowhere/goal.md"]),
    ("/dev/null: is not a regular file", ["x", "--file", "/dev/null"]),
    ("--budget-usd: '1e999999999' is not an amount", ["x", "--budget-usd", "1e999999999"]),
    ("--timeout-s: is nan", ["x", "--wait", "--timeout-s", "nan"]),
    ("--timeout-s: says how long to wait", ["x", "--timeout-s", "3"]),
]


def test_a_goal_that_is_none_is_refused_and_not_stored(cli: Cli) -> None:
    for told, argv in NO_GOALS:
        cli.refuses(2, told, "goal", "post", *argv)
    assert cli.ok("goal", "list", "--json").json == {"items": []}


def test_a_company_without_a_ceo_takes_no_goals(make_home: MakeHome) -> None:
    cli = Cli(make_home(agents={"scribe": EXPERT}).root)
    cli.refuses(4, "this company has no CEO", "goal", "post", "x")


def test_a_company_whose_first_files_are_wrong_says_where(make_home: MakeHome) -> None:
    """Without a good version, the file is the answer, not a missing CEO."""
    cli = Cli(make_home(agents={"ceo": 'adapter = "ceo"\nskils = []'}).root)
    cli.refuses(2, "ceo.toml:3: unknown key 'skils': did you mean 'skills'?", "goal", "post", "x")


def test_a_wrong_agent_file_leaves_the_last_good_version(cli: Cli, home: Home) -> None:
    cli.ok("agent", "list")
    (home.agents_dir / "scribe.toml").write_text("name = 3\n")
    said = cli.ok("agent", "list", "--json")
    assert [one["name"] for one in said.json["items"]] == ["ceo", "inspector", "scribe"]
    assert said.err.startswith("warning: ")
    assert "scribe.toml:1" in said.err


def test_a_goal_shows_its_tasks_and_its_questions(cli: Cli, home: Home) -> None:
    cli.ok("goal", "post", HOSTILE)
    within(home, _question)
    shown = cli.ok("goal", "show", "1", "--json").json
    assert [one["kind"] for one in shown["tasks"]] == ["plan"]
    assert [one["question"] for one in shown["approvals"]] == ["which?"]
    assert shown["report"] is None
    for_people = cli.ok("goal", "show", "1").out
    assert "goal 1: [bold]not bold[/bold] red" in for_people
    assert "\x1b" not in for_people
    assert "1 red, 2 blue" in for_people


async def _question(db: Database) -> None:
    async with db.transaction() as session:
        await approvals.ask(
            session,
            kind=ApprovalKind.QUESTION,
            subject="task:1",
            question="which?",
            options=["red", "blue"],
            goal_id=1,
            task_id=1,
            asked_by="ceo",
        )


def test_times_are_utc_for_programs_and_local_for_people(cli: Cli) -> None:
    cli.ok("goal", "post", "x")
    at = cli.ok("goal", "show", "1", "--json").json["created_at"]
    assert at.endswith("Z")
    hour = (int(at[11:13]) + 9) % 24
    assert f" {hour:02}{at[13:19]} by board" in cli.ok("goal", "show", "1").out


def test_a_goal_is_called_off_and_taken_up_again(cli: Cli) -> None:
    cli.ok("goal", "post", "x")
    assert cli.ok("goal", "cancel", "1").out == "goal 1 is cancelled\n"
    cli.refuses(4, "already cancelled: `goal reopen 1`", "goal", "cancel", "1")
    assert "goal 1 is open: the CEO plans it again" in cli.ok("goal", "reopen", "1").out
    cli.refuses(4, "is open: it is still being worked on", "goal", "reopen", "1")


def test_a_report_says_whether_it_is_the_ceos(cli: Cli) -> None:
    cli.ok("goal", "post", "Write a book")
    told = cli.ok("goal", "report", "1", "--json").json
    assert (told["goal_id"], told["final"], told["reported_at"]) == ("1", False, None)
    said = cli.ok("goal", "report", "1")
    assert said.out.startswith("# Write a book\n")
    assert "the CEO has not reported" in said.err


# --- waiting ------------------------------------------------------------------------------------------------------


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Callable[[GoalState | OpenCognitError], None]:
    """Let the company be alive, and let whoever follows a goal see it end so."""

    def end(how: GoalState | OpenCognitError) -> None:
        async def alive(opened: daemon.Opened) -> bool:
            return True

        async def follow(opened: daemon.Opened, goal_id: int, *, timeout_s: float | None, quiet: bool) -> GoalState:
            if isinstance(how, OpenCognitError):
                raise how
            async with opened.db.transaction() as session:
                change = text("UPDATE goals SET status = :status, report = 'all told' WHERE id = :id")
                await session.execute(change, {"status": how.value, "id": goal_id})
            await _question(opened.db)
            return how

        monkeypatch.setattr(daemon, "is_running", alive)
        monkeypatch.setattr(progress, "follow", follow)

    return end


@pytest.mark.parametrize(("state", "code"), [(GoalState.ACHIEVED, 0), (GoalState.BLOCKED, 1), (GoalState.CANCELLED, 1)])
def test_waiting_ends_with_the_goals_own_end(
    cli: Cli, ended: Callable[[GoalState | OpenCognitError], None], state: GoalState, code: int
) -> None:
    """One JSON document with all that belongs to the goal; for people the report, the state and how to answer."""
    ended(state)
    said = cli("goal", "post", "x", "--wait", "--json")
    document = json.loads(said.out)
    assert (said.code, said.err) == (code, "")
    assert (document["id"], document["status"], document["report"]) == ("1", state.value, "all told")
    assert [one["kind"] for one in document["tasks"]] == ["plan"]
    assert [one["options"] for one in document["approvals"]] == [["red", "blue"]]


def test_the_end_tells_people_what_is_asked_of_them(cli: Cli, ended: Callable[[GoalState | OpenCognitError], None]) -> None:
    ended(GoalState.BLOCKED)
    said = cli("goal", "post", "x", "--wait")
    assert said.out.splitlines() == [
        "all told",
        "",
        "goal 1 is blocked",
        "question 1: which?  1 = red  2 = blue",
        "  answer it with `opencognit approval approve 1 --option N`",
    ]


def test_when_the_time_is_over_the_goal_is_still_told(cli: Cli, ended: Callable[[GoalState | OpenCognitError], None]) -> None:
    """A script learns the number of the goal that goes on without it."""
    ended(OpenCognitError("goal 1 is still open after 3 s"))
    said = cli("goal", "post", "x", "--wait", "--timeout-s", "3", "--json")
    assert said.code == 1
    assert json.loads(said.out)["status"] == "open"
    assert_one_line(said.err, "still open after 3 s")


def test_a_daemon_that_goes_away_while_one_waits_is_exit_5(
    cli: Cli, ended: Callable[[GoalState | OpenCognitError], None]
) -> None:
    ended(Unreachable("nobody works on goal 1 any more"))
    cli.refuses(5, "nobody works on goal 1 any more", "goal", "post", "x", "--wait", "--json")


# --- tasks --------------------------------------------------------------------------------------------------------


def test_a_task_for_somebody_starts_and_one_for_nobody_waits(cli: Cli) -> None:
    said = cli.ok("task", "create", "Write", "--assignee", "scribe", "--description", "in full")
    assert said.out == "task 1 made: Write; scribe is asked to do it\n"
    assert "waits for `opencognit up`" in said.err
    later = cli.ok("task", "create", "Bind", "--assignee", "inspector", "--after", "1", "--json").json
    assert (later["status"], later["after"], later["reason"]) == ("backlog", ["1"], "given to inspector by board")
    nobody = cli.ok("task", "create", "Sell", "--json").json
    assert (nobody["status"], nobody["assignee"]) == ("backlog", None)
    assert "`task assign` gives it one" in nobody["reason"]
    assert cli.ok("task", "assign", "3", "scribe").out == "task 3 is todo, assigned to scribe\n"


NO_TASKS = [
    (2, "title: is empty", [""]),
    (3, "no agent 'scrib': did you mean 'scribe'?", ["x", "--assignee", "scrib"]),
    (3, "no agent 'zzz': the agents here are: ceo, inspector, scribe", ["x", "--assignee", "zzz"]),
    (3, "no goal '7'", ["x", "--goal", "7"]),
    (3, "no task '7': name an existing task", ["x", "--after", "7"]),
    (3, "no task '１': ids are numbers", ["x", "--after", "１"]),
]


def test_a_task_that_cannot_be_is_refused_and_not_stored(cli: Cli) -> None:
    for code, told, argv in NO_TASKS:
        cli.refuses(code, told, "task", "create", *argv)
    assert cli.ok("task", "list", "--json").json == {"items": []}


def test_a_goal_that_has_ended_takes_no_tasks(cli: Cli) -> None:
    cli.ok("goal", "post", "x")
    assert cli.ok("task", "create", "more", "--goal", "1", "--assignee", "scribe", "--json").json["goal_id"] == "1"
    assert cli.ok("goal", "show", "1", "--json").json["status"] == "active"
    cli.ok("goal", "cancel", "1")
    cli.refuses(4, "`goal reopen 1` first", "task", "create", "more", "--goal", "1")


def test_an_agent_that_has_left_gets_no_tasks(cli: Cli, home: Home) -> None:
    cli.ok("task", "create", "Write")
    (home.agents_dir / "scribe.toml").unlink()
    cli.refuses(4, "'scribe' does not work here any more", "task", "create", "x", "--assignee", "scribe")
    cli.refuses(4, "'scribe' does not work here any more", "task", "assign", "1", "scribe")


IDENTS = ("abc", "0", "99999999999999999999", "１２", "1.5", "0x1", "")
BY_IDENT = ("task show", "task retry", "goal show", "run log", "approval reject", "memory show", "memory archive")


def test_an_id_that_is_none_is_no_such_thing(cli: Cli) -> None:
    for command, ident in [("task show", one) for one in IDENTS] + [(one, "12 3") for one in BY_IDENT]:
        cli.refuses(3, f"no {command.split()[0]} {ident!r}", *command.split(), ident)


def test_the_life_of_a_task(cli: Cli, home: Home) -> None:
    """Comment, lock, release, cancel: each says what follows, and the shape shows it."""
    cli.ok("task", "create", "Write", "--assignee", "scribe")
    cli.refuses(4, "is todo: it will run by itself", "task", "retry", "1")
    cli.refuses(4, "is not locked", "task", "release", "1")
    assert cli.ok("task", "comment", "1", HOSTILE).out == "comment on task 1 stored: scribe will see it\n"
    claimed = at_work(home)
    shown = cli.ok("task", "show", "1", "--json").json
    assert (shown["status"], shown["attempt"], shown["lock"]["agent"]) == ("in_progress", 1, "scribe")
    assert shown["lock"]["run_id"] == str(claimed.run_id)
    assert [(one["author"], one["text"]) for one in shown["comments"]] == [("board", HOSTILE)]
    for_people = cli.ok("task", "show", "1").out
    assert "board wrote:\n[bold]not bold[/bold] red" in for_people
    assert "\x1b" not in for_people
    assert f"lock:     run {claimed.run_id} of scribe until" in for_people
    cli.refuses(4, f"`run cancel {claimed.run_id}`", "task", "assign", "1", "inspector")
    assert "free as soon as its node has stopped run" in cli.ok("task", "release", "1").out
    assert "cancelled as soon as its node has stopped run" in cli.ok("task", "cancel", "1").out


def test_a_task_that_nobody_runs_is_cancelled_at_once(cli: Cli) -> None:
    cli.ok("task", "create", "Write", "--assignee", "scribe")
    assert cli.ok("task", "cancel", "1").out == "task 1 is cancelled\n"
    cli.refuses(4, "is already cancelled", "task", "cancel", "1")
    assert cli.ok("task", "retry", "1").out == "task 1 is todo: scribe is asked to do it\n"


def test_tasks_are_found_by_state_agent_and_goal(cli: Cli) -> None:
    cli.ok("goal", "post", "x")
    cli.ok("task", "create", "a", "--assignee", "scribe")
    cli.ok("task", "create", "b")

    def found(*argv: str) -> list[str]:
        return [one["id"] for one in cli.ok("task", "list", *argv, "--json").json["items"]]

    assert found() == ["1", "2", "3"]
    assert found("--status", "todo") == ["1", "2"]
    assert found("--agent", "scribe") == ["2"]
    assert found("--goal", "1") == ["1"]
    assert found("--limit", "1") == ["3"]
    cli.refuses(3, "no agent 'x'", "task", "list", "--agent", "x")
    cli.refuses(3, "no goal '9'", "task", "list", "--goal", "9")


# --- agents -------------------------------------------------------------------------------------------------------


def test_agents_are_listed_with_their_work(cli: Cli, home: Home) -> None:
    cli.ok("task", "create", "Write", "--assignee", "scribe")
    at_work(home)
    found = {one["name"]: one for one in cli.ok("agent", "list", "--json").json["items"]}
    assert (found["scribe"]["status"], found["scribe"]["running"], found["scribe"]["load"]) == ("running", 1, 1)
    assert (found["ceo"]["status"], found["ceo"]["load"]) == ("idle", 0)
    shown = cli.ok("agent", "show", "scribe", "--json").json
    assert (shown["skills"], [one["title"] for one in shown["tasks"]]) == (["write"], ["Write"])
    assert "bash" in cli.ok("agent", "show", "scribe").out


def test_waking_says_what_stands_in_the_way(cli: Cli, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def will() -> str:
        return str(cli.ok("agent", "wake", "scribe", "--json").json["will"])

    assert "after `opencognit up`" in will()
    cli.ok("pause")
    assert "after `opencognit resume`" in will()
    cli.ok("agent", "pause", "scribe")
    assert "after `opencognit agent resume scribe`" in will()
    cli.ok("agent", "resume", "scribe")
    cli.ok("resume")

    async def alive(opened: daemon.Opened) -> bool:
        return True

    monkeypatch.setattr(daemon, "is_running", alive)
    assert will() == "one run starts now"
    at_work(home)
    assert "one more run follows the present one" in will()
    cli.refuses(3, "no agent 'scrip': did you mean 'scribe'?", "agent", "wake", "scrip")


# --- runs ---------------------------------------------------------------------------------------------------------


def test_a_run_is_shown_and_its_log_is_text(cli: Cli, home: Home) -> None:
    """An escape that two pieces of the log share does not reach the terminal; a program gets every character."""
    cli.ok("task", "create", "Write", "--assignee", "scribe")
    claimed = at_work(home)
    pieces = ["one\x1b[3", "1mred\ntwo [bold]x[/bold]", " end"]

    async def print_and_finish(db: Database) -> None:
        async with db.transaction() as session:
            for seq, piece in enumerate(pieces):
                assert await runs.append_log(session, claimed.run_id, claimed.token, seq, "stdout", piece)
        await company.finish(db, claimed, "done well")

    within(home, print_and_finish)
    ident = str(claimed.run_id)
    assert cli.ok("run", "log", ident).out == "onered\ntwo [bold]x[/bold] end\n"
    assert cli.ok("run", "log", ident, "-f").out == "onered\ntwo [bold]x[/bold] end\n"
    assert [one["text"] for one in cli.ok("run", "log", ident, "--json").json["items"]] == pieces
    lines = cli.ok("run", "log", ident, "-f", "--json").out.splitlines()
    assert [json.loads(one)["seq"] for one in lines] == [0, 1, 2]
    shown = cli.ok("run", "show", ident, "--json").json
    assert (shown["status"], shown["agent"], shown["cost_usd"], shown["result"]) == ("succeeded", "scribe", None, "done well")
    assert "done well" in cli.ok("run", "show", ident).out
    [listed] = cli.ok("run", "list", "--task", "1", "--agent", "scribe", "--json").json["items"]
    assert listed["id"] == ident
    cli.refuses(4, "has already ended", "run", "cancel", ident)


def test_a_long_log_is_printed_whole(cli: Cli, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from opencognit.cli import runs as run_commands

    monkeypatch.setattr(run_commands, "PAGE", 3)
    cli.ok("task", "create", "Write", "--assignee", "scribe")
    claimed = at_work(home)

    async def print_much(db: Database) -> None:
        async with db.transaction() as session:
            for seq in range(7):
                await runs.append_log(session, claimed.run_id, claimed.token, seq, "stdout", f"{seq}\n")

    within(home, print_much)
    assert cli.ok("run", "log", str(claimed.run_id)).out.split() == list("0123456")


def test_a_run_is_cancelled_by_its_node(cli: Cli, home: Home) -> None:
    cli.ok("task", "create", "Write", "--assignee", "scribe")
    claimed = at_work(home)
    assert "`opencognit task retry 1`" in cli.ok("run", "cancel", str(claimed.run_id)).out

    async def asked(db: Database) -> str:
        return str(await company.value(db, "SELECT cancel_mode || ' by ' || cancel_requested_by FROM runs"))

    assert within(home, asked) == "run by board"


# --- approvals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["2", "blue"])
def test_an_option_is_chosen_by_number_or_text(cli: Cli, home: Home, option: str) -> None:
    cli.ok("goal", "post", "x")
    within(home, _question)
    assert "1 red, 2 blue" in cli.ok("approval", "list").out
    decided = cli.ok("approval", "approve", "1", "--option", option, "--note", "why not", "--json").json
    assert (decided["status"], decided["decision"], decided["note"], decided["decided_by"]) == (
        "approved",
        "blue",
        "why not",
        "board",
    )
    assert decided["decided_at"].endswith("Z")
    cli.refuses(4, "decided already", "approval", "reject", "1")
    assert cli.ok("approval", "list", "--pending", "--json").json == {"items": []}


NO_OPTIONS = [
    ("asks you to choose: 1 red, 2 blue", []),
    ("'0' is not an option", ["--option", "0"]),
    ("'3' is not an option", ["--option", "3"]),
    ("'-1' is not an option", ["--option", "-1"]),
    ("'２' is not an option", ["--option", "２"]),
    ("has 5000 characters", ["--option", "9" * 5000]),
    ("--note: has 10001 characters", ["--option", "1", "--note", "x" * 10_001]),
]


def test_an_option_that_is_none_decides_nothing(cli: Cli, home: Home) -> None:
    cli.ok("goal", "post", "x")
    within(home, _question)
    for told, argv in NO_OPTIONS:
        cli.refuses(2, told, "approval", "approve", "1", *argv)
    assert [one["status"] for one in cli.ok("approval", "list", "--json").json["items"]] == ["pending"]


def test_a_question_is_rejected_with_a_reason(cli: Cli, home: Home) -> None:
    cli.ok("goal", "post", "x")
    within(home, _question)
    assert cli.ok("approval", "reject", "1", "--note", "no").out == "approval 1 is rejected\n"
    assert cli.ok("approval", "list", "--json").json["items"][0]["note"] == "no"
