"""BM25+ over the candidates of a recall. Pure.

BM25+ (Lv and Zhai 2011) by rank-bm25. It adds delta for absent terms too, so documents without any query term are dropped
here rather than ranked.
"""

from __future__ import annotations

from collections.abc import Sequence

from opencognit.brain.folding import terms


def bm25_plus(query: str, documents: Sequence[str]) -> list[float | None]:
    """Return a score per document, in their order; None where no query term occurs."""
    from rank_bm25 import BM25Plus  # brings numpy, which most commands never need

    wanted = list(dict.fromkeys(terms(query)))
    corpus = [terms(document) for document in documents]
    if not wanted or not any(corpus):
        return [None] * len(documents)
    scores = BM25Plus(corpus).get_scores(wanted)
    lookup = frozenset(wanted)
    return [float(score) if lookup.intersection(words) else None for score, words in zip(scores, corpus, strict=True)]
