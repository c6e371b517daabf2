"""Reads a function's bytecode: which texts and names stand in which expression, and what a local variable was given.

Bytecode is there in every deploy, with sources or without, and always fits the code that runs.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Literal, NamedTuple

from redrive.kernel.frames import MAX_LITERALS
from redrive.kernel.remembered import Remembered

MAX_CODE = 64_000  # bytes: more than a person writes, and ``dis`` takes the square of its jumps
MAX_VALUE = 500  # instructions of the value that a variable is given
MAX_FOLLOWED = 50  # variables that lead to a text

Position = tuple[int | None, int | None, int | None, int | None]  # first and last line, first and last column
Kind = Literal["text", "key", "name", "local"]

_NAMES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD", "LOAD_DEREF"})
_ITEMS = frozenset({"LIST_APPEND", "SET_ADD", "MAP_ADD"})
_LISTS = frozenset({"BUILD_LIST", "BUILD_SET", "BUILD_TUPLE"})
_TABLES = frozenset({"BUILD_MAP", "BUILD_CONST_KEY_MAP"})
_FILLED = frozenset({"LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE", "FOR_ITER"})
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_FILLERS = frozenset({"NOP", "CACHE", "NOT_TAKEN", "EXTENDED_ARG", "PRECALL", "KW_NAMES"})
_EXITS = frozenset({"RAISE_VARARGS", "RETURN_VALUE"})
# Methods whose arguments say how to read a value, not what to say about it.
_READERS = frozenset(
    [
        "get",
        "pop",
        "setdefault",
        "getenv",
        "strftime",
        "split",
        "rsplit",
        "partition",
        "replace",
        "strip",
        "encode",
        "decode",
        "startswith",
        "endswith",
    ]
)
_COLLECTORS = frozenset({"append", "extend", "insert", "add"})


class Piece(NamedTuple):
    """A text, the key of a lookup, the name of something global or an attribute, or a local variable. ``passing``: not
    said each time."""

    at: int
    position: Position
    text: str
    kind: Kind
    passing: bool = False


class Expressions(NamedTuple):
    """What stands where in a function. ``given``: for each local variable, from where to where its values are made."""

    positions: list[Position]
    pieces: list[Piece]
    given: dict[str, list[tuple[int, int]]]


def read(code: CodeType) -> Expressions:
    """Returns what stands where in a function."""
    return _known.get(code, _read)


def within(one: Position, place: Position) -> bool:
    """True if a position is part of a place."""
    first, last, begin, end = place
    line, last_line, column, last_column = one
    if None in (first, last, begin, end) or None in one:
        return line is not None and line == first  # Python was told to keep no columns
    return (first, begin) <= (line, column) and (last_line, last_column) <= (last, end)


def statement(code: CodeType, at: int) -> list[Piece]:
    """Returns the pieces of the expression at an offset in the bytecode, then of the values that its local variables
    were given in this function."""
    known = read(code)
    if not 0 <= at // 2 < len(known.positions):
        return []
    place = known.positions[at // 2]
    found = [piece for piece in known.pieces if within(piece.position, place)]
    followed: dict[str, None] = {}
    waiting = [piece.text for piece in found if piece.kind == "local"]
    while waiting and len(followed) < MAX_FOLLOWED:
        name = waiting.pop(0)
        if name in followed:
            continue
        followed[name] = None
        for begin, end in known.given.get(name, ()):
            more = [piece for piece in known.pieces if begin <= piece.at < end]
            found += more
            waiting += [piece.text for piece in more if piece.kind == "local"]
    return list(dict.fromkeys(found))


def _read(code: CodeType) -> Expressions:
    if len(code.co_code) > MAX_CODE:
        return Expressions([], [], {})
    instructions = [one for one in dis.get_instructions(code) if one.opname not in _FILLERS]
    given = _given(instructions)
    passing = _passing(instructions, given)
    items = [_position(one) for one in instructions if one.opname in _ITEMS]
    pieces: list[Piece] = []
    size = 0
    for at, text, kind in _pieces(instructions):
        place = _position(instructions[at])
        if kind == "text" and any(within(place, item) for item in items):
            continue  # said once for each item of a list
        size += len(text) + 20
        if size > MAX_LITERALS:
            break
        pieces.append(Piece(at, place, text, kind, at in passing))
    return Expressions(list(code.co_positions()), pieces, given)


_known = Remembered[Expressions](1_000)


def _pieces(instructions: list[dis.Instruction]) -> Iterator[tuple[int, str, Kind]]:
    reader = False
    for at, one in enumerate(instructions):
        following = instructions[at + 1] if at + 1 < len(instructions) else None
        if one.opname in _NAMES:
            reader = one.argval in _READERS
            yield at, str(one.argval), "name"
        elif one.opname.startswith("LOAD_FAST"):
            for name in _variables(one):
                yield at, name, "local"
        elif one.opname.startswith("CALL"):
            reader = False
        elif one.opname == "LOAD_CONST" and isinstance(one.argval, str):
            if following is not None and _looks_up(following):
                yield at, one.argval, "key"
            elif not reader and not (following is not None and _only_reads(following)):
                yield at, one.argval, "text"


def _variables(one: dis.Instruction) -> Iterable[str]:
    return one.argval if isinstance(one.argval, tuple) else (str(one.argval),)


def _looks_up(one: dis.Instruction) -> bool:
    return one.opname == "BINARY_SUBSCR" or (one.opname == "BINARY_OP" and one.argrepr == "[]")


def _only_reads(one: dis.Instruction) -> bool:
    """True if a text is compared with, or stands between the items of a list: as often as it has items."""
    return one.opname in ("COMPARE_OP", "CONTAINS_OP", "IS_OP") or one.argval == "join"


def _position(one: dis.Instruction) -> Position:
    place = one.positions
    return (place.lineno, place.end_lineno, place.col_offset, place.end_col_offset) if place else (None,) * 4


def _begin(one: dis.Instruction) -> tuple[int, int]:
    line, _, column, _ = _position(one)
    return line or 0, column or 0


# -- what a variable was given ---------------------------------------------------------------------------------------


def _given(instructions: list[dis.Instruction]) -> dict[str, list[tuple[int, int]]]:
    """Returns, for each local variable, where the values are made that it is given: in the source a value stands behind
    its name, in the bytecode before it. What is collected in a container, or taken from one by a loop, is data."""
    found: dict[str, list[tuple[int, int]]] = {}
    for end, one in enumerate(instructions):
        if one.argval in _COLLECTORS and end and instructions[end - 1].opname.startswith("LOAD_FAST"):
            *_, name = _variables(instructions[end - 1])
            found.setdefault(name, []).append((end, _end_of_call(instructions, end)))
        if not one.opname.startswith("STORE_FAST"):
            continue
        begin = end
        while begin and end - begin < MAX_VALUE and _begin(instructions[begin - 1]) >= _begin(one):
            begin -= 1
        if begin < end and not _is_data(instructions[begin:end]):
            for name in list(_variables(one))[:1]:
                found.setdefault(name, []).append((begin, end))
    return found


def _end_of_call(instructions: list[dis.Instruction], at: int) -> int:
    """Returns where the call of a method ends: its position begins where that of its object begins."""
    for n in range(at, min(len(instructions), at + MAX_VALUE)):
        if instructions[n].opname.startswith("CALL") and _begin(instructions[n]) == _begin(instructions[at]):
            return n
    return at


def _is_data(value: list[dis.Instruction]) -> bool:
    """True for a table, an item of a loop, and a list of texts alone: ``[name, "cannot reach", city]`` is a message."""
    last = value[-1].opname
    if last in _LISTS:
        return all(one.opname == "LOAD_CONST" for one in value[:-1])
    return last in _FILLED or any(one.opname in _TABLES for one in value)


# -- what is not said each time --------------------------------------------------------------------------------------


def _passing(instructions: list[dis.Instruction], given: dict[str, list[tuple[int, int]]]) -> set[int]:
    """Returns which instructions make what is not said each time: additions (``message += …``, in a loop also
    ``lines.append(…)``), and the one way of two (``… if why else ""``, ``name or "nobody"``) where the other has no
    text. What stands for a value is a value."""
    found: set[int] = set()
    by_offset = {one.offset: n for n, one in enumerate(instructions)}
    looped = _looped(instructions, by_offset)
    for ranges in given.values():
        for begin, end in ranges:
            added = instructions[end - 1].opname == "BINARY_OP" and instructions[end - 1].argrepr == "+="
            if added or (instructions[begin].argval in _COLLECTORS and begin in looped):
                found.update(range(begin, end))
    for at, one in enumerate(instructions):
        if one.opcode in _JUMPS and "_IF_" in one.opname:
            target = _index(by_offset, one.argval)
            if target is not None and target > at:
                found.update(_alternatives(instructions, by_offset, at, target))
    return found


def _looped(instructions: list[dis.Instruction], by_offset: dict[int, int]) -> set[int]:
    """Returns which instructions are in a loop."""
    found: set[int] = set()
    reached = len(instructions)
    for at in range(len(instructions) - 1, -1, -1):
        if "JUMP_BACKWARD" in instructions[at].opname and at < reached:
            target = _index(by_offset, instructions[at].argval)
            reached = at if target is None else target
            found.update(range(reached, at))
    return found


def _index(by_offset: dict[int, int], offset: int) -> int | None:
    """Returns the instruction at an offset, or the next one that was not left out."""
    return next((by_offset[near] for near in range(offset, offset + 40, 2) if near in by_offset), None)


def _alternatives(
    instructions: list[dis.Instruction], by_offset: dict[int, int], at: int, target: int
) -> Iterable[int]:
    """Returns what a conditional jump skips, or jumps to, if only one of the two ways has a text."""
    last = instructions[target - 1]
    if "OR_POP" in instructions[at].opname or instructions[at + 1].opname == "POP_TOP":
        return range(at + 1, target)
    end = None
    if last.opcode in _JUMPS and last.opname.startswith("JUMP") and "BACKWARD" not in last.opname:
        if _is_expression(instructions[target - 2]):
            end = _index(by_offset, last.argval)
    elif last.opname in _EXITS:  # the end of the statement, once for each way
        same = range(target, min(len(instructions), target + MAX_VALUE))
        end = next((n for n in same if _position(instructions[n]) == _position(last)), None)
    if end is None:
        return ()
    one, other = range(at + 1, target), range(target, end)
    if _says(instructions, one) and _says(instructions, other):
        return ()
    return range(at + 1, end)


def _is_expression(last: dis.Instruction) -> bool:
    return not last.opname.startswith(("STORE_", "DELETE_", "POP_", "RAISE", "RETURN", "JUMP", "IMPORT", "LIST_APPEND"))


def _says(instructions: list[dis.Instruction], way: Iterable[int]) -> bool:
    for n in way:
        one = instructions[n]
        if isinstance(one.argval, str) and (
            (one.opname == "LOAD_CONST" and any(map(str.isalpha, one.argval)))
            or (one.opname in _NAMES and one.argval.isupper())
        ):
            return True
    return False
