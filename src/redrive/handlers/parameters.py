"""Reads a handler's signature: its context, the fields of its payload, and which of those take JSON values as they are.
What cannot work is refused where it is declared.

Fields of plain JSON types need no Pydantic on their way in: 6 µs a call instead of 20, and a process that only enqueues
does not import it (6 MB, 0.13 s of CPU). Whatever is not certain here is left to Pydantic, which also says what is
wrong.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Union

from redrive.errors import ConfigError
from redrive.handlers.bulk import Bulk
from redrive.handlers.context import Context

# What an unannotated context may be called.
CONTEXT_NAMES = ("ctx", "context")
_ABSTRACT = (Sequence, Collection)
_NO_NAME = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)
_NONE = type(None)
JSON: frozenset[type] = frozenset({str, int, float, bool, dict, list, _NONE})
_UNCERTAIN: frozenset[type] = frozenset()
_UNIONS = (Union, types.UnionType)
_CONTAINERS = (list, dict, tuple, set, frozenset)
# Types of the standard library that Pydantic reads in any case.
_KNOWN = {"builtins.bytes", "datetime.datetime", "datetime.date", "datetime.time", "datetime.timedelta"}
_KNOWN |= {"uuid.UUID", "decimal.Decimal", "pathlib.Path"}


class Fields:
    """The parameters of a handler, as the fields of a JSON object. Fields that were not sent are not there: the
    function has its own defaults."""

    def __init__(self, context: inspect.Parameter, parameters: Sequence[inspect.Parameter]) -> None:
        self.context = context.name
        rest = [p for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD]
        named = [p for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
        self.open = bool(rest)
        self.required = {p.name for p in named if p.default is inspect.Parameter.empty}
        self.defaults = {p.name: p.default for p in named if p.name not in self.required}
        self.types = {p.name: type_of(p) for p in named}
        self.rest = type_of(rest[0]) if rest else None

    def __str__(self) -> str:
        names = [name if name in self.required else f"{name}?" for name in self.types]
        return ", ".join([*names, *(["any others"] if self.open else [])]) or "no fields"


def read_parameters(
    kind: str, function: Callable[..., Any], names: Mapping[str, Any]
) -> tuple[inspect.Parameter, list[inspect.Parameter]]:
    """Returns the context parameter and the others. ``names`` are those visible where the handler is defined, for
    annotations kept as text."""
    try:
        signature = inspect.signature(function, locals=dict(names), eval_str=True)
    except NameError as error:
        raise ConfigError(
            f"an annotation of the handler of {kind} cannot be resolved: {error}",
            hint="import or define the type where the handler is defined, at the latest right before it",
        ) from None
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise ConfigError(
            f"the handler of {kind} takes no context", hint=f"write: def {_named(function)}(ctx: Context, ...)"
        )
    _check_context(kind, function, parameters[0])
    for parameter in parameters[1:]:
        _check_field(kind, parameter)
    return parameters[0], parameters[1:]


def check_bulk(kind: str, function: Callable[..., Any], names: Mapping[str, Any]) -> None:
    """Refuses a bulk handler that does not take a ``Bulk``."""
    try:
        signature = inspect.signature(function, locals=dict(names), eval_str=True)
    except NameError:  # a name for type checkers only; nothing else here needs it
        signature = inspect.signature(function)
    hint = f"write: def {_named(function)}(bulk: Bulk)"
    first = next(iter(signature.parameters.values()), None)
    if first is None or first.kind is inspect.Parameter.KEYWORD_ONLY:
        raise ConfigError(f"the bulk handler of {kind} takes no Bulk", hint=hint)
    if not _may_be(first.annotation, Bulk):
        raise ConfigError(
            f"the bulk handler of {kind} gets a Bulk, and {first.name!r} is annotated with "
            f"{inspect.formatannotation(first.annotation)}",
            hint=hint,
        )


def type_of(parameter: inspect.Parameter) -> Any:
    """Returns what a parameter is annotated with; Any where nothing is said."""
    return Any if parameter.annotation is inspect.Parameter.empty else parameter.annotation


def takes_any_sequence(annotations: Iterable[Any]) -> bool:
    """Returns whether some parameter is declared as an abstract collection, which a list satisfies as well as a
    tuple."""
    return any(
        typing.get_origin(one) in _ABSTRACT or one in _ABSTRACT or takes_any_sequence(typing.get_args(one))
        for one in annotations
        if one is not None and not isinstance(one, str | int | bytes)
    )


def is_model(annotation: Any) -> bool:
    """Returns whether an annotation is a class of Pydantic's."""
    return isinstance(annotation, type) and issubclass(annotation, _pydantic("main", "BaseModel"))


def _pydantic(module: str, name: str) -> Any:
    """Returns a class of Pydantic's, to compare with. Where nobody has imported it, nothing is of it."""
    return getattr(sys.modules.get(f"pydantic.{module}"), name, ())


def _check_context(kind: str, function: Callable[..., Any], first: inspect.Parameter) -> None:
    if first.annotation in (inspect.Parameter.empty, Any, object):
        _check_name(kind, function, first)
        return
    if _may_be(first.annotation, Context):
        return
    if _may_be(first.annotation, Bulk):
        raise ConfigError(
            f"the handler of {kind} takes a Bulk, and is not declared as bulk", hint="add bulk=N to @app.task"
        )
    raise ConfigError(
        f"the first parameter of the handler of {kind} is the context, and {first.name!r} is annotated with "
        f"{inspect.formatannotation(first.annotation)}",
        hint=f"write: def {_named(function)}(ctx: Context, {'...' if first.name == 'ctx' else f'{first.name}: …'})",
    )


def _check_name(kind: str, function: Callable[..., Any], first: inspect.Parameter) -> None:
    """Refuses a first parameter that nothing says is the context: a field of the payload would get it instead, without
    a word."""
    if first.name not in CONTEXT_NAMES and not first.name.startswith("_"):
        raise ConfigError(
            f"the first parameter of the handler of {kind} is the context, and it is called {first.name!r}",
            hint=f"write: def {_named(function)}(ctx: Context, {first.name}), if that is a field of the payload; "
            f"else call it ctx, or annotate it: {first.name}: Context",
        )


def _check_field(kind: str, parameter: inspect.Parameter) -> None:
    if parameter.kind in _NO_NAME:
        raise ConfigError(
            f"the handler of {kind} has the parameter {parameter.name!r}, which cannot be given by name",
            hint="a payload is fields with names: use ordinary or keyword-only parameters; a list is one field",
        )
    if isinstance(parameter.default, _pydantic("fields", "FieldInfo")):
        raise ConfigError(
            f"the parameter {parameter.name!r} of the handler of {kind} has Pydantic's Field(...) as its default, "
            "which the function would be called with",
            hint=f"write: {parameter.name}: Annotated[…, Field(…)] = default",
        )


def _may_be(annotation: Any, wanted: type) -> bool:
    """Returns False only for a type that certainly does not fit; what cannot be judged (a protocol, text) is let
    through."""
    choices = typing.get_args(annotation) if typing.get_origin(annotation) in _UNIONS else ()
    if choices:
        return any(_may_be(choice, wanted) for choice in choices)
    found = typing.get_origin(annotation) or annotation
    if found in (Any, inspect.Parameter.empty) or not isinstance(found, type) or getattr(found, "_is_protocol", False):
        return True
    return issubclass(found, wanted) or issubclass(wanted, found)


def _named(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "handler")


# -- JSON values that are taken as they are --------------------------------------------------------------------------


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


class PlainValues:
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
