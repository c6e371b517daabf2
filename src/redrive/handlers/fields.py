"""The parameters of a handler, as the fields of its payload."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from redrive.handlers.parameters import type_of

# Names of the context that nobody takes for a field's.


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
