"""What two reports of one error have in common: its type, and its message without what changes from one run to the next.

Pure. Finds no errors in a text: that is the pattern set's part. It must not keep what is secret or unique (ids, paths,
quoted values), since equal keys are its whole use.
"""

from __future__ import annotations

import re

TYPE_LIMIT, MESSAGE_LIMIT = 100, 400
"""Characters of each that count; together they stay under what a key may have."""

_HEAD = re.compile(r"(?:[^\W\d][\w-]*+[.$]|::)*+([^\W\d]\w*+)(?: \[\w+\])?(?::(?: (.*))?)?", re.DOTALL)
_SENTENCE_END = re.compile(r"[.!?;] (?=[A-ZÄÖÜ])")
_TRAILING = " .,;:!"
# A placeholder counts as a part of a word in every look-around, as what it stands for did: else a second pass, which meets
# the placeholder, would see other words than the first one saw.
_CHANGING = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[A-Za-z][A-Za-z0-9+.-]{1,20}+://[^\s'\"<>()]++", "<url>"),
        (r"(?<![\w>-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![\w<-])", "<id>"),
        (r"(?<![\w>])[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}[0-9:.,]*+(?:Z|[+-][0-9]{2}:?[0-9]{2})?(?![\w<])", "<time>"),
        (r"(?<![\w>])'[^'\n]*+'(?![\w<])", "<str>"),
        (r'(?<![\w>])"[^"\n]*+"(?![\w<])', "<str>"),
        (r"(?<![\w>])[„“”][^„“”\n]*+[“”](?![\w<])", "<str>"),
        (r"(?<![\w>])[\w.+-]{1,64}@[\w.-]{1,250}(?![\w<])", "<email>"),
        (r"(?<![\w>/\\.])(?:[A-Za-z]:)?(?:\.{0,2}|~|[\w.-]{1,64})(?:[/\\][\w.@+~$-]++){2,}+(?::[0-9]+)*+(?![\w<])", "<path>"),
        (r"(?<![\w>/\\.])(?:/|\./|~/)[\w.@+~-]+\.[A-Za-z]\w{0,7}(?::[0-9]+)*+(?![\w<])", "<path>"),
        (r"(?<![\w>])0[xX][0-9a-fA-F]++(?![\w<])", "<n>"),
        (r"(?<![\w>])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}+(?![\w<])", "<n>"),
        (r"(?<![\w>])(?=(?:[A-Za-z_]*[0-9]){3})\w{12,}+(?![\w<])", "<id>"),
        (r"(?<![^\W_])(?<!>)[0-9]++(?:[.,:][0-9]++)*+", "<n>"),
        (r"<n>(?:, ?<n>)++", "<n>"),
    )
)


def fingerprint(text: str) -> str | None:
    """Return `TypeName: message` of an error written so, the type without its module, the message without what varies.

    Of the message only the first line's first sentence counts. None where nothing is left.
    """
    text = text.lstrip()
    head = _HEAD.fullmatch(text)
    if head is None:
        return _message(text) or None
    name, message = head[1][:TYPE_LIMIT], _message(head[2] or "")
    return f"{name}: {message}" if message else name


def _message(text: str) -> str:
    line = text.strip().split("\n", 1)[0][:MESSAGE_LIMIT]
    sentence = _SENTENCE_END.split(line, maxsplit=1)[0]
    for pattern, replacement in _CHANGING:
        sentence = pattern.sub(replacement, sentence)
    return _cut(" ".join(sentence.split())).rstrip(_TRAILING)


def _cut(message: str) -> str:
    """Return at most the limit, cut between words where there are several: half a placeholder is none."""
    if len(message) <= MESSAGE_LIMIT:
        return message
    whole = message[: MESSAGE_LIMIT + 1].rpartition(" ")[0]
    return whole or message[:MESSAGE_LIMIT]
