"""Finds what the application's authors wrote for a failure: it names the cause, whatever values the message has.

The texts of the ``raise`` statement and of the calls that led there always count, and nothing that was put in there
does. Of what stands elsewhere in these functions, and in tables of errors, counts what the message repeats. What
another side said (``f"the bank said: {answer}"``) counts by its usual words, if these say what is wrong.

Texts are taken from code objects: these are there in every deploy, with sources or without, and fit what runs.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import EnumMeta
from itertools import islice
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, NamedTuple

from redrive.kernel import frames
from redrive.kernel.error_words import ERROR_WORDS, FAILURE_WORDS
from redrive.kernel.evidence import text_of
from redrive.kernel.frames import Remembered
from redrive.kernel.message_template import FIELD, HOLE, MAX_LOOKED_AT, WORD, folded, fragments, spans, template

MAX_CODE = 64_000  # bytes: more than a person writes, and ``dis`` takes the square of its jumps
MAX_STEPS = 300
MIN_QUOTED = 4  # characters: shorter ones stand in any text
MIN_PHRASE = 3  # words: shorter ones are as likely part of a value
_ENDS = " \t\n:;,.-([{|"
_PROPER = re.compile(r"(?<![\w.])[A-Z]\w{1,60}(?: [A-Z]\w{1,60}){1,10}")
_MAKES = ("CALL", "BINARY_OP", "BUILD_STRING", "FORMAT_")
_SPOKEN = ("__init__", "__str__")  # where exceptions make their messages
MAX_NAMES = 200  # of a function, that are looked up
MAX_TEXTS = 200  # of a table: nobody writes more by hand
MAX_LOOKS = 8_000  # at values of tables, for one message: they may be of any size, and the event loop waits
MAX_NESTED = 2

Position = tuple[int | None, int | None, int | None, int | None]  # first and last line, first and last column


def words_of_failure(errors: Sequence[BaseException], package: str | None, *, alone: bool) -> str | None:
    """Returns what was written for an exception and, unless it stands ``alone``, for those that it came from; None if
    no ``raise`` statement of the application made any of them."""
    error, *origins = errors
    inner = {
        _text(one): _source_text(one, _text(one), package)
        for one in ([] if alone else origins)
        if raised_by_application(one, package)
    }
    if len(set(inner.values())) > 1 and any(isinstance(one, BaseExceptionGroup) for one in errors):
        inner = {}  # which of them came together is chance
    found = sorted(set(inner.values()))
    if raised_by_application(error, package):
        text = own = _text(error)
        for quoted in inner:
            if len(quoted) >= MIN_QUOTED and quoted != own:
                text = text.replace(quoted, HOLE)
        found = list(dict.fromkeys([_source_text(error, text, package), *found]))
    return HOLE.join(found) if found else None


def words_of_answer(text: str, code: CodeType | None) -> str:
    """Returns the constant words of a message that was returned by a function or reported by somebody: those written
    in the function, else what is left without values."""
    text = text[:MAX_LOOKED_AT]
    if code is not None:
        parts = [text[begin:end] for begin, end in spans(text, fragments(text, frames.texts([code]).literals))]
        if sum(len(WORD.findall(part)) for part in parts) > 1:
            return _joined(parts)
    return _joined(template(text).split(HOLE))


def raised_by_application(error: BaseException, package: str | None) -> bool:
    """True if a ``raise`` statement of the application made it."""
    last = frames.raised_at(error)
    return last is not None and frames.own(last, package) and frames.raised_by_statement(error)


def _source_text(error: BaseException, text: str, package: str | None) -> str:
    steps = _own_steps(error.__traceback__, package)
    statements = [_statement(step.tb_frame.f_code, step.tb_lasti) for step in steps]
    stated = [" ".join(WORD.findall(FIELD.sub(" ", one))) for statement in statements for one in statement.texts]
    near = fragments(text, _texts_near(error, steps, statements))
    reasons = fragments(text, error_texts_near(step.tb_frame for step in steps), names=True)
    phrases = {part for part in near if len(WORD.findall(part)) >= MIN_PHRASE}
    repeated = {
        text[begin:end].strip(_ENDS)
        for begin, end in spans(text, sorted(phrases.union(reasons), key=lambda part: (-len(part), part)))
    }
    for step, statement in zip(steps, statements, strict=True):
        repeated.update(_chosen(step.tb_frame, statement))
    account = text if statements[0].passes_on and not (near or reasons) else _account(text, statements[0])
    return folded(" ".join([*filter(None, stated), "|", *sorted(repeated), *_usual_words(account)]))


def _texts_near(error: BaseException, steps: list[TracebackType], statements: list[Statement]) -> Iterator[str]:
    """Yields the texts of the functions that an exception came through, and of its class."""
    optional = {text for statement in statements if statement.is_partial for text in statement.texts}
    literals = frames.texts([*(step.tb_frame.f_code for step in steps), *_spoken(error)]).literals
    yield from literals - optional
    for frame in (step.tb_frame for step in steps):
        for name in frame.f_code.co_names:
            if isinstance(value := frame.f_globals.get(name), str):
                yield value


def _spoken(error: BaseException) -> Iterator[CodeType]:
    for kind in type(error).__mro__:
        for name in _SPOKEN:
            if (code := getattr(vars(kind).get(name), "__code__", None)) is not None:
                yield code


def _chosen(frame: FrameType, stated: Statement) -> Iterator[str]:
    """Yields texts of a function that it has put into variables of its statement: ``key = "sold" if … else "lost"``.
    What it was given is data."""
    if stated.is_partial:
        return
    code = frame.f_code
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = [frame.f_locals.get(name) for name in stated.variables if name not in given]
    for text in code.co_consts:
        if isinstance(text, str) and text and any(value is text for value in values):
            yield text


def _account(text: str, raised: Statement) -> str:
    """Returns what another side said: it stands at the end, behind a colon."""
    last = raised.texts[-1] if raised.texts else ""
    return text.rpartition(last)[2] if last.rstrip().endswith(":") and last in text else ""


def _usual_words(account: str) -> Iterator[str]:
    """Yields the usual words of what says that something is wrong."""
    for part in template(account.strip().partition("\n")[0]).split(","):
        if reads_as_error(part):
            said = WORD.findall(_PROPER.sub(_without_names, part).lower())
            known = [word for word in dict.fromkeys(said) if word in ERROR_WORDS]
            if len(known) > 1:
                yield " ".join(known)


def _without_names(found: re.Match[str]) -> str:
    """Replaces a name of several words (``Bad Homburg``), each of which may be a usual one."""
    return found[0] if all(word.lower() in ERROR_WORDS for word in WORD.findall(found[0])) else HOLE


def _joined(parts: Iterable[str]) -> str:
    return folded(" ".join(part.strip(_ENDS) for part in parts))


def _text(error: BaseException) -> str:
    return text_of(error, MAX_LOOKED_AT) or ""


def _own_steps(trace: TracebackType | None, package: str | None) -> list[TracebackType]:
    """Returns the application's own steps, the innermost first; each statement once, however deep a recursion is."""
    every: list[TracebackType] = []
    while trace is not None and len(every) < frames.MAX_FRAMES:
        every.append(trace)
        trace = trace.tb_next
    found: dict[tuple[int, int], TracebackType] = {}
    for step in every[: -MAX_STEPS - 1 : -1]:
        if len(found) < frames.MAX_KEPT_FRAMES and frames.own(step.tb_frame, package):
            found.setdefault((id(step.tb_frame.f_code), step.tb_lasti), step)
    return list(found.values())


# -- tables of errors ------------------------------------------------------------------------------------------------


def error_texts_near(steps: Iterable[FrameType]) -> list[str]:
    """Returns the texts of tables of errors that functions name. ``{51: "quota exceeded", 57: "not permitted"}`` says
    what went wrong, ``{1: "Berlin", 2: "New York"}`` where: by all of its texts, since a city may be called Wrong
    Way."""
    found: list[str] = []
    looks = iter(range(MAX_LOOKS))
    for frame in steps:
        for table in _tables(frame):
            texts = list(islice(_texts_of(table, looks), MAX_TEXTS + 1))
            errors = [text for text in texts if reads_as_error(text)]
            # States are single words (``expired``, ``cancelled``): alone they are no reasons.
            told = any(len(WORD.findall(text)) > 1 for text in errors)
            if told and len(texts) <= MAX_TEXTS and len(errors) * 2 > len(texts):
                found += texts
    return found


def _tables(frame: FrameType) -> Iterator[Any]:
    """Yields what a function names in its module and class, what functions that it calls name in theirs, and the
    enumerations that its values belong to. By types alone: an object may say that it is of another class."""
    module, names = frame.f_globals, frame.f_code.co_names[:MAX_NAMES]
    yield from (module[name] for name in names if name in module)
    for called in (*map(module.get, names), *frame.f_locals.values()):
        if type(called) is FunctionType:
            inner = called.__globals__
            yield from (inner[name] for name in called.__code__.co_names[:MAX_NAMES] if name in inner)
    own = frame.f_locals.get("self", frame.f_locals.get("cls"))
    for kind in (own if isinstance(own, type) else type(own)).__mro__[:-1]:
        yield from (vars(kind)[name] for name in names if name in vars(kind))
    yield from (type(value) for value in frame.f_locals.values() if isinstance(type(value), EnumMeta))


def _texts_of(value: Any, looks: Iterator[int], depth: int = 0) -> Iterator[str]:
    """Yields the texts in a table without a call of anybody's code, while there are looks left."""
    if isinstance(value, EnumMeta):
        value = [member.value for member in value._member_map_.values()]
    if depth > MAX_NESTED or type(value) not in (dict, list, tuple):
        return
    for one in value.values() if type(value) is dict else value:
        if next(looks, None) is None:
            return
        if isinstance(one, str):
            yield one
        else:
            yield from _texts_of(one, looks, depth + 1)


def reads_as_error(text: str) -> bool:
    """True if a text says that something is wrong, and at least half of its words are usual ones; where each has a
    capital, as a name has, all of them: ``Bad Request``, not ``Bad Homburg``."""
    words = WORD.findall(text)
    known = sum(word.lower() in ERROR_WORDS for word in words)
    least = len(words) * 2 if all(word[0].isupper() for word in words) else len(words)
    return known * 2 >= least and any(word.lower() in FAILURE_WORDS for word in words)


# -- statements ------------------------------------------------------------------------------------------------------


class Statement(NamedTuple):
    """The texts in an expression, in the order of their evaluation, and its local variables. ``operations``: how many
    calls it has, and operations that make a text."""

    texts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    operations: int = 0

    @property
    def passes_on(self) -> bool:
        """True if it raises with a message as it found it: ``raise Refused(answer["error"])``."""
        return self.operations <= 1

    @property
    def is_partial(self) -> bool:
        """True if one of its parts is not said each time: ``… if why else ""``."""
        return "" in self.texts


class _Function(NamedTuple):
    positions: list[Position]
    texts: list[tuple[Position, str]]
    variables: list[tuple[Position, str]]
    operations: list[Position]


def _statement(code: CodeType, at: int) -> Statement:
    """Returns what stands in the expression at an offset of the bytecode."""
    known = _functions.get(code, _read)
    if not 0 <= at // 2 < len(known.positions):
        return Statement()
    place = known.positions[at // 2]
    return Statement(
        tuple(text for position, text in known.texts if _within(position, place)),
        tuple(name for position, name in known.variables if _within(position, place)),
        sum(_within(position, place) for position in known.operations),
    )


def _read(code: CodeType) -> _Function:
    found = _Function([], [], [], [])
    if len(code.co_code) > MAX_CODE:
        return found
    found.positions.extend(code.co_positions())
    for one in dis.get_instructions(code):
        position = found.positions[one.offset // 2]
        if one.opname == "LOAD_CONST" and isinstance(one.argval, str):
            found.texts.append((position, one.argval))
        elif one.opname.startswith("LOAD_FAST"):
            names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
            found.variables.extend((position, name) for name in names)
        elif one.opname.startswith(_MAKES) and one.argrepr != "[]":
            found.operations.append(position)
    return found


_functions = Remembered[_Function](1_000)


def _within(one: Position, place: Position) -> bool:
    first, last, begin, end = place
    line, last_line, column, last_column = one
    if None in place or None in one:
        return line is not None and line == first  # Python was told to keep no columns
    return (first, begin) <= (line, column) and (last_line, last_column) <= (last, end)
