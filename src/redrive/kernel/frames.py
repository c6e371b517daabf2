"""Reads tracebacks: the application's own frames, and the words that its authors wrote."""

from __future__ import annotations

import dis
import inspect
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Generic, NamedTuple, TypeVar

MAX_FRAMES = 5_000
MAX_KEPT_FRAMES = 30
MAX_LITERALS = 64_000

_HAS_DOCSTRING = 0x4000000  # inspect.CO_HAS_DOCSTRING, from Python 3.13
_INLINED = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})  # functions of their own up to Python 3.11
_RAISES = frozenset(dis.opmap[name] for name in ("RAISE_VARARGS", "RERAISE"))
_ABSOLUTE = re.compile(r"[\\/]|[A-Za-z]:")
_INSTALLED = re.compile(r"[\\/](?:site|dist)-packages[\\/]")
_REDRIVE = str(Path(__file__).parent.parent) + "/"
_STANDARD = tuple(
    {path.rstrip("/\\") + "/" for name in ("stdlib", "platstdlib") if (path := sysconfig.get_paths().get(name))}
)
_WORD = re.compile(r"[^\W\d_]+")

T = TypeVar("T")


class Remembered(Generic[T]):
    """A bounded cache of what was computed about objects that do not change, by their identity. Objects are kept alive,
    so that no other one gets the id of one that is gone."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._found: dict[int, tuple[object, T]] = {}

    def get(self, one: Any, work_out: Callable[[Any], T]) -> T:
        known = self._found.get(id(one))
        if known is not None:
            return known[1]
        if len(self._found) >= self._size:
            self._found.clear()  # simpler than the oldest, and rare: it holds more than an application has
        found = work_out(one)
        self._found[id(one)] = (one, found)
        return found


def type_name(error: BaseException) -> str:
    """Returns ``httpx.ConnectError``; built-in exceptions without their module, ours by the name they are exported
    under.

    A class that was made at run time goes by the name of the written one it comes from.
    """
    kind = next(filter(is_code, type(error).__mro__))
    if kind.__module__ == "builtins":
        return kind.__qualname__
    module = "redrive" if kind.__module__.startswith("redrive.") else kind.__module__
    return f"{module}.{kind.__qualname__}"


def is_code(kind: type) -> bool:
    """True if a class was written and stands where it says: ``type(name, …)`` may be called with anybody's data."""
    return _written.get(kind, _stands)


def _stands(kind: type) -> bool:
    outer, *local = kind.__qualname__.split(".<locals>.")
    found: Any = sys.modules.get(kind.__module__)
    for name in outer.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    if not local:
        return isinstance(found, type)
    code = getattr(inspect.unwrap(found), "__code__", None) if callable(found) else None
    for name in ".".join(local).split("."):
        code = None if code is None else _inner(code, name)
    return code is not None


def _inner(code: CodeType, name: str) -> CodeType | None:
    """Finds a class or function by its name inside another one; those with type parameters have one more around
    them."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_name == name:
                return constant
            if constant.co_name.startswith("<generic") and (found := _inner(constant, name)):
                return found
    return None


def walk(trace: TracebackType | None) -> Iterator[FrameType]:
    """Yields the frames of a traceback, outermost first."""
    for _ in range(MAX_FRAMES):
        if trace is None:
            return
        yield trace.tb_frame
        trace = trace.tb_next


def own(frame: FrameType, package: str | None = None) -> bool:
    """True if a frame is the application's: not of the standard library, of an installed package, nor of redrive.

    ``package`` is the one that the handler belongs to. It is the application's wherever it is installed: in production
    applications are packages among others.
    """
    module = str(frame.f_globals.get("__name__", ""))
    filename = frame.f_code.co_filename
    if filename.startswith("<"):
        # Made by exec, eval or a notebook; code that libraries generate carries their name or file.
        if filename.startswith("<frozen ") or module.partition(".")[0] in sys.stdlib_module_names:
            return module == "__main__"
        filename = str(frame.f_globals.get("__file__") or "")
    elif not _ABSOLUTE.match(filename):
        # Compiled modules name the source they were made from, wherever that was.
        filename = str(frame.f_globals.get("__file__") or filename)
    if filename.startswith(_REDRIVE):
        return False
    if package is not None and module.partition(".")[0] == package:
        return True
    if _INSTALLED.search(filename):
        return False
    return not filename.startswith(_STANDARD)


def package_of(module: str | None) -> str | None:
    """Returns the top-level package of a handler's module; None for a script of its own."""
    name = (module or "").partition(".")[0]
    return None if name in ("", "__main__", "__mp_main__", "redrive") or name in sys.stdlib_module_names else name


def places(errors: Iterable[BaseException], package: str | None = None) -> list[str]:
    """Returns module and function of the application's own frames, outermost first, each once: never a line, so that an
    edit above it changes nothing, and recursion of any depth is the same."""
    found: dict[str, None] = {}
    for error in errors:
        for frame in walk(error.__traceback__):
            if frame.f_code.co_name not in _INLINED and own(frame, package):
                found.setdefault(place(frame))
    kept = list(found)
    if len(kept) > MAX_KEPT_FRAMES:
        kept = kept[: MAX_KEPT_FRAMES // 2] + kept[-MAX_KEPT_FRAMES // 2 :]
    return kept


def raised_at(error: BaseException) -> FrameType | None:
    """Returns the innermost frame: where it was raised."""
    last = _innermost(error)
    return None if last is None else last.tb_frame


def raised_by_statement(error: BaseException) -> bool:
    """True if a ``raise`` statement made it, and not a C function that was called there: ``int("x")``."""
    last = _innermost(error)
    return last is not None and last.tb_frame.f_code.co_code[last.tb_lasti] in _RAISES


def _innermost(error: BaseException) -> TracebackType | None:
    trace = error.__traceback__
    for _ in range(MAX_FRAMES):
        if trace is None or trace.tb_next is None:
            break
        trace = trace.tb_next
    return trace


def place(frame: FrameType) -> str:
    """Returns ``app.mail:send``. A script is ``__main__`` here and ``__mp_main__`` in a child process: the same
    place."""
    module = str(frame.f_globals.get("__name__", "?"))
    return f"{'__main__' if module == '__mp_main__' else module}:{frame.f_code.co_qualname}"


class Texts(NamedTuple):
    """The texts written into a function, and the words of its phrases. A single name is no phrase: it may be
    anything."""

    literals: frozenset[str]
    words: frozenset[str]
    size: int


def texts(codes: Iterable[CodeType]) -> Texts:
    """Returns the texts that were written into these functions: parts of f-strings, formats, messages. No
    docstrings."""
    literals: set[str] = set()
    words: set[str] = set()
    size = 0
    for code in {id(code): code for code in codes}.values():
        found = _texts.get(code, _read)
        size += found.size
        if size > MAX_LITERALS:
            break
        literals |= found.literals
        words |= found.words
    return Texts(frozenset(literals), frozenset(words), size)


def _read(code: CodeType) -> Texts:
    found: set[str] = set()
    size = 0
    for text in _constants(code):
        if size + len(text) + 20 > MAX_LITERALS:
            break
        size += len(text) + 20
        found.add(text)
    phrases = (text for text in found if not text.isidentifier())
    return Texts(frozenset(found), frozenset(word.lower() for text in phrases for word in _WORD.findall(text)), size)


# These depend on the code alone, which a process has once.
_texts = Remembered[Texts](2_000)
_written = Remembered[bool](1_000)


def codes(errors: Iterable[BaseException]) -> Iterator[CodeType]:
    """Returns the functions that exceptions came through."""
    for error in errors:
        for frame in walk(error.__traceback__):
            yield frame.f_code


def _constants(code: CodeType, depth: int = 0) -> Iterator[str]:
    # Up to Python 3.12 the first constant of a function is its docstring or None; comprehensions have neither.
    documented = code.co_flags & _HAS_DOCSTRING or (sys.version_info < (3, 13) and not code.co_name.startswith("<"))
    for n, constant in enumerate(code.co_consts):
        if isinstance(constant, str):
            if n or not documented:
                yield constant
        elif isinstance(constant, tuple | frozenset):
            yield from (part for part in constant if isinstance(part, str))
        elif isinstance(constant, CodeType) and depth < 3:
            yield from _constants(constant, depth + 1)
