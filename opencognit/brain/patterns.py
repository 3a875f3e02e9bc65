"""Reads the pattern set (`patterns.toml`) and refuses one that is wrong, with the line. Owns its form, not what it says.

A pattern of the set: `kind` and `canonical` (the canonicaliser's name; without both, the pattern only keeps others off
its text), `claims` (who else may read what it matched), `needs` (texts of which a text must hold one, for speed), `regex`
(several are tried in turn), `prefix` of the key, `refused` (what its group `word` must not be), `by_name` (the key may be
the name of a known entity), `examples` and `counter_examples`, which the tests run.
In a regex the group `key` is what is canonicalised, else all; the group `message` comes behind it. `(?&name)` stands for
a fragment or for the words of a list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opencognit.brain.canonical import CANONICALISERS, folded
from opencognit.brain.quantities import Words
from opencognit.config.problems import first_of, nearest, problems
from opencognit.config.tomlfile import TomlFile, parse_toml

PACKAGE, NAME = "opencognit.brain", "patterns.toml"
Claims = Literal["all", "patterns", "nothing"]
_FRAGMENT = re.compile(r"\(\?&(\w+)\)")


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _PatternForm(_Form):
    kind: str = ""
    canonical: str = ""
    claims: Claims = "patterns"
    needs: list[str] = []
    regex: list[str] = Field(min_length=1)
    prefix: str = ""
    refused: list[str] = []
    by_name: bool = False
    examples: list[list[str]] = []
    counter_examples: list[str] = []


class _SetForm(_Form):
    words: dict[str, dict[str, str]] = {}
    fragments: dict[str, str] = {}
    pattern: tuple[_PatternForm, ...] = Field(strict=False)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way to find a kind; `kind` is empty where it only claims."""

    kind: str
    claims: Claims
    needs: tuple[str, ...]
    regexes: tuple[re.Pattern[str], ...]
    prefix: str
    refused: frozenset[str]
    by_name: bool
    examples: tuple[tuple[str, str], ...]
    counter_examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PatternSet:
    """Patterns in the order of precedence, each kind's canonicaliser by its name, and the word lists."""

    patterns: tuple[Pattern, ...]
    canonicalisers: Mapping[str, str]
    words: Words


@lru_cache(maxsize=1)
def default() -> PatternSet:
    """Return the set that comes with the package, read once."""
    text = files(PACKAGE).joinpath(NAME).read_text(encoding="utf-8")
    return parse(text, Path(NAME))


def parse(text: str, path: Path) -> PatternSet:
    """Return the set written in `text`; `path` is only named in errors. Raises ConfigError."""
    file = parse_toml(text, path)
    try:
        form = _SetForm.model_validate(file.data)
    except ValidationError as error:
        raise first_of(problems(error, _SetForm, file)) from None
    words = {name: {folded(word): meaning for word, meaning in listed.items()} for name, listed in form.words.items()}
    fragments = {name: _alternation(listed) for name, listed in form.words.items()} | dict(form.fragments)
    patterns = tuple(_pattern(file, number, each, fragments) for number, each in enumerate(form.pattern))
    return PatternSet(patterns, _canonicalisers(file, form), words)


def _alternation(words: Mapping[str, str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))


def _canonicalisers(file: TomlFile, form: _SetForm) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, each in enumerate(form.pattern):
        place = ("pattern", number, "canonical")
        if bool(each.kind) != bool(each.canonical):
            raise file.problem("kind and canonical go together: set both, or neither for a pattern that only claims", *place)
        if not each.kind:
            continue
        if each.kind != folded(each.kind):
            raise file.problem(
                f"the kind {each.kind!r} is stored as {folded(each.kind)!r}: write it so", "pattern", number, "kind"
            )
        if each.canonical not in CANONICALISERS:
            raise file.problem(f"there is no canonicaliser {each.canonical!r}: {nearest(each.canonical, CANONICALISERS)}", *place)
        if found.setdefault(each.kind, each.canonical) != each.canonical:
            raise file.problem(f"the kind {each.kind!r} has the canonicaliser {found[each.kind]!r} above: keep one", *place)
    return found


def _pattern(file: TomlFile, number: int, form: _PatternForm, fragments: Mapping[str, str]) -> Pattern:
    regexes = tuple(_compiled(file, ("pattern", number, "regex"), each, fragments) for each in form.regex)
    if form.refused and not all("word" in regex.groupindex for regex in regexes):
        raise file.problem("`refused` needs a group (?P<word>...) in every regex", "pattern", number, "refused")
    if any(len(each) != 2 for each in form.examples):
        raise file.problem('an example is a text and its key: ["text", "key"]', "pattern", number, "examples")
    return Pattern(
        kind=form.kind,
        claims=form.claims,
        needs=tuple(form.needs),
        regexes=regexes,
        prefix=form.prefix,
        refused=frozenset(folded(word) for word in form.refused),
        by_name=form.by_name,
        examples=tuple((text, key) for text, key in form.examples),
        counter_examples=tuple(form.counter_examples),
    )


def _compiled(file: TomlFile, place: tuple[str | int, ...], regex: str, fragments: Mapping[str, str]) -> re.Pattern[str]:
    """Return the regex with its fragments put in; a fragment may use those defined above it."""
    shown = f"the regex {regex if len(regex) <= 60 else regex[:57] + '...'!r}"
    for _ in range(len(fragments) + 1):
        for name in _FRAGMENT.findall(regex):
            if name not in fragments:
                raise file.problem(f"{shown} names the fragment {name!r}, and there is none: {nearest(name, fragments)}", *place)
        if not _FRAGMENT.search(regex):
            break
        regex = _FRAGMENT.sub(lambda match: f"(?:{fragments[match[1]]})", regex)
    else:
        raise file.problem(f"{shown} uses fragments that use each other: break the circle", *place)
    try:
        compiled = re.compile(regex)
    except (re.error, RecursionError, OverflowError) as error:
        raise file.problem(f"{shown} is not valid: {error}", *place) from error
    if compiled.match(""):
        raise file.problem(f"{shown} matches the empty text: let it need a character", *place)
    return compiled
