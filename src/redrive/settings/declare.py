"""How settings are declared: a class whose fields are read from environment variables, else from ``redrive.toml``."""

from __future__ import annotations

import copy
import operator
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self

from redrive.errors import ConfigError
from redrive.kernel.wording import suggestion
from redrive.settings.values import Problem, Unfit, below, read, refused

_REQUIRED: Any = ...


class Setting:
    """One field: where it is read from, and what it may be."""

    __slots__ = ("check", "default", "examples", "field", "help", "kind", "limits", "metavar", "name", "parse", "repr")

    def __init__(self, name: str, default: Any) -> None:
        self.name = name  # the environment variable; that of the field where it has none
        self.default = default
        self.repr = True
        self.examples: list[str] = []
        self.parse: Callable[[Any], Any] | None = None
        self.check: Callable[[Any], Any] | None = None
        self.limits: Mapping[str, Any] = {}
        self.metavar = self.help = ""  # of one that is given on a command line
        self.field = ""
        self.kind: Any = Any

    def read(self, value: Any) -> Any:
        """Returns a value as it is used, or raises Unfit."""
        with below(self.field):
            found = read(self.kind, value) if self.parse is None else self.parse(value)
            if found is not None:
                for limit, bound in self.limits.items():
                    _check_limit(limit, bound, found)
            return found if self.check is None else self.check(found)

    def fresh(self) -> Any:
        """Returns the default, for one who may change it."""
        return copy.copy(self.default)


def setting(
    name: str,
    default: Any = _REQUIRED,
    *,
    repr: bool = True,
    examples: Iterable[str] = (),
    parse: Callable[[Any], Any] | None = None,
    check: Callable[[Any], Any] | None = None,
    **limits: Any,
) -> Any:
    """Returns a field that is read from this environment variable, or from its lower-case name in ``redrive.toml``.

    ``repr=False``: it is a secret, and shown to nobody; ``examples``: how one that is a map is written; ``limits`` are
    ``gt``, ``ge``, ``lt``, ``le``, ``min_length``, ``max_length`` and ``pattern``. ``check`` gets the value and returns
    what is used, ``parse`` gets it as it was written, in place of the type; both raise ValueError.
    """
    if unknown := [limit for limit in limits if limit not in _LIMITS]:
        raise ConfigError(f"setting({name!r}) has no option {unknown[0]!r}", hint=f"limits are: {', '.join(_LIMITS)}")
    made = Setting(name, default)
    made.repr, made.examples, made.parse, made.check, made.limits = repr, list(examples), parse, check, limits
    return made


def option(default: Any, metavar: str = "", *, help: str, **limits: Any) -> Any:
    """Returns a field that is given on a command line or in code. ``metavar`` and ``help`` are for ``--help``."""
    made = setting("", default, **limits)
    made.metavar, made.help = metavar, help
    return made


class Values:
    """Fields by their declared types. Made in code, it has what it is given, and defaults."""

    _fields: ClassVar[dict[str, Setting]]

    def __init__(self, **given: Any) -> None:
        self._fill({name: (value, "given") for name, value in given.items()})

    @classmethod
    def configured(cls, *, environment: Mapping[str, Any], file: Mapping[str, Any]) -> Self:
        """Returns the values of the environment, then of the file, then the defaults, by field."""
        made = cls.__new__(cls)
        made._fill(sourced(file=file, environment=environment))
        return made

    @classmethod
    def from_map(cls, value: Any) -> Self:
        """Returns the values of one table of the file, or of a map in the environment."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise refused("it has to be a table of " + ", ".join(fields_of(cls)), value)
        made = cls.__new__(cls)
        made._fill({str(name): (one, "given") for name, one in value.items()})
        return made

    @property
    def given(self) -> dict[str, Any]:
        """What was said, by field; what is left out has its default."""
        return {name: getattr(self, name) for name in self.__dict__["_sources"]}

    def _fill(self, given: Mapping[str, tuple[Any, str]]) -> None:
        """Takes values, each with where it comes from; Unfit has all that do not fit."""
        fields = fields_of(type(self))
        problems = [
            Problem((name,), f"there is no such field; {suggestion(name, fields)}", given[name][0])
            for name in given
            if name not in fields
        ]
        for name, one in fields.items():
            if name not in given and one.default is _REQUIRED:
                problems.append(Problem((name,), "it is needed, and has no default"))
                continue
            try:
                self.__dict__[name] = one.read(given[name][0]) if name in given else one.fresh()
            except Unfit as error:
                problems += [problem._replace(source=given[name][1]) for problem in error.problems]
        if problems:
            raise Unfit(*problems)
        self.__dict__["_sources"] = {name: source for name, (_, source) in given.items()}

    def source_of(self, field: str) -> str:
        """Returns where a value comes from: environment, file, given or default; of the store also DATABASE_URL."""
        return str(self.__dict__["_sources"].get(field, "default"))

    def with_values(self, **changed: Any) -> Self:
        """Returns the same with other values, taken as they are."""
        return self.from_source("given", **changed)

    def from_source(self, source: str, /, **changed: Any) -> Self:
        """Returns the same with other values, and where they come from."""
        made = copy.copy(self)
        made.__dict__.update(changed, _sources={**self.__dict__["_sources"], **dict.fromkeys(changed, source)})
        return made

    def __repr__(self) -> str:
        parts = [f"{name}={getattr(self, name)!r}" for name, one in fields_of(type(self)).items() if one.repr]
        return f"{type(self).__name__}({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in fields_of(type(self)))


class FeatureSettings(Values):
    """The settings of a feature, which names its class as ``Feature(settings=…)``; read with those of redrive. Made in
    code, it has what it is given, and defaults."""


def sourced(**values: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """Returns values by field, each with where it comes from; later sources win."""
    return {field: (value, source) for source, found in values.items() for field, value in found.items()}


def fields_of(kind: type[Values]) -> dict[str, Setting]:
    """Returns the fields of a class by name, with their types; they are looked for once."""
    if "_fields" not in vars(kind):
        kind._fields = _find_fields(kind)
    return kind._fields


def _find_fields(kind: type[Values]) -> dict[str, Setting]:
    names = {name for base in reversed(kind.__mro__) for name in vars(base).get("__annotations__", {})}
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"a type of {kind.__name__} cannot be resolved: {error}",
            hint="import or define it at the top of its module",
        ) from None
    found = {}
    for name, hint in hints.items():
        if name in names and not name.startswith("_") and typing.get_origin(hint) is not ClassVar:
            given = getattr(kind, name, _REQUIRED)
            found[name] = one = copy.copy(given) if isinstance(given, Setting) else Setting(name, given)
            one.field, one.kind = name, hint
    return found


def name_of(kind: type[Values], field: str) -> str:
    """Returns the environment variable of a field."""
    return fields_of(kind)[field].name


def names_of(kind: type[Values]) -> list[str]:
    """Returns the environment variables of a class."""
    return [one.name for one in fields_of(kind).values()]


def fields_by_name(kind: type[Values]) -> dict[str, str]:
    """Returns the fields of a class by each name that the file may have for them."""
    return {name: one.field for one in fields_of(kind).values() for name in (one.field, one.name.lower())}


def _check_limit(limit: str, bound: Any, value: Any) -> None:
    holds, words = _LIMITS[limit]
    if not holds(value, bound):
        things = ("character" if isinstance(value, str) else "item") + ("" if bound == 1 else "s")
        raise refused(f"it has to {words.format(bound, things=things)}", value)


_LIMITS: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "gt": (operator.gt, "be more than {}"),
    "ge": (operator.ge, "be at least {}"),
    "lt": (operator.lt, "be less than {}"),
    "le": (operator.le, "be at most {}"),
    "min_length": (lambda value, bound: len(value) >= bound, "have at least {} {things}"),
    "max_length": (lambda value, bound: len(value) <= bound, "have at most {} {things}"),
    "pattern": (lambda value, bound: re.search(bound, value), "match {!r}"),
}
