"""Tells declared field names of Pydantic models, which are code, from keys of somebody's data."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, get_args

from redrive.kernel.evidence import look
from redrive.kernel.frames import Remembered, is_code, walk

MAX_NODES = 20_000
ANY = "*"
_HOLDERS = ("cls", "self", "__dataclass_self__")
_names = Remembered[frozenset[str]](256)


def declared_names(schema: Any) -> frozenset[str]:
    """Returns the names and aliases of all fields in a core schema."""
    return _names.get(schema, _read)


def _read(schema: Any) -> frozenset[str]:
    found: set[str] = set()
    waiting = [schema]
    for _ in range(MAX_NODES):
        if not waiting:
            break
        node = waiting.pop()
        if isinstance(node, Mapping):
            kind = node.get("type")
            if kind in ("model-fields", "typed-dict") and isinstance(node.get("fields"), Mapping):
                found.update(node["fields"])
            elif kind == "dataclass-field":
                found.add(node["name"])
            elif kind == "arguments":
                found.update(one["name"] for one in node.get("arguments_schema", ()))
            found.update(_aliases(node.get("validation_alias", node.get("alias"))))
            waiting.extend(value for key, value in node.items() if key not in ("metadata", "serialization"))
        elif isinstance(node, list | tuple):
            waiting.extend(node)
    return frozenset(found)


def _aliases(given: Any) -> set[str]:
    """Returns the names in an alias, which is a name, a path of them, or several paths."""
    if isinstance(given, str):
        return {given}
    return {name for one in given for name in _aliases(one)} if isinstance(given, list | tuple) else set()


def place(loc: Any, names: frozenset[str]) -> str:
    """Returns ``lines.*.count``: what is no declared name is data, or the number of an item. A key that is called like
    a field somewhere in the model says no more than the field does."""
    return ".".join(part if isinstance(part, str) and part in names else ANY for part in loc)[:200]


def refused(error: BaseException) -> str | None:
    """Returns what a Pydantic model refused first: the model, the field and why."""
    if type(error).__name__ != "ValidationError" or not type(error).__module__.startswith("pydantic"):
        return None
    try:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]  # type: ignore[attr-defined]
        model, names = _validated_by(error)
        return f"{model}:{place(first['loc'], names)}:{_why(first['type'])}"
    except Exception:
        return None


def _why(kind: str) -> str:
    """Returns Pydantic's own word for it; validators may make up others, which are left out."""
    schemas = sys.modules.get("pydantic_core.core_schema")
    return kind if kind in get_args(look(schemas, "ErrorType")) else ANY


def _validated_by(error: BaseException) -> tuple[str, frozenset[str]]:
    """Returns the model's name, and the names it declares, from the frames of Pydantic's own methods."""
    for frame in walk(error.__traceback__):
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] != "pydantic":
            continue
        for name in _HOLDERS:
            holder = frame.f_locals.get(name)
            kind = holder if isinstance(holder, type) else type(holder)
            for schema in (look(kind, "__pydantic_core_schema__"), look(holder, "core_schema")):
                if isinstance(schema, Mapping):
                    return kind.__qualname__ if is_code(kind) else ANY, declared_names(schema)
    return ANY, frozenset()
