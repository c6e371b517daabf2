"""Tells tables of errors from tables of data. ``{51: "quota exceeded", 57: "not permitted"}`` says what went wrong,
``{1: "Berlin", 2: "New York"}`` where: by the words of all its texts, since one city may be called Wrong Way."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, EnumMeta
from itertools import islice
from types import FrameType, FunctionType, MappingProxyType, MemberDescriptorType, ModuleType
from typing import Any

from redrive.kernel.error_words import ERROR_WORDS, FAILURE_WORDS
from redrive.kernel.message_template import WORD

MAX_NAMED = 200
MAX_TEXTS = 200  # nobody writes more by hand
MAX_TEXT = 300
MAX_DEPTH = 3
MAX_LOOKS = 8_000  # at values, for one message: what stands near may be of any size, and the event loop waits
MAX_LOOKS_OF_TABLE = 2_000
_TABLES = (dict, list, tuple, MappingProxyType, type)
_NO_ROWS = (type(None), int, float, bytes, FunctionType, ModuleType)  # nothing below them is a text of a table


class Looks:
    """How many values may still be looked at: for a message, and for one table of it."""

    __slots__ = ("_whole", "left")

    def __init__(self, left: int = MAX_LOOKS, whole: Looks | None = None) -> None:
        self.left = left
        self._whole = whole

    def of_table(self) -> Looks:
        """Returns those of one table, which leaves some for the others."""
        return Looks(min(self.left, MAX_LOOKS_OF_TABLE), self)

    def take(self) -> bool:
        """Counts one; returns False when there were too many."""
        self.left -= 1
        if self._whole is not None:
            self._whole.left -= 1
        return self.left >= 0


def error_texts_near(steps: Iterable[FrameType]) -> Iterator[str]:
    """Returns the texts of tables of errors that functions name: of their module, of their class or another one, of a
    function that they call, and the enumeration that one of their values belongs to."""
    looks = Looks()
    for frame in steps:
        names = frame.f_code.co_names[:MAX_NAMED]
        for table in _tables(frame, names):
            yield from error_texts(table, names, looks)


def _tables(frame: FrameType, names: Sequence[str]) -> Iterator[Any]:
    # By their types alone: an object may say that it is of another class, and do anything to find out.
    holders: list[Mapping[str, Any]] = [frame.f_globals]
    for value in (*(frame.f_globals.get(name) for name in names), *frame.f_locals.values()):
        kind = type(value)
        if kind is FunctionType and not _foreign(value):
            yield from _named(value.__globals__, value.__code__.co_names)
        elif issubclass(kind, ModuleType | type) and not _foreign(value):
            holders.append(vars(value))
        elif issubclass(kind, Enum):
            yield kind
    own: Any = frame.f_locals.get("self", frame.f_locals.get("cls"))
    kind = own if issubclass(type(own), type) else type(own)
    for holder in (*holders, *map(vars, kind.__mro__[:-1])):
        yield from _named(holder, names)


def _named(holder: Mapping[str, Any], names: Iterable[str]) -> Iterator[Any]:
    for name in names:
        value = holder.get(name)
        if issubclass(type(value), _TABLES) and not _foreign(value):
            yield value


def _foreign(holder: Any) -> bool:
    """True for the standard library: its texts say nothing about a message of the application's."""
    module = str(getattr(holder, "__module__", None) or getattr(holder, "__name__", ""))
    return module.partition(".")[0] in sys.stdlib_module_names


def error_texts(table: Any, attributes: Iterable[str], looks: Looks) -> Iterator[str]:
    """Returns the texts of a table of errors: a mapping, a list, an enumeration or the constants of a class, also of
    rows, where each column is one for itself. ``attributes``: those that are asked of its rows. Of a table of data, and
    of one with too much to look at, returns nothing."""
    own = looks.of_table()
    found = list(islice(_texts(_rows(table), tuple(attributes), None, 0, own), MAX_TEXTS + 1))
    if len(found) > MAX_TEXTS or own.left < 0:
        return
    columns: dict[Any, list[str]] = {}
    for column, text in found:
        columns.setdefault(column, []).append(text)
    for texts in columns.values():
        errors = [text for text in texts if reads_as_error(text)]
        # States are single words (``expired``, ``cancelled``): alone they are no reasons.
        if len(errors) * 2 > len(texts) and any(len(WORD.findall(text)) > 1 for text in errors):
            yield from texts


def _rows(table: Any) -> Any:
    if isinstance(table, EnumMeta):
        return {name: one.value for name, one in table._member_map_.items()}
    if isinstance(table, type):
        return {name: value for name, value in vars(table).items() if name.isupper() and isinstance(value, str)}
    return table


def _texts(value: Any, attributes: tuple[str, ...], column: Any, depth: int, looks: Looks) -> Iterator[tuple[Any, str]]:
    """Yields the texts, each with its column, without a call of anybody's code, while there are looks left."""
    if isinstance(value, str):
        if depth and len(value) <= MAX_TEXT:
            yield column, value
        return
    if depth > MAX_DEPTH or isinstance(value, _NO_ROWS):
        return
    for key, one in _items(value, attributes if depth else ()):
        if not looks.take():
            return
        yield from _texts(one, attributes, key if depth else None, depth + 1, looks)


def _items(value: Any, attributes: tuple[str, ...]) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return dict.items(value)
    if type(value) is MappingProxyType:
        return [(key, value[key]) for key in islice(value, MAX_TEXTS + 1)]
    if isinstance(value, list):
        return enumerate(list.__iter__(value))
    if isinstance(value, tuple):
        return enumerate(tuple.__iter__(value))
    return ((name, _attribute(value, name)) for name in attributes)


def _attribute(holder: Any, name: str) -> Any:
    found = inspect.getattr_static(holder, name, None)
    if isinstance(found, MemberDescriptorType):  # of a class with slots
        return found.__get__(holder) if isinstance(holder, found.__objclass__) else None
    return found


def reads_as_error(text: str) -> bool:
    """True if a text says that something is wrong, and at least half of its words are usual ones; where each has a
    capital, as a name has, all of them: ``Bad Request``, not ``Bad Homburg``."""
    words = WORD.findall(text)
    known = sum(word.lower() in ERROR_WORDS for word in words)
    least = len(words) * 2 if all(word[0].isupper() for word in words) else len(words)
    return known * 2 >= least and any(word.lower() in FAILURE_WORDS for word in words)
