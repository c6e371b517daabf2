"""A failure is the same wherever its handler runs: on the loop, in a thread, in a process of its own, in bulk."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import App, Bulk, State
from redrive.kernel.task import Task, Timeline
from tests.worker.conftest import ended, working

from . import failing_handlers as handlers


@pytest.fixture
def app(tmp_path: Any) -> App:
    return App(f"sqlite:///{tmp_path}/f.db")


async def failures(app: App, **kinds: Any) -> dict[str, Timeline]:
    """How a task of each kind has failed, with Penelope as its customer."""
    ids = {}
    for kind in kinds:
        ids[kind] = (await app.enqueue(kind, {"customer": "Penelope"})).id
    found: dict[str, Timeline] = {}
    async with working(app):
        for kind, task_id in ids.items():
            task = await ended(app, task_id)
            assert task.state is State.FAILED
            line = await (await app.store()).timeline(task_id)
            assert line is not None
            found[kind] = line
    return found


def told(task: Task) -> tuple[Any, ...]:
    return (
        task.error_code,
        task.error_reason,
        task.failure_type,
        task.error_message,
        task.error_fingerprint,
        task.error_summary,
    )


@pytest.mark.parametrize("name", ["fail", "decline"])
async def test_a_process_and_a_thread_say_the_same(app: App, name: str) -> None:
    app.classify(handlers.judge)
    app.fingerprint(handlers.name_it)
    function = getattr(handlers, name)
    app.task("THREAD", max_attempts=1)(function)
    app.task("PROCESS", max_attempts=1, isolation="process")(function)
    found = await failures(app, THREAD=None, PROCESS=None)
    thread, process = found["THREAD"].task, found["PROCESS"].task
    assert told(thread) == told(process)
    assert thread.error_stack is not None and process.error_stack is not None
    assert "Penelope" not in str(thread.error_summary)
    assert f"in {name}" in thread.error_stack and f"in {name}" in process.error_stack
    if name == "decline":
        assert (thread.error_reason, thread.failure_type, thread.dead_reason) == (
            "card",
            "param_error",
            "non_retryable",
        )


async def test_a_raised_verdict_keeps_its_stack_and_place(app: App) -> None:
    app.task("RAISED")(handlers.fail)
    app.task("LOOP")(handlers.fail_on_loop)
    app.task("RETURNED")(handlers.give_back)
    found = await failures(app, RAISED=None, LOOP=None, RETURNED=None)
    raised, loop, returned = (found[kind].task for kind in ("RAISED", "LOOP", "RETURNED"))
    assert "_charge" in (raised.error_stack or "") and returned.error_stack is None
    assert raised.error_summary["frames"][-1] == f"{handlers.__name__}:_charge"
    assert returned.error_summary["frames"] == [f"{handlers.__name__}:give_back"]
    assert raised.error_summary["message"] == returned.error_summary["message"] == "no more orders of … today"
    assert (raised.failure_type, returned.failure_type) == ("model_error", "unknown")
    assert len({one.error_fingerprint for one in (raised, loop, returned)}) == 3


async def test_one_exception_of_a_bulk_call_is_judged_once(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    from redrive.worker import failures as made

    judged = []
    real = made.failure_of
    monkeypatch.setattr(made, "failure_of", lambda *args: judged.append(args) or real(*args))

    @app.task("BULK", bulk=50, max_attempts=1)
    async def bulk(items: Bulk) -> None:
        raise RuntimeError("the frobnicator refused Penelope and Ulysses")

    names = ["Penelope", "Ulysses", *map(str, range(20))]
    tasks = await app.enqueue_many([("BULK", {"customer": name}) for name in names])
    async with working(app):
        found = [await ended(app, task.id) for task in tasks]
    assert len({task.error_fingerprint for task in found}) == 1
    assert len(judged) <= 3  # as many as calls were made
    assert all("Ulysses" not in str(task.error_summary) for task in found)
    assert "frobnicator" in found[0].error_summary["message"]


async def test_a_huge_text_is_cut_at_once(app: App) -> None:
    @app.task("HUGE", max_attempts=1)
    async def huge(ctx: Any, customer: str) -> None:
        raise RuntimeError("x" * 10_000_000)

    task = (await failures(app, HUGE=None))["HUGE"].task
    assert len(task.error_message or "") == 4_000
    assert len(task.error_stack or "") < 17_000
