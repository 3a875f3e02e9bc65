"""One way of reading words, for what is stored and for what is asked. Pure: no I/O, no clock.

PostgreSQL is given words only, never punctuation, so that its parser and this module agree on what a word is: it takes
`src/main.py` or `ann@example.com` for one token, and nobody asks for a file by its whole path.
"""

from __future__ import annotations

import re
import sys
import unicodedata
import zlib
from array import array
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Literal

from opencognit.stemming import stem

SEARCH_TEXT_LIMIT = 100_000
"""Characters of a memory that are indexed; a tsvector holds at most a megabyte."""
CONTEXT_LIMIT = 20_000
"""Of these, what its context has: a long text must not push out who said it."""

TERMS_LIMIT = 2000
"""Words of a memory that BM25+ counts, context and content each: a longer text is about them too."""

_WORD = re.compile(r"[^\W_]+")
_UMLAUT = re.compile("([aou])\u0308")
_MARKS = re.compile("[\u0300-\u036f]+")
_LONGEST_STEMMED = 64
_GERMAN_ENDING = re.compile(r".{4,}(?:ung|heit|keit|schaft)(?:en|s)?|.{4,}lich(?:e[mnrs]?)?")
"""Of words that English has none of: a note of a few nouns has no function word to tell its language by."""
_COMPOUND = range(10, _LONGEST_STEMMED + 1)
"""Letters of a German word that may be made of several."""
_SHORTEST_PART = 5
_GERMAN_WORDS = """
aber alle allem allen aller alles als also am an andere anderem anderen anderer anderes auch auf aus bei bin bis bist da damit
dann das dass dein deine dem den denn der des dessen dich die dies diese diesem diesen dieser dieses dir doch dort du durch ein
eine einem einen einer eines er es etwas euch euer für gegen gewesen hab habe haben hat hatte hatten hier hin hinter ich ihm ihn
ihnen ihr ihre ihrem ihren ihrer ihres im in indem ins ist jede jedem jeden jeder jedes jene jetzt kann kein keine können könnte
machen man mein meine mich mir mit nach nicht nichts noch nun nur ob oder ohne sehr sein seine seinem seinen seiner sich sie sind
so solche soll sollte sondern sonst über um und uns unser unter viel vom von vor wann war waren warum was weg weil weiter welche
welchem welchen welcher welches wem wen wenn wer werde werden wessen wie wieder wieso will wir wird wo woher wohin wollen wollte
worin wurde wurden während würde würden zu zum zur zwar zwischen
"""
_ENGLISH_WORDS = """
a about above after again all am an and any are as at be because been before being below between both but by can could d did do
does doing down during each few for from further had has have having he her here hers him his how i if in into is it its itself
just ll m me more most my no nor not of off on once only or other our out over own re s same she should so some such t than that
the their them then there these they this those through to too under until up ve very was we were what when where which while who
whom why will with would you your yours
"""
_GERMAN, _ENGLISH = frozenset(_GERMAN_WORDS.split()), frozenset(_ENGLISH_WORDS.split())
_ONLY_GERMAN, _ONLY_ENGLISH = _GERMAN - _ENGLISH, _ENGLISH - _GERMAN

Language = Literal["english", "german"]


def fold(text: str) -> str:
    """Return `text` case-folded, umlauts and ß written out, other accents dropped: Köhler, KOEHLER and Ko\\u0308hler are one."""
    if text.isascii():
        return text.lower()
    spelled = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return unicodedata.normalize("NFKC", _MARKS.sub("", _UMLAUT.sub(r"\1e", spelled)))


_STOP: dict[Language, frozenset[str]] = {
    "german": frozenset(map(fold, _GERMAN)),
    "english": frozenset(map(fold, _ENGLISH)),
}
"""By language: `die`, `war` and `man` mean something in the other one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A memory as the index has it. `terms`: numbers of the stems of content, then of context, four bytes each."""

    language: Language
    search_text: str
    terms: bytes
    content_terms: int


def read(content: str, context: str = "") -> Reading:
    """Return how a memory is found by its words."""
    spoken = language(content)
    inside, around = terms(content, spoken), terms(context, spoken)
    numbers = array("I", [number(term) for term in (*inside, *around)])
    if sys.byteorder == "big":
        numbers.byteswap()
    return Reading(spoken, search_text(content, context, spoken), numbers.tobytes(), len(inside))


def search_text(content: str, context: str = "", spoken: Language = "english") -> str:
    """Return what full text gets: a line of the content's words, one of the context's, one of the parts of German compounds."""
    lines = [
        " ".join(_words(content))[: SEARCH_TEXT_LIMIT - CONTEXT_LIMIT - 1],
        " ".join(_words(context))[:CONTEXT_LIMIT],
    ]
    if spoken == "german":
        long = dict.fromkeys(word for line in lines for word in line.split(" ") if len(word) in _COMPOUND)
        lines.append(" ".join(dict.fromkeys(part for word in long for part in parts(word))))
    return "\n".join(lines)[:SEARCH_TEXT_LIMIT].rstrip("\n")


def parts(word: str) -> list[str]:
    """Return what a folded compound may begin or end with: `kranken` and `versicherung`, and much that is no word."""
    if len(word) not in _COMPOUND:
        return []
    cuts = range(_SHORTEST_PART, len(word) - _SHORTEST_PART + 1)
    return [part for cut in cuts for part in (word[:cut], word[cut:])]


def meaningful(line: str, spoken: Language) -> str:
    """Return a line of `search_text` without the words that stand in every text."""
    return " ".join(word for word in line.split(" ") if word not in _STOP[spoken])


def content_words(text: str) -> list[str]:
    """Return the folded words of a question, each once, without those that stand in every text of its language."""
    return [word for word in dict.fromkeys(_WORD.findall(fold(text))) if word not in _STOP[language(text)]]


def language(text: str) -> Language:
    """Guess `german` or `english` by what only one of them has; English when that is nothing."""
    words = [word.casefold() for word in _WORD.findall(unicodedata.normalize("NFC", text[:5000]))]
    german = sum(word in _ONLY_GERMAN or _GERMAN_ENDING.fullmatch(word) is not None for word in words)
    german += 2 * sum(any(c in word for c in "äöüß") for word in words)
    return "german" if german > sum(word in _ONLY_ENGLISH for word in words) else "english"


def terms(text: str, spoken: Language) -> list[str]:
    """Return the terms that BM25+ counts: the stems of the folded words without stop words, at most TERMS_LIMIT."""
    meant = (word for word in _words(text) if word not in _STOP[spoken])
    return [_stem(word, spoken) for word in islice(meant, TERMS_LIMIT)]


def stems(word: str) -> list[str]:
    """Return a question's folded word as memories in either language have it."""
    return list(dict.fromkeys((_stem(word, "english"), _stem(word, "german"))))


def number(term: str) -> int:
    """Return the 32 bits that stand for a term: of a million terms one in five thousand shares its number with another."""
    return zlib.crc32(term.encode("utf-8", "surrogatepass"))


def _words(text: str) -> list[str]:
    return _WORD.findall(fold(text[:SEARCH_TEXT_LIMIT]))


@lru_cache(maxsize=100_000)
def _stem(word: str, spoken: Language) -> str:
    """Stemming takes 0.1 ms: a text has few words that no other had."""
    return stem(word, spoken) if len(word) <= _LONGEST_STEMMED else word
