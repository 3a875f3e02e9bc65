"""A configuration is right, or it is one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opencognit.config import Config, Home, find_home, load_config, open_home
from opencognit.config.files import read_text, read_text_inside
from opencognit.config.sections import Tier
from opencognit.config.tomlfile import KeyPath, parse_toml
from opencognit.errors import ConfigError
from opencognit.states import Trust

Load = Callable[..., Config]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a config.toml of this text, with these variables."""

    def load_text(text: str | bytes, /, **environ: str) -> Config:
        raw = textwrap.dedent(text).encode() if isinstance(text, str) else text
        (tmp_path / "config.toml").write_bytes(raw)
        return load_config(tmp_path, environ)

    return load_text


def error_of(load: Load, text: str | bytes, /, **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(text, **environ)
    assert "\n" not in str(caught.value)
    return caught.value


def test_an_empty_file_means_all_defaults(load: Load) -> None:
    """CONTRACT.md's defaults hold for a file that says nothing."""
    config = load("")
    assert config == Config()
    assert (config.heartbeat.interval_s, config.locks.ttl_s, config.runs.timeout_s, config.runs.idle_timeout_s) == (
        30,
        1800,
        1740,
        600,
    )
    assert (config.runs.capacity, config.runs.lease_s, config.retry.delays_s) == (8, 30, (300, 900, 2700))
    assert (config.server.host, config.server.port, config.brain.embedder, config.brain.model) == (
        "127.0.0.1",
        7717,
        "onnx",
        "all-MiniLM-L6-v2",
    )
    assert (config.budget.monthly_usd, config.budget.warn_fraction, config.critic.enabled) == (None, 0.8, False)
    assert (config.backup.at, config.backup.keep_days, config.cleanup.every_s) == ("03:00", 7, 21_600)
    assert config.database_url is None


def test_values_of_the_file_are_read(load: Load) -> None:
    """Numbers, money, lists, free tables and arrays of tables come through as their types."""
    config = load("""
        [budget]
        monthly_usd = 0.1
        [retry]
        delays_s = []
        [brain.trust]
        ann = "verified"
        [[routines]]
        name = "weekly"
        cron = "0  9 * * 1"
        agent = "ann"
        title = "Look"
    """)
    assert config.budget.monthly_usd == Decimal("0.1")
    assert config.retry.delays_s == ()
    assert config.brain.trust == {"ann": "verified"}
    assert [(each.name, each.cron, each.catch_up) for each in config.routines] == [("weekly", "0 9 * * 1", "one")]


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        ("[locks]\n\nttl = 5", 3, ["unknown key 'ttl' in [locks]", "did you mean 'ttl_s'?"]),
        ("[lokcs]", 1, ["unknown key 'lokcs'", "did you mean 'locks'?"]),
        ("[adapters.claude]\nmodl = 'x'", 2, ["unknown key 'modl' in [adapters.claude]", "'model'"]),
        ("[runs]\ncapacity = '8'", 2, ["runs.capacity", "expected a whole number", "found the text '8'"]),
        ("[runs]\ncapacity = true", 2, ["expected a whole number", "found true"]),
        ("runs = 3", 1, ["runs: expected a table, found 3"]),
        ("routines = {}", 1, ["routines: expected a list, found a table"]),
        ("[server]\nport = 70000", 2, ["server.port", "at most 65535"]),
        ("[company]\ntimezone = 'europe/berlin'", 2, ["no time zone 'europe/berlin'", "'Europe/Berlin'"]),
        ("[company]\ntimezone = '../../etc/passwd'", 2, ["no time zone"]),
        ("[company]\nlanguage = 'German'", 2, ["not a language", "'de'"]),
        ("[company]\nname = 'a\\nb'".replace("'", '"'), 2, ["one plain line"]),
        ("[brain]\nembedder = 'onx'", 2, ["brain.embedder", "did you mean 'onnx'?"]),
        ("[brain.trust]\nann = 'verifed'", 2, ["brain.trust.ann", "did you mean 'verified'?"]),
        ("[budget]\nmonthly_usd = -1", 2, ["budget.monthly_usd", "from 0", "found -1"]),
        ("[budget]\nmonthly_usd = nan", 2, ["budget.monthly_usd", "amount in USD"]),
        ("[backup]\nat = '3:00'", 2, ["HH:MM"]),
        ("[backup]\nat = 03:00:00", 2, ["expected text", "date or time"]),
        ("[database]\nurl = 'mysql://h/d'", 2, ["postgresql://"]),
        ("[database]\nurl = 'postgresql://h/d'\nurl_env = 'X'", 3, ["both set"]),
        ("[locks]\nttl_s = 600", 2, ["runs.timeout_s (1740) must be less than locks.ttl_s (600)"]),
        ("[runs]\ntimeout_s = 1800", 2, ["must be less than locks.ttl_s (1800)"]),
        ("[retry]\ndelays_s = [1, 'x']", 2, ["retry.delays_s[2]", "expected a number"]),
        ("[[routines]]\nname='a'\ncron='* * *'\nagent='b'\ntitle='c'", 3, ["routines[1].cron", "five fields"]),
        ("[[routines]]\nname='a'\ncron='* * * * *'\ntitle='c'", 1, ["'routines[1].agent' is missing"]),
        ("[[routines]]\nname='a'\ncron='* * * * *'\nagent='b'\ntitle='c'\n" * 2, 7, ["two routines are named 'a'"]),
        ("a = 1\nb = \n", 2, ["not valid TOML"]),
        ("a = 1\n\na = 2", 3, ["not valid TOML", "Cannot overwrite"]),
        ("[company]\nname = \"a\\u0000\"", 2, ["company.name", "NUL"]),
        ("[runs]\ncapacity = " + "9" * 400, 2, ["at most 10000"]),
        ("a = " + "[" * 5000, None, ["nested too deeply"]),
        ("a = " + "9" * 5000, None, ["digits"]),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line_and_its_mend(load: Load, text: str, line: int | None, parts: list[str]) -> None:
    """Each kind of mistake gives file and line, what was found, and what was expected."""
    error = error_of(load, text)
    assert (error.path.name, error.line) == ("config.toml", line)
    for part in parts:
        assert part in error.problem


def test_of_several_mistakes_the_first_is_told_and_the_rest_counted(load: Load) -> None:
    """One line, however much is wrong, in the order of the file."""
    error = error_of(load, "[server]\nprt = 1\n[runs]\ncapacity = 0\nlease_s = 'x'\n")
    assert error.line == 2
    assert error.problem.endswith("did you mean 'port'? (and 2 more problems)")


def test_a_secret_in_the_place_of_a_name_is_refused_and_not_repeated(load: Load) -> None:
    """Who pastes a key where a variable's name belongs does not find it in a log."""
    error = error_of(load, "[adapters.claude]\napi_key_env = 'sk-ant-123'")
    assert "name of an environment variable" in error.problem
    assert "sk-ant" not in str(error)


@pytest.mark.parametrize(
    ("text", "interval_s", "message"),
    [
        ("", 30, None),
        ("heartbeat = {}", 30, None),
        ("[heartbeat]", 30, None),
        ("[heartbeat]\ninterval_s = 45", 45, None),
        ("heartbeat = null", None, "leave the key out"),
        ("[heartbeat]\ninterval_s = null", None, "leave the key out"),
        ("heartbeat = false", None, "heartbeat_interval_s = 0"),
        ("heartbeat = 0", None, "heartbeat_interval_s = 0"),
        ("[heartbeat]\ninterval_s = 0", None, "heartbeat_interval_s = 0"),
        ("[heartbeat]\ninterval_s = '0m'", None, "heartbeat_interval_s = 0"),
        ("[heartbeat]\ninterval_s = false", None, "heartbeat_interval_s = 0"),
        ("[heartbeat]\ninterval_s = -5", None, "heartbeat_interval_s = 0"),
        ("[heartbeat]\ninterval_s = 'abc'", None, "heartbeat_interval_s = 0"),
    ],
)
def test_a_heartbeat_that_reads_as_off_is_never_on(load: Load, text: str, interval_s: float | None, message: str | None) -> None:
    """F02-02: each form is the documented default or an error that says how timers are switched off."""
    if message is None:
        assert load(text).heartbeat.interval_s == interval_s
    else:
        assert message in error_of(load, text).problem


def test_a_byte_order_mark_is_accepted(load: Load) -> None:
    """Editors that write one do no harm."""
    assert load(b"\xef\xbb\xbf[runs]\r\ncapacity = 2\r\n").runs.capacity == 2


def test_a_file_that_is_not_utf8_is_refused_with_its_line(load: Load) -> None:
    """The line of the first wrong byte is named."""
    error = error_of(load, b"[company]\nname = 'M\xfcller'\n")
    assert error.line == 2
    assert "not UTF-8 (byte 0xfc)" in error.problem


def test_a_config_that_is_no_file_is_refused_without_hanging(tmp_path: Path) -> None:
    """A folder, a FIFO, a missing and a huge file each have an answer."""
    makers: dict[str, Callable[[Path], object]] = {
        "no such file": lambda path: None,
        "is a folder": Path.mkdir,
        "not a regular file": os.mkfifo,
        "larger than 1024 KB": lambda path: path.write_bytes(b"#" * 2_000_000),
    }
    for number, (part, make) in enumerate(makers.items()):
        home = tmp_path / str(number)
        home.mkdir()
        make(home / "config.toml")
        with pytest.raises(ConfigError, match=part):
            load_config(home, {})


def test_the_environment_wins_over_the_file(load: Load) -> None:
    """Values are TOML where they are, and text for settings that are text."""
    config = load(
        "[runs]\ncapacity = 3\n[company]\nname = 'File'",
        OPENCOGNIT_RUNS__CAPACITY="5",
        OPENCOGNIT_RETRY__DELAYS_S="[1, 2.5]",
        OPENCOGNIT_ADAPTERS__CLAUDE_CODE__MODEL="opus",
        OPENCOGNIT_COMPANY__GOAL="true",
        OPENCOGNIT_BACKUP__AT="04:30",
        OPENCOGNIT_CRITIC__ENABLED="true",
        OPENCOGNIT_BUDGET__MONTHLY_USD="12.50",
        OPENCOGNIT_BRAIN__TRUST__MY_BOT="asserted",
    )
    assert (config.runs.capacity, config.retry.delays_s, config.adapters.claude_code.model) == (5, (1, 2.5), "opus")
    assert (config.company.name, config.company.goal, config.backup.at) == ("File", "true", "04:30")
    assert (config.critic.enabled, config.budget.monthly_usd) == (True, Decimal("12.5"))
    assert config.brain.trust == {"my-bot": "asserted"}


@pytest.mark.parametrize(
    ("variable", "value", "part"),
    [
        ("OPENCOGNIT_RUNS__CAPACTY", "5", "did you mean 'OPENCOGNIT_RUNS__CAPACITY'?"),
        ("OPENCOGNIT__RUNS", "5", "no such setting"),
        ("OPENCOGNIT_ROUTINES__0__CRON", "x", "no such setting"),
        ("OPENCOGNIT_RUNS__CAPACITY__X", "5", "no such setting"),
        ("OPENCOGNIT_ADAPTERS__CLAUDE", '{model="x"}', "no such setting"),
        ("OPENCOGNIT_RUNS__CAPACITY", "", "expected a whole number, found the text ''"),
        ("OPENCOGNIT_RUNS__CAPACITY", "5\nx = 1", "expected a whole number"),
        ("OPENCOGNIT_LOCKS__TTL_S", "60", "must be less than locks.ttl_s (60)"),
        ("OPENCOGNIT_HEARTBEAT__INTERVAL_S", "0", "heartbeat_interval_s = 0"),
        ("OPENCOGNIT_COMPANY__NAME", "\udcff", "not UTF-8"),
    ],
)
def test_a_wrong_variable_is_named_in_the_place_of_the_file(load: Load, variable: str, value: str, part: str) -> None:
    """The person must mend the variable, not line so-and-so of a file that is right."""
    error = error_of(load, "[runs]\ncapacity = 3", **{variable: value})
    assert str(error).startswith(f"{variable}: ")
    assert part in error.problem


def test_variables_without_a_section_are_no_settings(load: Load) -> None:
    """What the daemon itself sets for child processes never breaks a configuration."""
    assert load("", OPENCOGNIT_HOME="x", OPENCOGNIT_RUN_ID="7", OPENCOGNIT_DEBUG="1", OTHER__X="1") == Config()


def test_the_database_url_comes_from_the_named_variable(load: Load) -> None:
    """`url_env` is looked up at loading; the old scheme's name is accepted."""
    config = load("[database]\nurl_env = 'DB'", DB="postgres://u:secret@h/d")
    assert config.database_url == "postgresql://u:secret@h/d"
    assert "secret" not in repr(config)


@pytest.mark.parametrize(
    ("environ", "part"), [({}, "'DB', a variable that is not set"), ({"DB": "mysql://x"}, "is not a PostgreSQL")]
)
def test_an_unusable_database_variable_is_told_when_it_is_asked_for(load: Load, environ: dict[str, str], part: str) -> None:
    """Commands that need no database work all the same; the others name variable, file and line."""
    config = load("[database]\nurl_env = 'DB'", **environ)
    with pytest.raises(ConfigError, match=part) as caught:
        _ = config.database_url
    assert caught.value.line == 2


def test_a_configuration_cannot_be_changed() -> None:
    """Sections are values: nobody can edit what others rely on."""
    with pytest.raises(ValueError, match="frozen"):
        Config().runs.capacity = 3  # type: ignore[misc]


def test_tiers_of_trust_are_those_of_the_states() -> None:
    """The layers forbid the import, so this test holds the two lists together."""
    assert set(get_args(Tier)) == {each.value for each in Trust}


def test_a_home_is_found_by_option_then_variable_then_nearest_parent(tmp_path: Path) -> None:
    """CONTRACT.md's order."""
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    for home in (one, two, three):
        (home / "deep" / "er").mkdir(parents=True)
        (home / "config.toml").touch()
    inside = three / "deep" / "er"
    assert find_home(one, {"OPENCOGNIT_HOME": str(two)}, inside) == one.resolve()
    assert find_home(Path("../../../one"), {}, inside) == one.resolve()
    assert find_home(None, {"OPENCOGNIT_HOME": str(two)}, inside) == two.resolve()
    assert find_home(None, {"OPENCOGNIT_HOME": ""}, inside) == three.resolve()


@pytest.mark.parametrize(("option", "environ"), [(None, {}), ("nowhere", {}), (None, {"OPENCOGNIT_HOME": "nowhere"})])
def test_without_a_home_the_error_says_how_to_make_one(tmp_path: Path, option: str | None, environ: dict[str, str]) -> None:
    """The first thing a newcomer meets is the command that helps."""
    with pytest.raises(ConfigError, match="opencognit init"):
        find_home(Path(option) if option else None, environ, tmp_path)


def test_an_opened_home_knows_its_folders(tmp_path: Path) -> None:
    """All paths are absolute and under the root, and none is made."""
    (tmp_path / "config.toml").touch()
    home = open_home(tmp_path, {}, Path("/"))
    assert home == Home(tmp_path.resolve(), Config())
    names = ("postgres", "logs", "backups", "workspaces", "models", "runtime")
    assert [getattr(home, name) for name in names] == [home.root / "data" / name for name in names]
    assert (home.agents_dir, home.souls_dir) == (home.root / "agents", home.root / "souls")
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_a_file_inside_a_root_is_never_one_outside(tmp_path: Path) -> None:
    """F11-08: links out of the root are refused, links within it are followed."""
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "real" / "a.md").write_text("inside")
    (tmp_path / "secret.md").write_text("outside")
    (root / "file-out.md").symlink_to("../secret.md")
    (root / "folder-out").symlink_to("..")
    (root / "folder-in").symlink_to("real")
    (root / "loop").symlink_to("loop")
    assert read_text_inside(root, "folder-in/a.md", limit=100) == "inside"
    for name in ("file-out.md", "folder-out/secret.md", "../secret.md", str(tmp_path / "secret.md"), "."):
        with pytest.raises(ConfigError, match="leaves the home"):
            read_text_inside(root, name, limit=100)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_text_inside(root, "loop", limit=100)


@pytest.mark.parametrize("swapped", ["file", "folder"])
def test_a_link_swapped_in_after_the_check_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str) -> None:
    """F11-08: between looking at the way and opening it, an agent plants a link; the open refuses it."""
    root = tmp_path / "root"
    (root / "souls").mkdir(parents=True)
    (root / "souls" / "a.md").write_text("inside")
    (tmp_path / "a.md").write_text("outside")
    real_path = os.path.realpath

    def resolve_then_swap(path: Any) -> str:
        resolved = str(real_path(path))
        if resolved.endswith("a.md"):
            (root / "souls" / "a.md").unlink()
            if swapped == "folder":
                (root / "souls").rmdir()
                (root / "souls").symlink_to("..")
            else:
                (root / "souls" / "a.md").symlink_to("../../a.md")
        return resolved

    monkeypatch.setattr("opencognit.config.files.os.path.realpath", resolve_then_swap)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_text_inside(root, "souls/a.md", limit=100)


def test_a_file_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    """The limit itself is allowed, one byte more is not."""
    path = tmp_path / "a.md"
    path.write_bytes(b"x" * 2048)
    assert read_text(path, limit=2048) == "x" * 2048
    with pytest.raises(ConfigError, match="larger than"):
        read_text(path, limit=2047)


KEYS = st.sampled_from(["a", "b-c", "1", '"q.d \\" ]"', "'l#='", "a.b", '"x" . y', "deep.er.est"])
VALUES = st.sampled_from(
    [
        "1",
        "-1.5e3",
        "true",
        "1979-05-27 07:32:00",
        '"a # ] } , \\" b"',
        "'c:\\'",
        r'''"""
[x]
y = "" \""""""''',
        "'''\n# [[z]] = '' \n'''''",
        '""',
        "[]",
        "[ 1, # two ]\n  2,\n\n  3 ]",
        "[[1, 2], ['a]', \"b\"], [{ x = 1, y.z = [2] }]]",
        "{ }",
        "{ k = 1, l.m = '}', n = [{ o = 1 }, { o = 2 }] }",
    ]
)


@given(
    st.lists(st.one_of(st.tuples(st.sampled_from(["[{}]", "[[{}]]", "[ {} ] # c"]), KEYS), st.tuples(KEYS, VALUES)), max_size=12)
)
def test_every_key_that_toml_has_is_found_by_the_scanner(parts: list[tuple[str, str]]) -> None:
    """For any valid text, the keys with a line are exactly those of the parsed document."""
    text = ""
    for first, second in parts:
        statement = f"{first.format(second) if first.startswith('[') else f'{first} = {second}'}\n\n"
        try:
            parse_toml(text + statement, Path("t.toml"))
        except ConfigError:
            continue  # a key twice, a table over a value: leave the statement out
        text += statement
    file = parse_toml(text, Path("t.toml"))
    assert set(file.lines) == set(_keys(file.data))
    assert all(1 <= line <= text.count("\n") for line in file.lines.values())


def _keys(value: Any, key: KeyPath = ()) -> list[KeyPath]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [key] if key else []
    for part, each in inner:
        found += _keys(each, (*key, part))
    return found


def test_lines_of_keys_are_right_among_tables_arrays_and_long_strings() -> None:
    """One text with every shape, its lines counted by hand."""
    text = textwrap.dedent('''\
        top = """
        [not.a.table]
        """
        a.b = { c = 1,  d = 2 }  # comment [x]
        [[list]]
        x = [
          1,
          2, # y = 3
        ]
        [list.sub]
        k = 1
        [[list]]
        x = 9
        [ "quoted.name" ]
        y = 'z'
    ''')
    file = parse_toml(text, Path("t.toml"))
    expected: dict[KeyPath, int] = {
        ("top",): 1,
        ("a", "b", "d"): 4,
        ("list",): 5,
        ("list", 0, "x"): 6,
        ("list", 0, "x", 1): 8,
        ("list", 0, "sub", "k"): 11,
        ("list", 1): 12,
        ("list", 1, "x"): 13,
        ("quoted.name",): 14,
        ("quoted.name", "y"): 15,
    }
    assert {key: file.line(key) for key in expected} == expected
    assert file.line(("list", 1, "missing")) == 12
    assert file.line(("missing",)) is None
