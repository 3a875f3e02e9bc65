"""A soul is the text that its file gives now, or an error with the file's line; never raw braces, never anything else's text."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from opencognit import souls
from opencognit.agents import AgentSpec
from opencognit.contracts import BriefingCompany
from opencognit.errors import ConfigError
from opencognit.souls import sandbox

COMPANY = BriefingCompany(name="Acme", goal="Win {{ 1 / 0 }}")
SPEC = AgentSpec(
    name="ann",
    display_name="Ann",
    role="researcher",
    title="Head of research",
    adapter="ceo",
    skills=("search", "read"),
    reports_to="bob",
    soul="souls/ann.md",
)
Render = Callable[[str | bytes], souls.Soul]


@pytest.fixture
def render(tmp_path: Path) -> Render:
    """Render this text as Ann's soul."""
    (tmp_path / "souls").mkdir()

    def render_text(source: str | bytes) -> souls.Soul:
        raw = source.encode() if isinstance(source, str) else source
        (tmp_path / "souls" / "ann.md").write_bytes(raw)
        return souls.render(SPEC, home=tmp_path, company=COMPANY, language="de", timezone="Europe/Berlin")

    return render_text


def error_of(render: Render, source: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        render(source)
    assert "\n" not in str(caught.value)
    assert caught.value.path.name == "ann.md"
    return caught.value


def test_every_documented_variable_has_its_value(render: Render) -> None:
    """The table of variables and what is really given are one and the same."""
    values = {
        "agent.name": "ann",
        "agent.display_name": "Ann",
        "agent.role": "researcher",
        "agent.title": "Head of research",
        "agent.skills": "search, read",
        "agent.team": "",
        "agent.reports_to": "bob",
        "company.name": "Acme",
        "company.goal": "Win {{ 1 / 0 }}",
        "company.language": "de",
        "company.timezone": "Europe/Berlin",
    }
    assert set(values) == set(souls.VARIABLES)
    for name, value in values.items():
        assert render(f"<{{{{ {name} }}}}>").text == f"<{value}>"


def test_a_soul_has_its_texts_hash_and_its_file(render: Render, tmp_path: Path) -> None:
    """The hash is of what the agent got, so that a run's soul can be told from another's."""
    soul = render("I am {{ agent.name }}.\n")
    assert soul.text == "I am ann.\n"
    assert soul.sha256 == hashlib.sha256(b"I am ann.\n").hexdigest()
    assert soul.source_path == (tmp_path / "souls" / "ann.md").resolve()


def test_the_file_is_read_afresh_each_time(render: Render) -> None:
    """F11-04: a change of the same length within the same moment is seen."""
    assert [render(text).text for text in ("one", "two", "one")] == ["one", "two", "one"]


def test_a_souls_own_language_is_enough_for_a_soul(render: Render) -> None:
    """Loops, conditions, filters, settings, comments and raw text."""
    source = (
        "{# note #}{% set greeting = 'hi' %}{{ greeting | upper }}\n"
        "{% for skill in agent.skills if skill != 'x' %}{{ loop.index }}/{{ loop.length }} {{ skill | title }}"
        "{{ ',' if not loop.last }}{% endfor %}\n"
        "{% if agent.team %}team{% elif 'search' in agent.skills %}{{ agent['role'] ~ '!' }}{% else %}none{% endif %}\n"
        "{{ agent.skills | sort | first }} {{ agent.team | default('no team') }} {{ agent.skills[0] }} "
        "{{ 'a' * 3 + 'b' }} {{ 2 * 3 }}\n"
        "{{ agent.name | replace('n', 'N') }} {% for i in range(3) %}{{ i }}{% endfor %}{% raw %} {{ kept }}{% endraw %}"
    )
    assert render(source).text == "HI\n1/2 Search,2/2 Read\nresearcher!\nread no team search aaab 6\naNN 012 {{ kept }}"


def test_values_are_never_templates(render: Render) -> None:
    """F11-01: braces in the company's goal, which a person types, stay braces."""
    assert render("{{ company.goal }}").text == "Win {{ 1 / 0 }}"


def test_line_ends_and_byte_order_marks_of_other_systems_are_read(render: Render) -> None:
    """Any editor will do."""
    assert render(b"\xef\xbb\xbfone\r\ntwo\n").text == "one\ntwo\n"


@pytest.mark.parametrize(
    ("source", "line", "parts"),
    [
        ("a\n{{ agent.nmae }}", 2, ["'agent.nmae'", "did you mean 'agent.name'?"]),
        ("a\n\n{{ colour }}", 3, ["'colour'", "known: agent.display_name, ", "company.timezone"]),
        ("{% if agent.team %}\n{{ colour }}{% endif %}", 2, ["'colour'"]),
        ("a\n{{ agent['nmae'] }}", 2, ["'agent.nmae'"]),
        ("a\n{{ agent.skills[7] }}", 2, ["no element 7"]),
        ("a\n{{ agent }}", 2, ["is no text"]),
        ("a\nb {{ ", 2, ["unexpected"]),
        ("a\n{% if %}", 2, ["Expected an expression"]),
        ("a\n{% nonsense %}", 2, ["unknown tag 'nonsense'"]),
        ("a\n{% endfor %}", 2, ["unknown tag 'endfor'"]),
        ("a\n{{ agent.name | uper }}", 2, ["no filter 'uper'", "did you mean 'upper'?"]),
        ("a\n{{ agent.name is nonsense }}", 2, ["No test named 'nonsense'"]),
        ("a\n{{ 1 / 0 }}", 2, ["division by zero"]),
        ("a\n{{ 1 + 'a' }}", 2, ["'+' joins only"]),
        ("a\n{% for x in 5 %}{% endfor %}", 2, ["not iterable"]),
        ("a\n{% set agent = 1 %}", 2, ["'agent' cannot be set"]),
        (b"a\nb\n\xff", 3, ["not UTF-8"]),
        (b"a\n\x00", 2, ["NUL"]),
        ("", None, ["renders to no text"]),
        ("{% if agent.team %}text{% endif %}\n", None, ["renders to no text"]),
    ],
)
def test_a_broken_soul_is_named_with_its_line(render: Render, source: str | bytes, line: int | None, parts: list[str]) -> None:
    """F11-02: an error, always; the unrendered text never stands in for the soul."""
    error = error_of(render, source)
    assert error.line == line
    for part in parts:
        assert part in error.problem


ATTRIBUTE_ATTACKS = [
    "{{ ''.__class__ }}",
    "{{ agent.__class__ }}",
    "{{ agent.name.__class__.__mro__[1].__subclasses__() }}",
    "{{ agent.skills.__len__ }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ ''.join }}",
    "{{ 'a'.upper() }}",
    "{{ range.__class__ }}",
    "{% for x in 'a' %}{{ loop._iterable }}{% endfor %}",
    "{% for x in 'a' %}{{ loop.cycle('a') }}{% endfor %}",
]


@pytest.mark.parametrize(
    "attack",
    [
        *ATTRIBUTE_ATTACKS,
        "{{ ''['__class__'] }}",
        "{{ ('__cla' ~ 'ss__') and ''['__cla' ~ 'ss__'] }}",
        "{{ agent['__class__'] }}",
        "{{ agent['__cla' ~ 'ss__'] }}",
        "{{ agent.skills['__class__'] }}",
        "{{ ''|attr('__class__') }}",
        "{{ agent.skills|map(attribute='__class__')|join }}",
        "{{ '%s' % 1 }}",
        "{{ self }}",
        "{{ self['_TemplateReference__context'] }}",
        "{{ super() }}",
        "{{ caller() }}",
        "{{ loop }}",
        "{% for x in 'a' %}{{ loop['__init__'] }}{% endfor %}",
        "{{ range }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ lipsum.__globals__ }}",
        "{{ namespace(a=1) }}",
        "{{ dict(a=1) }}",
        "{{ {'a': 1} }}",
        "{{ [[1], [2]] }}",
        "{% include 'souls/ann.md' %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% from 'os' import system %}",
        "{% extends 'x' %}",
        "{% block a %}x{% endblock %}",
        "{% macro f() %}x{% endmacro %}{{ f() }}",
        "{% call f() %}x{% endcall %}",
        "{% set x %}a{% endset %}{{ x }}",
        "{% filter upper %}x{% endfilter %}",
        "{% with a = 1 %}{{ a }}{% endwith %}",
        "{% autoescape true %}x{% endautoescape %}",
        "{% for x in [1] recursive %}{{ x }}{% endfor %}",
        "{% for x in [agent.name] %}{{ x }}{% endfor %}",
        "{{ agent.skills|join(*agent.skills) }}",
        "{% debug %}",
    ],
)
def test_an_escape_does_nothing_but_fail_with_its_line(render: Render, attack: str) -> None:
    """F11-01: no attribute, call, file or loader is reachable from a template."""
    assert error_of(render, f"a\n{attack}").line == 2


@pytest.mark.parametrize("attack", ATTRIBUTE_ATTACKS)
def test_the_list_of_allowed_nodes_holds_without_the_sandbox(
    render: Render, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    """Each fence with the other one off: here Jinja's sandbox would let every attribute through."""
    monkeypatch.setattr(sandbox._Environment, "is_safe_attribute", lambda *_: True)
    assert re.search("not allowed|unknown variable", error_of(render, attack).problem)


@pytest.mark.parametrize("attack", [*ATTRIBUTE_ATTACKS, "{{ ''['__class__'] }}", "{{ agent['__cla' ~ 'ss__'] }}"])
def test_the_sandbox_holds_without_the_list_of_allowed_nodes(
    render: Render, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    """The other way round: what is parsed is not looked at, and fails when it runs."""
    monkeypatch.setattr(sandbox, "_problem", lambda *_: None)
    assert re.search("unsafe|no attribute", error_of(render, attack).problem)


@pytest.mark.parametrize(
    ("bomb", "part"),
    [
        ("{% for i in range(10 ** 9) %}x{% endfor %}", "'pow' is not allowed"),
        ("{{ 9 ** 9 ** 9 }}", "'pow' is not allowed"),
        ("{% for i in range(1000000000) %}x{% endfor %}", "Range too big"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "loops and texts are too large"),
        ("{% for i in 'abcdefghij' %}" * 9 + "x" + "{% endfor %}" * 9, "loops and texts are too large"),
        ("{% for i in range(9999) %}{{ range(99999) | sort | length }}{% endfor %}", "loops and texts are too large"),
        ("{{ 'a' * 1000000000 }}", "more than 100000 characters"),
        ("{{ 1000000000 * 'a' }}", "more than 100000 characters"),
        ("{{ ('a' * 9999) | replace('a', 'b' * 9999) }}", "more than 100000 characters"),
        ("{{ range(999) | join('a' * 999) }}", "more than 100000 characters"),
        ("{% set x = 'aaaaaaaa' %}" + "{% set x = x ~ x %}" * 20 + "{{ x }}", "more than 100000 characters"),
        ("{% set x = 'aaaaaaaa' %}" + "{% set x = x + x %}" * 20 + "{{ x }}", "more than 100000 characters"),
        ("{{ [1] * 1000000000 }}", "joins only"),
        ("{{ (1, 2) * 1000000000 }}", "joins only"),
        ("{{ '%1000000000d' % 1 }}", "joins only"),
        ("{{ 'a' | center(1000000000) }}", "no filter 'center'"),
        ("{% set x = 99999999 %}" + "{% set x = x * x %}" * 12 + "{{ x }}", "numbers are too large"),
        ("{% for i in range(99999) %}" + "a" * 100 + "{% endfor %}", "more than 1024 KB"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nested too deeply"),
        ("{{ " + "1 + " * 5000 + "1 }}", "nested too deeply"),
        ("{% if 1 %}" * 200 + "x" + "{% endif %}" * 200, "nested too deeply"),
        ("{{ " + "9" * 5000 + " }}", "number too large"),
        ("{{ agent.name }}" * 10_000, "too many variables"),
        ("x" * (256 * 1024 + 1), "larger than 256 KB"),
    ],
    ids=lambda value: re.sub(r"\W+", "-", value[:40]),
)
@pytest.mark.timeout(20)
def test_a_soul_cannot_grow_or_run_without_end(render: Render, bomb: str, part: str) -> None:
    """F11-01: loops, texts, numbers, nesting and output are all bounded, each by its own limit."""
    assert part in error_of(render, bomb).problem


def test_lists_that_filters_walk_are_counted_too(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter is a loop that one cannot see."""
    monkeypatch.setattr(sandbox, "SECONDS_LIMIT", 3600.0)
    assert "too large" in error_of(render, "{% for i in range(50) %}{{ range(9999) | sort | length }}{% endfor %}").problem


def test_loops_within_loops_are_counted_together(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step counter holds by itself, on a machine of any speed."""
    monkeypatch.setattr(sandbox, "SECONDS_LIMIT", 3600.0)
    assert "too large" in error_of(render, "{% for i in range(999) %}{% for j in range(999) %}{% endfor %}{% endfor %}x").problem


def test_slow_work_that_few_steps_hide_is_stopped_by_the_clock(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline holds by itself, whatever the step counter thinks."""
    monkeypatch.setattr(sandbox, "SECONDS_LIMIT", -1.0)
    assert "too large" in error_of(render, "{% for i in range(3) %}x{% endfor %}").problem


def test_souls_up_to_the_limits_are_rendered(render: Render) -> None:
    """The bounds are far from what a person writes."""
    assert len(render("x" * (256 * 1024)).text) == 256 * 1024
    assert len(render("{% for i in range(9999) %}" + "a" * 100 + "{% endfor %}").text) == 999_900


def test_without_a_soul_the_prompt_is_rendered(tmp_path: Path) -> None:
    """The prompt is the text that a soul would replace, with the same variables and no file."""
    spec = SPEC.model_copy(update={"soul": None, "prompt": "I am {{ agent.name }}."})
    soul = souls.render(spec, home=tmp_path, company=COMPANY)
    assert (soul.text, soul.source_path) == ("I am ann.", None)


def test_a_soul_wins_over_the_prompt_where_its_file_exists(render: Render, tmp_path: Path) -> None:
    """Otherwise the prompt stands in; without one, a missing file is an error."""
    spec = SPEC.model_copy(update={"prompt": "from the prompt"})
    render("from the file")
    assert souls.render(spec, home=tmp_path, company=COMPANY).text == "from the file"
    (tmp_path / "souls" / "ann.md").unlink()
    assert souls.render(spec, home=tmp_path, company=COMPANY).text == "from the prompt"
    with pytest.raises(ConfigError, match="no such file"):
        souls.render(SPEC, home=tmp_path, company=COMPANY)


def test_without_soul_and_prompt_an_agent_is_still_told_who_it_is(tmp_path: Path) -> None:
    """The default soul names agent, company and skills."""
    spec = SPEC.model_copy(update={"soul": None})
    text = souls.render(spec, home=tmp_path, company=COMPANY).text
    for part in ("Ann", "Head of research", "Acme", "Win {{ 1 / 0 }}", "search, read"):
        assert part in text
    assert souls.render(spec, home=tmp_path, company=BriefingCompany(name="Acme", goal="")).text.count("goal") == 0


def test_an_error_in_a_prompt_stands_at_its_key(tmp_path: Path) -> None:
    """Also for a spec that came from the database and has forgotten its file."""
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "ann.toml").write_text('name = "ann"\nadapter = "ceo"\nprompt = """\nHi\n{{ agent.nmae }}"""\n')
    spec = AgentSpec(name="ann", adapter="ceo", prompt="Hi\n{{ agent.nmae }}")
    with pytest.raises(ConfigError, match=r"prompt, line 2: .*'agent.nmae'") as caught:
        souls.render(spec, home=tmp_path, company=COMPANY)
    assert (caught.value.path, caught.value.line) == (tmp_path / "agents" / "ann.toml", 3)


@pytest.mark.parametrize(
    ("plant", "part"),
    [
        (lambda path: path.symlink_to("/etc/passwd"), "leaves the home"),
        (lambda path: path.symlink_to("../../outside.md"), "leaves the home"),
        (os.mkfifo, "not a regular file"),
        (Path.mkdir, "is a folder"),
        (lambda path: path.symlink_to(path.name), "cannot be read"),
    ],
    ids=["absolute-link", "link", "fifo", "folder", "loop"],
)
@pytest.mark.timeout(20)
def test_what_is_planted_in_a_souls_place_is_not_read(tmp_path: Path, plant: Callable[[Path], object], part: str) -> None:
    """F11-08: no file of the host reaches a prompt, and nothing hangs the daemon."""
    home = tmp_path / "home"
    (home / "souls").mkdir(parents=True)
    (tmp_path / "outside.md").write_text("secret")
    plant(home / "souls" / "ann.md")
    with pytest.raises(ConfigError, match=part) as caught:
        souls.render(SPEC, home=home, company=COMPANY)
    assert "secret" not in str(caught.value)


def test_a_link_within_the_home_is_followed(render: Render, tmp_path: Path) -> None:
    """Two agents may share a soul, each rendered with its own values."""
    render("I am {{ agent.name }}.")
    (tmp_path / "souls" / "bob.md").symlink_to("ann.md")
    bob = SPEC.model_copy(update={"name": "bob", "soul": "souls/bob.md"})
    assert souls.render(bob, home=tmp_path, company=COMPANY).text == "I am bob."


def test_check_tells_every_agents_problem(render: Render, tmp_path: Path) -> None:
    """One error for each broken soul, none for a good one."""
    render("fine")
    (tmp_path / "souls" / "bad.md").write_text("{{ x }}")
    bad, lost = (SPEC.model_copy(update={"name": name, "soul": f"souls/{name}.md"}) for name in ("bad", "lost"))
    found = souls.check([SPEC, bad, lost], home=tmp_path, company=COMPANY)
    assert [(each.path.name, each.line) for each in found] == [("bad.md", 1), ("lost.md", None)]


def test_a_soul_file_can_be_checked_by_itself(tmp_path: Path) -> None:
    """Also one that no agent uses yet."""
    path = tmp_path / "new.md"
    path.write_text("Hi {{ agent.name }}\n{{ agent.nmae }}")
    error = souls.check_file(path)
    assert error is not None
    assert error.line == 2
    path.write_text("Hi {{ agent.name }}")
    assert souls.check_file(path) is None
