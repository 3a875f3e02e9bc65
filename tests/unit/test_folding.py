"""One way of reading words: spelling variants meet, and no text breaks it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opencognit.brain import folding

LONGEST = 18
"""How many characters one may become: U+FDFA is a whole sentence."""

texts = st.text(st.characters(codec=None), max_size=60) | st.text(
    "aouAOUäöüßẞ\u0308\u0301\u0323\u0345ﬁİıςΐ\u1e97\u01d5'-_ ", max_size=20
)


@settings(max_examples=500)
@given(texts)
@example("a\u0308\u0301")
@example("ǖ\u0323")
@example("\u0345\u0308a")
@example("İ\u0308")
@example("\ufdfa" * 10)
def test_folding_twice_changes_nothing_and_growth_is_bounded(text: str) -> None:
    """What is stored folded can be folded again with a question; a limit on text is a limit on what becomes of it."""
    folded = folding.fold(text)
    assert folding.fold(folded) == folded
    assert len(folded) <= LONGEST * len(text)


@given(texts)
def test_all_spellings_of_a_text_fold_alike(text: str) -> None:
    """Composed or decomposed, upper or lower case as far as that is the same text."""
    assert folding.fold(unicodedata.normalize("NFD", text)) == folding.fold(unicodedata.normalize("NFC", text))


@pytest.mark.parametrize(
    "spellings",
    [
        (
            "Köhler-Süßmann",
            "Ko\u0308hler-Su\u0308ßmann",
            "KÖHLER-SÜSSMANN",
            "koehler-suessmann",
        ),
        ("Straße", "Strasse", "STRASSE", "STRAẞE"),
        ("GRÖSSE", "Größe", "groesse", "Gro\u0308ße"),
        ("café", "cafe\u0301", "Cafe", "CAFÉ"),
        ("İstanbul", "istanbul", "ISTANBUL"),
        ("ﬁnance", "finance"),
        ("１２３", "123"),
    ],
)
def test_spellings_of_one_word_become_one(spellings: tuple[str, ...]) -> None:
    assert len({folding.fold(one) for one in spellings}) == 1
    assert len({tuple(folding.terms(one)) for one in spellings}) == 1


def test_different_words_stay_different() -> None:
    """Folding must not become so coarse that everything meets."""
    words = ("Straße", "Strafe", "Masse", "Maste", "schon", "schön", "drucken", "drücken", "Москва", "東京", "مرحبا", "नमस्ते")
    assert len({folding.fold(word) for word in words}) == len(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("src/main.py: ann@example.com", "src main py ann example com"),
        ("key=value&x='1' \\ \"y\"", "key value x 1 y"),
        ("snake_case-Kebab", "snake case kebab"),
        ("<b>fett</b> & mehr", "b fett b mehr"),
        ("😀 🇩🇪 \0 \t\n", ""),
    ],
)
def test_the_index_gets_words_only(text: str, words: str) -> None:
    assert folding.search_text(text) == words


def test_what_is_indexed_is_bounded() -> None:
    """Also where one character becomes eighteen."""
    for text in ("word " * 300_000, "\ufdfa" * 200_000, "x" * 1_000_000):
        assert len(folding.search_text(text)) <= folding.SEARCH_TEXT_LIMIT


def test_a_question_is_reduced_to_words_that_mean_something() -> None:
    """In their order, each once; one that has none asks for nothing."""
    assert folding.content_words("Wo ist die Straße, und wo ist die STRASSE für Äpfel?") == ["wo", "strasse", "aepfel"]
    assert folding.content_words("is it on the?") == []


def test_each_word_counts_by_both_of_its_stems() -> None:
    """The language of a question need not be known; where both stems agree the word counts once."""
    assert folding.terms("Häuser") == ["haeuser", "haus"]
    assert all("plan" in folding.terms(word) for word in ("planning", "plans", "planned"))
    assert folding.terms("strasse") == ["strass"]
    blob = "QmFzZTY0" * 20
    assert folding.terms(blob) == [blob.lower()]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Die Schnittstelle ist unter /v2 zu finden", "german"),
        ("The interface is to be found under /v2", "english"),
        ("größe", "german"),
        ("gro\u0308ße", "german"),
        ("42", "english"),
        ("", "english"),
    ],
)
def test_the_language_is_guessed_by_its_small_words(text: str, language: str) -> None:
    assert folding.language(text) == language
