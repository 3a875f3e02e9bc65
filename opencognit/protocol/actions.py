"""Actions: from a fenced block's text or from a model's native objects to checked shapes. Must not run any.

JSON is never mended: what is cut or wrong is refused with its place, so that half a call never becomes a whole one.
"""

from __future__ import annotations

import json
import re
from json import JSONDecodeError
from typing import Any, Final, NoReturn, get_args

from pydantic import TypeAdapter, ValidationError

from opencognit.contracts import Action, Comment, Remember, Report, Shape
from opencognit.errors import InvalidInput
from opencognit.protocol.problems import excerpt, invalid
from opencognit.protocol.silence import is_token
from opencognit.protocol.tags import checked
from opencognit.textclean import clean_json

_ADAPTER: TypeAdapter[Action] = TypeAdapter(Action)
_SHAPES: Final[dict[str, type[Shape]]] = {shape.model_fields["action"].default: shape for shape in get_args(get_args(Action)[0])}
_IDS = ("task_id", "source_id", "target_id", "after", "derives_from", "supersedes")
_INFO = re.compile(r"[ \t]*+actions(?![\w-])", re.IGNORECASE | re.ASCII)
_FIRST = re.compile(r"\s*+(?:\{|[^\[]*+\[)")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)


def is_actions(text: str, info: int, end: int) -> bool:
    """Return whether the info string from `info` to `end` makes a fence an actions block."""
    return _INFO.match(text, info, end) is not None


def find_json(text: str, start: int, stop: int) -> tuple[object, int]:
    """Return the list (or the one object) that begins between `start` and `stop`, and where it ends; raises InvalidInput.

    It may end behind `stop`: what looked like the closing fence was then inside one of its strings. Line breaks within a
    string are taken, wrong escapes are not.
    """
    first = _FIRST.match(text, start, stop)
    if first is None:
        raise InvalidInput("JSON", 'there is no list in it: write [{"action": ...}, ...]')
    try:
        value, end = _DECODER.raw_decode(text, first.end() - 1)
    except JSONDecodeError as error:
        line = text.count("\n", start, error.pos) + 1
        raise InvalidInput(
            "JSON", f"not valid at line {line} column {error.colno} of the block: {error.msg}; nothing of it was done"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput("JSON", f"it cannot be taken ({excerpt(str(error))}); nothing of it was done") from None
    return value, end


def parse_actions(value: object) -> tuple[tuple[Action, ...], tuple[str, ...]]:
    """Return the actions of a JSON list, and one line for each that is wrong; one wrong action does not lose the others.

    A single object counts as a list of one: there is only one thing that it can mean. Ids may be numbers.
    """
    items = [value] if isinstance(value, dict) else value
    if not isinstance(items, list | tuple):
        return (), (f"actions: a JSON list of objects is wanted, this is {type(value).__name__}",)
    actions: list[Action] = []
    problems: list[str] = []
    for number, item in enumerate(clean_json(items), 1):
        try:
            actions.append(_read(item))
        except InvalidInput as problem:
            name = item.get("action") if isinstance(item, dict) else None
            label = f" ({name})" if isinstance(name, str) and name in _SHAPES else ""
            problems.append(f"action {number}{label}: {problem}")
    return tuple(actions), tuple(problems)


def _read(item: Any) -> Action:
    if not isinstance(item, dict):
        raise InvalidInput("form", f'an object {{"action": NAME, ...}} is wanted, this is {type(item).__name__}')
    name = item.get("action")
    if not isinstance(name, str) or name not in _SHAPES:
        what = "it is missing" if name is None else f"{excerpt(str(name))} is unknown"
        raise InvalidInput("action", f"{what}; allowed are {', '.join(_SHAPES)}")
    try:
        action = _ADAPTER.validate_python({key: _as_ids(field) if key in _IDS else field for key, field in item.items()})
    except ValidationError as error:
        allowed = [field for field in _SHAPES[name].model_fields if field != "action"]
        raise invalid(error, allowed=allowed, skip=1) from None
    if isinstance(action, Remember):
        return checked(action)
    if isinstance(action, Comment | Report) and is_token(action.text):
        raise InvalidInput("text", "it says nothing")
    return action


def _as_ids(value: Any) -> Any:
    """Models write ids as numbers; they mean the text."""
    if isinstance(value, list):
        return [_as_ids(item) for item in value]
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**18
    return str(value) if is_number else value
