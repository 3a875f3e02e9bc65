"""How a recall finds: which way it took and why, what it says when there may be more, and how words become scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rank_bm25 import BM25Plus
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit.brain import Brain, Vector, candidates, ranking, search
from opencognit.brain.backlog import count
from opencognit.brain.embed.hashing import HashEmbedder
from opencognit.brain.folding import content_words, stems, terms
from opencognit.contracts import BOARD, EntityRef
from opencognit.db import Database
from opencognit.states import MemoryType
from tests.integration.brain_kit import found, settle, write

FRUIT = ("red apples are sweet", "green apples are sour", "plums are blue")
EMBEDDER = HashEmbedder()


def _vector(question: str) -> Vector:
    (values,) = EMBEDDER.encode([question])
    return Vector(EMBEDDER.name, values)


async def _filled(db: Database, *contents: str) -> None:
    async with db.transaction() as session:
        for content in contents:
            await write(session, content, entities=(EntityRef(kind="fruit", key=content.split()[0]),))
    await settle(db, EMBEDDER)


# --- modes ------------------------------------------------------------------------------------------------------


async def test_the_inputs_pick_the_mode(db: Database) -> None:
    """Every hit says which one it was."""
    await _filled(db, *FRUIT)
    vector, about = _vector("apples"), ("fruit", "red")
    modes = {
        "text": await Brain(db).recall("apples", viewer=BOARD),
        "hybrid": await Brain(db, EMBEDDER).recall("apples", viewer=BOARD),
        "vector": await Brain(db).recall(embedding=vector, viewer=BOARD),
        "entity": await Brain(db, EMBEDDER).recall(entity=about, viewer=BOARD),
        "newest": await Brain(db, EMBEDDER).recall(viewer=BOARD),
    }
    for mode, hits in modes.items():
        assert {hit.mode for hit in hits} == {mode}
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1.0001 for score in scores)
    assert [len(hits) for hits in modes.values()] == [2, 3, 3, 1, 3]
    given = await Brain(db).recall("apples", embedding=vector, viewer=BOARD)
    assert [(hit.memory.id, hit.mode) for hit in given] == [(hit.memory.id, "hybrid") for hit in modes["hybrid"]]
    words_of_nothing = await Brain(db, EMBEDDER).recall("is it the", viewer=BOARD)
    assert {hit.mode for hit in words_of_nothing} == {"vector"}


async def test_an_entity_restricts_every_other_way_of_asking(db: Database) -> None:
    """As types, a room and a time do: by words, by likeness and by both."""
    await _filled(db, *FRUIT)
    for knowing, query, vector in (
        (Brain(db), "apples", None),
        (Brain(db, EMBEDDER), "apples", None),
        (Brain(db), None, _vector("plums")),
    ):
        hits = await knowing.recall(query, embedding=vector, entity=("fruit", "green"), viewer=BOARD)
        assert [hit.memory.content for hit in hits] == [FRUIT[1]]
        assert hits[0].mode != "entity"
        assert await knowing.recall(query, embedding=vector, types=[MemoryType.RULE], viewer=BOARD) == []
        assert await knowing.recall(query, embedding=vector, room="cellar", viewer=BOARD) == []


async def test_why_tells_each_legs_rank_and_score(db: Database) -> None:
    """Ranks count from 1 without gaps, the better by a leg has the lower rank; a leg that did not find it says nothing."""
    await _filled(db, *FRUIT)
    hits = await Brain(db, EMBEDDER).recall("sweet apples", viewer=BOARD)
    by_content = {hit.memory.content: hit.why for hit in hits}
    red, green, blue = (by_content[content] for content in FRUIT)
    assert (red["text_rank"], green["text_rank"]) == (1, 2)
    assert red["text_score"] > green["text_score"] > 0
    assert {red["vector_rank"], green["vector_rank"], blue["vector_rank"]} == {1, 2, 3}
    assert red["similarity"] == max(why["similarity"] for why in by_content.values())
    assert "text_rank" not in blue
    assert "text_score" not in blue
    cosine = float(EMBEDDER.encode(["sweet apples"])[0] @ EMBEDDER.encode([FRUIT[0]])[0])
    assert red["similarity"] == pytest.approx(cosine, abs=1e-3)
    for hit in await Brain(db).recall("sweet apples", viewer=BOARD):
        assert set(hit.why) == {"text_rank", "text_score"}
    for rank, hit in enumerate(await Brain(db).recall(embedding=_vector("sweet apples"), viewer=BOARD), 1):
        assert set(hit.why) == {"vector_rank", "similarity"}
        assert hit.why["vector_rank"] == rank


async def test_a_better_answer_by_both_legs_comes_before_one_by_a_single_leg(db: Database) -> None:
    await _filled(db, *FRUIT, "sweets and apple pie", "an appeal for sweetness")
    hits = await Brain(db, EMBEDDER).recall("sweet red apples", viewer=BOARD)
    assert hits[0].memory.content == FRUIT[0]
    assert hits[0].score == pytest.approx(1, abs=0.01)


async def test_vectors_of_another_model_are_not_compared(db: Database) -> None:
    await _filled(db, *FRUIT)
    foreign = replace(_vector("apples"), model="another")
    assert await Brain(db).recall(embedding=foreign, viewer=BOARD) == []
    short = Vector("a short one", np.ones(3, np.float32))
    hits = await Brain(db).recall("apples", embedding=short, viewer=BOARD)
    assert [("similarity" in hit.why, hit.mode) for hit in hits] == [(False, "hybrid")] * 2


# --- incomplete -------------------------------------------------------------------------------------------------


async def _many(db: Database, monkeypatch: pytest.MonkeyPatch, *, bound: int) -> None:
    monkeypatch.setattr(candidates, "BY_WORDS", bound)
    async with db.transaction() as session:
        for number in range(20):
            await write(session, f"server number{number} runs", room="odd" if number % 2 else "even")
        await write(session, "the needle is in the server rack", room="odd")
    await settle(db)


async def test_rows_that_were_not_looked_at_are_not_missed_in_silence(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more match than are compared and the limit is not filled, the recall says so; the rare word is found all the same."""
    await _many(db, monkeypatch, bound=5)
    knowing = Brain(db)
    hits = await knowing.recall("needle in which server?", limit=10, viewer=BOARD)
    assert hits[0].memory.content.startswith("the needle")
    assert hits.incomplete is not None
    common = await knowing.recall("server", limit=10, viewer=BOARD)
    assert len(common) == 5
    assert common.incomplete is not None
    narrow = await knowing.recall("needle in which server?", room="even", limit=10, viewer=BOARD)
    assert (list(narrow), narrow.incomplete is not None) == ([], True)


async def test_a_recall_that_looked_at_everything_is_complete(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few it finds."""
    await _many(db, monkeypatch, bound=50)
    for query, number in (("needle in which server?", 21), ("needle", 1), ("zebra", 0), (None, 21)):
        hits = await Brain(db).recall(query, limit=30, viewer=BOARD)
        assert (len(hits), hits.incomplete) == (number, None)


# --- words ------------------------------------------------------------------------------------------------------

INSURANCE = "Die Krankenversicherung zahlt den Arzt"


@pytest.mark.parametrize(
    "query",
    [
        *(
            "Versicherung",
            "Was zahlt eine Versicherung?",
            "Kranken",
            "Krankenversicherung",
            "KRANKENVERSICHERUNGEN",
            "Versicherungen",
        ),
    ],
)
async def test_a_part_of_a_german_compound_finds_it(session: AsyncSession, query: str) -> None:
    """Its beginning and its end, inflected too, before anything is counted (F12-01); a text without it is not in the way."""
    for content in (INSURANCE, "Der Hund der Nachbarn bellt in der Nacht", "The doctor sends the bill to the dog"):
        await write(session, content)
    assert (await found(session, query))[0] == INSURANCE
    assert "Der Hund der Nachbarn bellt in der Nacht" not in await found(session, query)


@pytest.mark.parametrize("content", ["Krankenversicherung: Vertrag 123", "Krankenversicherung", "Datenbankverbindung kaputt"])
async def test_a_note_of_a_few_nouns_is_read_as_german_too(session: AsyncSession, content: str) -> None:
    """No function word tells its language."""
    await write(session, content)
    assert await found(session, "Welche Versicherung, welche Verbindung?") == [content]


async def test_a_compound_finds_what_only_has_its_parts(session: AsyncSession) -> None:
    """The question's word is longer than the memory's, once that word is known to be one."""
    await write(session, "Die Versicherung zahlt den Arzt")
    await write(session, "Der Hund der Nachbarn bellt")
    await count(session)
    assert await found(session, "Haftpflichtversicherung?") == ["Die Versicherung zahlt den Arzt"]
    assert await found(session, "Nachbarschaftsstreit?") == []


async def test_a_whole_word_ranks_before_a_part_of_one(session: AsyncSession) -> None:
    await write(session, "Die Versicherung zahlt den Arzt")
    await write(session, INSURANCE)
    assert await found(session, "Welche Versicherung?") == ["Die Versicherung zahlt den Arzt", INSURANCE]
    assert (await found(session, "Welche Krankenversicherung?"))[0] == INSURANCE


CORPUS = (
    "The database listens on port 5433",
    "Backups of the database are taken every night, the database is small",
    "The night shift watches the port and the harbour",
    "Every backup is copied to another machine at night",
    "Nothing is known about the harbour",
    "Port wine is served at night",
)


def _library(question: str) -> list[float]:
    """What rank-bm25 gives each of the corpus, less delta for the terms that it lacks."""
    documents = [terms(content, "english") for content in CORPUS]
    asked = list(dict.fromkeys(stem for word in content_words(question) for stem in stems(word)))
    library = BM25Plus(documents)
    idf = {term: library.idf.get(term) or 0.0 for term in asked}
    absent = [sum(idf[term] for term in asked if term not in document) for document in documents]
    scores: list[float] = (library.get_scores(asked) - library.delta * np.asarray(absent)).tolist()
    return scores


@pytest.mark.parametrize("question", ["database port", "Which port is served at night?", "backups", "harbour night database"])
async def test_recall_by_words_alone_is_bm25_plus(db: Database, monkeypatch: pytest.MonkeyPatch, question: str) -> None:
    """With all weight on the words of the content: the library's very scores as shares of the best, through what is stored."""
    words_alone = ranking.Weights(content=1, context=0, vector=0)
    monkeypatch.setattr(ranking, "ENGLISH", words_alone)
    monkeypatch.setattr(ranking, "STEMS_SHARE", 1.0)
    monkeypatch.setattr(search, "RECENCY", 0.0)
    async with db.transaction() as session:
        ids = [(await write(session, content)).id for content in CORPUS]
    await settle(db)
    expected = np.asarray(_library(question))
    hits = await Brain(db).recall(question, viewer=BOARD)
    assert {hit.memory.id: hit.score for hit in hits} == pytest.approx(
        {ident: score / expected.max() for ident, score in zip(ids, expected.tolist(), strict=True) if score > 0}
    )
