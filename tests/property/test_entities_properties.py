"""Whatever the text: entities come out in one form, in one order, bounded; and each spelling of a thing finds it."""

from __future__ import annotations

import datetime
from decimal import Decimal

from hypothesis import example, given, settings
from hypothesis import strategies as st

from opencognit.brain import patterns
from opencognit.brain.canonical import folded, plain
from opencognit.brain.entities import LIMIT, Known, canonical, extract
from opencognit.brain.names import KEY_LIMIT, KIND_LIMIT
from opencognit.textclean import clean

KINDS = sorted({each.kind for each in patterns.default().patterns if each.kind})
SAMPLES = [text for each in patterns.default().patterns for text in (*(one for one, _ in each.examples), *each.counter_examples)]
PIECES = st.sampled_from([
    *"aZ09.:/\\-_@#$%?&=' \"`„“<>()[]{}+,;!\n\t\0äſİ½３", "€", "EUR", "k", "Mio. ", "www.", "http://", "https://a.b", "utm_x=1",
    "März", "2026", "v", "1.2.3", "0x", "bc1", "GH-", "ABC-1", "NYSE:", "Error", "ValueError: ", "panic: ", "<n>", "<str>", "'a'",
    "::", "C:\\", "..", "./", "~/", ":12", "\ud800", "A\u0308", "\u0345", "\u2028", "\ufdfa", "deadbeef12", "8-4", "\x1b[1m",
])  # fmt: skip
ANY_TEXT = (
    st.text(st.characters(exclude_categories=()), max_size=60)
    | st.lists(PIECES, max_size=20).map("".join)
    | st.lists(st.sampled_from(SAMPLES) | PIECES, max_size=8).map(" ".join)
)


@given(st.sampled_from([*KINDS, "service", "ＳＥＲＶＩＣＥ ", "\ud800"]), ANY_TEXT)
@example("error", "a.b.")
@example("file", "a/:1")
@example("amount", "1,2340 €")
@settings(max_examples=1000, deadline=None)
def test_canonical_is_stable_and_can_be_stored(kind: str, key: str) -> None:
    """Once is always: what was stored is found by what was stored."""
    name = canonical(kind, key)
    assert canonical(*name) == name
    assert all(clean(part) == part and part == " ".join(part.split()) for part in name)


@given(st.text(st.characters(exclude_categories=()), max_size=30))
@example("\u0345\u0308a")
@example("ẞſİǰ")
@settings(max_examples=500, deadline=None)
def test_folding_and_plain_text_are_stable(text: str) -> None:
    assert folded(folded(text)) == folded(text)
    assert plain(plain(text)) == plain(text)


@given(ANY_TEXT, st.dictionaries(ANY_TEXT, st.tuples(ANY_TEXT, ANY_TEXT), max_size=4))
@settings(max_examples=600, deadline=None)
def test_any_text_gives_bounded_canonical_entities(text: str, aliases: dict[str, tuple[str, str]]) -> None:
    """Nothing raises; each entity once, as it is stored; the same text gives the same ones."""
    known = Known(aliases)
    names = [(one.kind, one.key) for one in extract(text, known)]
    assert len(names) <= LIMIT
    assert len(set(names)) == len(names)
    assert all(canonical(*name) == name for name in names)
    assert all(0 < len(kind) <= KIND_LIMIT and 0 < len(key) <= KEY_LIMIT for kind, key in names)
    assert extract(text, Known(dict(reversed(aliases.items())))) == extract(text, known)


def token(alphabet: str, most: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=1, max_size=most)


LOWER = "abcdefghijklmnopqrstuvwxyz"
NAME = token(LOWER, 12).filter(lambda name: len(name) > 2)
PART = st.integers(0, 999).map(str)
REFUSED = frozenset(word for each in patterns.default().patterns for word in each.refused)
THINGS = st.one_of(
    st.dates(datetime.date(1000, 1, 1), datetime.date(2199, 12, 31)).map(lambda day: ("date", day.isoformat())),
    st.builds("{}@{}.example".format, NAME, NAME).map(lambda key: ("email", key)),
    st.builds("https://{}.example/{}/x?id={}".format, NAME, NAME, PART).map(lambda key: ("url", key)),
    st.builds("src/{}/{}.py".format, NAME, NAME).map(lambda key: ("file", key)),
    st.builds("{}.{}.{}rc1".format, PART, PART, PART).map(lambda key: ("version", key)),
    st.builds("{}-{}".format, NAME.filter(lambda name: name[:10] not in REFUSED), st.integers(1, 999_999)).map(
        lambda key: ("ticket", f"{key.partition('-')[0][:10].upper()}-{key.partition('-')[2]}")
    ),
    st.builds("10.{}.{}.{}".format, *[st.integers(0, 255)] * 3).map(lambda key: ("ip", key)),
    st.uuids().map(lambda ident: ("uuid", str(ident))),
    st.decimals(Decimal("0.01"), Decimal("9999999"), places=2).map(lambda value: canonical("amount", f"{value:f} EUR")),
    st.binary(min_size=20, max_size=20).map(lambda raw: ("coin_address", f"0x{raw.hex()}")),
    NAME.map(lambda name: ("error", f"{name.capitalize()}Error: no <str> in <path> after <n> s")),
)


@given(THINGS, st.sampled_from(["{}", "siehe {}.", "({})", "am Ende {}, dann mehr", "erst\n{}\ndann", "„{}“", "\t{}!"]))
@settings(max_examples=500, deadline=None)
def test_a_canonical_key_in_a_sentence_gives_itself(thing: tuple[str, str], sentence: str) -> None:
    """What one memory names by its key, another that was read names alike."""
    kind, key = thing
    names = [(one.kind, one.key) for one in extract(sentence.format(key)) if one.kind == kind]
    if kind == "error" and "dann mehr" in sentence:  # a message ends with its sentence
        names = [(kind, found.removesuffix(", dann mehr")) for _, found in names]
    assert names == [thing]


GERMAN = (
    "Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November", "Dezember",
)  # fmt: skip
ENGLISH = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip


@given(st.dates(datetime.date(1900, 1, 1), datetime.date(2199, 12, 31)), st.integers(0, 10))
@settings(max_examples=300, deadline=None)
def test_every_spelling_of_a_day_is_that_day(day: datetime.date, spelling: int) -> None:
    german, english = GERMAN[day.month - 1], ENGLISH[day.month - 1]
    spellings = (
        f"{day:%Y-%m-%d}", f"{day:%d.%m.%Y}", f"{day.day}.{day.month}.{day.year}", f"{day.day}. {german} {day.year}",
        f"{day.day:02}. {german.upper()} {day.year}", f"{english} {day.day}, {day.year}", f"{day.day} {english} {day.year}",
        f"{english[:3]} {day.day} {day.year}", f"{day.day}. {german[:3]}. {day.year}", f"{day:%Y-%m-%d}T12:00:00",
        f"{day:%Y/%m/%d}",
    )  # fmt: skip
    text = f"Das war {spellings[spelling]} im Büro."
    assert [(one.kind, one.key) for one in extract(text)] == [("date", day.isoformat())], text


@given(st.integers(0, 99_999_999), st.integers(1, 99))
@settings(max_examples=300, deadline=None)
def test_both_styles_of_an_amount_are_that_amount(whole: int, cents: int) -> None:
    english = f"{whole:,}.{cents:02}"
    german = english.translate(str.maketrans(",.", ".,"))
    (expected,) = {canonical("amount", f"{whole}.{cents:02} EUR")}
    for text in (f"{german} €", f"€{english}", f"EUR {german}", f"{whole},{cents:02} Euro", f"{german}\u00a0EUR"):
        assert [(one.kind, one.key) for one in extract(f"kostet {text} im Jahr")] == [expected], text
    assert Decimal(expected[1].split()[0]) == Decimal(f"{whole}.{cents:02}")


@given(st.integers(0, 10**9), st.integers(1, 10**6), st.uuids(), NAME, NAME)
@settings(max_examples=200, deadline=None)
def test_an_errors_key_does_not_depend_on_its_values(number: int, line: int, ident: object, name: str, other: str) -> None:
    """Ids, line numbers, paths and quoted values change from run to run."""
    text = f"ValueError: run {number} ({ident}) of '{name}' in /srv/{name}/{other}.py:{line}, not \"{other}\""
    same = "ValueError: run 1 (3f2504e0-4f89-41d3-9a0c-0305e82c3301) of 'x' in /srv/a/b.py:2, not \"y\""
    assert canonical("error", text) == canonical("error", same)
    assert ("error", canonical("error", same)[1]) in [(one.kind, one.key) for one in extract(text)]
