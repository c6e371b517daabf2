"""Compares what was sent with what will be received."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import deque
from collections.abc import Mapping
from datetime import datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from pydantic import BaseModel

_PLAIN = frozenset({str, int, bool, bytes, type(None), UUID, Decimal})
# What an instance of a subclass may come back as (a StrEnum as text, a pendulum time as a datetime).
_STANDARD = {"builtins", "datetime", "decimal", "uuid", "pathlib", "ipaddress"}


def difference(sent: Any, received: Any, place: str = "", *, loose: bool = False) -> str | None:
    """Returns what of ``sent`` is something else in ``received``, or None. ``loose``: a tuple may become a list."""
    kind = type(received)
    if type(sent) is kind:
        if kind in _PLAIN:
            return None if sent == received else _said(sent, received, place)
    else:
        if loose and isinstance(sent, tuple) and kind is list:
            return _items(sent, received, place, loose)
        if not (isinstance(sent, kind) and kind.__module__ in _STANDARD):
            return _said(sent, received, place)
    match received:
        case dict():
            return _entries(sent, received, place, loose)
        case list() | tuple() | deque():
            return _items(sent, received, place, loose)
        case set() | frozenset() if sent != received:  # or only seems so: see _equal
            return _items(sorted(sent, key=str), sorted(received, key=str), place, loose)
        case BaseModel():
            return _entries(_sent_fields(sent), _sent_fields(received), place, loose)
        case _ if dataclasses.is_dataclass(received):
            return _entries(_init_fields(sent), _init_fields(received), place, loose)
    return None if _equal(sent, received) else _said(sent, received, place)


def sort_sets(meant: Any, plain: Any) -> None:
    """Puts what will be read as a set in one order, so that equal calls have equal payloads in all processes."""
    match meant:
        case set() | frozenset() if isinstance(plain, list):
            plain.sort(key=lambda item: json.dumps(item, sort_keys=True))
        case dict() if isinstance(plain, dict):
            for value, part in zip(meant.values(), plain.values(), strict=False):
                sort_sets(value, part)
        case list() | tuple() if isinstance(plain, list):
            for value, part in zip(meant, plain, strict=False):
                sort_sets(value, part)
        case BaseModel() if isinstance(plain, dict):
            _sort_in_fields(_sent_fields(meant), plain)
        case _ if dataclasses.is_dataclass(meant) and isinstance(plain, dict):
            _sort_in_fields(_init_fields(meant), plain)


def _sort_in_fields(fields: Mapping[str, Any], plain: Mapping[str, Any]) -> None:
    for name in fields.keys() & plain.keys():
        sort_sets(fields[name], plain[name])


def _entries(sent: Mapping[Any, Any], received: Mapping[Any, Any], place: str, loose: bool) -> str | None:
    for key, value in sent.items():
        where = f"{place}.{key}" if place else str(key)
        if key not in received:
            other = next((k for k in received if str(k) == str(key)), None)
            return f"{where}: " + ("it would be lost" if other is None else f"the key {_becomes(key, other)}")
        found = difference(value, received[key], where, loose=loose)
        if found is not None:
            return found
    extra = [key for key in received if key not in sent]
    return f"{place or 'payload'}: {extra[0]!r} would be added" if extra else None


def _items(sent: Any, received: Any, place: str, loose: bool) -> str | None:
    if len(sent) != len(received):
        return f"{place or 'payload'}: {len(sent)} items would be {len(received)}"
    for index, (one, other) in enumerate(zip(sent, received, strict=True)):
        found = difference(one, other, f"{place}[{index}]", loose=loose)
        if found is not None:
            return found
    return None


def _sent_fields(model: BaseModel) -> dict[str, Any]:
    """Returns the fields that are written; a model that keeps some to itself says so on purpose."""
    fields = {name: getattr(model, name) for name, field in type(model).model_fields.items() if not field.exclude}
    return {**fields, **(model.model_extra or {})}


def _init_fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}


def _equal(sent: Any, received: Any) -> bool:
    match sent:
        case float() if math.isnan(sent):
            return isinstance(received, float) and math.isnan(received)
        case datetime() | time() if isinstance(received, datetime | time):
            # Not ==, by which a time in the hour that a change of clocks repeats equals none of another zone.
            return sent.isoformat() == received.isoformat() and (sent.tzinfo is None) == (received.tzinfo is None)
    if "__eq__" not in {name for kind in type(sent).__mro__[:-1] for name in vars(kind)}:
        return True  # its type is all that can be compared
    try:
        return bool(sent == received)
    except Exception:  # an equality of the application's own (arrays have one that is no boolean)
        return True


def _said(sent: Any, received: Any, place: str) -> str:
    what = _becomes(sent, received) if type(sent) is not type(received) else "it would be another value"
    return f"{place or 'payload'}: {what}"


def _becomes(sent: Any, received: Any) -> str:
    return f"{type(sent).__name__} would become {type(received).__name__}"
