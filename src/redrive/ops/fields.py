"""How the fields of a view are declared: what is said of each, who sees it, and where it stands in tables."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints


@dataclass(slots=True, frozen=True)
class Shown:
    """What is said of a field of a view. ``column``: its heading, where it stands in tables; ``cell``: what stands
    below it for people, made of the whole view and of now."""

    help: str = ""
    column: str = ""
    cell: Callable[[Any, datetime], str] | None = None
    number: bool = False  # of a cell that is one, and stands to the right


class Open(Shown):
    """A field that everybody sees."""


class Closed(Shown):
    """A field for those who may act. One that says nothing is closed, too."""


T = TypeVar("T")
Seen = Annotated[T, Open()]  # by everybody, and nothing more is said of it


@cache
def shown_fields(view: type) -> dict[str, tuple[Any, Shown]]:
    """Returns the fields of a view, each with its type and what is said of it; and those of its properties of which
    something is said."""
    found: dict[str, tuple[Any, Shown]] = {}
    for name, hint in get_type_hints(view, include_extras=True).items():
        if name in {one.name for one in fields(view)}:
            found[name] = _shown(hint) or (hint, Closed())
    for name, member in inspect.getmembers(view, lambda one: isinstance(one, property)):
        if (shown := _shown(get_type_hints(member.fget, include_extras=True).get("return"))) is not None:
            found[name] = shown
    return found


def _shown(hint: Any) -> tuple[Any, Shown] | None:
    """Returns a type and what is said of it, where something is."""
    plain, *said = get_args(hint) if get_origin(hint) is Annotated else [hint]
    return next(((plain, word) for word in said if isinstance(word, Shown)), None)
