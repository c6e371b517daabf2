"""Reads values by the types that settings declare: numbers and texts as an environment writes them, lists and maps.

A type that is not among these is read by Pydantic, which is imported for it alone: most processes never do."""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Union
from urllib.parse import SplitResult, urlsplit

Place = tuple[str | int, ...]
_LISTS = (list, tuple, set, frozenset)
_LISTED = {tuple: "list"}  # nobody can write another
_UNIONS = (Union, types.UnionType)
_TRUE, _FALSE = {"1", "true", "t", "yes", "y", "on"}, {"0", "false", "f", "no", "n", "off"}


class Problem(NamedTuple):
    """What does not fit: where, what, the value that was given, and by whom (environment, file or given). ``hint``:
    what to do, where that is not to correct or remove it."""

    place: Place
    message: str
    value: Any = None
    source: str = ""
    hint: str = ""

    def below(self, step: str | int) -> Problem:
        return self._replace(place=(step, *self.place))


class Unfit(ValueError):
    """A value that does not fit its declared type or limits."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, one.place))}: {one.message}" for one in problems))
        self.problems = problems


class Problems(list[Problem]):
    """Collects all that does not fit; what was collected is raised at the end of its block."""

    def __enter__(self) -> Problems:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self and error is None:
            raise Unfit(*self)

    @contextmanager
    def below(self, step: str | int) -> Iterator[None]:
        """Collects what does not fit below a step of the way to a value."""
        try:
            yield
        except Unfit as error:
            self += [one.below(step) for one in error.problems]
        except ValueError as error:
            self.append(Problem((step,), str(error)))


@contextmanager
def below(step: str | int) -> Iterator[None]:
    """Raises what does not fit with one more step of the way to it."""
    with Problems() as problems, problems.below(step):
        yield


def read(kind: Any, value: Any) -> Any:
    """Returns the value as the type has it. Raises Unfit."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if kind in _SIMPLE:
        return _SIMPLE[kind](value)
    if origin is Literal:
        return _one_of(inner, value)
    if origin in _UNIONS:
        return _first_that_fits(inner, value)
    if (origin or kind) in _LISTS:
        return _listed(origin or kind, inner, value)
    if (origin or kind) is dict:
        return _mapped(inner or (Any, Any), value)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _record(kind, value)
    if isinstance(kind, type) and hasattr(kind, "from_map"):
        return kind.from_map(value)
    return _by_pydantic(kind, value)


def is_document(kind: Any) -> bool:
    """Returns whether an environment variable of this type is written as JSON."""
    origin = typing.get_origin(kind)
    if origin in _UNIONS:
        return any(map(is_document, typing.get_args(kind)))
    found = origin or kind
    return found in (*_LISTS, dict) or dataclasses.is_dataclass(found) or hasattr(found, "model_fields")


def may_be_text(kind: Any) -> bool:
    """Returns whether what is no JSON may be meant as text."""
    return typing.get_origin(kind) in _UNIONS and str in typing.get_args(kind)


def from_json(given: Any, example: str) -> Any:
    """Returns a document that the environment may have as text."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except ValueError:
        raise Unfit(Problem((), f"it is not JSON; for example {example}")) from None


def refused(message: str, value: Any) -> Unfit:
    return Unfit(Problem((), message, value))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise refused("it has to be a text", value)


def _whole(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float):
        if value.is_integer():
            return int(value)
        raise refused("it has to be a whole number", value)
    if not isinstance(value, str):
        raise refused("it has to be a whole number", value)
    digits, _, fraction = value.partition(".")
    try:
        return int(digits if fraction and not fraction.strip("0") else value)
    except ValueError:
        raise refused("it has to be a whole number", value) from None


def _number(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        raise refused("it has to be a number", value)
    try:
        return float(value)
    except ValueError:
        raise refused("it has to be a number", value) from None


def _yes_or_no(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower() if isinstance(value, str | int) else ""
    if text not in _TRUE | _FALSE:
        raise refused("it has to be true or false", value)
    return text in _TRUE


def _nothing(value: Any) -> None:
    if value is not None:
        raise refused("it has to be left out", value)


_SIMPLE: dict[Any, Any] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: _yes_or_no,
    None: _nothing,
    type(None): _nothing,
}


def _one_of(choices: tuple[Any, ...], value: Any) -> Any:
    for choice in choices:
        if choice == value and type(choice) is type(value):
            return choice
    *first, last = map(repr, choices)
    raise refused(f"it has to be {' or '.join([', '.join(first), last] if first else [last])}", value)


def _first_that_fits(kinds: tuple[Any, ...], value: Any) -> Any:
    """Returns the value as the first of these types that takes it; as it is where one of them is its own."""
    if any(isinstance(kind, type) and type(value) is kind for kind in kinds):
        kinds = (type(value),) if type(value) in _SIMPLE else kinds
    missed: list[Problem] = []
    for kind in kinds:
        try:
            return read(kind, value)
        except Unfit as error:
            if kind is not type(None):
                missed += error.problems
    raise Unfit(*missed)


def _listed(kind: Any, inner: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, _LISTS):
        raise refused(f"it has to be a {_LISTED.get(kind, kind.__name__)}", value)
    each = inner[0] if inner else Any
    if kind is tuple and inner and inner[-1] is not ...:
        return _by_pydantic(kind[inner], value)
    return kind(_each((nth, each, one) for nth, one in enumerate(value)))


def _mapped(inner: tuple[Any, ...], value: Any) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise refused("it has to be a table", value)
    keys = _each((str(key), inner[0], key) for key in value)
    return dict(zip(keys, _each((str(key), inner[1], one) for key, one in value.items()), strict=True))


def _record(kind: Any, value: Any) -> Any:
    """Returns a dataclass, from a map of its fields."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise refused("it has to be a table", value)
    hints = typing.get_type_hints(kind)
    known = {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}
    if unknown := [name for name in value if name not in known]:
        text = f"there is no such field; there are {', '.join(known)}"
        raise Unfit(*(Problem((str(name),), text, value[name]) for name in unknown))
    names = [name for name in known if name in value]
    read_fields = _each((name, known[name], value[name]) for name in names)
    try:
        return kind(**dict(zip(names, read_fields, strict=True)))
    except TypeError as error:  # a field without a default that was left out
        raise refused(str(error), value) from None


def _each(parts: Iterator[tuple[str | int, Any, Any]]) -> list[Any]:
    """Returns each value by its type; all problems are found, not the first alone."""
    found = []
    with Problems() as problems:
        for step, kind, value in parts:
            with problems.below(step):
                found.append(read(kind, value))
    return found


def _by_pydantic(kind: Any, value: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise Unfit(*(Problem(one["loc"], one["msg"], one["input"]) for one in found)) from None


def url_parts(url: str) -> SplitResult | None:
    """Returns an address taken apart; None of one that has spaces, no host, or a port that is none."""
    try:
        found = urlsplit(url)
        return found if found.hostname and found.port != 0 and not re.search(r"\s", url) else None
    except ValueError:
        return None
