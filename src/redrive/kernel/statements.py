"""Finds the texts from which a message was made: in the statement that raised it, in the values that were put in there,
in the statements of its callers, and in the constants that these name.

The statement that raised says best which part of its message is constant. A message may be made by a caller
(``fail(f"no key for {name}")``), from a format that is kept elsewhere, or with a reason from a table of errors. What
else stands near, in a list or in a table of the module, is data: a city, a customer, the name of a column.
"""

from __future__ import annotations

import dis
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from enum import Enum
from string import Template
from types import CodeType, FrameType, FunctionType, MappingProxyType, ModuleType, TracebackType
from typing import Any, NamedTuple

from redrive.kernel.error_tables import Looks, error_texts
from redrive.kernel.expressions import Piece, read, statement
from redrive.kernel.frames import MAX_FRAMES, MAX_KEPT_FRAMES, own

MAX_NAMED = 200
MAX_LOOKED_AT = 300
MAX_DEPTH = 3
_SPOKEN = ("__init__", "__str__")  # where exceptions make their messages
_RAISE = dis.opmap["RAISE_VARARGS"]
_TABLES = (dict, list, tuple, MappingProxyType, type)
_PATH = re.compile(r"[~.]{0,2}[\\/]\S*")
_FIELD = re.compile(r"%(?:\(\w{1,60}\))?[-#0 +]{0,4}\d{0,4}(?:\.\d{1,4})?[sdrfgxiueac]|\{[^{}]{0,100}\}")


class Source(NamedTuple):
    """What an expression says. ``passing``: what it does not say each time. ``called``: what functions say that it or
    its callers call. ``given``: what its callers wrote, and single words from tables of errors. ``raises``: it is
    a ``raise`` statement."""

    texts: tuple[str, ...]
    passing: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    raises: bool = False

    def readings(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """Yields the texts that a message may be made of, the likeliest first, and how many of their words it must
        have: what a statement raises is its own."""
        least = 1 if self.raises else 2
        yield self.texts, least
        if self.passing:
            yield (*self.texts, *self.passing), least
        if self.called:
            yield (*self.texts, *self.passing, *self.called), 2


class Written(NamedTuple):
    """Where a message may have been written: in statements, the innermost first, or around them."""

    statements: tuple[Source, ...] = ()
    around: tuple[Source, ...] = ()


NOTHING = Written()


def written_along(trace: TracebackType | None, package: str | None) -> Written:
    """Returns what the statements of a traceback say: the application's own, and the last one. Around them are their
    functions."""
    steps = _steps(trace, package)
    looks = Looks()
    statements: list[Source] = []
    given: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    for step in reversed(steps):
        frame = step.tb_frame
        source = _source(statement(frame.f_code, step.tb_lasti), _scope(frame, looks))
        called = (*source.called, *called)
        raises = frame.f_code.co_code[step.tb_lasti] == _RAISE
        given = (*source.given, *given)
        statements.append(source._replace(called=called, given=given, raises=raises))
        given = (*source.texts, *source.passing, *given)
    functions = {id(step.tb_frame.f_code): step.tb_frame for step in steps}.values()
    around = [_source(read(one.f_code).pieces, _scope(one, looks)) for one in functions]
    return Written(tuple(reversed(statements)), (_together(around),))


def written_by(code: CodeType, scope: Mapping[str, Any]) -> Written:
    """Returns what one function says that returned its message."""
    return Written((), (_source(read(code).pieces, _Scope(Looks(), scope)),))


def _source(pieces: list[Piece], scope: _Scope) -> Source:
    each_time = [piece for piece in pieces if not piece.passing]
    passing = [piece for piece in pieces if piece.passing]
    named, other = _named(each_time, scope), _named(passing, scope)
    return Source(
        (*_literals(each_time), *named.constants),
        (*_literals(passing), *other.constants),
        (*named.called, *other.called),
        (*named.words, *other.words),
    )


def _literals(pieces: list[Piece]) -> Iterator[str]:
    """Returns the texts; what is nothing but the beginning of a path belongs to the value behind it."""
    return (piece.text for piece in pieces if piece.kind == "text" and not _PATH.fullmatch(piece.text))


def _together(sources: list[Source]) -> Source:
    return Source(
        tuple(text for one in sources for text in one.texts),
        tuple(text for one in sources for text in one.passing),
        tuple(text for one in sources for text in one.called),
        tuple(text for one in sources for text in one.given),
    )


def _steps(trace: TracebackType | None, package: str | None) -> list[TracebackType]:
    """Returns the application's own frames, and the last one, from the inside; each statement once, however deep a
    recursion is."""
    every: list[TracebackType] = []
    while trace is not None and len(every) < MAX_FRAMES:
        every.append(trace)
        trace = trace.tb_next
    found: dict[tuple[int, int], TracebackType] = {}
    for n, step in enumerate(every[: -MAX_LOOKED_AT - 1 : -1]):
        key = (id(step.tb_frame.f_code), step.tb_lasti)
        if key not in found and (n == 0 or own(step.tb_frame, package)):
            found[key] = step
            if len(found) == MAX_KEPT_FRAMES:
                break
    return list(found.values())


# -- what names stand for --------------------------------------------------------------------------------------------


class _Scope(NamedTuple):
    """What names stand for: in a module, in the class of a method, and functions in the function itself."""

    looks: Looks
    module: Mapping[str, Any]
    holder: type | None = None
    inner: Mapping[str, Any] = MappingProxyType({})


def _scope(frame: FrameType, looks: Looks) -> _Scope:
    code = frame.f_code
    inner = frame.f_locals
    first = code.co_varnames[0] if code.co_argcount else None
    holder = inner.get(first) if first in ("self", "cls") else None
    if holder is not None and not isinstance(holder, type):
        holder = type(holder)
    return _Scope(looks, frame.f_globals, holder, inner)


class _Named(NamedTuple):
    looks: Looks
    constants: list[str]
    called: list[str]
    words: list[str]
    names: tuple[str, ...] = ()  # all that stand in the expression

    def add_errors(self, table: Any) -> None:
        """Adds the texts of a table of errors."""
        for text in error_texts(table, self.names, self.looks):
            (self.words if text.isidentifier() else self.constants).append(text)


def _named(pieces: list[Piece], scope: _Scope) -> _Named:
    """Returns the texts that the names in an expression stand for: constants of the module, of another one, or of the
    class, and what the functions say that it calls."""
    names = dict.fromkeys([piece.text for piece in pieces if piece.kind == "name"][:MAX_NAMED])
    keys = {piece.text for piece in pieces if piece.kind == "key"}
    found = _Named(scope.looks, [], [], [], tuple(names))
    for name in names:
        value = scope.module.get(name)
        _add(found, name, value, keys)
        if isinstance(value, ModuleType | type) and not _foreign(value):
            _add_attributes(found, value, names, keys)
        if isinstance(value, type) and issubclass(value, BaseException):
            _add_attributes(found, value, _SPOKEN, keys, said=True)
    if scope.holder is not None:
        _add_attributes(found, scope.holder, names, keys)
    for name in dict.fromkeys(piece.text for piece in pieces if piece.kind in ("name", "local")):
        value = scope.inner.get(name)
        if isinstance(value, FunctionType):
            _add(found, name, value, keys)
        elif isinstance(value, Enum):
            found.add_errors(type(value))
    return found


def _add_attributes(found: _Named, holder: Any, wanted: Iterable[str], keys: Set[str], *, said: bool = False) -> None:
    for space in holder.__mro__[:-1] if isinstance(holder, type) else [holder]:
        values = vars(space)
        for name in wanted:
            if name in values and not _foreign(space):
                _add(found, name, values[name], keys, said=said)


def _add(found: _Named, name: str, value: Any, keys: Set[str], *, said: bool = False) -> None:
    """``said``: what this function says is the message itself."""
    if isinstance(value, FunctionType):
        if not _foreign(value):
            (found.constants if said else found.called).extend(_texts_in(value, found.looks))
    elif isinstance(value, Enum):
        found.constants.extend([value.value] if isinstance(value.value, str) else [])
    elif isinstance(value, Template):
        found.constants.append(value.template)
    elif isinstance(value, str):
        if name.isupper() or _FIELD.search(value):
            found.constants.append(value)
    else:
        found.constants.extend(_formats(value, keys, found.looks.of_table()))
        if isinstance(value, _TABLES) and not _foreign(value):
            found.add_errors(value)


def _texts_in(function: FunctionType, looks: Looks) -> Iterator[str]:
    """Returns the texts written in a function, and the constants it names."""
    pieces = read(function.__code__).pieces[:MAX_NAMED]
    names = {piece.text for piece in pieces if piece.kind == "name"}
    for piece in pieces:
        if piece.passing:
            continue
        if piece.kind == "text":
            yield piece.text
        elif piece.kind == "name":
            value = function.__globals__.get(piece.text)
            if isinstance(value, str) and piece.text.isupper():
                yield value
            elif not isinstance(value, str):
                yield from _formats(value, frozenset(), looks.of_table())
                if isinstance(value, _TABLES) and not _foreign(value):
                    yield from error_texts(value, names, looks)


def _formats(value: Any, keys: Set[str], looks: Looks, depth: int = 0) -> Iterator[str]:
    """Returns the formats in a table, and the phrase under keys that stand in the source; all else there is data."""
    if type(value) not in (dict, tuple, list) or len(value) > MAX_NAMED or depth > MAX_DEPTH:  # not somebody's class
        return
    for key, one in value.items() if type(value) is dict else enumerate(value):
        if not looks.take():
            return
        known = key in keys
        if isinstance(one, str):
            if _FIELD.search(one) or (known and " " in one):
                yield one
        else:
            yield from _formats(one, keys if known else frozenset(), looks, depth + 1)


def _foreign(holder: Any) -> bool:
    """True for the standard library: its texts say nothing about a message of the application's."""
    module = str(getattr(holder, "__module__", None) or getattr(holder, "__name__", ""))
    return module.partition(".")[0] in sys.stdlib_module_names
