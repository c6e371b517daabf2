"""A handler's signature as a payload model."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model

from redrive.errors import ConfigError, PayloadInvalid, PayloadMissing
from redrive.handlers.bulk import Batch
from redrive.handlers.context import Context


class PayloadSpec:
    """Checks payloads and turns them into a handler's arguments.

    Parameters after the context are the payload's fields. A single parameter that is a Pydantic model, or is named
    ``payload``, takes the payload whole.
    """

    def __init__(
        self, kind: str, function: Callable[..., Any], whole: Any = None, *, bulk: bool = False,
        names: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.kind = kind
        self._whole_name: str | None = None
        self._model: type[BaseModel] | None = None
        self._adapter: TypeAdapter[Any] | None = None
        self.required = False
        if bulk:
            _check_bulk(kind, function, names or {})
            self._adapter = TypeAdapter(whole if whole is not None else Any)
            self.required = whole is not None
            return
        parameters = _parameters(kind, function, names or {})
        self._single = parameters[0] if len(parameters) == 1 else None
        single = self._single
        if single is not None and (whole is not None or single.name == "payload" or _is_model(single.annotation)):
            self._whole_name = single.name
            self._adapter = TypeAdapter(
                whole or (Any if single.annotation is inspect.Parameter.empty else single.annotation)
            )
            self.required = single.default is inspect.Parameter.empty
        else:
            self._model = _model_of(kind, parameters)
            self.required = any(field.is_required() for field in self._model.model_fields.values())

    def arguments(self, payload: str | None) -> dict[str, Any]:
        """Keyword arguments for the handler, from JSON text. Raises PayloadInvalid or PayloadMissing."""
        if payload is None or payload == "null":
            if self.required:
                raise PayloadMissing(f"{self.kind} needs a payload, and the task has none", hint=self._expects())
            if self._model is None:
                return {}
            payload = "{}"
        value = self._validated(payload)
        if self._model is not None:
            # Only what was sent: the function's own defaults fill the rest.
            return {name: getattr(value, name) for name in value.model_fields_set}
        assert self._whole_name is not None
        return {self._whole_name: value}

    def _validated(self, payload: str) -> Any:
        try:
            if self._model is not None:
                return self._model.__pydantic_validator__.validate_json(payload)
            assert self._adapter is not None
            return self._adapter.validate_json(payload)
        except ValidationError as error:
            raise PayloadInvalid(_explain(self.kind, error), hint=self._expects()) from None

    def whole(self, payload: str | None) -> Any:
        """The payload as one value, for bulk handlers."""
        if payload is None and not self.required:
            return None
        if payload is None:
            raise PayloadMissing(f"{self.kind} needs a payload, and the task has none")
        return self._validated(payload)

    def check(self, payload: str | None) -> None:
        """Validate at enqueue, so that the caller hears of a mistake and not an operator."""
        if self._model is None and self._whole_name is None:
            self.whole(payload)
        elif self._model is None or payload is None or payload == "null":
            self.arguments(payload)
        else:
            self._validated(payload)

    def _expects(self) -> str | None:
        if self._model is None:
            return None
        fields = [name if field.is_required() else f"{name}?" for name, field in self._model.model_fields.items()]
        return f"{self.kind} takes: {', '.join(fields) or 'no fields'}"


def _parameters(kind: str, function: Callable[..., Any], names: Mapping[str, Any]) -> list[inspect.Parameter]:
    """All but the context. ``names`` are those visible where the handler is defined, for annotations kept as text."""
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
    first = parameters[0]
    if not _may_be(first.annotation, Context):
        if _may_be(first.annotation, Batch):
            raise ConfigError(
                f"the handler of {kind} takes a Batch, and is not declared as bulk", hint="add bulk=N to @app.task"
            )
        raise ConfigError(
            f"the first parameter of the handler of {kind} is the context, and {first.name!r} is annotated with "
            f"{inspect.formatannotation(first.annotation)}",
            hint=f"write: def {_named(function)}(ctx: Context, {'...' if first.name == 'ctx' else f'{first.name}: …'})",
        )
    return parameters[1:]


def _check_bulk(kind: str, function: Callable[..., Any], names: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(function, locals=dict(names), eval_str=True)
    except NameError:  # a name for type checkers only; nothing else here needs it
        signature = inspect.signature(function)
    hint = f"write: def {_named(function)}(batch: Batch)"
    first = next(iter(signature.parameters.values()), None)
    if first is None or first.kind is inspect.Parameter.KEYWORD_ONLY:
        raise ConfigError(f"the bulk handler of {kind} takes no batch", hint=hint)
    if not _may_be(first.annotation, Batch):
        raise ConfigError(
            f"the bulk handler of {kind} gets a Batch, and {first.name!r} is annotated with "
            f"{inspect.formatannotation(first.annotation)}",
            hint=hint,
        )


def _may_be(annotation: Any, wanted: type) -> bool:
    """False only for a type that certainly does not fit; what cannot be judged (a protocol, text) is let through."""
    choices = typing.get_args(annotation) if typing.get_origin(annotation) in (typing.Union, types.UnionType) else ()
    if choices:
        return any(_may_be(choice, wanted) for choice in choices)
    found = typing.get_origin(annotation) or annotation
    if found in (Any, inspect.Parameter.empty) or not isinstance(found, type) or getattr(found, "_is_protocol", False):
        return True
    return issubclass(found, wanted) or issubclass(wanted, found)


def _model_of(kind: str, parameters: list[inspect.Parameter]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    extra: typing.Literal["allow", "forbid"] = "forbid"
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            extra = "allow"
            continue
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            raise ConfigError(
                f"the handler of {kind} has the parameter {parameter.name!r}, which cannot be given by name",
                hint="payload fields are passed by name: use ordinary or keyword-only parameters",
            )
        annotation = Any if parameter.annotation is inspect.Parameter.empty else parameter.annotation
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[parameter.name] = (annotation, default)
    config = ConfigDict(extra=extra, arbitrary_types_allowed=False, protected_namespaces=())
    try:
        return create_model(f"{kind}_payload", __config__=config, **fields)
    except Exception as error:
        raise ConfigError(f"the signature of the handler of {kind} cannot be used for payloads: {error}") from None


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _named(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "handler")


def _explain(kind: str, error: ValidationError) -> str:
    problems = [
        f"{'.'.join(map(str, problem['loc'])) or 'payload'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)[:5]
    ]
    more = error.error_count() - len(problems)
    return f"the payload does not fit {kind}: " + "; ".join(problems) + (f"; and {more} more" if more > 0 else "")
