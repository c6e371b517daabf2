"""Finds the texts from which a message was made: in the statement that a frame is at, and in the constants that it
names.

The statement that raised says best which part of its message is constant, and also has the parts that were left out
this time. A message may be made by a caller (``fail(f"no key for {name}")``), or from a format that is kept elsewhere.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any, NamedTuple

from redrive.kernel.frames import MAX_FRAMES, MAX_KEPT_FRAMES, MAX_LITERALS, own, texts
from redrive.kernel.remembered import Remembered

MAX_NAMED = 200
MAX_LOOKED_AT = 300
_NAMES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD", "LOAD_DEREF"})

Position = tuple[int | None, int | None, int | None, int | None]  # first and last line, first and last column


class Written(NamedTuple):
    """The texts of a statement or a function, in the order they stand there. ``optional``: some may be left out, as in
    ``f" because of {why}" if why else ""``."""

    texts: tuple[str, ...]
    optional: bool = False


class _Word(NamedTuple):
    position: Position
    text: str
    is_name: bool


class _Code(NamedTuple):
    positions: list[Position]
    words: list[_Word]
    added: frozenset[str]


def written_along(trace: TracebackType | None, package: str | None) -> tuple[list[Written], list[Written]]:
    """Returns the texts of the statements of a traceback, the innermost first: the application's own, and the last one.
    Then all texts of their functions: first without what is added to a message under a condition (``message += …``, ``…
    if why else ""``), which is not there each time."""
    steps = _steps(trace, package)
    near = [_statement(step.tb_frame, step.tb_lasti) for step in steps]
    functions = list({id(step.tb_frame.f_code): step.tb_frame for step in steps}.values())
    around = []
    for whole in (False, True):
        found = (text for one in functions for text in _function(one.f_code, one.f_globals, _holder(one), whole=whole))
        around.append(Written(tuple(dict.fromkeys(found))))
    return near, around


def written_by(code: CodeType, scope: Mapping[str, Any]) -> Iterator[Written]:
    """Returns the texts of one function that returned its message; also first without what is added under a
    condition."""
    for whole in (False, True):
        yield Written(tuple(_function(code, scope, None, whole=whole)))


def _function(code: CodeType, scope: Mapping[str, Any], holder: Any, *, whole: bool) -> Iterator[str]:
    known = _codes.get(code, _read)
    yield from sorted(texts([code]).literals - (frozenset() if whole else known.added))
    yield from _named([word.text for word in known.words if word.is_name], scope, holder)


def _steps(trace: TracebackType | None, package: str | None) -> list[TracebackType]:
    """Yields the application's own frames, and the last one, from the inside; each statement once, however deep a
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


def _holder(frame: FrameType) -> Any:
    """Returns the object that a method belongs to: its class has constants, too."""
    code = frame.f_code
    name = code.co_varnames[0] if code.co_argcount else None
    return frame.f_locals.get(name) if name in ("self", "cls") else None


def _statement(frame: FrameType, at: int) -> Written:
    known = _codes.get(frame.f_code, _read)
    index = at // 2
    if not 0 <= index < len(known.positions):
        return Written(())
    place = known.positions[index]
    inside = [word for word in known.words if _within(word.position, place)]
    literals = [word.text for word in inside if not word.is_name]
    named = _named([word.text for word in inside if word.is_name], frame.f_globals, _holder(frame))
    return Written((*literals, *named), optional="" in literals)


def _within(one: Position, place: Position) -> bool:
    first, last, begin, end = place
    line, last_line, column, last_column = one
    if None in (first, last, begin, end) or None in one:
        return line is not None and line == first  # Python was told to keep no columns
    return (first, begin) <= (line, column) and (last_line, last_column) <= (last, end)


def _read(code: CodeType) -> _Code:
    words: list[_Word] = []
    size = 0
    instructions = list(dis.get_instructions(code))
    for one, following in zip(instructions, [*instructions[1:], None], strict=True):
        text = one.argval
        is_name = one.opname in _NAMES
        if not isinstance(text, str) or not (is_name or one.opname == "LOAD_CONST"):
            continue
        if not is_name and following is not None and following.argval == "join":
            continue  # what stands between the items of a list is there as often as it has items
        size += len(text) + 20
        if size > MAX_LITERALS:
            break
        words.append(_Word(_position(one), text, is_name))
    additions = [_position(one) for one in instructions if one.opname == "BINARY_OP" and one.argrepr == "+="]
    choices = {word.position[0] for word in words if not word.is_name and not word.text}
    added = frozenset(
        word.text
        for word in words
        if not word.is_name and (word.position[0] in choices or any(_within(word.position, at) for at in additions))
    )
    return _Code(list(code.co_positions()), words, added)


def _position(one: dis.Instruction) -> Position:
    place = one.positions
    return (place.lineno, place.end_lineno, place.col_offset, place.end_col_offset) if place else (None,) * 4


_codes = Remembered[_Code](1_000)


def _named(names: list[str], scope: Mapping[str, Any], holder: Any) -> Iterator[str]:
    """Returns the texts that these names stand for: constants of the module, of another one, or of the class."""
    wanted = dict.fromkeys(names[:MAX_NAMED])
    for name in wanted:
        found = scope.get(name)
        if found is not None:
            yield from _texts_of(name, found)
            if isinstance(found, ModuleType | type) and not _foreign(found):
                yield from _attributes(found, wanted)
    if holder is not None:
        yield from _attributes(holder if isinstance(holder, type) else type(holder), wanted)


def _attributes(holder: Any, wanted: Mapping[str, Any]) -> Iterator[str]:
    for space in holder.__mro__[:-1] if isinstance(holder, type) else [holder]:
        values = vars(space)
        for name in wanted:
            if name in values:
                yield from _texts_of(name, values[name])


def _texts_of(name: str, value: Any) -> Iterator[str]:
    """Returns the texts of a constant; of a function that is called to make one, those that are written there."""
    if isinstance(value, FunctionType):
        if not _foreign(value):
            yield from texts([value.__code__]).literals
            for inner in value.__code__.co_names[:MAX_NAMED]:
                constant = value.__globals__.get(inner)
                if not isinstance(constant, FunctionType):
                    yield from _texts_of(inner, constant)
    elif name.isupper():
        if isinstance(value, str):
            yield value
        elif type(value) in (dict, tuple, list) and len(value) <= MAX_NAMED:  # not somebody else's class
            yield from (one for one in list(value.values() if type(value) is dict else value) if isinstance(one, str))


def _foreign(holder: Any) -> bool:
    """True for the standard library: its texts say nothing about a message of the application's."""
    module = str(getattr(holder, "__module__", None) or getattr(holder, "__name__", ""))
    return module.partition(".")[0] in sys.stdlib_module_names
