"""The tag `[REMEMBER:room attr=value ...] content`: reads one and writes one. Must not know where in a text tags count.

Values are separated by commas; a double-quoted part may hold spaces, commas and `]`, with `\\"` and `\\\\` inside. Of an
entity `kind:key[:role]` the first segment is the kind, and the last is the role only if it is one of the three roles;
all between is the key, colons included. In the room `kg` the content is `subject | predicate | object`; subject and
object are of kind `thing` unless written `kind:key`.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

from pydantic import ValidationError

from opencognit.contracts import EntityRef, Remember
from opencognit.errors import InvalidInput
from opencognit.protocol.problems import excerpt, invalid
from opencognit.protocol.silence import is_token
from opencognit.states import EntityRole

KNOWLEDGE_GRAPH: Final = "kg"
_ATTRIBUTES = ("type", "scope", "confidence", "entity", "derives_from", "supersedes")
_FIELDS = {"entity": "entities"}
_REPEATABLE = ("entity", "derives_from", "supersedes")
_ROLES = tuple(role.value for role in EntityRole)

_HEADER = re.compile(r'\[remember:((?:[^\]"\r\n]|"(?:[^"\\\r\n]|\\[^\r\n])*+")*+)\]', re.IGNORECASE | re.ASCII)
_ROOM = re.compile(r"\s*+(\S*+)")
_ATTRIBUTE = re.compile(r'\s++([^\s="]++)=((?:"(?:[^"\\]|\\.)*+"|[^\s"])*+)(?=\s|\Z)')
_PIECE = re.compile(r'"((?:[^"\\]|\\.)*+)"|([^",]++)|,')
_ESCAPE = re.compile(r'\\(["\\])')
_NEEDS_QUOTES = re.compile(r'[\s",\]]')
_KIND_AND_KEY = re.compile(r"([^\W\d][\w-]{1,63}):(?!//)(\S.*)", re.DOTALL)


def header(text: str, start: int, stop: int) -> re.Match[str] | None:
    """Return the head of the tag at `start`, its attributes as group 1; None if no `]` comes before `stop`."""
    return _HEADER.match(text, start, stop)


def read(attributes: str, content: str) -> Remember:
    """Return the memory of a tag with this head and this content; raises InvalidInput."""
    match = _ROOM.match(attributes)
    assert match is not None  # it matches the empty string
    fields = _fields(attributes[match.end() :])
    fields["room"] = room(match[1])
    fields["content"] = content.strip()
    if not fields["content"]:
        raise InvalidInput("content", "there is none: write behind the tag what is to be remembered")
    if fields["room"] == KNOWLEDGE_GRAPH:
        _read_triple(fields)
    try:
        return checked(Remember.model_validate(fields))
    except ValidationError as error:
        raise invalid(error) from None


def room(name: str) -> str:
    """Return a room's canonical name (case-folded, NFC); raises InvalidInput."""
    folded = unicodedata.normalize("NFC", name.casefold())
    if not 1 <= len(folded) <= 100 or not all(_may_name_a_room(char) for char in folded):
        raise InvalidInput("room", f"{excerpt(name)} is none: a room is 1 to 100 letters, digits or any of _ - . /")
    return folded


def _may_name_a_room(char: str) -> bool:
    return char.isalnum() or char in "_-./" or unicodedata.category(char).startswith("M")


def checked(memory: Remember) -> Remember:
    """Return the memory with its room made canonical; raises InvalidInput for what no memory may be."""
    if is_token(memory.content) or not memory.content.strip():
        raise InvalidInput("content", "it says nothing")
    for field in ("derives_from", "supersedes"):
        for ident in getattr(memory, field):
            if not (ident.isascii() and ident.isdigit() and len(ident) <= 18):
                raise InvalidInput(field, f"{excerpt(ident)} is no memory's id: that is a number, as the briefing shows it")
    return memory.model_copy(update={"room": room(memory.room)})


def _fields(attributes: str) -> dict[str, Any]:
    """Read `attr=value` pairs into Remember's fields."""
    fields: dict[str, Any] = {}
    position, stop = 0, len(attributes.rstrip())
    while position < stop:
        match = _ATTRIBUTE.match(attributes, position)
        if match is None:
            word = attributes[position:].split(maxsplit=1)[0]
            raise InvalidInput(excerpt(word), f"no attr=value (quote a value that holds spaces); {_allowed()}")
        position = match.end()
        _add(fields, match[1].casefold(), _values(match[2]))
    return fields


def _add(fields: dict[str, Any], name: str, values: list[str]) -> None:
    if name not in _ATTRIBUTES:
        raise InvalidInput(excerpt(name), f"unknown attribute; {_allowed()}")
    field = _FIELDS.get(name, name)
    if name in _REPEATABLE:
        fields.setdefault(field, []).extend(_entity(value) if name == "entity" else value for value in values)
    elif field in fields or len(values) != 1:
        raise InvalidInput(name, "it takes one value, once")
    else:
        fields[field] = values[0] if name == "confidence" else values[0].casefold()


def _allowed() -> str:
    return f"allowed are {' '.join(f'{name}=' for name in _ATTRIBUTES)}"


def _values(text: str) -> list[str]:
    """Split at the commas outside quotes; empty values are none."""
    values = [""]
    for match in _PIECE.finditer(text):
        if match.group() == ",":
            values.append("")
        else:
            values[-1] += match[2] if match[1] is None else _ESCAPE.sub(r"\1", match[1])
    return [value for value in values if value]


def _entity(value: str) -> EntityRef:
    kind, _, key = value.partition(":")
    rest, colon, last = key.rpartition(":")
    role = EntityRole.MENTIONED
    if colon and last.casefold() in _ROLES:
        key, role = rest, EntityRole(last.casefold())
    if not kind or not key:
        raise InvalidInput("entity", f"{excerpt(value)}: write kind:key or kind:key:role, the role one of {', '.join(_ROLES)}")
    return _reference(kind, key, role)


def _reference(kind: str, key: str, role: EntityRole) -> EntityRef:
    try:
        return EntityRef(kind=kind, key=key, role=role)
    except ValidationError as error:
        raise invalid(error) from None


def _read_triple(fields: dict[str, Any]) -> None:
    parts = [" ".join(part.split()) for part in fields["content"].split("|")]
    if len(parts) != 3 or not all(parts):
        raise InvalidInput("content", f"the room kg takes subject | predicate | object, three parts: this has {len(parts)}")
    subject = _thing(parts[0], EntityRole.SUBJECT)
    object_ = _thing(parts[2], EntityRole.OBJECT)
    fields["content"] = f"{subject.key} {parts[1]} {object_.key}"
    fields["entities"] = (subject, object_, *fields.get("entities", ()))


def _thing(text: str, role: EntityRole) -> EntityRef:
    match = _KIND_AND_KEY.fullmatch(text)
    return _reference(match[1], match[2], role) if match else _reference("thing", text, role)


def write(memory: Remember) -> str:
    """Return the tag that says `memory`, as well as a tag can: what it cannot hold comes out changed."""
    entities, content = memory.entities, memory.content
    if memory.room == KNOWLEDGE_GRAPH and len(entities) > 1:
        subject, object_, *others = entities
        predicate = content.removeprefix(f"{subject.key} ").removesuffix(f" {object_.key}")
        content = f"{_write_thing(subject)} | {predicate} | {_write_thing(object_)}"
        entities = tuple(others)
    plain = Remember(content=memory.content, room=memory.room)
    parts = [f"{name}={getattr(memory, name)}" for name in ("type", "scope") if getattr(memory, name) != getattr(plain, name)]
    if memory.confidence != plain.confidence:
        parts.append(f"confidence={memory.confidence!r}")
    parts += [f"entity={_quoted(_write_entity(entity))}" for entity in entities]
    parts += [f"{name}={_quoted(ident)}" for name in ("derives_from", "supersedes") for ident in getattr(memory, name)]
    return f"[REMEMBER:{' '.join((memory.room, *parts))}] {content}"


def _write_thing(entity: EntityRef) -> str:
    needs_kind = entity.kind != "thing" or _KIND_AND_KEY.fullmatch(entity.key)
    return f"{entity.kind}:{entity.key}" if needs_kind else entity.key


def _write_entity(entity: EntityRef) -> str:
    written = f"{entity.kind}:{entity.key}"
    is_plain = entity.role == EntityRole.MENTIONED and entity.key.rpartition(":")[2].casefold() not in _ROLES
    return written if is_plain else f"{written}:{entity.role}"


def _quoted(value: str) -> str:
    if not _NEEDS_QUOTES.search(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
