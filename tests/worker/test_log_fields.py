"""An application's own loggers inside handlers: their records say which task they belong to."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redrive import App, Bulk, Context, TaskFields
from redrive.observe import logs

from .conftest import drain

logger = logging.getLogger("shop.orders")
Heard = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def heard() -> Iterator[Heard]:
    root, stream = logging.getLogger(), io.StringIO()
    before = root.handlers[:], root.level
    logs.configure("json", stream)
    yield lambda: [line for line in map(json.loads, stream.getvalue().splitlines()) if line["logger"] == "shop.orders"]
    root.handlers[:], root.level = before[0], before[1]


async def test_on_the_loop_and_in_what_it_starts(app: App, heard: Heard) -> None:
    @app.task("T")
    async def t(ctx: Context) -> None:
        logger.info("first")
        await asyncio.sleep(0)
        logger.info("second")
        await asyncio.to_thread(logger.info, "third")
        await asyncio.create_task(_say("fourth"))

    tasks = await app.enqueue_many([{"kind": "T", "trace_id": f"trace-{n}"} for n in range(3)])
    await drain(app)
    said = heard()
    assert len(said) == 12
    for n, task in enumerate(tasks):
        mine = [line for line in said if line["task_id"] == str(task.id)]
        assert [line["message"] for line in mine] == ["first", "second", "third", "fourth"]
        assert {(line["kind"], line["queue"], line["attempt"], line["trace_id"]) for line in mine} == {
            ("T", "default", 1, f"trace-{n}")
        }
    logger.info("outside")
    assert "task_id" not in heard()[-1]


async def test_in_threads_and_bulk_calls(app: App, heard: Heard) -> None:
    @app.task("T")
    def t(ctx: Context) -> None:
        logger.info("thread", extra={"kind": "own"})

    @app.task("B", bulk=5)
    def b(items: Bulk) -> None:
        logger.info("bulk")

    [task, *items] = await app.enqueue_many([("T", None), ("B", None), ("B", None)])
    await drain(app)
    by_message = {line["message"]: line for line in heard()}
    assert by_message["thread"]["task_id"] == str(task.id)
    assert by_message["thread"]["kind"] == "own"  # what a record says itself stays
    assert (by_message["bulk"]["kind"], by_message["bulk"]["tasks"]) == ("B", 2)
    assert set(by_message["bulk"]["task_ids"]) == {str(item.id) for item in items}


async def test_a_bulk_call_says_what_its_tasks_have_in_common(app: App, heard: Heard) -> None:
    @app.task("B", bulk=5)
    async def b(items: Bulk) -> None:
        logger.info("bulk")

    for traces in (("same", "same"), ("one", "two")):
        await app.enqueue_many([{"kind": "B", "trace_id": trace} for trace in traces])
        await drain(app)
    same, different = heard()
    assert (same["attempt"], same["trace_id"], same["tasks"]) == (1, "same", 2)
    assert different["attempt"] == 1 and "trace_id" not in different
    assert "task_id" not in same


async def test_an_application_with_its_own_logging_adds_the_filter(app: App) -> None:
    seen: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    own = Keep()
    own.addFilter(TaskFields())
    logger.addHandler(own)
    logger.setLevel(logging.INFO)

    @app.task("T")
    async def t(ctx: Context) -> None:
        logger.info("mine")

    try:
        task = await app.enqueue("T")
        await drain(app)
    finally:
        logger.removeHandler(own)
        logger.setLevel(logging.NOTSET)
    [record] = seen
    assert vars(record)["task_id"] == str(task.id)


async def _say(what: str) -> None:
    logger.info(what)
