"""Dataclasses as JSON documents, and back by the types of their fields."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union
from uuid import UUID

T = TypeVar("T")


def to_document(value: Any) -> Any:
    """Returns a value as JSON has it: dataclasses and maps as objects, times and ids as text."""
    if is_dataclass(value):
        return {one.name: to_document(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_document(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_document(one) for one in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def from_document(kind: type[T], document: Any, *, strict: bool = False) -> T:
    """Returns the dataclass that such a document was made of. Fields that are not there have their defaults; those that
    are not known are of another version, and left out unless it is ``strict``. What does not fit raises KeyError,
    TypeError, ValueError or AttributeError."""
    hints = _hints(typing.cast(Any, kind))
    if strict and (unknown := document.keys() - hints.keys()):
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    return kind(**{name: _read(hint, document[name]) for name, hint in hints.items() if name in document})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {one.name: hints[one.name] for one in fields(kind) if one.init}


def _read(hint: Any, value: Any) -> Any:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return None if value is None else _read(next(one for one in inner if one is not type(None)), value)
    if origin is tuple and inner[-1] is not ...:
        return tuple(_read(one, part) for one, part in zip(inner, value, strict=True))
    if origin in (tuple, list, Sequence):
        made = [_read(inner[0], part) for part in value]
        return tuple(made) if origin is tuple else made
    if origin in (dict, Mapping):
        return {key: _read(inner[1], part) for key, part in value.items()}
    if hint is datetime:
        return datetime.fromisoformat(value)
    if is_dataclass(hint):
        return from_document(typing.cast("type[Any]", hint), value)
    return hint(value) if hint is UUID or (isinstance(hint, type) and issubclass(hint, Enum)) else value
