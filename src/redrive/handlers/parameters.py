"""Reads a handler's signature, and refuses what cannot work where it is declared."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from redrive.errors import ConfigError
from redrive.handlers.bulk import Bulk
from redrive.handlers.context import Context

# What an unannotated context may be called.
CONTEXT_NAMES = ("ctx", "context")
_ABSTRACT = (Sequence, Collection)
_NO_NAME = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)


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


def pydantic_is_loaded() -> bool:
    return "pydantic.main" in sys.modules


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
    choices = typing.get_args(annotation) if typing.get_origin(annotation) in (typing.Union, types.UnionType) else ()
    if choices:
        return any(_may_be(choice, wanted) for choice in choices)
    found = typing.get_origin(annotation) or annotation
    if found in (Any, inspect.Parameter.empty) or not isinstance(found, type) or getattr(found, "_is_protocol", False):
        return True
    return issubclass(found, wanted) or issubclass(wanted, found)


def _named(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "handler")
