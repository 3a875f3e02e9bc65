"""The agents' files are good as a whole, or they are refused with one line that says which, where and how to mend it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from opencognit.agents import ADAPTERS, AgentSpec, BashConfig, load_agents
from opencognit.errors import ConfigError

LINE = 'name = "ann"\nadapter = "bash"\n{}\n[adapter_config]\ncommand = "true"\n'
MODEL_KEYS = "model = 'm'\nmax_tokens = 1\nmax_turns = 2\nworkspace_tools = ['read']"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write agents/NAME.toml for each keyword and return the home."""

    def write_files(**files: str) -> Path:
        (tmp_path / "agents").mkdir(exist_ok=True)
        for name, text in files.items():
            (tmp_path / "agents" / f"{name}.toml").write_text(text)
        return tmp_path

    return write_files


def error_of(home: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_agents(home)
    assert "\n" not in str(caught.value)
    return caught.value


def test_agents_are_loaded_in_the_order_of_names(write: Write) -> None:
    """By name, which is not the order of the files' names: '-' sorts before '.'."""
    home = write(**{name: LINE.replace("ann", name).format("") for name in ("zoe", "ann-b", "ann")})
    specs = load_agents(home)
    assert list(specs) == ["ann", "ann-b", "zoe"]
    assert specs["zoe"].path == home / "agents" / "zoe.toml"


def test_what_a_file_leaves_out_has_its_documented_default(write: Write) -> None:
    """Names follow from each other; None is unknown or inherited, never zero."""
    spec = load_agents(write(ann=LINE.format("")))["ann"]
    assert (spec.display_name, spec.role, spec.title) == ("ann", "ann", "ann")
    assert (spec.monthly_budget_usd, spec.timeout_s, spec.heartbeat_interval_s, spec.team, spec.soul) == (None,) * 5
    assert (spec.max_concurrent_runs, spec.enabled, spec.skills, spec.needs_approval) == (1, True, (), ())
    assert spec.adapter_config == {"command": "true", "allow_task_commands": False, "env": []}


def test_all_keys_are_read(write: Write) -> None:
    """Every key of CONTRACT.md's list has its place."""
    home = write(
        ceo='name = "ceo"\nadapter = "ceo"',
        ann="""
            name = "ann"
            display_name = "Ann"
            role = "researcher"
            adapter = "bash"
            skills = [" Search ", "search", "read"]
            team = "lab"
            reports_to = "ceo"
            prompt = "You are Ann."
            monthly_budget_usd = 12.50
            heartbeat_interval_s = 0
            max_concurrent_runs = 2
            timeout_s = 3600
            enabled = false
            workdir = "/srv/repository"
            needs_approval = ["hire"]
            [adapter_config]
            command = ["{python}", "{home}/x.py", "{other}"]
            allow_task_commands = true
            env = ["MY_KEY"]
        """,
    )
    spec = load_agents(home)["ann"]
    assert (spec.display_name, spec.role, spec.title, spec.team, spec.reports_to) == (
        "Ann",
        "researcher",
        "researcher",
        "lab",
        "ceo",
    )
    assert spec.skills == ("Search", "read")
    assert (spec.monthly_budget_usd, spec.heartbeat_interval_s, spec.timeout_s) == (Decimal("12.5"), 0, 3600)
    assert (spec.max_concurrent_runs, spec.enabled, spec.workdir, spec.needs_approval) == (2, False, "/srv/repository", ("hire",))
    config = BashConfig.model_validate(spec.adapter_config)
    assert (config.command, config.allow_task_commands, config.env) == (("{python}", "{home}/x.py", "{other}"), True, ("MY_KEY",))


def test_a_spec_survives_json_with_the_same_digest(write: Write) -> None:
    """The engine stores specs as JSON and compares digests: neither may lose or change a value."""
    spec = load_agents(write(ann=LINE.format('skills = ["a"]\nmonthly_budget_usd = 1.5\nheartbeat_interval_s = 0')))["ann"]
    restored = AgentSpec.model_validate(json.loads(json.dumps(spec.model_dump(mode="json"))))
    assert restored.model_dump() == spec.model_dump()
    assert restored.digest == spec.digest
    assert restored.path is None


def test_the_digest_is_of_the_content_not_of_its_form(write: Write) -> None:
    """Comments and order change nothing; any value does."""
    digest = load_agents(write(ann=LINE.format('role = "x"\nteam = "y"')))["ann"].digest
    assert load_agents(write(ann="# new\n" + LINE.format('team = "y"\n\nrole = "x"')))["ann"].digest == digest
    assert load_agents(write(ann=LINE.format('role = "x"\nteam = "z"')))["ann"].digest != digest
    assert load_agents(write(ann=LINE.format('role = "x"\nteam = "y"').replace("true", "false")))["ann"].digest != digest
    one, two = (AgentSpec(name="ann", adapter="mine", adapter_config=config) for config in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert one.digest == two.digest


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        (LINE.format('titel = "x"'), 3, ["unknown key 'titel'", "did you mean 'title'?"]),
        (LINE.format("role = 3"), 3, ["role: expected text, found 3"]),
        (LINE.format('skills = ["a", " "]'), 3, ["skills[2]: is empty"]),
        (LINE.format('skills = "a"'), 3, ["expected a list"]),
        (LINE.format("timeout_s = 0"), 3, ["timeout_s", "greater than 0"]),
        (LINE.format("max_concurrent_runs = 0"), 3, ["at least 1"]),
        (LINE.format("monthly_budget_usd = -1"), 3, ["monthly_budget_usd", "from 0"]),
        (LINE.format('reports_to = "bob"'), 3, ["reports_to names no agent 'bob'"]),
        (LINE.replace("bash", "bahs").format(""), 2, ["unknown adapter 'bahs'", "did you mean 'bash'?"]),
        (LINE.replace("bash", "claude_code").format(""), 2, ["did you mean 'claude-code'?"]),
        (LINE.replace('"ann"', '"bob"').format(""), 1, ["name 'bob' must be the file's own, 'ann'"]),
        ('adapter = "bash"', None, ["the key 'name' is missing"]),
        ("", None, ["is missing"]),
        ('name = "ann"\nadapter = "bash"', None, ["'adapter_config.command' is missing"]),
        ("name = \n", 1, ["not valid TOML"]),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line(write: Write, text: str, line: int | None, parts: list[str]) -> None:
    """File, line, what was found and what to write instead."""
    error = error_of(write(ann=text))
    assert (error.path.name, error.line) == ("ann.toml", line)
    for part in parts:
        assert part in error.problem


@pytest.mark.parametrize(
    ("adapter", "config", "line", "part"),
    [
        ("bash", "commnd = 'x'", 4, "did you mean 'command'?"),
        ("bash", "command = []", 4, "adapter_config.command: is empty"),
        ("bash", "command = ' '", 4, "is empty"),
        ("bash", "command = 3", 4, "a shell line or a list of words"),
        ("bash", "command = ['a', 3]", 4, "a shell line or a list of words"),
        ("bash", "command = 'x'\nenv = ['A=b']", 5, "env[1]: expected the name of an environment variable"),
        ("bash", "command = 'x'\nallow_task_commands = 'yes'", 5, "expected true or false"),
        ("ceo", "planner = 'rule'", 4, "did you mean 'rules'?"),
        ("ceo", "planner = 'llm'", 4, "needs a connection"),
        ("ceo", "planner = 'llm'\nadapter = 'claud'", 5, "did you mean 'claude'?"),
        ("ceo", "planner = 'llm'\nadapter = 'bash'", 5, "cannot plan with 'bash'"),
        ("http", "", 3, "'adapter_config.url' is missing"),
        ("http", "url = 'ftp://x'", 4, "http://HOST"),
        ("http", "url = 'http://x'\nmode = 'asinc'", 5, "did you mean 'sync'?"),
        ("claude", "max_token = 3", 4, "did you mean 'max_tokens'?"),
        ("ollama", "workspace_tools = ['rite']", 4, "did you mean 'write'?"),
        ("claude-code", "permision_mode = 'plan'", 4, "did you mean 'permission_mode'?"),
    ],
)
def test_adapter_config_is_checked_for_its_adapter(write: Write, adapter: str, config: str, line: int, part: str) -> None:
    """Each adapter knows its own keys, and only those."""
    error = error_of(write(ann=f"name = 'ann'\nadapter = '{adapter}'\n[adapter_config]\n{config}\n"))
    assert error.line == line
    assert part in error.problem


@pytest.mark.parametrize(
    ("adapter", "config"),
    [
        ("ceo", ""),
        ("ceo", "planner = 'llm'\nadapter = 'openai'"),
        ("http", "url = 'https://example.org/x'\nsecret_env = 'HOOK'\nmode = 'callback'"),
        ("claude-code", "model = 'opus'\nallowed_tools = ['Read']\npermission_mode = 'plan'"),
        *((name, MODEL_KEYS) for name in ("claude", "openrouter", "openai", "ollama")),
    ],
)  # fmt: skip
def test_every_adapter_takes_its_keys(write: Write, adapter: str, config: str) -> None:
    """What CONTRACT.md lists is accepted."""
    home = write(ann=f"name = 'ann'\nadapter = '{adapter}'\n[adapter_config]\n{config}\n")
    assert load_agents(home)["ann"].adapter in ADAPTERS


def test_an_added_adapter_takes_any_plain_keys(write: Write) -> None:
    """A package's adapter is known by its name alone; what cannot be stored as JSON is refused all the same."""
    text = "name = 'ann'\nadapter = 'mine'\n[adapter_config]\nkey = {}\n"
    home = write(ann=text.format("[1, { a = true }]"))
    assert load_agents(home, known_adapters=["mine"])["ann"].adapter_config == {"key": [1, {"a": True}]}
    with pytest.raises(ConfigError, match="unknown adapter 'mine'"):
        load_agents(home)
    write(ann=text.format("2026-01-01"))
    with pytest.raises(ConfigError, match="write it as text"):
        load_agents(home, known_adapters=["mine"])


@pytest.mark.parametrize(
    ("written", "interval_s"),
    [
        ("", None),
        ("heartbeat_interval_s = 0", 0),
        ("heartbeat_interval_s = 90", 90),
        *((f"heartbeat_interval_s = {value}", "error") for value in ("{}", "null", "'0m'", "false", "-5", "'abc'", "''", "inf")),
    ],
)
def test_an_agents_timer_that_reads_as_off_is_never_on(write: Write, written: str, interval_s: float | str | None) -> None:
    """F02-02: left out follows the company's heartbeat, 0 is off, and every other form of "off" is an error that says so."""
    home = write(ann=LINE.format(written))
    if interval_s == "error":
        error = error_of(home)
        assert error.line == 3
        assert "0 wakes the agent only by events" in error.problem or "leave the key out" in error.problem
    else:
        assert load_agents(home)["ann"].heartbeat_interval_s == interval_s


@pytest.mark.parametrize(
    "name",
    ["board", "system", "critic", "../../etc", "/etc", "a/b", "..", "-a", "", "a b", "Ann", "Ä", "a\\u0000", "a" * 64, "a_b"],
)
def test_a_name_is_safe_in_paths_and_not_reserved(write: Write, name: str) -> None:
    """F11-09: whatever would leave a folder or meet another agent's is refused at line one of its file."""
    error = error_of(write(ann=LINE.replace('"ann"', f'"{name}"').format("")))
    assert error.line == 1
    assert error.problem.startswith("name: ")  # and not only because it is not the file's own name


def test_a_name_of_63_letters_is_allowed(write: Write) -> None:
    """The longest name, so that the limit is where it is said to be."""
    name = "a" * 63
    assert list(load_agents(write(**{name: LINE.replace("ann", name).format("")}))) == [name]


def test_a_ring_of_managers_is_shown(write: Write) -> None:
    """The whole ring stands in the message; who merely reports into it is not accused."""
    chain = {"ann": "cid", "bob": "ann", "cid": "bob", "dora": "ann"}
    home = write(**{name: LINE.replace("ann", name).format(f'reports_to = "{boss}"') for name, boss in chain.items()})
    error = error_of(home)
    assert (error.path.name, error.line) == ("ann.toml", 3)
    assert "ann → cid → bob → ann" in error.problem
    assert "more problem" not in error.problem


def test_an_agent_cannot_be_its_own_manager(write: Write) -> None:
    """The shortest ring."""
    assert "ann → ann" in error_of(write(ann=LINE.format('reports_to = "ann"'))).problem


def test_a_long_chain_of_managers_is_no_ring(write: Write) -> None:
    """A tree of any depth is fine."""
    names = [f"a{number}" for number in range(50)]
    lines = {name: LINE.replace("ann", name) for name in names}
    files = {
        name: lines[name].format(f'reports_to = "{boss}"' if boss else "")
        for name, boss in zip(names, ["", *names], strict=False)
    }
    assert len(load_agents(write(**files))) == 50


def test_an_unknown_manager_is_answered_with_the_nearest_name(write: Write) -> None:
    """A slip of the pen is recognised."""
    home = write(anna=LINE.replace("ann", "anna").format(""), bob=LINE.replace("ann", "bob").format('reports_to = "ana"'))
    assert "did you mean 'anna'?" in error_of(home).problem


def test_two_ceos_are_refused(write: Write) -> None:
    """The second one's file and line are named, and the first one's name."""
    home = write(**{name: f"name = '{name}'\nadapter = 'ceo'" for name in ("ann", "bob")})
    error = error_of(home)
    assert (error.path.name, error.line) == ("bob.toml", 2)
    assert "'ann'" in error.problem


def test_problems_of_several_files_are_counted(write: Write) -> None:
    """One line for all of them."""
    home = write(ann=LINE.format("role = 1\ntitle = 2"), bob="x = ", cid="name = 'cid'\nadapter = 'ceo'")
    error = error_of(home)
    assert error.path.name == "ann.toml"
    assert error.problem.endswith("(and 2 more problems)")


def test_other_files_beside_the_agents_are_none_of_ours(write: Write) -> None:
    """Scripts, editors' swap files and backups, notes: not read, however broken."""
    home = write(ann=LINE.format(""))
    for name in (".hidden.toml", ".#ann.toml", "ann.toml~", ".ann.toml.swp", "#ann.toml#", "run.py", "notes.md", "ann.toml.bak"):
        (home / "agents" / name).write_text("broken [")
    assert list(load_agents(home)) == ["ann"]


def test_a_folder_or_fifo_in_a_files_place_is_refused(write: Write) -> None:
    """Neither hangs nor is skipped in silence."""
    home = write()
    (home / "agents" / "ann.toml").mkdir()
    assert "is a folder" in error_of(home).problem
    (home / "agents" / "ann.toml").rmdir()
    os.mkfifo(home / "agents" / "ann.toml")
    assert "not a regular file" in error_of(home).problem


def test_a_home_without_its_agents_folder_is_refused(tmp_path: Path) -> None:
    """A folder that is gone must not read as "all agents were removed"; an empty one is a company without agents."""
    assert "agents" in str(error_of(tmp_path))
    (tmp_path / "agents").mkdir()
    assert load_agents(tmp_path) == {}


@pytest.mark.parametrize(
    ("soul", "part"),
    [
        ("souls/link.md", "leaves the home"),
        ("../outside.md", "leaves the home"),
        ("/etc/passwd", "leaves the home"),
        ("souls/fifo.md", "not a regular file"),
        ("souls", "is a folder"),
        ("souls/missing.md", "no such file"),
        ("souls/latin.md", "not UTF-8"),
        ("s" * 300, "cannot be read"),
    ],
)
def test_a_soul_must_be_a_regular_file_inside_the_home(write: Write, soul: str, part: str) -> None:
    """F11-08: refused at the agent's own line, before anything is read from it."""
    home = write(ann=LINE.format(f'soul = "{soul}"'))
    (home / "souls").mkdir()
    (home.parent / "outside.md").write_text("x")
    (home / "souls" / "link.md").symlink_to(home.parent / "outside.md")
    (home / "souls" / "latin.md").write_bytes(b"\xe9")
    os.mkfifo(home / "souls" / "fifo.md")
    error = error_of(home)
    assert (error.path.name, error.line) == ("ann.toml", 3)
    assert part in error.problem


def test_a_missing_soul_is_fine_where_a_prompt_stands_in(write: Write) -> None:
    """The soul wins where the file exists, so one that exists is checked all the same."""
    home = write(ann=LINE.format('soul = "souls/ann.md"\nprompt = "I am Ann."'))
    assert load_agents(home)["ann"].prompt == "I am Ann."
    (home / "souls" / "ann.md").mkdir(parents=True)
    assert "is a folder" in error_of(home).problem
