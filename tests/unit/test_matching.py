"""Who gets a task: a table of items and experts, half of it German, and the rules for wishes, load and pauses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opencognit.contracts import TeamMember
from opencognit.matching import Match, match

TEAM = (
    TeamMember("surveyor", "Surveyor", "Surveyor of source trees", ("inventory", "packages", "sizes")),
    TeamMember("inspector", "Inspector", "Inspector of code health", ("code-health", "ast", "python")),
    TeamMember("writer", "Writer", "Senior content lead", ("writing", "report-writing", "proofreading")),
    TeamMember("analyst", "Research Analyst", "", ("research", "data-analysis")),
    TeamMember("admin", "IT Support", "", ("it", "network", "c++", "go", "backend")),
    TeamMember("juristin", "Juristin", "Vertragsrecht", ("vertrag", "datenschutz", "recht")),
    TeamMember("dolmetscher", "Übersetzer", "", ("übersetzung", "japanisch")),
    TeamMember("buchhalter", "Buchhalter", "Finanzen", ("buchhaltung", "rechnung", "steuern")),
    TeamMember("redaktion", "Redaktion", "", ("bericht", "recherche", "lektorat")),
    TeamMember("statistiker", "", "Experte für Statistik", ("datenanalyse", "umfragen")),
)

TABLE = [
    # English
    ("Inventory: packages and sizes of the source tree", "surveyor"),
    ("Take inventories of every package", "surveyor"),
    ("Survey the tree", "surveyor"),  # by what a surveyor does
    ("Code health: longest functions, missing docstrings", "inspector"),
    ("Check the health of our code", "inspector"),
    ("Write a Python script", "inspector"),  # "write" says less than "Python"
    ("Parse it with AST", "inspector"),
    ("Write the report", "writer"),
    ("Report, written well: write it", "writer"),
    ("Proofread the manual", "writer"),
    ("Research competitors", "analyst"),
    ("Researching what users want", "analyst"),
    ("Analyse the data of last year", "analyst"),
    ("Data analyses for the board", "analyst"),
    ("Fix the IT of the front desk", "admin"),
    ("Networks: map them", "admin"),
    ("Port the parser to C++", "admin"),
    ("Write it in Go", "admin"),
    # German
    ("Vertrag prüfen", "juristin"),
    ("Prüfe die Verträge", "juristin"),
    ("Datenschutzerklärung erstellen", "juristin"),  # the compound begins with the skill
    ("Eine Rechtsfrage klären", "juristin"),
    ("Übersetze die Broschüre", "dolmetscher"),
    ("Broschüre uebersetzen", "dolmetscher"),
    ("BROSCHU\u0308RE ÜBERSETZEN", "dolmetscher"),  # decomposed, capitals
    ("Vertrag ins Japanische übersetzen", "dolmetscher"),  # two hits against one
    ("Rechnungen verbuchen", "buchhalter"),
    ("Rechnungsprüfung für März", "buchhalter"),
    ("Steuern für das Quartal anmelden", "buchhalter"),
    ("Finanzen ordnen", "buchhalter"),  # by title alone
    ("Sicherheitsbericht schreiben", "redaktion"),  # the compound ends with the skill
    ("Berichte über den Standort", "redaktion"),
    ("Recherchiere die Konkurrenz", "redaktion"),
    ("Daten analysieren", "statistiker"),  # both parts of a compound skill
    ("Analyse der Daten", "statistiker"),
    ("Statistik der Besuche", "statistiker"),
    # nobody
    ("Translate the contract into Japanese", None),
    ("Design a logo", None),
    ("Make it nice", None),
    ("Go through the list", None),
    ("Plan the summer party", None),
    ("Prepare and check everything", None),
    ("Buy flowers for the office", None),
    ("Act as the expert of the team", None),
    ("Lead the team", None),
    ("Photograph the paragraph", None),
    ("Kuchen backen", None),  # not "backend"
    ("Berechtigungen setzen", None),  # "recht" within, not at an end
    ("Das ist gerecht", None),
    ("Alles vorbereiten und überarbeiten", None),
    ("Ein Logo entwerfen", None),
    ("Räume mieten", None),
    ("!!!", None),
    ("翻译合同", None),
]


@pytest.mark.parametrize(("item", "expected"), TABLE, ids=[item for item, _ in TABLE])
def test_the_item_goes_to_the_expert_that_a_person_would_choose(item: str, expected: str | None) -> None:
    """One expert of ten, or nobody where none is able; the reason names the agent, or all that the team can do."""
    found = match(item, team=TEAM)

    assert found.agent == expected, found
    if expected is None:
        assert found.reason.startswith("no agent has a skill for this: admin (it, network, c++, go, backend), analyst (")
    else:
        assert found.reason.startswith(f"{expected}: ")
        assert found.reason.endswith("; load 0")


def test_a_small_team_does_not_guess() -> None:
    """With three general skills, foreign work finds nobody."""
    team = [TeamMember("a", "Agent", "", ("python", "research", "writing"))]

    for item in ("Translate the contract into Japanese", "Design a logo", "Call the landlord", "Den Vertrag kündigen"):
        assert match(item, team=team).agent is None
    assert match("Write the report", team=team).reason == "a: skill 'writing' matches; load 0"


def test_the_reason_is_a_sentence_for_the_task() -> None:
    """It says which skills and which role fit, and the load."""
    assert match("AST and code health", team=TEAM).reason == (
        "inspector: skills 'code-health' and 'ast' match; title 'Inspector of code health' matches; load 0"
    )


def test_a_skill_that_everybody_has_says_little() -> None:
    """The rare skill decides against the common one, whatever the load."""
    team = [TeamMember(name, "", "", ("python",)) for name in "abc"] + [TeamMember("z", "", "", ("excel", "python"), load=9)]

    assert match("Export the Python figures to Excel", team=team).agent == "z"
    assert match("Python figures", team=team).score < match("Excel figures", team=team).score


def test_a_common_verb_decides_only_where_nothing_else_does() -> None:
    """Of "write" and "Python" the second is what the task is about."""
    team = [TeamMember("a", "", "", ("writing",)), TeamMember("b", "", "", ("python",), load=9)]

    assert match("Write a Python script", team=team).agent == "b"
    assert match("Write a letter", team=team).agent == "a"


def test_one_word_of_a_long_title_is_no_hit() -> None:
    """A title counts from a third of its words on."""
    team = [TeamMember("a", "", "Keeps the books of the eastern branch in perfect order", ())]

    assert match("Eastern flowers", team=team).agent is None
    assert match("Books of the branch", team=team).agent == "a"


def test_a_german_noun_in_ung_is_its_verb() -> None:
    """'Prüfung' is what 'prüfen' does, in either direction."""
    assert match("Kasse prüfen", team=[TeamMember("a", "", "", ("prüfung",))]).agent == "a"
    assert match("Prüfungen der Kasse", team=[TeamMember("a", "", "", ("prüfen",))]).agent == "a"


def test_compounds_are_looked_into_in_german_only() -> None:
    """English words that merely end like a skill do not match."""
    team = [TeamMember("a", "", "", ("graph", "karte", "daten"))]

    assert match("rewrite all paragraphs and photographs", team=team).agent is None
    assert match("eine landeskarte für die gäste", team=team).agent == "a"
    assert match("Verkaufsdaten ordnen", team=team).agent == "a"


def test_equal_agents_share_by_load_then_by_name() -> None:
    """Ties go to who has less to do, then to the first name, in whatever order the team is given."""
    team = [TeamMember("c", "", "", ("art",)), TeamMember("b", "", "", ("art",)), TeamMember("a", "", "", ("art",), load=1)]

    assert match("Art", team=team).agent == match("Art", team=team[::-1]).agent == "b"
    assert [one.name for one in match("Art", team=team).candidates] == ["b", "c", "a"]


def test_who_is_unavailable_is_chosen_only_when_nobody_else_fits() -> None:
    """A weaker agent that is there goes before a better one that is paused; alone, the paused one gets it, and it is said."""
    best = TeamMember("best", "", "", ("art", "painting"), available=False)
    other = TeamMember("other", "", "", ("art",), load=50)

    assert match("Art: a painting", team=[best, other]).agent == "other"
    alone = match("A painting", team=[best, other])
    assert alone.agent == "best"
    assert "paused or in error, but nobody else fits" in alone.reason
    assert "`opencognit agent resume best`" in alone.reason


def test_a_named_agent_gets_it_whatever_its_skills() -> None:
    """`@name` decides alone; that it is paused is said, not overruled."""
    assert match("Design a logo", assignee="Writer", team=TEAM).reason == "writer: named in the item; load 0"
    paused = match("Art", assignee="writer", team=[replace(TEAM[2], available=False), *TEAM])
    assert paused.agent == "writer"
    assert "paused" in paused.reason


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("wrtier", "no agent is named '@wrtier': did you mean '@writer'?"),
        ("zzz", "no agent is named '@zzz': there are: admin ("),
        ("analyst", "'@analyst' plans and takes no tasks: name another agent: admin ("),
    ],
)
def test_a_name_that_cannot_be_had_matches_nobody_and_says_the_nearest(name: str, says: str) -> None:
    """A wrong name never falls back to a guess."""
    found = match("Write the report", assignee=name, team=TEAM, exclude=("analyst",))

    assert found.agent is None
    assert found.reason.startswith(says)


def test_asked_skills_must_all_be_had() -> None:
    """Stems and parts of a tag suffice; one missing skill means nobody, and the reason says who has which."""
    assert (
        match("x", skills=("Packages", "size"), team=TEAM).reason
        == "surveyor: has the skills 'Packages' and 'size' asked for; load 0"
    )
    assert match("x", skills=("health",), team=TEAM).agent == "inspector"
    nobody = match("Write Python", skills=("python", "research", "law"), team=TEAM)
    assert nobody.agent is None
    assert "('python': inspector; 'research': analyst; 'law': nobody)" in nobody.reason


def test_the_text_decides_between_those_who_have_the_asked_skill() -> None:
    """Beyond the asked skill the better fit wins."""
    team = [TeamMember("a", "", "", ("python",)), TeamMember("b", "", "", ("python", "excel"), load=3)]

    assert match("Excel export", skills=("python",), team=team).agent == "b"


def test_who_is_excluded_or_absent_is_never_chosen() -> None:
    """The CEO's own skills do not count, and an empty team says what to do."""
    assert match("Write the report", team=TEAM, exclude=("writer", "redaktion")).agent is None
    assert match("x", team=TEAM[:1], exclude=("surveyor",)) == Match(
        None, "there is no agent to do it: add one as agents/NAME.toml"
    )


def test_odd_tags_and_long_teams_are_harmless() -> None:
    """Empty skills, signs, one enormous word and a hundred agents neither match nor break; the reason stays short."""
    odd = TeamMember("odd", "???", "the", ("", "--", "x" * 5000, "the"))
    crowd = [TeamMember(f"agent-{number:03}", "Agent", "", ("singing",)) for number in range(100)]
    found = match("Some work with the x", team=[odd, *crowd])

    assert found.agent is None
    assert found.reason.endswith("and 93 more")


def test_an_enormous_text_is_matched_by_its_head() -> None:
    """A megabyte of capitals, in which each word could be an abbreviation, costs no more than its first pages."""
    assert match("THE " * 250_000 + "inventory", team=TEAM).agent is None
    assert match("Write the report " + "THE " * 250_000, team=TEAM).agent == "writer"
