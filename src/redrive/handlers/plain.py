"""Judges by its signature alone what a payload needs: plain JSON values for plain JSON types need no Pydantic.

Whatever is not certain here is left to Pydantic, which also says what is wrong: only what it would pass on unchanged
is passed on without it. It takes half a second to import, and many processes never need it."""

from __future__ import annotations

import types
import typing
from typing import Any, Literal, Union

from redrive.handlers.fields import Fields

_NONE = type(None)
JSON: frozenset[type] = frozenset({str, int, float, bool, dict, list, _NONE})
_UNCERTAIN: frozenset[type] = frozenset()
_UNIONS = (Union, types.UnionType)
_CONTAINERS = (list, dict, tuple, set, frozenset)
# Types of the standard library that Pydantic reads in any case.
_KNOWN = {"builtins.bytes", "datetime.datetime", "datetime.date", "datetime.time", "datetime.timedelta"}
_KNOWN |= {"uuid.UUID", "decimal.Decimal", "pathlib.Path"}


def unchanged(annotation: Any) -> frozenset[type]:
    """Returns the types of JSON values that this annotation takes as they are; nothing where that is not certain."""
    if annotation is Any:
        return JSON
    if annotation is None:
        return _of(_NONE)
    if isinstance(annotation, type) and annotation in JSON:
        return _of(annotation)
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _UNIONS:
        found = [unchanged(one) for one in inner]
        return _UNCERTAIN.union(*found) if all(found) else _UNCERTAIN
    if (origin is dict and inner == (str, Any)) or (origin is list and inner == (Any,)):
        return _of(origin)
    return _UNCERTAIN


def _of(kind: type) -> frozenset[type]:
    return frozenset({kind})


def is_certain(what: Any) -> bool:
    """Returns whether fields, or a type, can be used for payloads without asking Pydantic."""
    if isinstance(what, Fields):
        return all(map(is_certain, what.types.values())) and (not what.open or is_certain(what.rest))
    if unchanged(what) or what in _CONTAINERS:
        return True
    origin, inner = typing.get_origin(what), typing.get_args(what)
    if origin is Literal:
        return all(type(one) in (str, int, bool) for one in inner)
    if origin in _UNIONS or origin in _CONTAINERS:
        return all(is_certain(one) for one in inner if one is not ...)
    return isinstance(what, type) and origin is None and f"{what.__module__}.{what.__qualname__}" in _KNOWN


class Taken:
    """The values that a payload takes unchanged, by the names of its fields, or as a whole."""

    def __init__(self, what: Any) -> None:
        self._fields = what if isinstance(what, Fields) else None
        self._whole = unchanged(what) if self._fields is None else _UNCERTAIN
        self._required: set[str] = what.required if isinstance(what, Fields) else set()
        self._types: dict[str, frozenset[type]] = {}
        self._rest = _UNCERTAIN
        if isinstance(what, Fields):
            self._types = {name: unchanged(one) for name, one in what.types.items()}
            self._rest = unchanged(what.rest) if what.open else _UNCERTAIN

    @property
    def some(self) -> bool:
        """Returns whether there are such values, of all fields."""
        if self._fields is None:
            return bool(self._whole)
        return all(self._types.values()) and (bool(self._rest) or not self._fields.open)

    def takes(self, value: Any) -> bool:
        """Returns whether a value that was read from JSON is what the handler gets."""
        if self._fields is None:
            return type(value) in self._whole
        if type(value) is not dict or not self._required <= value.keys():
            return False
        for name in value:  # noqa: SIM110 (all() would cost as much again, for each task)
            if type(value[name]) not in self._types.get(name, self._rest):
                return False
        return True


def is_json(value: Any) -> bool:
    """Returns whether a value is one that JSON has, all the way down: no subclass, and no tuple, which would come back
    as something else."""
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and is_json(one) for key, one in value.items())
    return all(map(is_json, value)) if kind is list else kind in JSON
