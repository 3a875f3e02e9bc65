"""Runs one soul's template safely. Owns what a template may do at all, and how long and how large it may get.

Three fences, each enough for most attacks: a template is parsed and every node of it must be on the list below (no
calls but `range`, no attributes but those of the variables, no includes, no macros); then it runs in Jinja's immutable
sandbox, without a loader; and it runs against a meter of steps, time and size. Nothing else is ever a template: the
texts of goals, tasks, comments and memories are values here, or not here at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2 import StrictUndefined, Template, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.meta import find_undeclared_variables
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range

from opencognit.config.problems import nearest
from opencognit.errors import ConfigError

Fault = Callable[[str, int | None], ConfigError]
"""Makes the error for a message and the line (1-based) of the template that it is about."""

STEP_LIMIT = 200_000
"""Most items that all loops, and hundreds of characters that all text operations, may take together."""
SECONDS_LIMIT = 2.0
NODE_LIMIT = 10_000
"""Most parts (texts, variables, operators) of a template."""
TEXT_LIMIT = 100_000
"""Longest text that an expression may make, in characters."""
OUTPUT_LIMIT = 1024 * 1024
"""Longest rendered soul, in characters."""

_METER = "% meter"  # a key of the context that no template can spell
_LOOP_ATTRIBUTES = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length"})
_SPECIAL = frozenset({"self", "super", "caller", "varargs", "kwargs"})
_ALLOWED = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Assign, nodes.Name, nodes.Const,
    nodes.List, nodes.Tuple, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Filter, nodes.Test, nodes.Keyword,
    nodes.Compare, nodes.Operand, nodes.CondExpr, nodes.Concat, nodes.Call, nodes.And, nodes.Or, nodes.Not, nodes.Neg,
    nodes.Pos, nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod,
)  # fmt: skip
# What a template's own mistake can raise; anything else is a defect of ours and stays a traceback.
_MISTAKES = (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError, MemoryError)


class _Meter:
    """What one rendering has left."""

    def __init__(self) -> None:
        self._steps, self._until = STEP_LIMIT, time.monotonic() + SECONDS_LIMIT

    def take(self, size: int = 0) -> None:
        """Count one step over `size` characters or items."""
        self._steps -= 1 + size // 100
        if self._steps < 0 or time.monotonic() > self._until:
            raise SecurityError("its loops and texts are too large: shorten them")


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, with operators that cannot make huge values."""

    intercepted_binops = frozenset({"+", "*", "%"})

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allow a loop's own counters; what the variables have are items, never attributes."""
        return isinstance(obj, LoopContext) and attr in _LOOP_ATTRIBUTES

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        texts = [side for side in (left, right) if isinstance(side, str)]
        if isinstance(left, int | float) and isinstance(right, int | float):
            if operator == "*" and len(f"{left:.0f}{right:.0f}") > 300:
                raise SecurityError("its numbers are too large: use smaller ones")
        elif operator == "+" and len(texts) == 2:
            _meter(context).take(_fits(len(left) + len(right)))
        elif operator == "*" and len(texts) == 1 and isinstance(times := right if left is texts[0] else left, int):
            _meter(context).take(_fits(len(texts[0]) * times))
        else:
            raise SecurityError(f"{operator!r} joins only two numbers or two texts: use '~' or the filter 'join'")
        return super().call_binop(context, operator, left, right)


class Compiled:
    """A checked template, to be rendered any number of times; `fault` makes its errors."""

    def __init__(self, source: str, variables: Iterable[str], fault: Fault) -> None:
        """Raise `fault`'s error for a syntax error or for anything that a soul may not do.

        `variables` are the dotted names of what `render` will be given, all under a few first names: 'agent.name'.
        """
        self._fault = fault
        try:
            tree = _ENVIRONMENT.parse(source)
            _check(tree, frozenset(variables), fault)
            _meter_loops(tree)
            code = _ENVIRONMENT.compile(tree, filename="soul")
            self._template = Template.from_code(_ENVIRONMENT, code, {"range": safe_range})
        except TemplateSyntaxError as error:
            raise fault(f"template: {str(error.message).rstrip('.')}: correct it", error.lineno) from error
        except (RecursionError, MemoryError, SyntaxError, ValueError) as error:
            raise fault("template: nested too deeply, or with a number too large: simplify it", None) from error

    def render(self, values: Mapping[str, Mapping[str, object]]) -> str:
        """Return the text for `values` ({'agent': {'name': ...}}); raises the fault's error if it fails or grows too large."""
        context = self._template.new_context({**values, _METER: _Meter()})
        pieces, size = [], 0
        try:
            for piece in self._template.root_render_func(context):
                pieces.append(piece)
                size += len(piece)
                if size > OUTPUT_LIMIT:
                    raise SecurityError(f"it renders to more than {OUTPUT_LIMIT // 1024} KB: shorten it")
        except _MISTAKES as error:
            raise self._fault(f"template: {error or type(error).__name__}", self._line(error)) from error
        return "".join(pieces)

    def _line(self, error: BaseException) -> int | None:
        """Return the template's line that was at work."""
        line, step = None, error.__traceback__
        while step is not None:
            if step.tb_frame.f_globals.get("__jinja_template__") is self._template:
                line = self._template.get_corresponding_lineno(step.tb_lineno)
            step = step.tb_next
        return line


def _check(tree: nodes.Template, variables: frozenset[str], fault: Fault) -> None:
    roots = {name.partition(".")[0] for name in variables}
    for number, node in enumerate(_walk(tree)):
        if number == NODE_LIMIT:  # compiling is the slow part
            raise fault("template: too many variables and tags: shorten it", node.lineno)
        if (problem := _problem(node, variables, roots)) is not None:
            lines = (each.lineno for each in _walk(node) if each.lineno)  # a node that Jinja adds has none of its own
            raise fault(f"template: {problem}", next(lines, None))
    undeclared = find_undeclared_variables(tree) - roots - {"range"}
    for name in tree.find_all(nodes.Name):
        if name.ctx == "load" and name.name in undeclared:
            raise fault(f"template: {_unknown(name.name, variables)}", name.lineno)


def _walk(node: nodes.Node) -> Iterator[nodes.Node]:
    yield node
    for child in node.iter_child_nodes():
        yield from _walk(child)


def _unknown(name: str, variables: frozenset[str]) -> str:
    return f"unknown variable {name!r}: {nearest(name, variables)}"


def _problem(node: nodes.Node, variables: frozenset[str], roots: set[str]) -> str | None:
    """Return what is wrong with this one node."""
    match node:
        case nodes.Name(name=name, ctx="load") if name in _SPECIAL:
            return _unknown(name, variables)
        case nodes.Name(name=name, ctx="store") if name in roots | _SPECIAL | {"range", "loop"}:
            return f"{name!r} cannot be set: choose another name"
        case nodes.Getattr(node=nodes.Name(name="loop"), attr=attr) if attr in _LOOP_ATTRIBUTES:
            return None
        case (
            nodes.Getattr(node=nodes.Name(name=name), attr=attr)
            | nodes.Getitem(node=nodes.Name(name=name), arg=nodes.Const(value=attr))
        ) if name in roots:
            whole = f"{name}.{attr}"
            return None if whole in variables else _unknown(whole, variables)
        case nodes.Getitem(node=nodes.Name(name=name)) if name in roots:
            return f"{name}[...] is not allowed: write {name}. and the variable's name"
        case nodes.Getattr(attr=attr):
            return f"the attribute {attr!r} is not allowed: only {', '.join(sorted(roots))} and loop have some; use a filter"
        case nodes.Call() if not (isinstance(node.node, nodes.Name) and node.node.name == "range"):
            return "calls are not allowed, but for range(): use a filter, such as |upper"
        case nodes.Filter(name=name) if name not in FILTERS:
            return f"there is no filter {name!r}: {nearest(name, FILTERS)}"
        case nodes.For(recursive=True):
            return "a recursive loop is not allowed: use plain loops"
        case nodes.List(items=items) | nodes.Tuple(items=items, ctx="load") if not all(
            isinstance(item, nodes.Const) for item in items
        ):
            return "a list in a soul holds only fixed words and numbers: name the values one by one"
        case nodes.Call() | nodes.Filter() if node.dyn_args or node.dyn_kwargs:
            return "'*' before an argument is not allowed: write the arguments out"
        case _ if not isinstance(node, _ALLOWED):
            return f"{type(node).__name__.lower()!r} is not allowed in a soul: use text, variables, filters, if and for"
    return None


def _meter_loops(tree: nodes.Template) -> None:
    """Put the meter into every loop and every '~', where the sandbox has no hook."""
    for loop in tree.find_all(nodes.For):
        loop.iter = nodes.Filter(loop.iter, "% loop", [], [], None, None, lineno=loop.lineno)
    for concat in tree.find_all(nodes.Concat):
        parts = nodes.List(concat.nodes, lineno=concat.lineno)
        concat.nodes = [nodes.Filter(parts, "join", [], [], None, None, lineno=concat.lineno)]


def _meter(context: Context) -> _Meter:
    meter: _Meter = context[_METER]
    return meter


def _fits(size: int) -> int:
    if size > TEXT_LIMIT:
        raise SecurityError(f"it makes a text of more than {TEXT_LIMIT} characters: shorten it")
    return max(size, 0)


def _text(value: Any) -> str:
    """Return a value as it is printed: nothing for None, a list joined by commas. Anything else is no text of a soul."""
    if isinstance(value, Undefined):
        return str(value)  # raises, and says which
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) if not isinstance(item, list | tuple) else _refuse(item) for item in value)
    return str(value) if isinstance(value, str | int | float) else _refuse(value)


def _refuse(value: Any) -> str:
    raise SecurityError(f"a {type(value).__name__} is no text: print one of the variables under it")


def _metered(filter_: Callable[..., Any]) -> Callable[..., Any]:
    """Return the filter with the size of its input counted."""

    @pass_context
    def counted(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        _meter(context).take(100 * len(value) if isinstance(value, list | tuple | range) else len(_text(value)))
        return filter_(value, *args, **kwargs)

    return counted


@pass_context
def _loop(context: Context, items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        _meter(context).take()
        yield item


def _join(value: Iterable[Any], separator: str = "") -> str:
    parts = [_text(item) for item in value]
    _fits(sum(map(len, parts)) + len(separator) * max(len(parts) - 1, 0))
    return separator.join(parts)


def _replace(value: Any, old: str, new: str) -> str:
    text = _text(value)
    _fits(len(text) + (text.count(old) * max(len(new) - len(old), 0)))
    return text.replace(old, new)


@pass_context
def _default(context: Context, value: Any, fallback: Any = "", boolean: bool = False) -> Any:
    return fallback if isinstance(value, Undefined) or value is None or (boolean and not value) else value


def _ordered(value: Iterable[Any]) -> list[Any]:
    return sorted(value, key=lambda item: item.casefold() if isinstance(item, str) else item)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "capitalize": _metered(lambda value: _text(value).capitalize()),
    "count": _metered(len),
    "d": _default,
    "default": _default,
    "first": _metered(lambda value: next(iter(value), "")),
    "join": _metered(_join),
    "last": _metered(lambda value: value[-1] if value else ""),
    "length": _metered(len),
    "lower": _metered(lambda value: _text(value).lower()),
    "replace": _metered(_replace),
    "sort": _metered(_ordered),
    "title": _metered(lambda value: _text(value).title()),
    "trim": _metered(lambda value: _text(value).strip()),
    "unique": _metered(lambda value: list(dict.fromkeys(value))),
    "upper": _metered(lambda value: _text(value).upper()),
}
"""Every filter a soul may use."""


def _environment() -> _Environment:
    environment = _Environment(
        undefined=StrictUndefined,
        autoescape=False,
        finalize=_text,
        keep_trailing_newline=True,
        optimized=False,  # no operation runs before the meter does
    )
    environment.globals.clear()
    environment.filters = {**FILTERS, "% loop": _loop}
    return environment


_ENVIRONMENT = _environment()
