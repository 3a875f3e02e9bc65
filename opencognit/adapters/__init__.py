"""The registry of adapters: built-in ones by name, others by the entry points of installed packages.

Knows names only: an adapter's module is imported when somebody asks for it. This file must stay light, since the
warden's helper passes through it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from opencognit.errors import NotFound

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from opencognit.contracts import Adapter

ENTRY_POINTS = "opencognit.adapters"
BUILT_IN = {
    "bash": "opencognit.adapters.bash:BashAdapter",
    "ceo": "opencognit.adapters.ceo:CeoAdapter",
}
PLANNED = frozenset({"claude", "claude-code", "openrouter", "openai", "ollama", "http"})
"""Names of the contract that this version does not have yet; an installed package may bring one."""


def names() -> tuple[str, ...]:
    """Return the names that `get` knows, sorted. A package cannot take the place of a built-in one."""
    return tuple(sorted(BUILT_IN.keys() | _offered().keys()))


def get(name: str) -> Adapter:
    """Return a new adapter. Raises NotFound with the nearest name, or with the mend of a broken package."""
    if name in BUILT_IN:
        module_name, _, attribute = BUILT_IN[name].partition(":")
        return cast("Adapter", getattr(importlib.import_module(module_name), attribute)())
    point = _offered().get(name)
    if point is None:
        raise NotFound("adapter", name, _hint(name))
    try:
        factory = point.load()
    except (ImportError, AttributeError) as error:
        origin = f"{point.value} of package {point.dist.name}" if point.dist else point.value
        raise NotFound("adapter", name, f"{origin} cannot be loaded ({error}): mend or remove that package") from error
    return cast("Adapter", factory())


def _offered() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # costs time that the warden's helper need not pay

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _hint(name: str) -> str:
    have = f"it has {', '.join(names())}"
    if name in PLANNED:
        return f"this version of OpenCognit does not have that adapter yet; {have}"
    from difflib import get_close_matches

    near = next(iter(get_close_matches(name.lower(), [*names(), *PLANNED], n=1)), None)
    if near in PLANNED:
        return f"the nearest is {near!r}, which this version of OpenCognit does not have yet; {have}"
    return f"did you mean {near!r}?" if near else have
