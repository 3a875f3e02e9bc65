"""The brain on real PostgreSQL: what merges, who sees what, and what every way of asking finds."""

from __future__ import annotations

import asyncio
import itertools
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from opencognit import brain
from opencognit.brain.embed.hashing import HashEmbedder
from opencognit.contracts import BOARD, TEXT_LIMIT, EntityRef, MemoryDraft, Viewer
from opencognit.db import Database
from opencognit.db.roles import ROLE
from opencognit.errors import InvalidInput, NotFound, Refused
from opencognit.states import IN_FORCE, EntityRole, Lifecycle, MemoryType, Relation, Scope, Trust
from tests.integration.brain_kit import ANN, BEA, CAI, DON, found, value, write

# --- writing ----------------------------------------------------------------------------------------------------


async def test_the_same_content_is_one_memory_whose_evidence_grows(session: AsyncSession) -> None:
    """Also in other case and spacing, with another type or room; the first one's words stay."""
    first = await write(session, "The API is at /v2", viewer=ANN)
    second = await write(session, "  the api  is at\n/V2 ", viewer=BEA, room="api", type=MemoryType.RULE)
    assert (first.merged, second.merged, second.id) == (False, True, first.id)
    memory = await brain.get(session, first.id, viewer=BOARD)
    await session.refresh(memory)
    assert (memory.content, memory.evidence, memory.source_agent) == ("The API is at /v2", 2, "ann")


async def test_the_same_content_in_another_scope_is_another_memory(session: AsyncSession) -> None:
    """Org, two teams, two agents' own: five memories, none of which tells of the others."""
    places = [(Scope.ORG, ANN), (Scope.TEAM, ANN), (Scope.TEAM, CAI), (Scope.AGENT_PRIVATE, ANN), (Scope.AGENT_PRIVATE, BEA)]
    stored = [await write(session, "one fact", viewer=viewer, scope=scope) for scope, viewer in places]
    assert len({one.id for one in stored}) == 5
    assert (await write(session, "one fact", viewer=BEA, scope=Scope.TEAM)).id == stored[1].id


async def test_an_archived_memory_is_gone_from_recall_and_may_be_written_anew(session: AsyncSession) -> None:
    """It stays as it is; the new one is a memory of its own."""
    old = await write(session, "the door code is 1234")
    await brain.archive(session, old.id, viewer=BOARD)
    assert await found(session, "door code") == []
    new = await write(session, "the door code is 1234")
    assert (new.merged, new.id == old.id) == (False, False)
    assert [hit.memory.id for hit in await brain.recall(session, "door code", viewer=BOARD)] == [new.id]
    assert (await brain.get(session, old.id, viewer=BOARD)).lifecycle == Lifecycle.ARCHIVED


async def test_twenty_writers_at_once_make_one_memory(db: Database) -> None:
    """No error, nothing lost: evidence counts them all."""

    async def remember(number: int) -> brain.Stored:
        async with db.transaction() as session:
            return await write(session, "Deploys happen on Monday", viewer=Viewer(agent=f"a{number}"))

    stored = await asyncio.gather(*map(remember, range(20)))
    assert len({one.id for one in stored}) == 1
    assert sorted(one.merged for one in stored) == [False] + [True] * 19
    async with db.transaction() as session:
        assert await value(session, "SELECT evidence FROM memories") == 20


async def test_writers_who_name_the_same_entities_do_not_block_each_other(db: Database) -> None:
    """In whatever order each names them: no deadlock, and each entity is one."""
    for turn in range(10):
        entities = tuple(EntityRef(kind="service", key=f"{turn} {key}") for key in "abcdef")

        async def remember(order: tuple[EntityRef, ...], turn: int = turn) -> None:
            async with db.transaction() as session:
                await write(session, f"memory {turn} {order[0].key}", entities=order)

        await asyncio.gather(remember(entities), remember(entities[::-1]))
    async with db.transaction() as session:
        assert await value(session, "SELECT count(*) FROM entities") == 60
        assert await value(session, "SELECT count(*) FROM memory_entities") == 120


@pytest.mark.parametrize(
    ("content", "stored"),
    [
        ("nul \0 here", "nul \ufffd here"),
        ("half \ud83d pair", "half \ufffd pair"),
        ("whole \ud83d\ude00 pair", "whole \U0001f600 pair"),
        ("literal \\u0000 and \x01", "literal \\u0000 and \x01"),
        ("  around  ", "around"),
    ],
)
async def test_text_that_postgres_does_not_take_is_mended(session: AsyncSession, content: str, stored: str) -> None:
    """In every field that is text; what is valid stays as it is (F13-01)."""
    named = "nul \0" if "\ud83d" in content else content  # an EntityRef takes no surrogates
    entity = EntityRef(kind=f"kind{named}", key=named)
    await write(session, content, context=content, room=content, entities=(entity,), viewer=ANN)
    (hit,) = await brain.recall(session, entity=(f"kind{named}", named), room=content, viewer=ANN)
    assert (hit.memory.content, hit.memory.context) == (stored, stored)
    assert await found(session, content, viewer=ANN) == [stored]


@pytest.mark.parametrize("content", ["", "   ", "\n\t", "\u3000"])
async def test_an_empty_memory_is_refused(session: AsyncSession, content: str) -> None:
    with pytest.raises(InvalidInput, match="content: is empty"):
        await write(session, content)


HUGE = {
    "one word": "x" * TEXT_LIMIT,
    "few words": ("lorem ipsum " * 90_000)[:TEXT_LIMIT],
    "many words": " ".join(map(str, range(100_000, 240_000))),
    "hyphens": ("a1-" * 400_000)[:TEXT_LIMIT],
    "wide": "".join(map(chr, itertools.islice(itertools.cycle(range(0x4E00, 0x9FFF)), TEXT_LIMIT))),
    "wide words": " ".join(map(chr, range(0x20000, 0x2A000))),
    "expanding": "\ufdfa" * TEXT_LIMIT,
    "NULs": "\0" * (TEXT_LIMIT - 1) + "x",
}


@pytest.mark.parametrize("name", HUGE)
async def test_a_megabyte_is_stored_whole_and_its_beginning_is_found(session: AsyncSession, name: str) -> None:
    """Whatever it is made of: no limit of a tsvector or an index row is met."""
    stored = await write(session, "needle " + HUGE[name][: TEXT_LIMIT - 7], context="haystack")
    for query in ("needle", "haystack"):
        (hit,) = await brain.recall(session, query, viewer=BOARD)
        assert (hit.memory.id, len(hit.memory.content)) == (stored.id, min(len(HUGE[name]) + 7, TEXT_LIMIT))


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("content", {"content": "x" * (TEXT_LIMIT + 1)}),
        ("room", {"room": "r" * 101}),
        ("confidence", {"confidence": 1.1}),
        ("confidence", {"confidence": float("nan")}),
        ("entity", {"entities": (EntityRef(kind=" ", key="x"),)}),
        ("entity", {"entities": (EntityRef(kind="k", key="\ufdfa" * 512),)}),
        ("scope", {"scope": Scope.TEAM}),
        ("scope", {"scope": Scope.AGENT_PRIVATE}),
    ],
)
async def test_what_no_memory_may_have_is_refused_by_name(session: AsyncSession, field: str, fields: dict[str, Any]) -> None:
    """An InvalidInput before anything is written, not an error of the database."""
    with pytest.raises(InvalidInput) as error:
        await write(session, **{"content": "text", **fields})
    assert error.value.field == field
    assert len(str(error.value)) < 500
    assert await value(session, "SELECT count(*) FROM memories") == 0


async def test_team_memory_of_an_agent_without_a_team_is_its_own(session: AsyncSession) -> None:
    stored = await write(session, "for my team", viewer=DON, scope=Scope.TEAM)
    assert stored.note is not None
    assert "no team" in stored.note
    assert await found(session, "team", viewer=DON) == ["for my team"]
    assert await found(session, "team", viewer=ANN) == []


# --- trust and relations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", Trust)
@pytest.mark.parametrize("weakest", Trust)
async def test_trust_never_exceeds_the_weakest_source(session: AsyncSession, asked: Trust, weakest: Trust) -> None:
    strength = [Trust.ASSERTED, Trust.OBSERVED, Trust.VERIFIED].index
    strong = await write(session, "one source", trust=Trust.VERIFIED)
    sources = (strong.id, (await write(session, "another", trust=weakest)).id)
    stored = await write(session, "derived", trust=asked, derives_from=sources)
    assert (await brain.get(session, stored.id, viewer=BOARD)).trust == min(asked, weakest, key=strength)
    assert await brain.edges_of(session, stored.id, viewer=BOARD) == [(stored.id, "derives_from", one) for one in sources]


async def test_only_the_boards_word_raises_the_trust_of_what_is_known(session: AsyncSession) -> None:
    """An agent that repeats what somebody asserted makes it no truer; a weaker word takes nothing away."""
    stored = await write(session, "the api is at /v3", viewer=ANN, trust=Trust.ASSERTED)
    for viewer, trust, then in (
        (BEA, Trust.OBSERVED, Trust.ASSERTED),
        (BOARD, Trust.VERIFIED, Trust.VERIFIED),
        (CAI, Trust.ASSERTED, Trust.VERIFIED),
        (BOARD, Trust.ASSERTED, Trust.VERIFIED),
    ):
        await write(session, "the api is at /v3", viewer=viewer, trust=trust)
        assert await value(session, "SELECT trust FROM memories WHERE id = :id", id=stored.id) == then


async def _derived(session: AsyncSession, field: str, source: int) -> None:
    fields: dict[str, Any] = {field: (source,)}
    await write(session, "derived", viewer=ANN, **fields)


@pytest.mark.parametrize("field", ["derives_from", "supersedes"])
async def test_a_source_must_be_there_and_be_seen(session: AsyncSession, field: str) -> None:
    """An unknown, a foreign and an impossible id are the same answer, and nothing is written."""
    foreign = await write(session, "bea's own", viewer=BEA, scope=Scope.AGENT_PRIVATE)
    for ident in (foreign.id, foreign.id + 1000, -1, 2**63, 10**30):
        with pytest.raises(NotFound):
            await _derived(session, field, ident)
    assert await value(session, "SELECT count(*) FROM memories") == 1


async def test_superseding_is_an_edge_and_a_mark_and_loses_nothing(session: AsyncSession) -> None:
    """Only the newer one is recalled; the older stays, with its edge, to be read and restored."""
    old = await write(session, "the port is 5432")
    new = await write(session, "the port is 5433", supersedes=(old.id,), viewer=ANN)
    assert new.note is None
    assert await found(session, "port") == await found(session) == ["the port is 5433"]
    kept = await brain.get(session, old.id, viewer=BOARD)
    assert (kept.content, kept.lifecycle) == ("the port is 5432", Lifecycle.SUPERSEDED)
    assert await brain.edges_of(session, old.id, viewer=BOARD) == [(new.id, "supersedes", old.id)]
    assert await value(session, "SELECT created_by FROM memory_edges") == "ann"


async def test_a_relation_drawn_twice_is_one(session: AsyncSession) -> None:
    one, two = (await write(session, "one")).id, (await write(session, "two")).id
    for _ in range(2):
        await brain.relate(session, one, Relation.SUPPORTS, two, viewer=ANN)
    await brain.relate(session, one, Relation.CONTRADICTS, two, viewer=ANN)
    assert await brain.edges_of(session, two, viewer=BOARD) == [(one, "supports", two), (one, "contradicts", two)]
    with pytest.raises(InvalidInput, match="target: is the memory itself"):
        await brain.relate(session, one, Relation.SUPPORTS, one, viewer=ANN)
    with pytest.raises(NotFound):
        await brain.relate(session, one, Relation.SUPPORTS, two + 1000, viewer=ANN)


@pytest.mark.parametrize("ident", [0, -1, 999_999, 2**63 - 1, 2**63, 10**40])
async def test_a_memory_that_is_not_there_is_not_found(session: AsyncSession, ident: int) -> None:
    for verb in (brain.get, brain.archive):
        with pytest.raises(NotFound, match=f"no memory '{ident}'"):
            await verb(session, ident, viewer=BOARD)


# --- who sees what ----------------------------------------------------------------------------------------------

SEEN_BY = {
    (Scope.ORG, "ann"): {"board", "ann", "bea", "cai", "don"},
    (Scope.TEAM, "ann"): {"board", "ann", "bea"},
    (Scope.TEAM, "cai"): {"board", "cai"},
    (Scope.AGENT_PRIVATE, "ann"): {"board", "ann"},
    (Scope.AGENT_PRIVATE, "don"): {"board", "don"},
}
VIEWERS = {"board": BOARD, "ann": ANN, "bea": BEA, "cai": CAI, "don": DON}


@pytest.mark.parametrize(("scope", "writer"), SEEN_BY)
@pytest.mark.parametrize("viewer", VIEWERS)
async def test_a_memory_is_seen_by_those_it_is_for(session: AsyncSession, scope: Scope, writer: str, viewer: str) -> None:
    """By every way: words, entity, the newest, by id, an edge to it, as a source, to archive it."""
    entity = (EntityRef(kind="service", key="api"),)
    secret = await write(session, "the secret plan", viewer=VIEWERS[writer], scope=scope, entities=entity)
    public = await write(session, "known to all")
    await brain.relate(session, public.id, Relation.RELATED_TO, secret.id, viewer=BOARD)
    who, may_see = VIEWERS[viewer], viewer in SEEN_BY[scope, writer]
    assert await found(session, "secret plan", viewer=who) == ["the secret plan"] * may_see
    assert await found(session, entity=("service", "api"), viewer=who) == ["the secret plan"] * may_see
    assert ("the secret plan" in await found(session, viewer=who)) is may_see
    assert await brain.edges_of(session, public.id, viewer=who) == [(public.id, "related_to", secret.id)] * may_see
    ways: list[Callable[[], Awaitable[object]]] = [
        lambda: brain.get(session, secret.id, viewer=who),
        lambda: brain.relate(session, public.id, Relation.SUPPORTS, secret.id, viewer=who),
        lambda: brain.relate(session, secret.id, Relation.SUPPORTS, public.id, viewer=who),
        lambda: write(session, "derived", viewer=who, derives_from=(secret.id,)),
    ]
    if viewer in ("board", writer) or not may_see:  # seeing it is not enough to put it away
        ways.append(lambda: brain.archive(session, secret.id, viewer=who))
    for way in ways:
        if may_see:
            await way()
        else:
            with pytest.raises(NotFound):
                await way()


async def test_what_is_in_force_is_for_its_writer_or_the_board_to_say(session: AsyncSession) -> None:
    """A colleague who sees a memory can neither put it away nor bring it back."""
    stored = await write(session, "the plan of ann", viewer=ANN)
    with pytest.raises(Refused, match="only its writer or the board can archive it"):
        await brain.archive(session, stored.id, viewer=BEA)
    await brain.archive(session, stored.id, viewer=ANN)
    with pytest.raises(Refused, match="only its writer or the board can restore it"):
        await brain.restore(session, stored.id, viewer=BEA)
    await brain.restore(session, stored.id, viewer=BOARD)
    assert await found(session, "the plan", viewer=BEA) == ["the plan of ann"]


@pytest.mark.parametrize("query", ["the tariff", None])
async def test_what_is_valid_no_more_or_not_yet_is_not_recalled(session: AsyncSession, query: str | None) -> None:
    """Without `as_of` it is now that counts, in every way of asking."""
    now, day = datetime.now(UTC), timedelta(days=1)
    await write(session, "the tariff of old", valid_to=now - day)
    await write(session, "the tariff to come", valid_from=now + day)
    await write(session, "the tariff of today", valid_from=now - day, valid_to=now + day)
    assert await found(session, query) == ["the tariff of today"]
    assert "the tariff to come" in await found(session, query, as_of=now + 2 * day)


async def test_what_was_over_is_said_anew_for_the_time_that_is_said_now(session: AsyncSession) -> None:
    """The same words again are one memory; one whose time was over would be found by nobody."""
    now, day = datetime.now(UTC), timedelta(days=1)
    await write(session, "server X is down", valid_to=now - day)
    again = await write(session, "server X is down")
    assert again.merged
    assert await found(session, "server X") == ["server X is down"]


async def test_what_is_put_away_itself_takes_nothing_out_of_force(session: AsyncSession) -> None:
    """Else neither would be recalled."""
    old, good = await write(session, "the old plan"), await write(session, "the good plan")
    await brain.archive(session, old.id, viewer=BOARD)
    note = await brain.relate(session, old.id, Relation.SUPERSEDES, good.id, viewer=BOARD)
    assert note is not None
    assert "is archived itself" in note
    assert await found(session, "plan") == ["the good plan"]


async def test_a_model_that_breaks_leaves_words_to_find_by(db: Database) -> None:
    """Whatever it raises: a question is answered, not failed."""

    class Breaking(HashEmbedder):
        def encode(self, texts: Sequence[str]) -> Any:
            raise RuntimeError(f"out of memory at {len(texts)} texts")

    knowing = brain.Brain(db, Breaking())
    await knowing.write(MemoryDraft(content="the plan of ann"), viewer=BOARD, trust=Trust.OBSERVED)
    hits = await knowing.recall("plan", viewer=BOARD)
    assert [(hit.memory.content, hit.mode) for hit in hits] == [("the plan of ann", "text")]


async def test_an_agent_named_like_a_team_does_not_see_the_teams_memory(session: AsyncSession) -> None:
    """The owner is read together with the scope."""
    await write(session, "for red", viewer=ANN, scope=Scope.TEAM)
    assert await found(session, "red", viewer=Viewer(agent="red")) == []
    assert await found(session, "red", viewer=Viewer(agent="x", team="ann")) == []


# --- asking -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        *("Köhler-Süßmann", "Ko\u0308hler-Su\u0308ßmann", "KÖHLER-SÜSSMANN", "koehler suessmann", "Köhler", "Suessmann"),
        *("GRÖSSE", "groesse", "Größe", "größen", "Strasse", "Straße", "STRASSEN", "die Straßen?", "cafe", "Café"),
    ],
)
async def test_german_words_are_found_however_they_are_spelled(session: AsyncSession, query: str) -> None:
    """Umlauts, ß, decomposed letters, oe and ue, case and inflection (F12-01)."""
    wanted = "Frau Köhler-Süßmann wohnt in der Straße am Café; die Größe passt"
    await write(session, "ein anderer Satz, der nichts davon hat")
    written = {wanted, wanted.replace("ö", "oe").replace("ü", "ue").replace("ß", "ss"), unicodedata.normalize("NFD", wanted)}
    for content in written:
        await write(session, content)
    assert set(await found(session, query)) == written


async def test_a_german_question_finds_inflected_words_and_ranks_them(session: AsyncSession) -> None:
    """Plural and singular, with and without umlaut; the English text about the same is not in the way."""
    wanted = "Das Haus in der Gartenstraße wurde von zwei Architekten entworfen"
    for content in ("Der Hund der Nachbarn bellt", wanted, "The house was designed by an architect", "Häufig regnet es"):
        await write(session, content)
    assert (await found(session, "Welche Häuser hat der Architekt entworfen?"))[0] == wanted


HOSTILE = [
    *("@alpha", "=alpha", "alpha & beta", "alpha's", '"alpha"', "/alpha/", "al\\pha alpha\\", "alpha\\'", "-alpha", "alpha:*"),
    *(
        "!alpha",
        "alpha | !beta",
        "(alpha",
        "alpha)",
        "alpha <-> beta",
        "<2>alpha",
        "alpha AND OR NOT",
        "NOT alpha",
        "<b>alpha</b>",
    ),
    *("alpha 😀", "😀alpha😀", "alpha\0beta", "\0alpha", "alpha \ud800", "alpha; DROP TABLE memories; --", "%alpha%", "alpha_x"),
    *(
        "alpha" + " " * 10_000,
        "alpha " * 2_000,
        "alpha " + "x" * 10_000,
        "$1 alpha %s {alpha} :alpha",
        "alpha\u200b",
        "ａｌｐｈａ",
    ),
]


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
async def test_punctuation_in_a_question_neither_fails_nor_hides_its_words(session: AsyncSession, query: str) -> None:
    """Whatever stands around it, `alpha` is found (F12-04)."""
    await write(session, "the alpha release")
    assert await found(session, query) == ["the alpha release"]


async def test_words_are_found_inside_what_postgres_takes_for_one_token(session: AsyncSession) -> None:
    """A part of a path, of an address, of a version; the memory's own punctuation does not hide it either."""
    content = "see src/main.py?x=1 and https://ann@example.com/docs#part (v2.1.3)"
    await write(session, content)
    for query in ("main.py", "example", "docs", "part", "ann@example.com", "v2", "src/main.py", "main"):
        assert await found(session, query) == [content], query


@pytest.mark.parametrize("query", ["zebra", "the of is", "?!", "😀", "''", "\ud800"])
async def test_a_question_that_matches_nothing_finds_nothing(session: AsyncSession, query: str) -> None:
    await write(session, "the alpha release is out")
    assert await found(session, query) == []


@pytest.mark.parametrize("query", [None, "", "   ", "\n\t"])
async def test_without_a_question_the_newest_come(session: AsyncSession, query: str | None) -> None:
    for content in ("one", "two", "three"):
        await write(session, content)
    hits = await brain.recall(session, query, limit=2, viewer=BOARD)
    assert [(hit.memory.content, hit.mode) for hit in hits] == [("three", "newest"), ("two", "newest")]


async def test_of_equals_the_newest_comes_first_and_a_better_answer_before_it(session: AsyncSession) -> None:
    """Recency orders equals; it does not beat words."""
    best = await write(session, "backup restore drill")
    for number in range(3):
        await write(session, "backup taken", room=f"r{number}", viewer=Viewer(agent=f"a{number}"), scope=Scope.AGENT_PRIVATE)
    await session.execute(text("UPDATE memories SET created_at = now() - interval '9 years' WHERE id = :id"), {"id": best.id})
    hits = await brain.recall(session, "backup restore drill", viewer=BOARD)
    assert [hit.memory.room for hit in hits] == ["general", "r2", "r1", "r0"]
    assert hits[0].memory.id == best.id
    assert [hit.why["text_rank"] for hit in hits] == [1, 2, 3, 4]
    assert all(hit.mode == "text" and hit.score > 0 and hit.why["text_score"] > 0 for hit in hits)
    assert len({hit.why["text_score"] for hit in hits[1:]}) == 1


REPORT = "backup server copied every database table index log file and setting before midnight"


async def test_of_near_equals_the_newer_comes_first(session: AsyncSession) -> None:
    """One word more makes a text score a little lower; that must not keep last year's answer on top."""
    old = await write(session, REPORT)
    await write(session, f"{REPORT} yesterday")
    assert await found(session, "backup of the database") == [REPORT, f"{REPORT} yesterday"]
    await session.execute(text("UPDATE memories SET created_at = now() - interval '1 year' WHERE id = :id"), {"id": old.id})
    hits = await brain.recall(session, "backup of the database", viewer=BOARD)
    assert [hit.memory.content for hit in hits] == [f"{REPORT} yesterday", REPORT]
    assert hits[0].why["text_score"] < hits[1].why["text_score"]


@pytest.mark.parametrize("days", [0.001, 30, 365, 36_500])
async def test_age_takes_a_tenth_of_a_score_at_most(session: AsyncSession, days: float) -> None:
    """However old a memory is: what answers better by more than that comes first."""
    stored = await write(session, REPORT)
    (before,) = await brain.recall(session, "backup", viewer=BOARD)
    aged = text("UPDATE memories SET created_at = now() - interval '1 day' * :days WHERE id = :id")
    await session.execute(aged, {"days": days, "id": stored.id})
    (after,) = await brain.recall(session, "backup", viewer=BOARD)
    assert 0.9 * before.score <= after.score < before.score


async def test_context_is_searched_beside_the_content(session: AsyncSession) -> None:
    """Who said it and about what is a way to find it."""
    await write(session, "it takes 40 minutes", context="ann (auditor), task: nightly migration")
    assert await found(session, "migration") == ["it takes 40 minutes"]


async def test_an_entity_finds_what_is_about_it_and_restricts_a_question(session: AsyncSession) -> None:
    """By its canonical name, newest first; each memory carries its entities with their roles."""
    api = EntityRef(kind="Service", key="  Billing  API ", role=EntityRole.SUBJECT)
    first = await write(session, "it listens on 8080", entities=(api, api))
    await write(session, "it is slow", entities=(EntityRef(kind="service", key="billing api"),))
    await write(session, "8080 is also the proxy's port")
    for kind, key in (("service", "billing api"), ("SERVICE", " Billing\tAPI")):
        hits = await brain.recall(session, entity=(kind, key), viewer=BOARD)
        assert [(hit.memory.content, hit.mode) for hit in hits] == [("it is slow", "entity"), ("it listens on 8080", "entity")]
    assert await found(session, "8080", entity=("service", "billing api")) == ["it listens on 8080"]
    assert await found(session, entity=("service", "nobody")) == []
    named = await brain.entities_of(session, [first.id, first.id + 1000], viewer=BOARD)
    assert named == {
        first.id: [EntityRef(kind="service", key="billing api", role=EntityRole.SUBJECT)],
        first.id + 1000: [],
    }


async def test_as_of_shows_what_was_known_and_valid_then(session: AsyncSession) -> None:
    """Not what came later, not what was not yet or no longer valid; the end of validity is exclusive."""
    noon = datetime(2026, 5, 4, 12, tzinfo=UTC)
    hour = timedelta(hours=1)
    spans = {
        "always": (None, None),
        "until noon": (None, noon),
        "from noon": (noon, None),
        "at ten": (noon - 2 * hour, noon - hour),
    }
    for content, (start, end) in spans.items():
        await write(session, f"price {content}", valid_from=start, valid_to=end)
    await session.execute(text("UPDATE memories SET created_at = :at"), {"at": noon - 9 * hour})
    await write(session, "price of today")

    async def known(moment: datetime) -> set[str]:
        return {content.removeprefix("price ") for content in await found(session, "price", as_of=moment)}

    assert await known(noon) == {"always", "from noon"}
    assert await known(noon - hour) == {"always", "until noon"}
    assert await known(noon - 2 * hour) == {"always", "until noon", "at ten"}
    assert await known(noon - 10 * hour) == set()
    assert "of today" in await known(datetime.now(UTC) + hour)


async def test_rooms_and_types_filter_both_ways_of_asking(session: AsyncSession) -> None:
    await write(session, "port one", room=" API ", type=MemoryType.FACT)
    await write(session, "port two", room="api", type=MemoryType.RULE)
    await write(session, "port three", room="ops", type=MemoryType.RULE)
    for query in ("port", None):
        assert set(await found(session, query, room="Api")) == {"port one", "port two"}
        assert await found(session, query, room="api", types=[MemoryType.RULE]) == ["port two"]
        assert len(await found(session, query, types=[MemoryType.RULE, MemoryType.FACT])) == 3
        assert await found(session, query, room="none") == []


async def test_the_limit_has_bounds(session: AsyncSession) -> None:
    for number in range(3):
        await write(session, f"port {number}")
    for query in ("port", None):
        assert len(await found(session, query, limit=2)) == 2
        assert len(await found(session, query, limit=200)) == 3
        for limit in (0, -1, 201):
            with pytest.raises(InvalidInput, match=f"limit: is {limit}: give 1 to 200"):
                await found(session, query, limit=limit)


async def test_stale_is_still_recalled_and_superseded_is_not(session: AsyncSession) -> None:
    retire = "UPDATE memories SET lifecycle = :s, retired_at = CASE WHEN :gone THEN now() END WHERE id = :id"
    for state in Lifecycle:
        stored = await write(session, f"state {state}")
        await session.execute(text(retire), {"s": state.value, "gone": state not in IN_FORCE, "id": stored.id})
    assert set(await found(session, "state")) == set(await found(session)) == {"state active", "state stale"}


# --- any text, and many rows ------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(codec=None), max_size=40) | st.text("'\\\"&|!():*<->%_ \0\n.@/=aA0ß", max_size=30))
@example("'" * 20)
@example("1e400 0x10 -5 1.5.6")
def test_asking_never_fails_whatever_the_text(runner: asyncio.Runner, asked: AsyncSession, question: str) -> None:
    """No text is a syntax error, in any field of a recall."""

    async def ask() -> None:
        await brain.recall(asked, question, viewer=ANN)
        await brain.recall(asked, "alpha " + question, room=question, entity=(question, question), viewer=ANN)

    runner.run(ask())


@pytest.fixture
def asked(runner: asyncio.Runner, open_session: AsyncSession) -> AsyncSession:
    """A brain with one memory."""
    runner.run(write(open_session, "the alpha release"))
    return open_session


async def test_recall_by_words_reads_the_index(session: AsyncSession) -> None:
    """Among twenty thousand memories, for an agent: the plan is a scan of the full-text index, not of the table."""
    fill = """
        INSERT INTO memories (type, room, scope, owner, trust, confidence, content, content_hash, language, search_text)
        SELECT 'fact', 'general', CASE n % 4 WHEN 0 THEN 'team' ELSE 'org' END, CASE n % 4 WHEN 0 THEN 'red' ELSE '' END,
               'observed', 0.7, t, sha256(t::bytea), CASE n % 2 WHEN 0 THEN 'german' ELSE 'english' END, t
          FROM (SELECT n, 'service' || n % 997 || ' listens on port ' || n || ' of rack' || n % 13 AS t
                  FROM generate_series(1, 20000) n) AS texts"""
    await session.execute(text("SET LOCAL ROLE NONE"))  # the tables' owner: below, the application's own is bound by policies
    await session.execute(text(fill))
    await session.execute(text("SELECT gin_clean_pending_list('ix_memories_search')"))  # what a vacuum does
    await session.execute(text("ANALYZE memories"))
    await session.execute(text(f"SET LOCAL ROLE {ROLE}"))
    before = await _scans(session)
    contents = await found(session, "Where is service17?", viewer=ANN, limit=5)
    assert len(contents) == 5
    assert all("service17 " in content for content in contents)
    of_index, of_table = (now - then for now, then in zip(await _scans(session), before, strict=True))
    assert of_index > 0
    assert of_table == 0


async def _scans(session: AsyncSession) -> tuple[int, int]:
    """Return how often this transaction has read the full-text index, and the whole table."""
    query = """SELECT pg_stat_get_xact_numscans('ix_memories_search'::regclass),
                      (SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'memories')"""
    of_index, of_table = (await session.execute(text(query))).one()
    return of_index, of_table
