"""What `ast` says about one module: its definitions, their lengths and docstrings, or why it does not parse.

Counts and lists, judges nothing by taste, and runs no code.
Methods and nested functions are functions. A function's length is the lines from `def` to its end, without decorators.
"""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

LONG_FUNCTION = 100
DEFINITIONS = (
    "Bare is what has no docstring. Public is what has no leading underscore in its own name or its classes' "
    "and is not inside a function; an empty module needs no docstring."
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Something at one line; ordered by place."""

    module: str
    line: int
    text: str
    lines: int = 0

    @property
    def place(self) -> str:
        return f"{self.module}:{self.line}"


@dataclass(slots=True)
class Tally:
    """Counts of one package or of all; `bare` is what has no docstring."""

    modules: int = 0
    coded_modules: int = 0
    bare_modules: int = 0
    classes: int = 0
    bare_classes: int = 0
    functions: int = 0
    public_functions: int = 0
    bare_functions: int = 0
    long_functions: int = 0
    longest: int = 0

    def add(self, other: Tally) -> None:
        for name in Tally.__slots__:
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, max(mine, theirs) if name == "longest" else mine + theirs)


def parse(raw: bytes) -> ast.Module | tuple[int, str]:
    """Parse a module's bytes as Python would; returns the line and the reason where it cannot be."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
    except SyntaxError as error:  # PEP 263: unknown encoding, or a cookie that contradicts the bytes
        return 1, f"encoding: {error.msg}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(raw.decode(encoding))
    except UnicodeDecodeError as error:
        return raw.count(b"\n", 0, error.start) + 1, f"not {error.encoding}: {error.reason}"
    except SyntaxError as error:
        return error.lineno or 1, error.msg
    except LookupError:
        return 1, f"encoding: {encoding} is not one of text"
    except ValueError as error:
        return 1, str(error)
    except (RecursionError, MemoryError):
        return 1, "nested too deeply for the parser"


def definitions(module: ast.Module) -> Iterator[tuple[Function | ast.ClassDef, str, bool]]:
    """Yield every class and function with its dotted name and whether it is public.

    Walks statements only: expressions hold no definition but lambdas, and are most of a tree's nodes.
    """
    waiting: list[tuple[ast.AST, str, bool]] = [(module, "", True)]
    while waiting:
        node, prefix, public = waiting.pop()
        if isinstance(node, Function | ast.ClassDef):
            public = public and not node.name.startswith("_")
            yield node, f"{prefix}{node.name}", public
            prefix, public = f"{prefix}{node.name}.", public and isinstance(node, ast.ClassDef)
        blocks = (getattr(node, name, ()) for name in ("body", "orelse", "finalbody", "handlers", "cases"))
        waiting += [(child, prefix, public) for child in chain.from_iterable(blocks)]


def inspect(module: ast.Module, name: str) -> tuple[Tally, list[Finding]]:
    """Count one module's definitions; returns its functions as findings, too."""
    tally = Tally(modules=1, coded_modules=int(bool(module.body)), bare_modules=int(bool(module.body) and _is_bare(module)))
    functions: list[Finding] = []
    for node, dotted, public in definitions(module):
        if isinstance(node, ast.ClassDef):
            tally.classes += public
            tally.bare_classes += public and _is_bare(node)
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        functions.append(Finding(name, node.lineno, dotted, lines))
        tally.functions += 1
        tally.long_functions += lines > LONG_FUNCTION
        tally.longest = max(tally.longest, lines)
        tally.public_functions += public
        tally.bare_functions += public and _is_bare(node)
    return tally, functions


def _is_bare(node: Function | ast.ClassDef | ast.Module) -> bool:
    return ast.get_docstring(node, clean=False) is None
