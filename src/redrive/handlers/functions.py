"""Decides what can be a handler (functions, methods, partials, objects), and whether what it returned was run."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from redrive.errors import ConfigError, RedriveError

if TYPE_CHECKING:
    from redrive.kernel.failure import Failure

# Values that stand for work which nobody has begun. Iterators are, too, except what is read from: files, cursors.
_LAZY = (
    types.GeneratorType,
    types.AsyncGeneratorType,
    types.CoroutineType,
    contextlib._GeneratorContextManager,
    contextlib._AsyncGeneratorContextManager,
    map,
    filter,
    zip,
    enumerate,
    reversed,
)
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial, type)
# Values that are themselves: what containers hold is looked at one by one.
_VALUES = frozenset({str, int, float, bool, type(None), dict, list, tuple, set, frozenset})
# So many values of a result are looked at: a forgotten gather() shows at its beginning.
MOST_VALUES_CHECKED = 1_000


class HandlerNotRun(RedriveError):
    """Raised when a handler returned something that still has to be run, and that nobody will run."""

    code = "TASK_EXECUTION_FAILED"

    def failure(self, kind: str) -> Failure:
        """Returns it as a final failure: another attempt would not run it either; somebody has to mend the handler."""
        from redrive.kernel.failure import FailureType, failure

        message = f"{self.message}; {self.hint}"
        return failure(
            self.code,
            "handler_not_run",
            message,
            type=FailureType.PARAM_ERROR,
            where=kind,
            retryable=False,
            public=True,
        )


def check_callable(kind: str, function: Any) -> None:
    """Refuses what can be seen to do nothing when it is called as a handler."""
    what, hint = _useless(function)
    if what:
        raise ConfigError(f"the handler of {kind} {what}", hint=hint)


def _useless(function: Any) -> tuple[str, str]:
    if not callable(function):
        return f"is {type(function).__name__}, which cannot be called", "write: def handler(ctx: Context, ...)"
    if isinstance(function, type):
        return "is a class: calling it makes an object and runs nothing", (
            f"give an object that can be called, {function.__name__}(), or one of its methods"
        )
    innermost = body_of(function)
    if _makes_a_context(function):
        return "is a context manager: calling it runs nothing", "do the work in a plain def, without yield"
    if inspect.isasyncgenfunction(innermost):
        return "is an async generator: calling it runs nothing", "do the work in a plain async def, without yield"
    if inspect.isgeneratorfunction(innermost) and not _is_old_coroutine(innermost):
        return "is a generator: calling it runs nothing", "do the work in a plain def, without yield"
    if _lacks_its_object(innermost, function):
        return "is a method without its object", (
            "give a bound method, app.task(...)(Mailer().send), or define it outside of the class"
        )
    return "", ""


def _makes_a_context(function: Any) -> bool:
    """Returns whether ``contextlib`` has made it of a generator: its wrappers are known, others are not looked
    through."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == contextlib.__file__ and hasattr(function, "__wrapped__")


def body_of(function: Any) -> Any:
    """Returns the function behind partials, bound methods and callable objects. A decorator's wrapper is not looked
    through: what it does with the function is its own business."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType | staticmethod):
            function = function.__func__
        elif isinstance(call := _call_of(function), types.FunctionType):
            function = call
        else:
            return function


def _call_of(function: Any) -> Any:
    """Returns the method that is run when an object of an application's own class is called."""
    if isinstance(function, types.FunctionType):
        return None
    return next((vars(cls)["__call__"] for cls in type(function).__mro__ if "__call__" in vars(cls)), None)


def runs_on_the_loop(function: Any) -> bool:
    """Returns whether calling it makes a coroutine, for certain. Others run in a thread; what they return may still be
    one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(body_of(function))


def origin_of(function: Callable[..., Any]) -> str:
    """Returns where a handler is written: the same for a module that is imported twice."""
    code = getattr(inspect.unwrap(body_of(function)), "__code__", None)
    return f"{code.co_filename}:{code.co_qualname}" if code else repr(function)


def name_of(function: Any) -> str:
    """Returns how to call it in a message."""
    return str(getattr(function, "__name__", None) or getattr(body_of(function), "__name__", "handler"))


def insist_it_ran(value: Any) -> None:
    """Raises HandlerNotRun for a result that is, or holds, work nobody has done: the task would be completed without
    it."""
    found = next((one for one in _within(value) if _waits(one)), None)
    if found is None:
        return
    for one in _within(value):
        if isinstance(one, types.CoroutineType):
            one.close()  # nobody will await it, and Python would complain about that somewhere else
    what = "a class" if isinstance(found, type) else f"a {type(found).__name__}"
    inside = "" if found is value else " inside its result"
    raise HandlerNotRun(
        f"the handler returned {what}{inside}, which was not run",
        hint="run it in the handler and return what comes of it; a decorator may have replaced the function by one "
        "that only makes it",
    )


def _within(value: Any) -> Iterator[Any]:
    """Yields a value and what it holds: containers, and one level of containers in them."""
    yield value
    for one in itertools.islice(_parts(value), MOST_VALUES_CHECKED):
        yield one
        yield from itertools.islice(_parts(one), MOST_VALUES_CHECKED)


def _parts(value: Any) -> Iterable[Any]:
    if type(value) is dict:
        return value.values()
    return value if type(value) in (list, tuple, set, frozenset) else ()


def _waits(value: Any) -> bool:
    if type(value) in _VALUES:  # nearly always; asking abstract classes takes many times as long
        return False
    if isinstance(value, threading.Thread):
        return value.ident is None
    return isinstance(value, (*_LAZY, *_CODE)) or type(value).__module__ == "itertools"


def _is_old_coroutine(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & inspect.CO_ITERABLE_COROUTINE)


def _lacks_its_object(innermost: Any, function: Any) -> bool:
    """Returns whether it is a function written in a class and taken from the class itself: its first parameter is the
    object."""
    if innermost is not function or not isinstance(innermost, types.FunctionType):
        return False
    names = innermost.__code__.co_varnames[: innermost.__code__.co_argcount]
    return bool(names) and names[0] in ("self", "cls")
