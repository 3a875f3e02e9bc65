"""One way of reading words: spelling variants meet, and no text breaks it."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opencognit.brain import folding

LONGEST = 18
"""How many characters one may become: U+FDFA is a whole sentence."""

LANGUAGES: tuple[folding.Language, ...] = ("english", "german")

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
    for spoken in LANGUAGES:
        assert len({tuple(folding.terms(one, spoken)) for one in spellings}) == 1
    assert len({tuple(folding.content_words(one)) for one in spellings}) == 1


def test_different_words_stay_different() -> None:
    """Folding must not become so coarse that everything meets."""
    words = ("Straße", "Strafe", "Masse", "Maste", "schon", "schön", "drucken", "drücken", "Москва", "東京", "مرحبا", "नमस्ते")
    assert len({folding.fold(word) for word in words}) == len(words)


@pytest.mark.parametrize("spoken", LANGUAGES)
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
def test_the_index_gets_words_only(text: str, words: str, spoken: folding.Language) -> None:
    assert folding.search_text(text, spoken=spoken) == words


def test_content_context_and_parts_of_compounds_stand_in_lines_of_their_own() -> None:
    """So that each can be scored alone; the parts only for German, where words are written together."""
    content, context = "Die Krankenversicherung zahlt", "Ann: Haftpflichtversicherung"
    inside, around, pieces = folding.search_text(content, context, "german").split("\n")
    assert (inside, around) == ("die krankenversicherung zahlt", "ann haftpflichtversicherung")
    assert {"kranken", "versicherung", "haftpflicht"} <= set(pieces.split())
    assert folding.search_text(content, context, "english") == f"{inside}\n{around}"
    assert folding.search_text("Die Krankenversicherung", "", "german").split("\n")[:2] == ["die krankenversicherung", ""]


@given(st.text("abcdefghijklmnop", min_size=1, max_size=80))
def test_parts_are_what_a_word_begins_or_ends_with(word: str) -> None:
    """Every one is shorter than the word and whole at one of its ends, and they are few."""
    found = folding.parts(word)
    assert all(len(part) < len(word) and (word.startswith(part) or word.endswith(part)) for part in found)
    assert len(found) <= 2 * len(word)
    assert bool(found) is (10 <= len(word) <= 64)


def test_what_is_indexed_is_bounded_and_a_long_text_does_not_push_its_context_out() -> None:
    """Also where one character becomes eighteen, and where German words have many parts."""
    compounds = " ".join(f"versicherung{number}vertrag" for number in range(10_000))
    for text in ("word " * 300_000, "\ufdfa" * 200_000, "x" * 1_000_000, compounds):
        for spoken in LANGUAGES:
            indexed = folding.search_text(f"first {text}", "who said it", spoken)
            assert len(indexed) <= folding.SEARCH_TEXT_LIMIT
            assert indexed.startswith("first")
            assert indexed.split("\n")[1] == "who said it"
            both = folding.search_text(f"first {text}", f"around {text}", spoken)
            assert len(both) <= folding.SEARCH_TEXT_LIMIT
            assert [line.split(" ")[0] for line in both.split("\n")[:2]] == ["first", "around"]


def test_a_question_is_reduced_to_words_that_mean_something() -> None:
    """In their order, each once, by the stop words of its language; one that has none asks for nothing."""
    assert folding.content_words("Wo ist die Straße, und wo ist die STRASSE für Äpfel?") == ["strasse", "aepfel"]
    assert folding.content_words("Did the man die in the war?") == ["man", "die", "war"]
    assert folding.content_words("is it on the?") == []


def test_a_question_counts_by_the_stems_of_both_languages() -> None:
    """Its language need not be known; where both stems agree the word counts once. A memory has its own language's."""
    assert folding.stems("haeuser") == ["haeuser", "haus"]
    assert folding.stems("port") == ["port"]
    for word in ("planning", "plans", "planned"):
        assert folding.terms(word, "english") == ["plan"]
        assert "plan" in folding.stems(word)
    assert folding.terms("Häuser", "german") == ["haus"]
    assert folding.terms("Straße", "german") == folding.terms("strasse", "german") == ["strass"]
    assert folding.terms("die Man war", "english") == ["die", "man", "war"]
    assert folding.terms("die Man war", "german") == []
    blob = "QmFzZTY0" * 20
    assert [folding.terms(blob, spoken) for spoken in LANGUAGES] == [[blob.lower()]] * 2


@given(st.text("abcdeäöüßst ", max_size=80))
def test_a_question_has_the_terms_of_a_memory_with_the_same_words(text: str) -> None:
    """In whichever language the memory is: what is stored can be asked for."""
    asked = {stem for word in folding.content_words(text) for stem in folding.stems(word)}
    stop = {word for word in folding.fold(text).split() if word not in folding.content_words(text)}
    for spoken in LANGUAGES:
        stored = set(folding.terms(text, spoken))
        assert stored - asked <= {stem for word in stop for stem in folding.stems(word)}


def test_a_reading_holds_the_numbers_of_its_terms_content_first() -> None:
    """Four bytes each, little-endian, bounded for each; the same number for the same term everywhere."""
    reading = folding.read("The planning of plans", "ann planned it")
    numbers = np.frombuffer(reading.terms, dtype="<u4").tolist()
    plan = folding.number("plan")
    assert (reading.language, reading.content_terms) == ("english", 2)
    assert numbers == [plan, plan, folding.number("ann"), plan]
    long = folding.read("word " * 5000, "place " * 5000)
    assert (long.content_terms, len(long.terms)) == (folding.TERMS_LIMIT, 4 * 2 * folding.TERMS_LIMIT)
    assert folding.read("", "") == folding.Reading("english", "", b"", 0)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Die Schnittstelle ist unter /v2 zu finden", "german"),
        ("The interface is to be found under /v2", "english"),
        ("größe", "german"),
        ("gro\u0308ße", "german"),
        ("Krankenversicherung: Vertrag 123", "german"),
        ("Server-Umzug, Datenbankverbindungen langsam", "german"),
        ("Young songs strung along; a rich sandwich", "english"),
        ("42", "english"),
        ("", "english"),
    ],
)
def test_the_language_is_guessed_by_its_small_words(text: str, language: str) -> None:
    assert folding.language(text) == language
