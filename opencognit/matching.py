"""Finding who should do a task: by skills first, then role and title, then load. Pure and deterministic.

How a text is compared
    Words are NFKC, case folded, umlauts and accents folded (ä→ae, ß→ss), without English and German stop words. Two words
    are the same when their English or their German Snowball stems are (Porter 2001). A skill of several words
    ("data-analysis") counts when all of them occur. Of German compounds, a skill's word at either end counts half
    ("Sicherheitsbericht" has "Bericht"), both parts apart three quarters ("Daten analysieren" is "Datenanalyse"). Nothing
    is translated: a German item needs German skills, or `(skills: ...)`.
Score
    A skill that nobody else has gives 1, one that everybody has little (inverse document frequency over the team), each
    further word of it half as much again. Role and title give half, and only from a third of their words on. Verbs that
    any task may have ("write", "erstellen") count less in a skill and not at all in a role. Equal scores: lower load, name.

Must not guess: without any hit there is no match, and the reason says what the team can do.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from opencognit.contracts import TeamMember
from opencognit.stemming import stem

ROLE_WEIGHT = 0.5
ROLE_SHARE = 1 / 3
COMPOUND_WEIGHT = 0.5
PARTS_WEIGHT = 0.75
VAGUE_WEIGHT = 0.6
WORD_LIMIT = 60
"""Longer words are compared as they are."""
TEXT_READ = 20_000
"""So many characters of a text are looked at; what a task is about stands at its head."""
LISTED = 8
"""So many agents are named in a reason."""

_TOKEN = re.compile(r"[^\W\d_](?:\+\+|#)(?!\w)|[^\W_]+")
_FOLD = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "æ": "ae", "ø": "oe", "ł": "l"})


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_STOP_WORDS = _set("""
    a about above after again against all also an and any are as at be because been before being below between both but by can
    could did do does doing done down during each either few for from further get go had has have having he her here his how i if
    in into is it its itself just let may me might more most must my new no nor not now of off on once only onto or other our
    out over own per please same shall she should so some such than that the their them then there these they this those
    through to too under until up upon us using very via was we were what when where which while who whom whose why will with
    within without would you your
    aber alle allem allen aller alles als also am ans auch auf aufs aus bei beim bis bitte da damit dann das dass dazu dein
    deine dem den denn der des dessen die dies diese diesem diesen dieser dieses dir doch dort du durch ein eine einem einen
    einer eines er es etwas euch euer fuer gegen haben hat hatte hier ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im ist ja
    jede jedem jeden jeder jedes jetzt kann kein keine keinen keiner koennen man mehr mein meine mit muessen muss nach neue
    neuen neuer neues nicht noch nur ob oder ohne sehr sein seine seinem seinen seiner sich sie sind so sowie soll sollen
    ueber um und uns unser unsere unserem unseren unserer unter vom von vor war warum was weil welche wenn wer werden wie wir
    wird wo zu zum zur zwischen
""")
_VAGUE = _set("""
    act add analyse ask begin bring build call change check collect complete create deliver describe develop draft edit
    ensure find finish fix gather give handle help improve keep list look make manage monitor move need open organise
    perform plan prepare process produce provide put read review run send set show start stop support take tell test think
    track try turn update use work write
    aendern arbeiten aufbereiten ausarbeiten bauen bearbeiten beginnen beschreiben bringen durchfuehren einrichten entwerfen
    entwickeln erledigen erstellen erzeugen finden fragen geben helfen holen kuemmern lesen liefern listen machen nehmen nutzen
    organisieren planen pruefen sammeln schauen schicken schreiben senden stellen suchen testen tun ueberarbeiten unterstuetzen
    verbessern verfassen verwalten verwenden vorbereiten zeigen zusammenstellen
""")
_GENERIC = _set("""
    ability agent agents ai assistant associate boss bot chief company consultant contributor director employee engineer expert
    experts general head helper junior lead leader manager member officer owner person principal professional role senior skill
    skills specialist staff task tasks team teams trainee worker
    assistent assistentin berater beraterin chefin experte experten expertin fachkraft firma ingenieur ingenieurin kollege
    kollegin leiter leiterin leitung mitarbeiter mitarbeiterin person spezialist spezialistin stab
""")
_GERMAN_MARKS = _set("auf bei das dem den der des die ein eine einen fuer im ist mit nicht oder ueber und von zum zur")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An agent that could do it; `hits` says by what."""

    name: str
    score: float
    load: int
    available: bool
    hits: str


@dataclass(frozen=True, slots=True)
class Match:
    """Who gets the task (None: nobody fits) and, in one sentence for the board, why. `candidates` are best first."""

    agent: str | None
    reason: str
    score: float = 0.0
    candidates: tuple[Candidate, ...] = ()


def match(
    text: str,
    *,
    skills: Sequence[str] = (),
    assignee: str | None = None,
    team: Sequence[TeamMember],
    exclude: Collection[str] = (),
) -> Match:
    """Choose one of `team` for the task `text`.

    `assignee` decides alone, if there is such an agent (even a paused one: the reason says so). `skills` must all be had.
    Agents that are paused or in error are taken only when nobody else fits. `exclude` names who takes no tasks.
    """
    members = sorted((member for member in team if member.name not in exclude), key=lambda member: member.name)
    if assignee is not None:
        return _named(assignee, members, exclude)
    if not members:
        return Match(None, "there is no agent to do it: add one as agents/NAME.toml")
    required = {skill: _words(skill, tag=True) for skill in skills}
    able = [member for member in members if all(_has(member, words) for words in required.values())]
    if not able:
        return Match(None, _lacking(required, members))
    item = _Item(text[:TEXT_READ], members)
    scored = [_rate(member, tuple(required), item) for member in able]
    found = sorted((one for one in scored if one.hits), key=lambda one: (not one.available, -one.score, one.load, one.name))
    if not found:
        return Match(None, f"no agent has a skill for this: {team_skills(members)}")
    best = found[0]
    return Match(best.name, f"{best.name}: {best.hits}; load {best.load}{_pause_note(best)}", best.score, tuple(found))


def team_skills(members: Sequence[TeamMember]) -> str:
    """List who can do what: "inspector (ast, code-health), surveyor (inventory)"; bounded."""
    listed = [f"{member.name} ({', '.join(member.skills[:LISTED]) or 'no skills'})" for member in members[:LISTED]]
    return ", ".join(listed) + (f" and {len(members) - LISTED} more" if len(members) > LISTED else "")


def _pause_note(candidate: Candidate) -> str:
    if candidate.available:
        return ""
    return f"; it is paused or in error, but nobody else fits: it begins after `opencognit agent resume {candidate.name}`"


def _named(name: str, members: Sequence[TeamMember], exclude: Collection[str]) -> Match:
    wanted = name.casefold()
    for member in members:
        if member.name.casefold() == wanted:
            paused = f"; it is paused or in error: it begins after `opencognit agent resume {member.name}`"
            reason = f"{member.name}: named in the item; load {member.load}{'' if member.available else paused}"
            one = Candidate(member.name, 1.0, member.load, member.available, "named in the item")
            return Match(member.name, reason, 1.0, (one,))
    if wanted in {one.casefold() for one in exclude}:
        return Match(None, f"'@{name}' plans and takes no tasks: name another agent: {team_skills(members) or 'there is none'}")
    near = get_close_matches(wanted, [member.name for member in members], n=1, cutoff=0.6)
    hint = f"did you mean '@{near[0]}'?" if near else f"there are: {team_skills(members) or 'none'}"
    return Match(None, f"no agent is named '@{name}': {hint}")


def _lacking(required: dict[str, tuple[_Word, ...]], members: Sequence[TeamMember]) -> str:
    owners = {skill: [member.name for member in members if _has(member, words)] for skill, words in required.items()}
    each = [f"{skill!r}: {', '.join(names[:LISTED]) or 'nobody'}" for skill, names in owners.items()]
    one = "no agent has the skill asked for" if len(each) == 1 else "no agent has all the skills asked for"
    return f"{one} ({'; '.join(each)}): {team_skills(members)}"


@dataclass(frozen=True, slots=True)
class _Word:
    """A folded word. `forms` are its stems, each marked with its language; `near` are some of those, a letter shorter."""

    text: str
    forms: frozenset[str]
    near: frozenset[str]
    german: str  # the German stem alone, for compounds
    vague: bool = False

    def same(self, forms: frozenset[str], near: frozenset[str]) -> bool:
        return not (self.forms.isdisjoint(forms) and self.forms.isdisjoint(near) and self.near.isdisjoint(forms))


@dataclass(frozen=True, slots=True)
class _Profile:
    """What a member's tags say: the words of each skill, then of role and title with what else they may be called."""

    skills: tuple[tuple[str, tuple[_Word, ...]], ...]
    roles: tuple[tuple[str, tuple[tuple[_Word, ...], ...]], ...]

    def tags(self) -> set[str]:
        """Return what is counted for rarity."""
        return {_skill_key(words) for _, words in self.skills} | {_role_key(word) for _, words in self.roles for word in words}


def _skill_key(words: tuple[_Word, ...]) -> str:
    return " ".join(sorted(word.german for word in words))


def _role_key(word: tuple[_Word, ...]) -> str:
    return f"role: {word[0].german}"


class _Item:
    """A task's text made ready to be compared, with the rarity of each skill and role word in the team."""

    def __init__(self, text: str, members: Sequence[TeamMember]) -> None:
        words = _words(text)
        self.forms = frozenset[str]().union(*(word.forms for word in words))
        self.near = frozenset[str]().union(*(word.near for word in words))
        self._compounds = _compounds(text)
        self._counts = Counter(key for member in members for key in _profile(member.skills, member.role, member.title).tags())
        self._size = len(members)

    def rarity(self, key: str) -> float:
        """Return 1 for what one agent alone has, less the more share it."""
        return math.log(1 + self._size / self._counts[key]) / math.log(1 + self._size)

    def quality(self, word: _Word) -> float:
        """Say how surely the text has `word`: 1 as such, less in or as the parts of a compound, else 0."""
        if word.same(self.forms, self.near):
            return 1.0
        if self._has_parts(word.text):
            return PARTS_WEIGHT
        parts = [part for part in (word.text, word.german) if len(part) >= 5]
        ends = (
            len(long) >= len(part) + 4 and (long.startswith(part) or long.endswith(part))
            for part in parts
            for long in self._compounds
        )
        return COMPOUND_WEIGHT if any(ends) else 0.0

    def _has_parts(self, text: str) -> bool:
        """Say whether the text has both parts of a compound skill ("Datenanalyse": "Daten analysieren")."""
        cuts = range(4, len(text) - 3 if len(text) <= WORD_LIMIT else 0)
        return any(all(_word(part).same(self.forms, self.near) for part in (text[:cut], text[cut:])) for cut in cuts)


def _rate(member: TeamMember, required: tuple[str, ...], item: _Item) -> Candidate:
    profile = _profile(member.skills, member.role, member.title)
    score, hits = float(len(required)), []
    if required:
        hits.append(f"has the {_listed('skill', required)} asked for")
    found = []
    for name, words in profile.skills:
        qualities = [item.quality(word) for word in words]
        if all(qualities):
            vague = VAGUE_WEIGHT if all(word.vague for word in words) else 1.0
            value = vague * (1 + (len(words) - 1) / 2) * sum(qualities) / len(qualities)
            score += value * item.rarity(_skill_key(words))
            found.append(name)
    if found and not required:
        hits.append(f"{_listed('skill', found)} match{'' if len(found) > 1 else 'es'}")
    named, value = _rate_roles(profile, item)
    if named and not required:
        hits.append(f"{named} matches")
    return Candidate(member.name, round(score + value, 6), member.load, member.available, "; ".join(hits))


def _rate_roles(profile: _Profile, item: _Item) -> tuple[str, float]:
    """Return which of role and title fits best (empty: none) and what it is worth."""
    best, value = "", 0.0
    for name, words in profile.roles:
        hits = [word for word in words if any(other.same(item.forms, item.near) for other in word)]
        if hits and len(hits) >= ROLE_SHARE * len(words):
            worth = ROLE_WEIGHT * sum(item.rarity(_role_key(word)) for word in hits)
            if worth > value:
                best, value = name, worth
    return best, value


def _listed(noun: str, names: Sequence[str]) -> str:
    quoted = [repr(name) for name in names[:LISTED]]
    joined = " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
    return f"{noun}{'s' if len(quoted) > 1 else ''} {joined}"


def _has(member: TeamMember, required: tuple[_Word, ...]) -> bool:
    """Say whether one of the member's skills has all the words of the required one."""
    for _, words in _profile(member.skills, member.role, member.title).skills:
        if required and all(any(word.same(own.forms, own.near) for own in words) for word in required):
            return True
    return False


@lru_cache(maxsize=2048)
def _profile(skills: tuple[str, ...], role: str, title: str) -> _Profile:
    tags = tuple((skill, words) for skill in dict.fromkeys(skills) if (words := _words(skill, tag=True)))
    called = [(f"role {role!r}", _role_words(role)), (f"title {title!r}", _role_words(title))]
    return _Profile(tags, tuple((name, words) for name, words in called if words))


def _role_words(text: str) -> tuple[tuple[_Word, ...], ...]:
    return tuple(_callings(word) for word in _words(text) if not word.vague and word.text not in _GENERIC)


def _callings(word: _Word) -> tuple[_Word, ...]:
    """Return a role's word and what one who is called so does ("surveyor": "survey"), but for vague verbs."""
    does: Iterable[str] = ()
    if len(word.text) >= 6 and word.text.endswith(("er", "or")):
        does = (word.text[:-1], word.text[:-2])
    return (word, *(verb for verb in map(_word, does) if not verb.vague))


def _words(text: str, *, tag: bool = False) -> tuple[_Word, ...]:
    """Return the words of `text` that say something; a `tag` of stop words alone keeps them ("IT")."""
    tokens = _TOKEN.findall(unicodedata.normalize("NFKC", text))
    mixed = any(not token.isupper() for token in tokens)
    sentence = any(token[0].islower() for token in tokens)
    kept = []
    for place, token in enumerate(tokens):
        abbreviation = mixed and len(token) > 1 and token.isupper()  # "IT" among small letters
        name = sentence and place > 0 and token[0].isupper()  # "Go" within a sentence
        if abbreviation or name or _fold(token) not in _STOP_WORDS:
            kept.append(_fold(token))
    if tag and not kept:
        kept = [_fold(token) for token in tokens]
    return tuple(_word(word) for word in dict.fromkeys(kept))


def _compounds(text: str) -> frozenset[str]:
    """Return long words that may be compounds, each also as its stem: in German text all, else those with a capital."""
    tokens = _TOKEN.findall(unicodedata.normalize("NFKC", text))
    folded = [_fold(token) for token in tokens]
    german = any(word in _GERMAN_MARKS for word in folded) or any(c in text for c in "äöüÄÖÜß")
    pairs = zip(tokens, folded, strict=True)
    words = {word for token, word in pairs if len(word) > 8 and (german or token[0].isupper())}
    return frozenset(words | {_word(word).german for word in words})


def _fold(text: str) -> str:
    plain = text.casefold().translate(_FOLD)
    return "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))


@lru_cache(maxsize=16384)
def _word(text: str) -> _Word:
    forms, near, german = _stems(text)
    return _Word(text, forms, near, german, not forms.isdisjoint(_vague_forms()))


@lru_cache(maxsize=1)
def _vague_forms() -> frozenset[str]:
    return frozenset[str]().union(*(_stems(word)[0] for word in _VAGUE))


def _stems(text: str) -> tuple[frozenset[str], frozenset[str], str]:
    """Return a folded word's stems in both languages, the same a letter shorter, and the German one by itself.

    The shorter ones bring "analysis" and "analyse" together. Words of up to three letters are not stemmed.
    """
    if not 3 < len(text) <= WORD_LIMIT or not text.isalpha():
        return frozenset({text}), frozenset(), text
    english, german = stem(text, "english"), stem(text, "german")
    forms = {f"en:{english}", f"de:{german}"}
    if len(text) > 6 and text.endswith(("ung", "ungen")):  # "Prüfung" is what "prüfen" does
        forms.add(f"de:{stem(text.removesuffix('en').removesuffix('ung') + 'en', 'german')}")
    return frozenset(forms), frozenset(form[:-1] for form in forms if len(form) > 9 and form[-1] in "aeioyt"), german
