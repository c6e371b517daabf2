"""What may be a handler: it is run, or it is refused with the reason. Never completed without having run."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import threading
import types
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from redrive import App, Bulk, Context, State
from redrive.errors import ConfigError, InvalidInput

from . import process_handlers
from .conftest import drain, ended, run_task, task_of, working

RAN: list[str] = []


@pytest.fixture(autouse=True)
def _empty() -> None:
    RAN.clear()


async def body(ctx: Context, n: int) -> int:
    await asyncio.sleep(0)
    RAN.append(f"{ctx.task.kind} {n}")
    return n * 2


def blocking_body(ctx: Context, n: int) -> int:
    RAN.append(f"{ctx.task.kind} {n}")
    return n * 2


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that knows nothing of coroutines."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Handler:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    async def __call__(self, ctx: Context, n: int) -> int:
        return (await body(ctx, n)) // 2 * self.factor

    async def method(self, ctx: Context, n: int) -> int:
        return await self(ctx, n)

    def blocking(self, ctx: Context, n: int) -> int:
        return blocking_body(ctx, n)

    @classmethod
    async def of_class(cls, ctx: Context, n: int) -> int:
        return await body(ctx, n)

    @staticmethod
    async def static(ctx: Context, n: int) -> int:
        return await body(ctx, n)


class Blocking:
    def __call__(self, ctx: Context, n: int) -> int:
        return blocking_body(ctx, n)


async def forgets_to_await(ctx: Context, n: int) -> Any:
    return body(ctx, n)


def submits(ctx: Context, n: int) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(blocking_body, ctx, n)


async def with_more(ctx: Context, unit: str, n: int) -> int:
    return await body(ctx, n)


@types.coroutine
def old_coroutine(ctx: Context, n: int) -> Iterator[Any]:
    return (yield from body(ctx, n).__await__())  # type: ignore[return-value]


RUNNABLE: dict[str, Callable[..., Any]] = {
    "function": body,
    "blocking": blocking_body,
    "decorated": plain(body),
    "decorated_twice": plain(plain(body)),
    "decorated_blocking": plain(blocking_body),
    "object": Handler(2),
    "blocking_object": Blocking(),
    "method": Handler(2).method,
    "blocking_method": Handler(2).blocking,
    "class_method": Handler.of_class,
    "static_method": Handler.static,
    "partial": functools.partial(with_more, unit="m"),
    "partial_of_an_object": functools.partial(Handler(2)),
    "decorated_partial": plain(functools.partial(body)),
    "forgotten_await": forgets_to_await,
    "future": submits,
    "old_coroutine": old_coroutine,
}


async def test_whatever_can_be_called_is_run(app: App) -> None:
    for what, function in RUNNABLE.items():
        handler: Any = app.task(what)(function)
        assert handler.kind == what
    tasks = {what: await app.enqueue(what, {"n": 4}) for what in RUNNABLE}
    await drain(app)
    found = {what: await task_of(app, task.id) for what, task in tasks.items()}
    assert {what: (task.state, task.result) for what, task in found.items()} == dict.fromkeys(
        RUNNABLE, (State.COMPLETED, 8)
    )
    assert sorted(RAN) == sorted(f"{what} 4" for what in RUNNABLE)


async def test_one_function_may_handle_two_kinds(app: App) -> None:
    app.task("B")(app.task("A")(body))
    await app.enqueue_many([("A", {"n": 1}), ("B", {"n": 2})])
    await drain(app, concurrency=1)
    assert RAN == ["A 1", "B 2"]


@pytest.mark.parametrize("isolation", ["loop", "thread"])
async def test_a_bulk_handler_behind_a_plain_decorator_is_run(app: App, isolation: str) -> None:
    async def bulk(items: Bulk) -> list[int]:
        await asyncio.sleep(0)
        RAN.append(f"{len(items)} items")
        return [item.payload * 2 for item in items]

    app.task("B", bulk=5)(bulk if isolation == "loop" else plain(bulk))
    tasks = await app.enqueue_many([("B", n) for n in (1, 2)])
    await drain(app)
    assert [(await app.get(task.id)).result for task in tasks] == [2, 4]  # type: ignore[union-attr]
    assert RAN == ["2 items"]


async def generator(ctx: Context) -> AsyncIterator[int]:
    RAN.append("generator")
    yield 1


def blocking_generator(ctx: Context) -> Iterator[int]:
    RAN.append("generator")
    yield 1


class Generator:
    def __call__(self, ctx: Context) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (generator, "async generator: calling it runs nothing"),
        (blocking_generator, "generator: calling it runs nothing"),
        (Generator(), "generator: calling it runs nothing"),
        (functools.partial(generator), "async generator"),
        (Handler, "is a class: calling it makes an object"),
        (Handler.method, "is a method without its object"),
        (contextlib.contextmanager(blocking_generator), "is a context manager: calling it runs nothing"),
        (contextlib.asynccontextmanager(generator), "is a context manager: calling it runs nothing"),
        (17, "is int, which cannot be called"),
        (classmethod(body), "is classmethod, which cannot be called"),
    ],
)
def test_what_would_not_run_is_refused_where_it_is_declared(handler: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        App("sqlite:///:memory:").task("T")(handler)
    assert not RAN


def makes_a_generator(ctx: Context) -> Any:
    return blocking_generator(ctx)


async def makes_an_async_generator(ctx: Context) -> Any:
    return generator(ctx)


def maps(ctx: Context) -> Any:
    return map(RAN.append, ["x"])


def returns_a_function(ctx: Context) -> Any:
    return lambda: RAN.append("x")


def returns_a_class(ctx: Context) -> Any:
    return Handler


async def forgets_to_gather(ctx: Context) -> Any:
    return [body(ctx, n) for n in range(3)]


def keeps_a_coroutine(ctx: Context) -> Any:
    return {"results": [body(ctx, 1)]}


def zips(ctx: Context) -> Any:
    return zip([1], map(RAN.append, ["x"]), strict=True)


def accumulates(ctx: Context) -> Any:
    return itertools.accumulate([1, 2], lambda a, b: RAN.append("x"))


def makes_a_thread(ctx: Context) -> Any:
    return threading.Thread(target=RAN.append, args=("x",))


def makes_a_context(ctx: Context) -> Any:
    return contextlib.contextmanager(blocking_generator)(ctx)


LAZY = [
    forgets_to_gather,
    keeps_a_coroutine,
    zips,
    accumulates,
    makes_a_thread,
    makes_a_context,
    makes_a_generator,
    makes_an_async_generator,
    maps,
    returns_a_function,
    returns_a_class,
    plain(blocking_generator),
    plain(generator),
]


async def test_a_result_that_was_not_run_fails_the_task(app: App) -> None:
    for number, handler in enumerate(LAZY):
        app.task(f"LAZY_{number}")(handler)
    tasks = [await app.enqueue(f"LAZY_{number}") for number in range(len(LAZY))]
    await drain(app)
    for handler, task in zip(LAZY, tasks, strict=True):
        failed = await task_of(app, task.id)
        outcome = (failed.state, failed.error_reason, failed.attempt_count)
        assert outcome == (State.FAILED, "handler_not_run", 1), handler.__name__
        assert "which was not run" in (failed.error_message or ""), handler.__name__
    assert not RAN


async def test_lazy_answers_of_a_bulk_handler_fail_alone(app: App) -> None:
    @app.task("B", bulk=3)
    async def bulk(items: Bulk) -> list[Any]:
        return [body(item.context, 1) if item.payload else "done" for item in items]

    tasks = await app.enqueue_many([("B", 1), ("B", 0)])
    await drain(app)
    found = [await app.get(task.id) for task in tasks]
    assert [(task.error_reason, task.result) for task in found if task] == [("handler_not_run", None), (None, "done")]
    assert not RAN


def _all_of(items: Bulk) -> Any:
    yield from (body(item.context, 1) for item in items)


@pytest.mark.parametrize(
    ("lazy", "blocking"), [(_all_of, True), (lambda items: {"done": _all_of(items)}, False)], ids=["yields", "in"]
)
async def test_a_bulk_handler_that_was_not_run_fails_all(app: App, lazy: Callable[..., Any], blocking: bool) -> None:
    async def awaits(items: Bulk) -> Any:
        return lazy(items)

    app.task("B", bulk=3)((lambda items: lazy(items)) if blocking else awaits)
    tasks = await app.enqueue_many([("B", 1), ("B", 0)])
    await drain(app)
    found = [await app.get(task.id) for task in tasks]
    assert [(task.state, task.error_reason, task.attempt_count) for task in found if task] == [
        (State.FAILED, "handler_not_run", 1)
    ] * 2
    assert not RAN


async def test_a_lazy_result_of_a_transaction_is_not_committed(app: App) -> None:
    @app.task("T", max_attempts=1)
    async def t(ctx: Context) -> None:
        transaction = ctx.transaction()
        async with transaction:
            transaction.result = (n for n in [1])

    failed = await run_task(app, "T")
    assert failed.state is State.FAILED
    assert "which was not run" in (failed.error_message or "")


async def test_processes_run_what_was_declared(app: App) -> None:
    app.task("DECORATED", isolation="process", max_attempts=1)(process_handlers.decorated)
    app.task("COROUTINE", isolation="process")(process_handlers.coroutine)
    app.task("LAZY", isolation="process")(process_handlers.lazy)
    # The module's own name leads to the bare function there, without what the decorator does.
    app.task("REPLACED", isolation="process", max_attempts=1)(process_handlers.shouts(process_handlers.bare))
    kinds = ("DECORATED", "COROUTINE", "LAZY", "REPLACED")
    tasks = await app.enqueue_many([(kind, None) for kind in kinds])
    async with working(app):
        decorated, coroutine, lazy, replaced = [await ended(app, task.id) for task in tasks]
    assert (decorated.result, coroutine.result) == ("BARE!", "awaited")
    assert (lazy.state, lazy.error_reason, lazy.attempt_count) == (State.FAILED, "handler_not_run", 1)
    assert replaced.state is State.FAILED and "bare is something else" in (replaced.error_message or "")


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (Handler(2).method, "a method of an object"),
        (Blocking(), "not a function"),
        (functools.partial(body), "not a function"),
        (lambda ctx: None, "a lambda"),
    ],
)
def test_what_another_process_cannot_import_is_refused(handler: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        App("sqlite:///:memory:").task("T", isolation="process")(handler)


def test_deterministic_takes_exceptions_and_nothing_else() -> None:
    app = App("sqlite:///:memory:")
    assert app.task("A", deterministic=KeyError)(body).handler.deterministic == (KeyError,)  # type: ignore[arg-type]
    assert app.task("B", deterministic=[KeyError, OSError])(body).handler.deterministic == (KeyError, OSError)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="lists exceptions, and 'KeyError' is none"):
        app.task("C", deterministic=("KeyError",))(body)  # type: ignore[arg-type]

    class Local(Exception): ...

    with pytest.raises(InvalidInput, match=r"cannot import .*Local"):
        app.task("D", isolation="process", deterministic=(Local,))(process_handlers.quick)
