"""Reads and writes payloads with Pydantic, by the types that a signature declares.

Imported by workers, and by producers when a payload needs it: see ``parameters.py`` for those that do not. What is
written is read again and compared: what would come out as something else is refused.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, core_schema

from redrive.errors import ConfigError, PayloadInvalid
from redrive.handlers.parameters import Fields
from redrive.kernel.model_names import declared_names, place
from redrive.kernel.payload import encode

# Bytes are base64, whatever is in them. NaN stays what it is, to be refused, instead of becoming null. The settings of
# a model or dataclass inside are its own.
_CONFIG = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")
_CORE = core_schema.CoreConfig(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")
_CLASSES = ("model", "dataclass")
# Parts of a schema that are the application's own values.
_VALUES = ("default", "metadata", "expected", "serialization")
# Read as something that cannot be sent, or can be used only once.
_REFUSED = {
    "callable": "a callable, which JSON has not; send a name and look it up",
    "is-subclass": "a class, which JSON has not; send a name and look it up",
    "generator": "an iterable or iterator, which could be gone through only once; declare a list or a Sequence",
}
_PLAIN = frozenset({str, int, bool, bytes, type(None), UUID, Decimal})
# What an instance of a subclass may come back as (a StrEnum as text, a pendulum time as a datetime).
_STANDARD = {"builtins", "datetime", "decimal", "uuid", "pathlib", "ipaddress"}
# Pydantic imports a part of itself with its first reader: now, and not when the first task is read.
TypeAdapter(int)


class TypedPayload:
    """Payloads that are these fields, or a value of this type. ``loose``: a tuple may become a list; ``expects`` says
    what the kind takes."""

    def __init__(self, kind: str, what: Any, *, loose: bool, expects: Callable[[], str | None]) -> None:
        self.kind = kind
        self._loose = loose
        self._expects = expects
        self._adapter = adapter_for(kind, what)
        self._has_sets = not {"set", "frozenset"}.isdisjoint(schema_types(self._adapter))

    def read(self, text: str) -> Any:
        """Returns the value of JSON text. Raises PayloadInvalid."""
        try:
            # By names, which are what is written (aliases for reading and for writing may differ), and by aliases,
            # which others may send.
            return self._adapter.validator.validate_json(text, by_name=True, by_alias=True)
        except ValidationError as error:
            raise self._refused(error) from None

    def write(self, given: Any, refusal: PayloadInvalid | None, check: Callable[[Any], Any]) -> str:
        """Returns a value as JSON text that reads as the same value; what would not is refused. ``check`` gets what
        will be read."""
        plain = self._plain(given, refusal)
        text = encode(plain)
        received = check(self.read(text))
        try:
            sent = self._adapter.validator.validate_python(given, by_name=True, by_alias=True)
        except ValidationError as error:
            raise self._refused(error) from None
        if self._has_sets:
            sort_sets(sent, plain)
            text = encode(plain)
        lost = difference(sent, received, loose=self._loose)
        if lost is not None:
            raise PayloadInvalid(
                f"the payload of {self.kind} would not come out as it went in: {lost}",
                hint="declare its type in the handler's signature, or send what JSON has: text, numbers, lists, dicts",
            )
        return text

    def _plain(self, given: Any, refusal: PayloadInvalid | None) -> Any:
        try:
            return self._adapter.serializer.to_python(given, mode="json", warnings=False)
        except Exception as error:  # serializers may be the application's own
            if refusal is not None:
                raise refusal from None
            hint = "use types that Pydantic can write as JSON"
            if isinstance(error, UnicodeDecodeError):
                hint = 'set model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64") on the model'
            raise PayloadInvalid(
                f"the payload of {self.kind} cannot be written as JSON: {type(error).__name__}: {error}", hint=hint
            ) from None

    def _refused(self, error: ValidationError) -> PayloadInvalid:
        """Returns the error about what does not fit; ``what`` has the first of it without the keys and numbers of this
        payload."""
        found = error.errors(include_url=False, include_input=False)
        problems = [f"{'.'.join(map(str, one['loc'])) or 'payload'}: {one['msg']}" for one in found[:5]]
        more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
        return PayloadInvalid(
            f"the payload does not fit {self.kind}: {'; '.join(problems)}{more}",
            hint=self._expects(),
            what=f"{self.kind} {place(found[0]['loc'], declared_names(self._adapter.core_schema))} {found[0]['type']}",
        )


def _schema(fields: Fields, handler: GetCoreSchemaHandler) -> CoreSchema:
    listed = {
        name: core_schema.typed_dict_field(handler.generate_schema(type_), required=name in fields.required)
        for name, type_ in fields.types.items()
    }
    return core_schema.typed_dict_schema(
        listed,
        extra_behavior="allow" if fields.open else "forbid",
        extras_schema=handler.generate_schema(fields.rest) if fields.open else None,
        config=_CORE,
    )


def adapter_for(kind: str, what: Any) -> TypeAdapter[Any]:
    """Returns what reads and writes a payload that is these fields, or a value of this type; refuses what Pydantic
    cannot."""

    class Payload:
        @classmethod
        def __get_pydantic_core_schema__(cls, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
            if isinstance(what, Fields):
                return _schema(what, handler)
            return handler.generate_schema(what)

    try:
        adapter = TypeAdapter[Any](Payload, config=_CONFIG)
        adapter.rebuild(raise_errors=True)  # else a name that cannot be resolved is found out by the first task
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"the signature of the handler of {kind} cannot be used for payloads: {reason}") from None
    own = schema_types(adapter, into=())
    for schema, why in _REFUSED.items():
        if schema in own:
            raise ConfigError(f"the signature of the handler of {kind} cannot be used for payloads: it has {why}")
    return adapter


def schema_types(adapter: TypeAdapter[Any], into: Collection[str] = _CLASSES) -> set[str]:
    """Returns Pydantic's names of all types that occur in what an adapter reads, of classes' fields only ``into``
    these."""
    found: set[str] = set()
    ahead: list[Any] = [adapter.core_schema]
    while ahead:
        match ahead.pop():
            case dict() as part:
                kind = part.get("type")
                if isinstance(kind, str):
                    found.add(kind)
                if kind not in _CLASSES or kind in into:
                    ahead.extend(value for name, value in part.items() if name not in _VALUES)
            case list() | tuple() as parts:
                ahead.extend(parts)
    return found


# -- what was sent, and what will be received ------------------------------------------------------------------------


def difference(sent: Any, received: Any, place: str = "", *, loose: bool = False) -> str | None:
    """Returns what of ``sent`` is something else in ``received``, or None. ``loose``: a tuple may become a list."""
    kind = type(received)
    if type(sent) is kind:
        if kind in _PLAIN:
            return None if sent == received else _changed(sent, received, place)
    else:
        if loose and isinstance(sent, tuple) and kind is list:
            return _items(sent, received, place, loose)
        if not (isinstance(sent, kind) and kind.__module__ in _STANDARD):
            return _changed(sent, received, place)
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
    return None if _equal(sent, received) else _changed(sent, received, place)


def sort_sets(sent: Any, plain: Any) -> None:
    """Puts what will be read as a set in one order, so that equal calls have equal payloads in all processes."""
    match sent:
        case set() | frozenset() if isinstance(plain, list):
            plain.sort(key=lambda item: json.dumps(item, sort_keys=True))
        case dict() if isinstance(plain, dict):
            for value, part in zip(sent.values(), plain.values(), strict=False):
                sort_sets(value, part)
        case list() | tuple() if isinstance(plain, list):
            for value, part in zip(sent, plain, strict=False):
                sort_sets(value, part)
        case BaseModel() if isinstance(plain, dict):
            _sort_in_fields(_sent_fields(sent), plain)
        case _ if dataclasses.is_dataclass(sent) and isinstance(plain, dict):
            _sort_in_fields(_init_fields(sent), plain)


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


def _changed(sent: Any, received: Any, place: str) -> str:
    what = _becomes(sent, received) if type(sent) is not type(received) else "it would be another value"
    return f"{place or 'payload'}: {what}"


def _becomes(sent: Any, received: Any) -> str:
    return f"{type(sent).__name__} would become {type(received).__name__}"
