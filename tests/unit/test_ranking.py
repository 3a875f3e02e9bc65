"""BM25+ is rank-bm25's, over our terms, and only for documents that have one."""

from __future__ import annotations

import math

import pytest
from rank_bm25 import BM25Plus

from opencognit.brain.folding import terms
from opencognit.brain.ranking import bm25_plus

CORPUS = [
    "The database listens on port 5433.",
    "Die Datenbank lauscht auf Port 5433, die Häuser nicht.",
    "Backups of the database are taken every night; the database is small.",
    "Nothing to see here.",
    "",
]


def test_scores_are_exactly_those_of_rank_bm25() -> None:
    """The same corpus and question through the library itself, for every document with a term of the question."""
    query = "database port"
    expected = BM25Plus([terms(document) for document in CORPUS]).get_scores(terms(query))
    scores = bm25_plus(query, CORPUS)
    assert scores[:3] == [pytest.approx(expected[0]), pytest.approx(expected[1]), pytest.approx(expected[2])]
    assert scores[3:] == [None, None]


def test_scores_follow_the_formula() -> None:
    """By hand (Lv and Zhai 2011): idf (delta + tf (k1 + 1) / (k1 (1 - b + b dl / avgdl) + tf)), k1 1.5, b .75, delta 1."""
    documents = ["alpha beta", "alpha alpha gamma delta"]
    lengths = [len(terms(document)) for document in documents]
    average = sum(lengths) / 2

    def score(tf: int, df: int, length: int) -> float:
        idf = math.log(3 / df)
        return idf * (1 + tf * 2.5 / (1.5 * (0.25 + 0.75 * length / average) + tf))

    assert bm25_plus("alpha", documents) == [pytest.approx(score(1, 2, lengths[0])), pytest.approx(score(2, 2, lengths[1]))]


def test_a_word_said_twice_in_a_question_counts_once() -> None:
    assert bm25_plus("port port PORT Port", CORPUS) == bm25_plus("port", CORPUS)


@pytest.mark.parametrize("query", ["", "the is of", "?!", "zebra"])
def test_a_question_that_matches_nothing_scores_nothing(query: str) -> None:
    """Not delta, which BM25+ gives to absent terms."""
    assert bm25_plus(query, CORPUS) == [None] * len(CORPUS)


def test_no_documents_and_empty_documents_are_no_error() -> None:
    assert bm25_plus("port", []) == []
    assert bm25_plus("port", ["", "the of"]) == [None, None]


def test_one_document_alone_still_scores() -> None:
    """With N = 1 an idf of plain BM25 would be negative."""
    (score,) = bm25_plus("port", ["port 5433"])
    assert score is not None
    assert score > 0


def test_inflected_words_meet() -> None:
    """A German question ranks a German text with other forms of its words first."""
    documents = ["Das Haus wurde von den Köhlern gebaut", "Der Hund lief über die Straße", "the house was built"]
    scores = bm25_plus("Welche Häuser baute der Köhler?", documents)
    assert scores[0] is not None
    assert all(other is None or other < scores[0] for other in scores[1:])
