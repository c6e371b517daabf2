"""Turns a call into JSON by the handler's signature, and JSON into a call: the one place where that is done.

What goes in comes out the same, or is refused where it goes in: a call is written by the types that the signature
declares, read back by them, and compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError

from redrive.errors import ConfigError, PayloadInvalid, PayloadMissing
from redrive.handlers.fields import Fields, adapter_for, schema_types
from redrive.handlers.parameters import check_bulk, read_parameters, type_of
from redrive.handlers.roundtrip import difference, sort_sets, takes_any_sequence
from redrive.kernel.model_names import declared_names, place
from redrive.kernel.payload import encode

_EMPTY = inspect.Parameter.empty


class Call(NamedTuple):
    """Arguments as they are given to ``handler.enqueue``, in place of a payload."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class PayloadSpec:
    """Turns calls and payloads into JSON, and JSON into a handler's arguments.

    Parameters after the context are the payload's fields. A single parameter that is a Pydantic model, or is named
    ``payload``, takes the payload whole; so does a bulk handler, whose items have one payload each.
    """

    def __init__(
        self,
        kind: str,
        function: Callable[..., Any],
        whole: Any = None,
        *,
        bulk: bool = False,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        self.kind = kind
        self._bulk = bulk
        self._adapter, self.required = self._read(function, whole, names or {})
        self._has_sets = not {"set", "frozenset"}.isdisjoint(schema_types(self._adapter))

    def _read(
        self, function: Callable[..., Any], whole: Any, names: Mapping[str, Any]
    ) -> tuple[TypeAdapter[Any], bool]:
        """Returns how its payload is read and written, and whether it needs one."""
        kind = self.kind
        self._fields: Fields | None = None
        self._whole_name = ""
        self._positional: list[str] = []
        if self._bulk:
            check_bulk(kind, function, names)
            self._loose = takes_any_sequence([whole])
            return adapter_for(kind, Any if whole is None else whole), whole is not None
        context, parameters = read_parameters(kind, function, names)
        self._positional = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        self._loose = takes_any_sequence([whole, *map(type_of, parameters)])
        single = _taking_all(kind, parameters, whole)
        if single is not None:
            self._whole_name = single.name
            return adapter_for(kind, type_of(single) if whole is None else whole), single.default is _EMPTY
        self._fields = Fields(context, parameters)
        return adapter_for(kind, self._fields), bool(self._fields.required)

    # -- on the way in ---------------------------------------------------------------------------------------------

    def encode(self, payload: Any) -> str | None:
        """Returns a payload as JSON text: JSON values as they are, others as the declared types are written."""
        if payload is None:
            self.check(None)
            return None
        try:
            text = encode(payload)
        except PayloadInvalid as refusal:
            return self._encode_typed(payload, refusal)
        self.check(text)
        return text

    def encode_call(self, call: Call) -> str | None:
        """Returns the arguments of a call as JSON text."""
        if self._fields is not None:
            return self._encode_typed(self._named(call))
        given = self._whole_argument(call)
        if given is _EMPTY:
            self.check(None)
            return None
        return self._encode_typed(given)

    def _encode_typed(self, given: Any, refusal: PayloadInvalid | None = None) -> str:
        plain = self._plain(given, refusal)
        text = encode(plain)
        received = self._validated(text)
        try:
            meant = self._adapter.validator.validate_python(given, by_name=True, by_alias=True)
        except ValidationError as error:
            raise self._refused(error) from None
        if self._has_sets:
            sort_sets(meant, plain)
            text = encode(plain)
        lost = difference(meant, received, loose=self._loose)
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

    def _named(self, call: Call) -> dict[str, Any]:
        if not call.args:
            return dict(call.kwargs)
        if len(call.args) > len(self._positional):
            raise PayloadInvalid(
                f"{self.kind} takes {len(self._positional)} positional arguments, and {len(call.args)} were given",
                hint=self._expects(),
            )
        named = dict(zip(self._positional, call.args, strict=False))
        twice = [name for name in named if name in call.kwargs]
        if twice:
            raise PayloadInvalid(f"{self.kind} got {twice[0]!r} twice, by place and by name", hint=self._expects())
        return {**named, **call.kwargs}

    def _whole_argument(self, call: Call) -> Any:
        """Returns the one argument, or ``_EMPTY``. Arguments by name are the fields of what a bulk handler's item
        gets."""
        if self._bulk:
            if len(call.args) + bool(call.kwargs) > 1:
                raise PayloadInvalid(
                    f"{self.kind} takes one payload", hint="give it as the only argument, or its fields by name"
                )
            return call.args[0] if call.args else dict(call.kwargs) if call.kwargs else _EMPTY
        given = [*call.args, *(value for name, value in call.kwargs.items() if name == self._whole_name)]
        unknown = [name for name in call.kwargs if name != self._whole_name]
        if unknown or len(given) > 1 or (call.args and not self._positional):
            what = f"has no field {unknown[0]!r}" if unknown else "takes one argument"
            raise PayloadInvalid(f"{self.kind} {what}", hint=self._expects())
        return given[0] if given else _EMPTY

    # -- on the way out --------------------------------------------------------------------------------------------

    def arguments(self, payload: str | None) -> dict[str, Any]:
        """Returns keyword arguments for the handler, from JSON text. Raises PayloadInvalid or PayloadMissing."""
        if payload is None or payload == "null":
            return self._without(payload)
        value = self._validated(payload)
        if self._fields is not None:
            # Only what was sent: the function's own defaults fill the rest.
            return value  # type: ignore[no-any-return]
        return {self._whole_name: value}

    def whole(self, payload: str | None) -> Any:
        """Returns the payload as one value, for bulk handlers."""
        if payload is None and not self.required:
            return None
        if payload is None:
            raise PayloadMissing(f"{self.kind} needs a payload, and the task has none")
        return self._validated(payload)

    def check(self, payload: str | None) -> None:
        """Validates a payload at enqueue, so that the caller hears of a mistake and not an operator."""
        if self._bulk:
            self.whole(payload)
        elif payload is None or payload == "null":
            self.arguments(payload)
        else:
            self._validated(payload)

    def _without(self, payload: str | None) -> dict[str, Any]:
        """Returns arguments for a task without a payload. An explicit null is one where the type has None."""
        if payload is not None and self._fields is None:
            try:
                return {self._whole_name: self._validated(payload)}
            except PayloadInvalid:
                pass
        if self.required:
            raise PayloadMissing(f"{self.kind} needs a payload, and the task has none", hint=self._expects())
        return {}

    def _validated(self, payload: str) -> Any:
        try:
            # By names, which are what is written (aliases for reading and for writing may differ), and by aliases,
            # which others may send.
            value = self._adapter.validator.validate_json(payload, by_name=True, by_alias=True)
        except ValidationError as error:
            raise self._refused(error) from None
        if self._fields is not None and self._fields.open and self._fields.context in value:
            raise PayloadInvalid(
                f"the payload of {self.kind} has a field {self._fields.context!r}, which is the handler's context",
                hint="name the field otherwise",
            )
        return value

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

    def _expects(self) -> str | None:
        if self._fields is not None:
            return f"{self.kind} takes: {self._fields}"
        return f"{self.kind} takes the whole payload as {self._whole_name!r}" if self._whole_name else None


def _taking_all(kind: str, parameters: Sequence[inspect.Parameter], whole: Any) -> inspect.Parameter | None:
    """Returns the parameter that takes the payload whole, if there is one."""
    named = [p for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
    single = parameters[0] if len(parameters) == len(named) == 1 else None
    if whole is not None and single is None:
        raise ConfigError(
            f"payload= of {kind} says what one parameter takes, and its handler has {len(parameters)}",
            hint="annotate the parameters instead",
        )
    takes_all = single is not None and (whole is not None or single.name == "payload" or _is_model(type_of(single)))
    return single if takes_all else None


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
