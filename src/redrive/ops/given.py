"""What people give, said once for every face: the parameters of a declared method, and what several of them share.

A parameter whose type is a dataclass of such fields, as ``How`` of bulk operations, is given field by field: as
options, as fields of a form, of a query or of a body. One of its fields may be a dataclass again, a canary for
instance: in a body that is an object; elsewhere its first field has the name of the whole, and the others have their
own.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from redrive.errors import InvalidInput


@dataclass(slots=True, frozen=True)
class Given:
    """What is said of a parameter: ``Annotated[int, Given("How many.")]``. ``check`` returns the value as it is taken,
    or refuses it, for every face."""

    help: str
    label: str = ""  # of its field in a form; else its name
    metavar: str = ""  # of its option
    option: str = ""  # the option's name, where that is another one
    argument: str = ""  # its name on the command line, where an option of every command has its own
    positional: bool = False  # on the command line it needs no option
    once: bool = False  # a form brings one of its own, by which it is known where it comes twice
    least: float | None = None
    most: float | None = None
    paths: Mapping[str, str] = field(default_factory=dict)  # values by their words in a path: each is a route
    in_form: bool = True
    check: Callable[[Any], Any] | None = None
    of: Mapping[str, Any] = field(default_factory=dict)  # annotations of its fields, for a class that has none itself

    def taken(self, value: Any, what: str) -> Any:
        """Returns the value as it is taken, or refuses it."""
        if value is not None and self.least is not None and value < self.least:
            raise InvalidInput(f"{what} is at least {self.least:,g}, not {value:,g}")
        if value is not None and self.most is not None and value > self.most:
            raise InvalidInput(f"{what} is at most {self.most:,g}, not {value:,g}")
        return value if self.check is None else self.check(value)


@dataclass(slots=True, frozen=True)
class Parameter:
    name: str
    annotation: Any  # without what is said of it
    default: Any
    given: Given
    in_path: bool = False
    parts: tuple[Parameter, ...] = field(default=())  # of a dataclass: its fields, each of which is given by itself

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def positional(self) -> bool:
        return self.in_path or self.given.positional

    @property
    def base(self) -> type:
        """The type of a value that is there: ``str`` of ``str | None``."""
        found: type = next((one for one in get_args(self.annotation) if one is not type(None)), self.annotation)
        return found

    @property
    def argument(self) -> str:
        """Its name on the command line."""
        return self.given.argument or self.name

    @property
    def option(self) -> str:
        return self.given.option or f"--{self.argument.replace('_', '-')}"

    @property
    def label(self) -> str:
        return self.given.label or self.name.replace("_", " ")


def parameter(name: str, hint: Any, default: Any, *, in_path: bool = False) -> Parameter:
    """Returns a parameter by its annotation."""
    plain, *said = get_args(hint) if get_origin(hint) is Annotated else [hint]
    given = next((word for word in said if isinstance(word, Given)), Given(""))
    made = Parameter(name, plain, default, given, in_path)
    if not is_dataclass(made.base):
        return made
    return replace(made, parts=_parts(made.base, given.of) if given.of else parts_of(made.base))


@cache
def parts_of(shape: type) -> tuple[Parameter, ...]:
    """Returns those fields of a dataclass of which something is said."""
    return tuple(one for one in _parts(shape, get_type_hints(shape, include_extras=True)) if one.given.help)


def _parts(shape: Any, hints: Mapping[str, Any]) -> tuple[Parameter, ...]:
    defaults = {one.name: inspect.Parameter.empty if one.default is MISSING else one.default for one in fields(shape)}
    return tuple(parameter(name, hint, defaults[name]) for name, hint in hints.items() if name in defaults)


def flat(parameters: Iterable[Parameter], inner: bool = True) -> Iterator[Parameter]:
    """Returns parameters with the fields of those that are dataclasses in their places; ``inner``: also of those that
    are dataclasses within dataclasses."""
    for one in parameters:
        yield from _flat(one.parts, inner) if one.parts else (one,)


def _flat(parts: Iterable[Parameter], inner: bool) -> Iterator[Parameter]:
    for one in parts:
        if not (one.parts and inner):
            yield one
            continue
        first, *others = one.parts
        said = replace(first.given, label=one.label, metavar=first.given.metavar or one.given.metavar)
        yield replace(first, name=one.name, annotation=first.annotation | None, default=None, given=said)
        yield from (replace(other, annotation=other.annotation | None, default=None) for other in others)


def gathered(parameters: Iterable[Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values by parameter, of values by what ``flat`` returned; None is what was not given."""
    found = dict[str, Any]()
    for one in parameters:
        if one.parts:
            values = {part.name: _whole(part, given) for part in one.parts}
            found[one.name] = one.base(**{name: value for name, value in values.items() if value is not None})
        elif one.name in given:
            found[one.name] = given[one.name]
    return found


def _whole(one: Parameter, given: Mapping[str, Any]) -> Any:
    """Returns the value of a field, of which a dataclass may have come in pieces."""
    if not one.parts or isinstance(given.get(one.name), one.base):
        return given.get(one.name)
    first, *others = one.parts
    values = {part.name: given.get(part.name) for part in others}
    there = {name: value for name, value in values.items() if value is not None}
    if given.get(one.name) is not None:
        return one.base(**{first.name: given[one.name]}, **there)
    for part in others:
        if part.name in there:
            raise InvalidInput(f"{part.option} goes with {one.option}", hint=f"say {one.option} {first.given.metavar}")
    return None


def typed(one: Parameter, value: Any) -> str:
    """Returns what was given, as it is typed: options of a command, quoted for a shell."""
    pieces = ((part, getattr(value, part.name)) for part in one.parts)
    return " ".join(_typed(part, found) for part, found in pieces if found != part.default)


def _typed(one: Parameter, value: Any) -> str:
    if one.parts:
        first, *others = one.parts
        own = f"{one.option} {getattr(value, first.name)}"
        return " ".join([own, *filter(None, [typed(replace(one, parts=tuple(others)), value)])])
    if isinstance(value, bool):
        yes, _, no = one.option.partition("/")
        return yes if value else no
    return f"{one.option} {value:g}" if isinstance(value, float) else f"{one.option} {shlex.quote(str(value))}"
