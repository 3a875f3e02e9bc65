"""What counts as copied from what a run was told, and that telling it apart stays cheap and never fails."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opencognit.contracts import Comment, Remember, RunResult
from opencognit.engine.reading import read
from opencognit.protocol import copied
from opencognit.protocol.echoes import LENGTH
from opencognit.states import EntityRole

TOLD = "On Monday the whole team moves the production database to the new cluster in Falkenstein, said the page."
SEVEN = "the production database to the new cluster"
EIGHT = f"{SEVEN} in"


def _is_copied(content: str, *told: str) -> bool:
    return content in copied([content], told or [TOLD])


def test_eight_words_in_a_row_are_a_copy_and_seven_are_not() -> None:
    """The contract's number, exactly."""
    assert (len(SEVEN.split()), len(EIGHT.split())) == (LENGTH - 1, LENGTH)
    assert not _is_copied(f"We know: {SEVEN} of ours")
    assert _is_copied(f"We know: {EIGHT} fact")


@pytest.mark.parametrize(
    "content",
    [
        "THE PRODUCTION DATABASE TO THE NEW CLUSTER IN",
        "the **production** database - to the new\n> cluster, in",
        "the_production_database: to, the; new «cluster» (in)",
        "the production data\u00adbase to the new clu\u200bster in",
        "the pr\u00f3duction database to the new clust\u0065\u0301r in",
        "\uff54he production database to the new cluster in",
        'and then "the production database to the new cluster in" came',
    ],
)
def test_what_stands_between_and_around_the_words_hides_nothing(content: str) -> None:
    """Case, punctuation, line breaks, emphasis, invisible characters, accents and wide letters are no difference."""
    assert _is_copied(content)


def test_umlauts_written_out_are_the_same_words() -> None:
    told = "Die Größe der Köhler-Süßmann-Straße wird am Dienstag neu vermessen und dann eingetragen."
    assert _is_copied("groesse der koehler suessmann strasse wird am dienstag", told)
    assert _is_copied("GRO\u0308SSE DER KÖHLER SÜSSMANN STRASSE WIRD AM DIENSTAG", told)


def test_scripts_without_blanks_are_read_character_by_character() -> None:
    told = "本番データベースを新しいクラスターに移します"
    assert _is_copied("覚え書き: データベースを新しい機械に", told)
    assert not _is_copied("データベースは古い", told)


def test_who_names_a_long_path_has_copied_no_sentence() -> None:
    """A path has many words in a row, and is still only the name of what both texts are about."""
    told = "Survey /srv/data/projects/alpha/python/lib/3.11/site-packages and say how large it is"
    assert not _is_copied("Counted /srv/data/projects/alpha/python/lib/3.11/site-packages: 734 modules", told)
    assert _is_copied("it said: survey /srv/data/projects/alpha/python/lib/3.11/site-packages and say how large it is", told)


def test_words_that_were_not_told_in_a_row_do_not_join() -> None:
    """Neither over two texts nor over another word, on whichever side that stands."""
    assert not _is_copied("one two three four five six seven eight", "one two three four", "five six seven eight")
    assert not _is_copied("one two three four five six seven eight", "one two three four x five six seven eight")
    assert not _is_copied("one two three four x five six seven eight", "one two three four five six seven eight")


def test_other_words_in_another_order_are_the_agents_own() -> None:
    assert not _is_copied("In Falkenstein a cluster waits; the database will be there after Monday, as the team has planned it")


def test_each_memory_is_judged_by_itself() -> None:
    """The same passage in two memories marks both; a third stays what it is."""
    first, second, third = f"{EIGHT} one", f"two {EIGHT}", "something else altogether that nobody told in so many words"
    assert copied([first, second, third, first], [TOLD]) == {first, second}


ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(st.lists(ANY_TEXT, max_size=3), st.lists(ANY_TEXT, max_size=3))
@settings(max_examples=200, deadline=None)
def test_no_text_raises_and_only_what_was_given_comes_back(contents: list[str], told: list[str]) -> None:
    assert copied(contents, told) <= set(contents)


@given(st.lists(st.from_regex(r"[a-z]{1,4}", fullmatch=True), min_size=LENGTH, max_size=40), st.data())
@settings(max_examples=200, deadline=None)
def test_any_eight_words_of_a_text_are_found_wherever_they_are_put(words: list[str], data: st.DataObject) -> None:
    """A copy is found whatever comes before and behind it."""
    start = data.draw(st.integers(0, len(words) - LENGTH))
    passage = words[start : start + LENGTH]
    around = st.lists(st.sampled_from(words), max_size=9)
    before, behind = data.draw(around), data.draw(around)
    assert _is_copied(" ".join([*before, *passage, *behind]), " ".join(words))


@pytest.mark.parametrize(
    ("content", "told"), [("a b c d e f g h ", "a b c d e f g h "), ("a ", "a "), ("a", "a"), ("本", "本"), ("a b ", "b a ")]
)
def test_time_grows_with_the_text_and_no_faster(content: str, told: str) -> None:
    """Five times the text takes nowhere near twenty-five times as long, also where everything matches everywhere."""

    def took(times: int) -> float:
        contents = [f"{number} {content * times}" for number in range(5)]
        best = float("inf")
        for _ in range(3):
            begun = time.perf_counter()
            copied(contents, [told * times] * 5)
            best = min(best, time.perf_counter() - begun)
        return best

    assert took(5000) < 15 * max(took(1000), 0.0005)


class TestReading:
    """An adapter's result, held against what the run was told."""

    def test_a_native_action_is_held_to_the_same_rule_as_a_tag(self) -> None:
        """Neither stores again what was told; the other actions are done."""
        result = RunResult(
            text="[REMEMBER:x] Pay  the bill", actions=(Remember(content="pay THE bill", room="x"), Comment(text="hello"))
        )
        answer, found = read(result, ["pay the bill"])
        assert (answer.memories, answer.actions, found) == ((), (Comment(text="hello"),), frozenset())
        assert ["not stored" in problem for problem in answer.problems] == [True, True]

    def test_copies_are_named_by_either_way(self) -> None:
        tagged, native = f"Tag: {EIGHT}", f"Action: {EIGHT}"
        result = RunResult(text=f"[REMEMBER:x] {tagged}\n\n[REMEMBER:x] my own", actions=(Remember(content=native, room="x"),))
        answer, found = read(result, [TOLD])
        assert [one.content for one in answer.remembered] == [tagged, "my own", native]
        assert found == {tagged, native}

    def test_a_triple_is_read_as_it_is_stored(self) -> None:
        """Bars do not part what was told in a row."""
        result = RunResult(text="[REMEMBER:kg] the production database | to the new | cluster in")
        answer, found = read(result, [TOLD])
        (memory,) = answer.memories
        assert [(one.key, one.role) for one in memory.entities] == [
            ("the production database", EntityRole.SUBJECT),
            ("cluster in", EntityRole.OBJECT),
        ]
        assert found == {memory.content}
