"""One line of an export, as the rows it becomes. Pure: what a line may say, what it means where it says nothing.

Whatever is wrong is told with the line's number, what it is and what to do; keys that nobody knows are named and left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from opencognit.brain.entities import canonical
from opencognit.brain.folding import read
from opencognit.brain.names import digest, room_name
from opencognit.brain.store import INDEX_VERSION, LARGEST_ID, checked
from opencognit.contracts import TEXT_LIMIT, EntityRef, MemoryDraft
from opencognit.errors import InvalidInput
from opencognit.events import BOARD
from opencognit.states import IN_FORCE, EntityRole, Lifecycle, MemoryType, Relation, Scope, Trust
from opencognit.textclean import clean_json

LINE_LIMIT = 32_000_000
"""Bytes of a line: the longest content and context in the longest spelling that JSON has for a character."""
_EARLIEST, _LATEST = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 1, 1, tzinfo=UTC)


def _storable(at: datetime) -> datetime:
    if not _EARLIEST <= at <= _LATEST:
        raise ValueError("is outside of the years 2 to 9997")
    return at.astimezone(UTC)


def _without_nulls(given: Any) -> Any:
    """What is null says as much as what is not there."""
    return {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else given


Instant = Annotated[AwareDatetime, AfterValidator(_storable)]
RowId = Annotated[int, Field(ge=1, le=LARGEST_ID)]
Count = Annotated[int, Field(ge=0, le=LARGEST_ID)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Key = Annotated[
    str, BeforeValidator(lambda given: str(given) if type(given) is int else given), Field(min_length=1, max_length=64)
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    def unknown(self, prefix: str = "") -> Iterator[str]:
        yield from (f"{prefix}{key}" for key in self.model_extra or ())


class _Source(_Part):
    agent: Name | None = None
    run_id: RowId | None = None
    task_id: RowId | None = None


class _Entity(_Part):
    kind: Annotated[str, Field(min_length=1, max_length=64)]
    key: Annotated[str, Field(min_length=1, max_length=512)]
    role: EntityRole = EntityRole.MENTIONED


class _Relation(_Part):
    relation: Relation
    target_id: Key
    created_by: Name = BOARD
    created_at: Instant | None = None


_Sourced = Annotated[_Source, BeforeValidator(_without_nulls)]
_Named = Annotated[_Entity, BeforeValidator(_without_nulls)]
_Drawn = Annotated[_Relation, BeforeValidator(_without_nulls)]


class _Line(_Part):
    id: Key | None = None
    content: str
    type: MemoryType = MemoryType.FACT
    room: str = "general"
    scope: Scope = Scope.ORG
    team: Name | None = None
    owner: Name | None = None
    trust: Trust = Trust.ASSERTED
    lifecycle: Lifecycle = Lifecycle.ACTIVE
    confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.7
    context: Annotated[str, Field(max_length=TEXT_LIMIT)] = ""
    evidence: Annotated[Count, Field(ge=1)] = 1
    uses: Count = 0
    used_at: Instant | None = None
    source: _Sourced = _Source()
    entities: tuple[_Named, ...] = ()
    relations: tuple[_Drawn, ...] = ()
    valid_from: Instant | None = None
    valid_to: Instant | None = None
    created_at: Instant | None = None
    updated_at: Instant | None = None
    retired_at: Instant | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """A line as rows of the tables that it waits in. `unknown`: its keys that were left, those within others by their path."""

    memory: dict[str, Any]
    entities: list[dict[str, Any]]
    relations: list[dict[str, Any]]
    unknown: tuple[str, ...]


def rows(number: int, raw: bytes) -> Rows:
    """Return what line `number` (from 1) becomes; raises InvalidInput that names it."""
    line = _read(number, raw)
    try:
        if line.lifecycle in IN_FORCE and line.retired_at is not None:
            raise InvalidInput("retired_at", f"is given, but the memory is {line.lifecycle}: leave one of the two out")
        owner = _owner(line)
        memory = _memory(line, owner)
    except InvalidInput as error:
        _refuse(number, f"{error.field}: {error.problem}", error)
    named = dict.fromkeys((*canonical(one.kind, one.key), one.role.value) for one in line.entities)
    return Rows(
        {"line": number, "file_id": line.id, **memory},
        [{"line": number, "kind": kind, "key": key, "role": role} for kind, key, role in named],
        list(_relations(number, line)),
        tuple(_unknown(line)),
    )


def _read(number: int, raw: bytes) -> _Line:
    if len(raw) > LINE_LIMIT:
        _refuse(number, f"is longer than {LINE_LIMIT // 1_000_000} MB: give each memory a line of its own, and shorten it")
    try:
        given = json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        _refuse(number, f"is not UTF-8 (byte {error.start + 1}): save the file in UTF-8", error)
    except RecursionError as error:
        _refuse(number, "is nested too deeply for a memory: give one JSON object", error)
    except ValueError as error:
        _refuse(number, f"is no JSON ({error}): give one JSON object a line", error)
    if not isinstance(given, dict):
        _refuse(number, f"is {type(given).__name__}, no JSON object: give one memory a line, as {{...}}")
    try:
        return _Line.model_validate(clean_json(_without_nulls(given)))
    except ValidationError as error:
        _refuse(number, _complaint(error), error)


def _complaint(error: ValidationError) -> str:
    """Return the first thing that is wrong, as we say it."""
    wrong = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in wrong["loc"])
    if wrong["type"] == "missing":
        return f"{where}: is missing: give it"
    said = wrong["msg"].removeprefix("Value error, ")
    return f"{where}: {wrong['input']!r:.80}: {said[:1].lower()}{said[1:]}"


def _refuse(number: int, problem: str, cause: Exception | None = None) -> NoReturn:
    raise InvalidInput(f"line {number}", problem) from cause


def _owner(line: _Line) -> str:
    """Return whose memory it is; what a line says of it twice must agree."""
    if line.scope is not Scope.TEAM and line.team is not None:
        raise InvalidInput("team", f"is {line.team!r}, but the scope is {line.scope}: leave it out, or make the scope team")
    if line.scope is Scope.ORG:
        if line.owner is not None:
            raise InvalidInput("owner", f"is {line.owner!r}, but what the scope org has is everybody's: leave it out")
        return ""
    name, told = ("team", line.team) if line.scope is Scope.TEAM else ("source.agent", line.source.agent)
    if line.scope is Scope.TEAM and None not in (line.owner, told) and line.owner != told:
        raise InvalidInput("owner", f"is {line.owner!r}, but the team is {told!r}: keep one")
    owner = line.owner or told
    if owner is None:
        raise InvalidInput("owner", f"is missing, and so is {name}: say whose a memory of the scope {line.scope} is")
    return owner


def _memory(line: _Line, owner: str) -> dict[str, Any]:
    context = line.context.strip()
    draft = MemoryDraft(
        content=line.content,
        room=line.room,
        confidence=line.confidence,
        entities=tuple(EntityRef(kind=one.kind, key=one.key) for one in line.entities),
        valid_from=line.valid_from,
        valid_to=line.valid_to,
    )
    content = checked(draft)
    reading = read(content, context)
    return {
        "type": line.type.value,
        "room": room_name(line.room),
        "scope": line.scope.value,
        "owner": owner,
        "trust": line.trust.value,
        "lifecycle": line.lifecycle.value,
        "confidence": line.confidence,
        "content": content,
        "content_hash": digest(content),
        "context": context,
        "language": reading.language,
        "search_text": reading.search_text,
        "terms": reading.terms,
        "content_terms": reading.content_terms,
        "index_version": INDEX_VERSION,
        "evidence": line.evidence,
        "source_agent": line.source.agent,
        "source_run_id": line.source.run_id,
        "source_task_id": line.source.task_id,
        "valid_from": line.valid_from,
        "valid_to": line.valid_to,
        "created_at": line.created_at,
        "updated_at": line.updated_at,
        "retired_at": line.retired_at,
        "uses": line.uses,
        "used_at": line.used_at,
    }


def _relations(number: int, line: _Line) -> Iterator[dict[str, Any]]:
    for position, one in enumerate(line.relations):
        if one.target_id == line.id:
            _refuse(number, f"relations.{position}.target_id: is the memory itself: name another, or leave the relation out")
        drawn = {"relation": one.relation.value, "target": one.target_id, "created_by": one.created_by}
        yield {"line": number, "position": position, **drawn, "created_at": one.created_at}


def _unknown(line: _Line) -> Iterator[str]:
    yield from line.unknown()
    yield from line.source.unknown("source.")
    for entity in line.entities:
        yield from entity.unknown("entities.")
    for relation in line.relations:
        yield from relation.unknown("relations.")
