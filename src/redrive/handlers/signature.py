"""Turns a call into JSON by the handler's signature, and JSON into a call: the one place where that is done.

What goes in comes out the same, or is refused where it goes in: a call is written by the types that the signature
declares, read back by them, and compared. Plain JSON values for plain JSON types are written as they are; all payloads
are read by Pydantic (``typed.py``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.errors import ConfigError, PayloadInvalid, PayloadMissing
from redrive.handlers.parameters import (
    Fields,
    PlainValues,
    check_bulk,
    is_certain,
    is_json,
    is_model,
    read_parameters,
    takes_any_sequence,
    type_of,
)
from redrive.kernel.payload import decode, encode

if TYPE_CHECKING:
    from redrive.handlers.typed import TypedPayload

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
        self._what, self.required = self._read(function, whole, names or {})
        taken = PlainValues(self._what)
        self._taken = taken if taken.some else None
        self._open = self._fields is not None and self._fields.open
        if not is_certain(self._what):
            _ = self._typed  # what cannot be used is refused here, where it is declared

    @cached_property
    def _typed(self) -> TypedPayload:
        """What reads and writes payloads by their types; made when one needs it."""
        from redrive.handlers.typed import TypedPayload

        return TypedPayload(self.kind, self._what, loose=self._loose, expects=self._expects)

    def _read(self, function: Callable[..., Any], whole: Any, names: Mapping[str, Any]) -> tuple[Any, bool]:
        """Returns what its payload is, fields or a type, and whether it needs one."""
        kind = self.kind
        self._fields: Fields | None = None
        self._whole_name = ""
        self._positional: list[str] = []
        if self._bulk:
            check_bulk(kind, function, names)
            self._loose = takes_any_sequence([whole])
            return Any if whole is None else whole, whole is not None
        context, parameters = read_parameters(kind, function, names)
        self._positional = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        self._loose = takes_any_sequence([whole, *map(type_of, parameters)])
        single = _taking_all(kind, parameters, whole)
        if single is not None:
            self._whole_name = single.name
            return type_of(single) if whole is None else whole, single.default is _EMPTY
        self._fields = Fields(context, parameters)
        return self._fields, bool(self._fields.required)

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
        # What is taken unchanged comes back as it went: no need to read it again to know.
        if self._taken is not None and self._taken.takes(payload):
            self._check_context(payload)
        else:
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
        if refusal is None and self._taken is not None and self._taken.takes(given) and is_json(given):
            self._check_context(given)
            return encode(given)
        return self._typed.write(given, refusal, self._check_context)

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

    def with_defaults(self, payload: str | None) -> Any:
        """Returns what the handler gets of a payload, with what was left out as the function fills it in."""
        if self._bulk:
            return self.whole(payload)
        given = self.arguments(payload)
        return given if self._fields is None else {**self._fields.defaults, **given}

    def spellings(self, payload: str | None) -> list[str | None]:
        """Returns other ways to write the same payload: with all that the function would fill in, and without."""
        given = {} if payload is None else decode(payload)
        if self._fields is None or not isinstance(given, dict):
            return []
        filled = {}
        for name, value in self._fields.defaults.items():
            with suppress(PayloadInvalid):  # one that is no JSON cannot have been given as such
                filled[name] = decode(encode(value))
        full = {**filled, **given}
        least = {name: value for name, value in given.items() if name not in filled or filled[name] != value}
        found = [encode(full), encode(least), *([] if least else [None])]
        return [text for text in found if text != payload]

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
        value = self._typed.read(payload)
        return self._check_context(value) if self._open else value

    def _check_context(self, value: Any) -> Any:
        if self._open and self._fields is not None and self._fields.context in value:
            raise PayloadInvalid(
                f"the payload of {self.kind} has a field {self._fields.context!r}, which is the handler's context",
                hint="name the field otherwise",
            )
        return value

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
    takes_all = single is not None and (whole is not None or single.name == "payload" or is_model(type_of(single)))
    return single if takes_all else None
