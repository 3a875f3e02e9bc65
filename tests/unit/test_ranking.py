"""BM25+ is rank-bm25's, over our terms, and only for what a document has; legs are scaled so that none drowns another."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Plus

from opencognit.brain import ranking
from opencognit.brain.folding import Language, content_words, number, stems, terms
from opencognit.brain.ranking import Counts, bm25_plus, count, gram_scores, grams, min_max, share_of_best

CORPUS = [
    "The database listens on port 5433.",
    "The datenbank lauscht port 5433, house 3.",
    "Backups of the database are taken every night; the database is small.",
    "Nothing to see here.",
    "",
]


def _numbers(words: Sequence[str]) -> list[int]:
    return [number(word) for word in words]


def _counts(wanted: Sequence[str], documents: Sequence[Sequence[str]]) -> Counts:
    flat = np.asarray(_numbers([term for document in documents for term in document]), dtype=np.uint32)
    whose = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    return count(_numbers(wanted), flat, whose, len(documents))


def _scores(wanted: Sequence[str], documents: Sequence[Sequence[str]]) -> list[float]:
    """Score a whole corpus by its own statistics."""
    counts = _counts(wanted, documents)
    mean = sum(map(len, documents)) / max(len(documents), 1)
    scores: list[float] = bm25_plus(counts, (counts.times > 0).sum(axis=0).astype(float), len(documents), mean).tolist()
    return scores


def _asked(question: str, documents: Sequence[str], spoken: Language = "english") -> list[float]:
    wanted = [stem for word in content_words(question) for stem in stems(word)]
    return _scores(wanted, [terms(document, spoken) for document in documents])


def _library(wanted: Sequence[str], documents: Sequence[Sequence[str]]) -> list[float]:
    """What rank-bm25 gives, less delta for the terms that a document lacks."""
    library = BM25Plus([list(document) for document in documents])
    given: list[float] = library.get_scores(list(wanted)).tolist()
    idf = {term: library.idf.get(term) or 0.0 for term in wanted}
    absent = [sum(idf[term] for term in wanted if term not in document) for document in documents]
    return [score - library.delta * lacking for score, lacking in zip(given, absent, strict=True)]


# --- BM25+ ------------------------------------------------------------------------------------------------------


def test_scores_are_exactly_those_of_rank_bm25() -> None:
    """The same corpus and question through the library itself; a document with every term has its very score."""
    documents = [terms(document, "english") for document in CORPUS]
    wanted = terms("database port", "english")
    scores = _scores(wanted, documents)
    assert scores == pytest.approx(_library(wanted, documents))
    assert scores[0] == pytest.approx(BM25Plus(documents).get_scores(wanted)[0])
    assert scores[1] > 0
    assert scores[3:] == [0, 0]


words = st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon", "zeta"])
corpora = st.lists(st.lists(words, max_size=12), min_size=1, max_size=12).filter(any)


@settings(max_examples=300)
@given(corpora, st.lists(words, min_size=1, max_size=4, unique=True))
def test_scores_are_rank_bm25s_on_any_small_corpus(documents: list[list[str]], wanted: list[str]) -> None:
    """Also with repeated and unknown terms, empty documents, and a single one."""
    assert _scores(wanted, documents) == pytest.approx(_library(wanted, documents))


def test_scores_follow_the_formula() -> None:
    """By hand (Lv and Zhai 2011): idf (delta + tf (k1 + 1) / (k1 (1 - b + b dl / avgdl) + tf)), k1 1.5, b .75, delta 1."""
    documents = ["alpha beta", "alpha alpha gamma delta"]
    lengths = [len(terms(document, "english")) for document in documents]
    average = sum(lengths) / 2

    def score(tf: int, df: int, length: int) -> float:
        idf = math.log(3 / df)
        return idf * (1 + tf * 2.5 / (1.5 * (0.25 + 0.75 * length / average) + tf))

    assert _asked("alpha", documents) == [pytest.approx(score(1, 2, lengths[0])), pytest.approx(score(2, 2, lengths[1]))]


def test_the_stores_statistics_are_used_and_what_is_seen_is_their_least() -> None:
    """A term that many memories have counts for less; statistics that lag behind are not believed below what is seen."""
    first, second = sorted(["alpha", "beta"], key=number)
    counts = _counts([first, second], [[first], [second]])
    scores = bm25_plus(counts, np.asarray([1.0, 500.0]), 1000, 1.0)
    assert scores[0] > scores[1] > 0
    behind = bm25_plus(counts, np.zeros(2), 0, 1.0)
    assert behind.tolist() == pytest.approx(bm25_plus(counts, np.ones(2), 2, 1.0).tolist())
    assert (behind > 0).all()


def test_a_word_said_twice_in_a_question_counts_once() -> None:
    assert _asked("port port PORT Port", CORPUS) == _asked("port", CORPUS)


@pytest.mark.parametrize("query", ["", "the is of", "?!", "zebra"])
def test_a_question_that_matches_nothing_scores_nothing(query: str) -> None:
    """Not delta, which BM25+ gives to absent terms."""
    assert _asked(query, CORPUS) == [0.0] * len(CORPUS)


def test_no_documents_and_empty_documents_are_no_error() -> None:
    assert _asked("port", []) == []
    assert _asked("port", ["", "the of"]) == [0, 0]


def test_one_document_alone_still_scores() -> None:
    """With N = 1 an idf of plain BM25 would be negative."""
    (score,) = _asked("port", ["port 5433"])
    assert score > 0


def test_inflected_words_meet() -> None:
    """A German question ranks a German text with other forms of its words first."""
    documents = ["Das Haus wurde von den Köhlern gebaut", "Der Hund lief über die Straße", "the house was built"]
    scores = _asked("Welche Häuser baute der Köhler?", documents, "german")
    assert scores[0] > max(scores[1:])


@given(corpora, st.lists(words, min_size=1, max_size=4))
def test_what_is_counted_is_what_stands_there(documents: list[list[str]], wanted: list[str]) -> None:
    """Each wanted term once, in the order of its number; lengths count every term. Adding adds."""
    counts = _counts(wanted, documents)
    order = sorted(set(wanted), key=number)
    assert counts.times.tolist() == [[document.count(term) for term in order] for document in documents]
    assert counts.lengths.tolist() == [len(document) for document in documents]
    twice = counts + counts
    assert (twice.times == 2 * counts.times).all()
    assert (twice.lengths == 2 * counts.lengths).all()


# --- runs of characters -----------------------------------------------------------------------------------------


@given(st.lists(st.text("abcä 東\U00020000", max_size=12), max_size=6))
def test_grams_are_the_runs_of_each_text_and_of_none_across_two(texts: list[str]) -> None:
    """As many as a blank at both ends makes, equal for equal runs, and each text's as if it stood alone."""
    numbers, document = grams(texts)
    runs = [[f" {text} "[at : at + 4] for at in range(len(text) - 1)] if text else [] for text in texts]
    assert np.bincount(document, minlength=len(texts)).tolist() == [len(one) for one in runs]
    flat = [run for one in runs for run in one]
    assert len(set(zip(flat, numbers.tolist(), strict=True))) == len(set(flat)) == len(set(numbers.tolist()))
    alone = [grams([text])[0].tolist() for text in texts]
    assert [numbers[document == at].tolist() for at in range(len(texts))] == alone


def test_runs_of_characters_find_compounds_and_misspellings() -> None:
    """What shares no whole word; what shares no run of four characters gets nothing."""
    texts = ["krankenversicherung", "kranckenversichrung", "versicherung", "hund"]
    inside, both = gram_scores("versicherung", texts, [""] * 4)
    assert (inside == both).all()
    assert np.argsort(-inside, kind="stable").tolist()[0] == 2
    assert inside[0] > inside[1] > inside[3] == 0


def test_runs_count_in_the_context_too() -> None:
    inside, both = gram_scores("migration", ["it takes long", "it takes long"], ["", "nightly migration"])
    assert inside.tolist() == [0, 0]
    assert both[1] > both[0] == 0


# --- legs and shares --------------------------------------------------------------------------------------------

finite = st.floats(-1, 1, allow_nan=False)


@given(st.lists(finite | st.just(math.nan), max_size=20))
def test_min_max_scales_what_is_known_and_gives_the_unknown_nothing(values: list[float]) -> None:
    """NaN never ranks (F12-07): 0, like the least of the known; the order of the others stays."""
    scores = np.asarray(values, dtype=np.float64)
    scaled = min_max(scores)
    assert ((scaled >= 0) & (scaled <= 1)).all()
    assert (scaled[np.isnan(scores)] == 0).all()
    known = [(value, share) for value, share in zip(values, scaled.tolist(), strict=True) if value == value]
    assert [share for _, share in sorted(known)] == sorted(share for _, share in known)
    if known:
        assert max(share for _, share in known) == 1


@given(st.lists(st.floats(0, 100), max_size=20))
def test_a_share_of_the_best_begins_at_nothing(values: list[float]) -> None:
    """The best is 1 and nothing stays nothing, also where all are equal."""
    shares = share_of_best(np.asarray(values, dtype=np.float64))
    assert ((shares >= 0) & (shares <= 1)).all()
    if max(values, default=0) > 0:
        assert shares.max() == 1
    assert ((shares == 0) >= (np.asarray(values) == 0)).all()


@pytest.mark.parametrize("weights", [ranking.ENGLISH, ranking.GERMAN])
def test_the_shares_of_the_legs_are_a_whole(weights: ranking.Weights) -> None:
    """So that a score of 1 is the best by every leg."""
    assert weights.content + weights.context + weights.vector == pytest.approx(1)
    assert min(weights.content, weights.context, weights.vector) > 0
    assert 0 < ranking.STEMS_SHARE < 1
    assert 0 < ranking.CONTENT_SHARE <= 1
