"""The command line where something is wrong: one line that names it, the contract's exit status, never a traceback.

Nothing here has a database; what depends on rows is in tests/integration/test_cli_*.py.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import typer

from opencognit import cli
from opencognit.cli import output, values
from opencognit.errors import ConfigError, InvalidInput, NotFound, OpenCognitError, Refused, Unreachable
from opencognit.states import EntityRole
from tests.cli_kit import assert_one_line, say

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No home is found from where the commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENCOGNIT_HOME", raising=False)


# --- arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["gaol"], "no such command 'gaol'. Did you mean 'goal'?"),
        (["goal"], "opencognit goal: name a command: post, list, show, report, cancel, reopen"),
        (["goal", "pots", "x"], "Did you mean 'post', 'report'?"),
        (["goal", "post"], "missing argument 'TITLE': see `opencognit goal post --help`"),
        (["goal", "post", "x", "--priority", "soon"], "'soon' is not one of 'low', 'medium', 'high', 'critical'"),
        (["goal", "post", "x", "--prio", "low"], "no such option: --prio"),
        (["goal", "show", "-1"], "no such option: -1"),
        (["goal", "list", "--limit", "0"], "'--limit'"),
        (["goal", "list", "--limit", "many"], "'--limit'"),
        (["task", "list", "--status", "lost"], "'in_review'"),
        (["memory", "write", "x", "--type", "idea"], "'decision'"),
        (["memory", "relate", "1", "likes", "2"], "'derives_from'"),
        (["cost", "--by", "moon"], "'agent', 'goal', 'model', 'day'"),
        (["goal", "post", "\udcff"], "argument 3: '\\udcff' is not UTF-8"),
        (["goal", "post", "a\0b"], "argument 3: 'a\\x00b' holds a NUL character"),
        (["soul", "check"], "make a home with `opencognit init`"),
        (["--home", "nowhere", "goal", "list"], "nowhere: --home is no home"),
        (["goal", "list", "--home", "nowhere"], "nowhere: --home is no home"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(argv: list[str], told: str) -> None:
    said = say(*argv)
    assert (said.code, said.out) == (2, "")
    assert_one_line(said.err, told)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("[company]\ntimezone = 'Europe/Berln'\n", "config.toml:2: company.timezone: there is no time zone 'Europe/Berln'"),
        ("[compny]\n", "did you mean 'company'?"),
        ("[company\n", "config.toml:1"),
        ("x = '\x01'", "config.toml:1"),
    ],
)
def test_a_wrong_config_names_file_and_line(tmp_path: Path, config: str, told: str) -> None:
    (tmp_path / "config.toml").write_text(config)
    said = say("soul", "check")
    assert (said.code, said.out) == (2, "")
    assert_one_line(said.err, told)


def test_a_config_of_bytes_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b"[company]\nname = '\xff'\n")
    assert_one_line(say("status").err, "config.toml:2: is not UTF-8")


# --- the boundary -------------------------------------------------------------------------------------------------


def raising(error: BaseException) -> Callable[[], typer.Typer]:
    """An application whose command `go` fails with `error`."""

    def build() -> typer.Typer:
        app = typer.Typer()

        @app.callback()
        def root() -> None: ...

        @app.command()
        def go(debug: bool = False) -> None:
            raise error

        return app

    return build


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (OpenCognitError("it broke"), 1, "it broke"),
        (ConfigError("bad", path=Path("a.toml"), line=3), 2, "a.toml:3: bad"),
        (InvalidInput("title", "is empty"), 2, "title: is empty"),
        (NotFound("goal", "9"), 3, "no goal '9'"),
        (Refused("not now"), 4, "not now"),
        (Unreachable("gone"), 5, "gone"),
        (ExceptionGroup("tasks", [ValueError("x"), ExceptionGroup("inner", [Refused("not now")])]), 4, "not now"),
        (PermissionError(13, "Permission denied", "/x/y"), 1, "/x/y: permission denied"),
        (RuntimeError("two\nlines \x1b[31mred"), 1, "RuntimeError: two lines red (a fault of OpenCognit itself"),
    ],
)
def test_every_error_becomes_one_line_and_its_exit_status(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, told: str
) -> None:
    monkeypatch.setattr(cli, "build", raising(error))
    said = say("go")
    assert (said.code, said.out) == (code, "")
    assert_one_line(said.err, told)


def test_debug_adds_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "build", raising(Refused("not now")))
    said = say("go", "--debug")
    assert said.code == 4
    assert "Traceback" in said.err
    assert said.err.splitlines()[-1] == "error: not now"


def test_an_interrupt_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "build", raising(KeyboardInterrupt()))
    said = say("go")
    assert (said.code, said.out, said.err) == (130, "", "")


def python(*argv: str, stdout: int | Any = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OPENCOGNIT_", "COV_"))}
    command = [sys.executable, "-P", *argv]
    environ["PYTHONPATH"] = str(ROOT)
    return subprocess.run(command, env=environ, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=60)


def test_a_reader_that_has_gone_is_no_news() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = python("-m", "opencognit", "--help", stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_full_disk_under_standard_output_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = python("-m", "opencognit", "--help", stdout=full)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "no space left on device" in done.stderr.splitlines()[0]


def test_help_costs_no_heavy_import() -> None:
    """`--help` of the whole tool answers without a database library, pydantic or the engine being loaded."""
    heavy = ["sqlalchemy", "alembic", "psycopg", "pydantic", "apscheduler", "rich", "structlog", "opencognit.daemon"]
    code = (
        "import sys, json; from opencognit.cli import main; code = main(['--help']);"
        f"print(json.dumps([code, [one for one in {heavy} if one in sys.modules]]))"
    )
    done = python("-c", code)
    assert done.stderr == ""
    assert json.loads(done.stdout.splitlines()[-1]) == [0, []]


# --- help ---------------------------------------------------------------------------------------------------------


def commands() -> list[list[str]]:
    told = cli.build()
    own = [[one.name] for one in told.registered_commands if one.name]
    for group in told.registered_groups:
        assert group.typer_instance is not None
        for one in group.typer_instance.registered_commands:
            name = one.name or (one.callback.__name__ if one.callback else "")
            own.append([str(group.name), name])
    return own


def test_the_commands_are_those_of_the_contract() -> None:
    """Exact names; what a later version brings is not shown before it works."""
    assert {" ".join(one) for one in commands()} == set(
        """init;up;worker;demo;status;doctor;pause;resume;activity;cost
        goal post;goal list;goal show;goal report;goal cancel;goal reopen
        task list;task show;task create;task assign;task comment;task retry;task cancel;task release
        agent list;agent show;agent wake;agent pause;agent resume
        run list;run show;run log;run cancel
        approval list;approval approve;approval reject;routine list;routine run
        memory write;memory recall;memory show;memory relate;memory archive;memory export;memory import
        memory restore;memory summarise;memory diary;memory stats
        soul check;soul render;soul export;model show;model pull;db upgrade;db dsn""".replace("\n        ", ";").split(";")
    )


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_explains_itself_and_takes_the_common_options(command: list[str]) -> None:
    said = say(*command, "--help")
    assert (said.code, said.err) == (0, "")
    assert "--debug" in said.out
    assert ("--home" in said.out) is (command != ["demo"])  # the demo's home is its own


READING = "status doctor activity cost goal_list goal_show goal_report task_list task_show agent_list agent_show run_list"
ALSO = "run_show run_log approval_list memory_recall memory_show soul_check soul_render goal_post task_create"
MODEL = "model_show model_pull"


@pytest.mark.parametrize("command", f"{READING} {ALSO} {MODEL}".split())
def test_every_reading_command_takes_json(command: str) -> None:
    assert "--json" in say(*command.split("_"), "--help").out


def test_the_tool_alone_prints_its_help_and_its_version() -> None:
    assert "Usage: opencognit" in say().out
    assert say("--version").out == "opencognit 0.1.0\n"


# --- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-5", "0", "0.0", "1e3", "1e999999999", "0.0000001", "1234567890", "５", "", "$5"]
)
def test_an_impossible_amount_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--budget-usd: .* is not an amount"):
        values.usd("--budget-usd", text)


def test_an_amount_is_exact() -> None:
    assert values.usd("--budget-usd", "12.345678") == Decimal("12.345678")
    assert values.usd("--budget-usd", None) is None


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_span_is_refused(number: float) -> None:
    with pytest.raises(InvalidInput, match="--timeout-s"):
        values.seconds("--timeout-s", number)


@pytest.mark.parametrize("number", [-0.1, 1.1, float("nan"), float("inf")])
def test_an_impossible_fraction_is_refused(number: float) -> None:
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        values.fraction("--confidence", number)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-07-01", datetime(2026, 6, 30, 22, tzinfo=UTC)),
        ("2026-07-01T09:30", datetime(2026, 7, 1, 7, 30, tzinfo=UTC)),
        ("2026-07-01T09:30Z", datetime(2026, 7, 1, 9, 30, tzinfo=UTC)),
    ],
)
def test_a_date_without_a_zone_is_the_companys(text: str, at: datetime) -> None:
    assert values.since("--since", text, "Europe/Berlin") == at


def test_a_span_counts_back_from_now() -> None:
    at = values.since("--since", "2h", "UTC")
    assert at is not None
    assert timedelta(hours=1.9) < datetime.now(UTC) - at < timedelta(hours=2.1)


@pytest.mark.parametrize("text", ["yesterday", "2026-02-30", "123456d", "7x", "-1d", "0001-01-01T00:00+14:00", "", "７d"])
def test_an_impossible_date_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no date or time"):
        values.since("--since", text, "UTC")


@pytest.mark.parametrize(
    ("text", "kind", "key", "role"),
    [
        ("person:ada", "person", "ada", EntityRole.MENTIONED),
        ("person:ada:subject", "person", "ada", EntityRole.SUBJECT),
        ("url:https://x/y", "url", "https://x/y", EntityRole.MENTIONED),
        ("url:https://x/y:object", "url", "https://x/y", EntityRole.OBJECT),
        ("word:subject", "word", "subject", EntityRole.MENTIONED),
    ],
)
def test_an_entity_may_have_colons_in_its_key(text: str, kind: str, key: str, role: EntityRole) -> None:
    found = values.entity("--entity", text)
    assert (found.kind, found.key, found.role) == (kind, key, role)


@pytest.mark.parametrize("text", ["ada", ":ada", "person:", "", "k" * 65 + ":x", "person:" + "x" * 513])
def test_an_impossible_entity_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no entity: give KIND:KEY"):
        values.entity("--entity", text)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "no such file"),
        (b"\xff\xfe\x00", "is not UTF-8"),
        (b"a\0b", "holds a NUL character"),
        (b"x" * (values.FILE_LIMIT_BYTES + 1), "is larger than"),
    ],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes | None, told: str) -> None:
    path = tmp_path / "goal.md"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=told):
        values.long_text(None, path, None)


def test_a_folder_is_no_description(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        values.long_text(None, tmp_path, None)


@pytest.mark.parametrize(("raw", "told"), [(b"\xff", "is not UTF-8"), (b"a\0", "NUL"), (b"x" * 4_000_001, "is larger than")])
def test_standard_input_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch, raw: bytes, told: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    with pytest.raises(InvalidInput, match=f"standard input: .*{told}"):
        values.long_text(None, None, "-")


def test_a_description_comes_from_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("﻿grün\n".encode())))
    assert values.long_text(None, None, "-") == "grün\n"
    assert values.long_text("text", None, None) == "text"
    assert values.long_text(None, None, None) == ""
    with pytest.raises(InvalidInput, match="given twice"):
        values.long_text("text", tmp_path / "x", None)
    with pytest.raises(InvalidInput, match="put the title in quotes"):
        values.long_text(None, None, "library")


# --- what is printed ----------------------------------------------------------------------------------------------

HOSTILE = "[bold]x[/bold] \x1b[31mred\x1b[0m \x1b]0;title\x07 a\rb \u202eevil\u202c :smile:\nnext"


def test_text_of_others_stays_text() -> None:
    """Terminal escapes, control characters and direction marks go; markup and emoji names are only characters."""
    assert output.line(HOSTILE) == "[bold]x[/bold] red a b evil :smile: next"
    assert output.block(HOSTILE) == "[bold]x[/bold] red  ab evil :smile:\nnext"


class Screen(io.StringIO):
    """A standard output that people look at."""

    def isatty(self) -> bool:
        return True


def shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, **environ: str) -> str:
    """Print a table and a panel of hostile text on a terminal of 48 columns."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "48", "LINES": "30", **environ}.items():
        monkeypatch.setenv(name, value)
    screen = Screen()
    with contextlib.redirect_stdout(screen):
        output.table(("id", "status", "title"), [("1", "done", HOSTILE), ("2", "blocked", "水" * 200)], empty="none")
        output.fields("goal 1: " + HOSTILE, [("status", "done"), ("asked", "[red]long[/red] " * 30), ("ended", None)])
        output.marked("fail", " because")
    return screen.getvalue()


def test_a_terminal_gets_colours_and_nothing_wider_than_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.cells import cell_len
    from rich.text import Text

    shown = shown_on_a_terminal(monkeypatch)
    assert "\x1b[32mdone" in shown
    assert "\x1b[31mfail" in shown
    assert max(cell_len(Text.from_ansi(line).plain) for line in shown.splitlines()) <= 48
    assert "[bold]x[/bold]" in shown
    assert "[red]long[/red]" in shown


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = shown_on_a_terminal(monkeypatch, NO_COLOR="1")
    assert "done" in shown
    assert re.findall(r"\x1b\[[0-9;]*3[0-9]", shown) == []


def test_a_pipe_gets_whole_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is cut and nothing is coloured where a program reads; wide characters keep the columns straight."""
    output.table(("id", "title", "who"), [("1", "水水", "ada"), ("22", "t" * 300, None)], empty="none")
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["ID", "TITLE", "WHO"]
    assert second == f"22  {'t' * 300}  -"
    assert first == "1   水水" + " " * 298 + "ada"


def test_an_empty_table_says_so_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("id",), [], empty="no goals yet")
    assert capsys.readouterr() == ("", "no goals yet\n")


@pytest.mark.parametrize(("encoding", "told"), [("utf-8", '"grün 水"'), ("latin-1", '"gr\\u00fcn \\u6c34"')])
def test_json_is_right_in_every_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str, told: str) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    output.json_document("grün 水")
    assert raw.getvalue().decode(encoding).strip() == told
    assert json.loads(raw.getvalue()) == "grün 水"
