"""Reads and writes payloads with Pydantic, by the types that a signature declares."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import Any

from pydantic import ConfigDict, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from redrive.errors import ConfigError
from redrive.handlers.parameters import type_of

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
# Names of the context that nobody takes for a field's.
_CONTEXTS = ("", "c", "ctx", "context")


class Fields:
    """The parameters of a handler, as the fields of a JSON object. Fields that were not sent are not there: the
    function has its own defaults."""

    def __init__(self, context: inspect.Parameter, parameters: Sequence[inspect.Parameter]) -> None:
        self.context = context.name
        # Somebody who wrote neither the type nor the usual name may have meant it as a field.
        usual = context.annotation is not inspect.Parameter.empty or context.name.strip("_") in _CONTEXTS
        self._note = "" if usual else f"; its first parameter, {context.name!r}, is the context"
        rest = [p for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD]
        named = [p for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
        self.open = bool(rest)
        self.required = {p.name for p in named if p.default is inspect.Parameter.empty}
        self._types = {p.name: type_of(p) for p in named}
        self._rest = type_of(rest[0]) if rest else None

    def __str__(self) -> str:
        names = [name if name in self.required else f"{name}?" for name in self._types]
        return (", ".join([*names, *(["any others"] if self.open else [])]) or "no fields") + self._note

    def schema(self, handler: GetCoreSchemaHandler) -> CoreSchema:
        fields = {
            name: core_schema.typed_dict_field(handler.generate_schema(type_), required=name in self.required)
            for name, type_ in self._types.items()
        }
        return core_schema.typed_dict_schema(
            fields,
            extra_behavior="allow" if self.open else "forbid",
            extras_schema=handler.generate_schema(self._rest) if self.open else None,
            config=_CORE,
        )


def adapter_for(kind: str, what: Any) -> TypeAdapter[Any]:
    """Returns what reads and writes a payload that is these fields, or a value of this type; refuses what Pydantic
    cannot."""

    class Payload:
        @classmethod
        def __get_pydantic_core_schema__(cls, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
            if isinstance(what, Fields):
                return what.schema(handler)
            return handler.generate_schema(what)

    try:
        adapter = TypeAdapter[Any](Payload, config=_CONFIG)
        adapter.rebuild(raise_errors=True)  # else a name that cannot be resolved is found out by the first task
    except Exception as error:
        said = str(error).partition("\n")[0]
        raise ConfigError(f"the signature of the handler of {kind} cannot be used for payloads: {said}") from None
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
