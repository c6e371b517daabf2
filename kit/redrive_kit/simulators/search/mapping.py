"""The types of an index's fields: given when it is made, or guessed from the first value, as search servers do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from redrive_kit.simulators.search.refusal import Refusal, unfit, wrong

_DATE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")
_WHOLE = {"long", "integer", "short", "byte"}
_NUMBERS = _WHOLE | {"float", "double", "half_float"}
_METADATA = {"_id", "_index", "_source", "_routing", "_version", "_seq_no", "_primary_term", "_field_names", "_ignored"}
MOST_FIELDS = 1000


def types_of(mappings: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Returns types by the dotted names of fields."""
    found: dict[str, str] = {}
    for name, given in mappings.get("properties", {}).items():
        found[path + name] = given.get("type", "object")
        found |= types_of(given, f"{path}{name}.")
    return found


def learned(types: Mapping[str, str], document: Mapping[str, Any], key: str, strict: bool = False) -> dict[str, str]:
    """Returns the types that a document brings; raises a Refusal if it does not fit those that are there."""
    new: dict[str, str] = {}
    for name, value in _fields(document):
        known = types.get(name) or new.get(name)
        if known is not None:
            _check(known, name, value, key)
        elif strict:
            raise Refusal(
                400,
                "strict_dynamic_mapping_exception",
                f"mapping set to strict, dynamic introduction of [{name}] within [_doc] is not allowed",
            )
        else:
            new[name] = _guess(value)
    if len(types) + len(new) > MOST_FIELDS:
        raise wrong(f"Limit of total fields [{MOST_FIELDS}] has been exceeded")
    return new


def _fields(document: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields names and values; of a list each value, nothing of null."""
    for name, value in document.items():
        if not name:
            raise unfit("failed to parse", "field name cannot be an empty string")
        if not path and name in _METADATA:
            raise unfit(f"failed to parse field [{name}] of type [{name}]", f"Field [{name}] is a metadata field")
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                yield path + name, one
            if isinstance(one, Mapping):
                yield from _fields(one, f"{path}{name}.")


def _guess(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "long"
        case float():
            return "float"
        case str():
            return "date" if _DATE.fullmatch(value) else "text"
    return "object"


def _check(known: str, name: str, value: Any, key: str) -> None:
    if known == "object" and not isinstance(value, Mapping):
        raise unfit(f"object mapping for [{name}] tried to parse field [{name}] as object, but found a concrete value")
    if known != "object" and not _fits(known, value):
        reason = f"failed to parse field [{name}] of type [{known}] in document with id '{key}'."
        raise unfit(f"{reason} Preview of field's value: '{value}'", f'For input string: "{value}"')


def _fits(known: str, value: Any) -> bool:
    if isinstance(value, Mapping):
        return False
    if known in _NUMBERS:
        return not isinstance(value, bool) and _is_number(value)
    if known == "boolean":
        return isinstance(value, bool) or value in ("true", "false", "")
    if known == "date":
        return isinstance(value, int) or (isinstance(value, str) and bool(_DATE.fullmatch(value) or value.isdecimal()))
    return True


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
