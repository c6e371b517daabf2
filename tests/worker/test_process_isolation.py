"""Handlers in processes of their own: killed with all they started, heard like any other."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from redrive import App, State, StopReason
from redrive.observe import logs
from redrive.worker.processes import ProcessGroups

from . import process_handlers
from .conftest import MakeApp, ended, run_task, until, working


async def test_deterministic_exceptions_are_not_retried(app: App) -> None:
    app.task("PICKY", isolation="process", deterministic=(LookupError,))(process_handlers.picky)
    failed = await run_task(app, "PICKY")
    assert (failed.state, failed.attempt_count, failed.error_reason) == (State.FAILED, 1, "deterministic_exception")


async def test_done_travels_between_processes(app: App) -> None:
    app.task("DONE", isolation="process")(process_handlers.done)
    task = await app.enqueue("DONE")
    async with working(app):
        assert (await ended(app, task.id)).result == {"said": "done"}


@pytest.mark.parametrize("why", [StopReason.TIMEOUT, StopReason.CANCELLED, StopReason.SHUTDOWN])
async def test_what_a_handler_started_is_killed_with_it(make_app: MakeApp, tmp_path: Path, why: StopReason) -> None:
    app = make_app(interval_ms=50, grace_ms=100)
    timeout = 3 if why is StopReason.TIMEOUT else None
    app.task("LEAVES", isolation="process", max_attempts=1, timeout=timeout)(process_handlers.leaves_a_child)
    path = tmp_path / "alive"
    task = await app.enqueue("LEAVES", {"path": str(path)})
    async with working(app) as worker:
        await until(lambda: path.exists())
        if why is StopReason.CANCELLED:
            await app.cancel(task.id, actor="ann")
        elif why is StopReason.SHUTDOWN:
            worker.stop()
        await until(lambda: not worker.runs)
    pid = int(Path(f"{path}.pid").read_text())
    await until(lambda: _ended(pid))
    written = path.stat().st_size
    await asyncio.sleep(0.3)
    assert path.stat().st_size == written


async def test_a_process_that_does_not_start_in_its_time(make_app: MakeApp) -> None:
    app = make_app(start_limit_ms=100)  # its module alone takes longer to be imported
    app.task("QUICK", isolation="process", max_attempts=1)(process_handlers.quick)
    failed = await run_task(app, "QUICK")
    assert (failed.error_reason, failed.failure_type) == ("timeout", "timeout")
    assert "did not start within 0.1 s" in (failed.error_message or "")


async def test_a_signal_to_all_does_not_end_a_process_that_is_just_starting(app: App) -> None:
    """Ctrl-C and service managers signal every process; what one does with it is known only after its imports."""
    app.task("QUICK", isolation="process", max_attempts=1)(process_handlers.quick)
    task = await app.enqueue("QUICK")
    async with working(app):
        [child] = await until(lambda: _children())
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGINT)
        done = await ended(app, task.id)
        assert (done.state, done.result) == (State.COMPLETED, "done")
        child.send_signal(signal.SIGTERM)  # and afterwards it is the worker that decides
        again = await app.enqueue("QUICK")
        assert (await ended(app, again.id)).state is State.COMPLETED


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGRTMIN + 2])
async def test_the_end_of_a_process_is_noticed_also_if_its_fork_lives_on(app: App, number: int) -> None:
    app.task("FORKS", isolation="process", max_attempts=1)(process_handlers.forks_and_dies)
    failed = await run_task(app, "FORKS", {"number": int(number)})
    assert (failed.state, failed.error_reason) == (State.FAILED, "process_died")
    assert ("SIGKILL" if number == signal.SIGKILL else f"signal {int(number)}") in (failed.error_message or "")
    await until(lambda: not _children())


@pytest.fixture
def heard() -> Any:
    """Standard logging as ``redrive work`` sets it up, and what was written."""
    root, stream = logging.getLogger(), io.StringIO()
    before = root.handlers[:], root.level
    logs.configure("json", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:], root.level = before[0], before[1]


async def test_own_loggers_of_a_process_are_heard_with_their_task(app: App, heard: Any) -> None:
    app.task("TALKS", isolation="process")(process_handlers.talks)
    task = await app.enqueue("TALKS", trace_id="trace-1", queue="default")
    async with working(app) as worker:
        await ended(app, task.id)
    said = [line for line in heard() if line.get("kind") == "TALKS"]
    assert [(line["logger"], line["level"], line["message"]) for line in said] == [
        ("shop.orders", "info", "order 17"),
        ("shop.orders", "warning", "running low"),
        ("shop.orders", "error", "went wrong"),
        ("redrive.task", "info", "by the context"),
    ]
    for line in said:
        assert (line["task_id"], line["queue"], line["attempt"], line["trace_id"], line["worker_id"]) == (
            str(task.id),
            "default",
            1,
            "trace-1",
            worker.id,
        )
    assert said[0]["customer"] == "c-1"
    assert "ValueError: odd" in said[2]["stack"]


async def test_what_a_finished_task_reports_is_nobody_elses_progress(app: App, tmp_path: Path) -> None:
    app.task("LATE", isolation="process")(process_handlers.speaks_late)
    seen: list[tuple[Any, str]] = []
    async with working(app, concurrency=1) as worker:
        worker.attempts._runner._processes._on_progress = lambda task, progress: seen.append((task.id, progress))
        tasks = [await app.enqueue("LATE", {"who": who, "said": str(tmp_path / "said")}) for who in ("first", "second")]
        for task in tasks:
            assert (await ended(app, task.id)).state is State.COMPLETED
    assert seen == [(tasks[1].id, '{"of":"second"}')]


async def test_the_end_of_other_threads_does_not_end_a_process(app: App) -> None:
    """The kernel ends a handler's process with the thread that has started it."""
    app.task("QUICK", isolation="process", max_attempts=1)(process_handlers.quick)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(threads := ThreadPoolExecutor())
    async with working(app, concurrency=1):
        assert (await ended(app, (await app.enqueue("QUICK")).id)).state is State.COMPLETED
        [before] = _children()
        loop.set_default_executor(ThreadPoolExecutor())
        threads.shutdown()
        await asyncio.sleep(0.1)
        assert (await ended(app, (await app.enqueue("QUICK")).id)).state is State.COMPLETED
        assert _children() == [before]


async def test_a_group_killer_that_was_killed_is_replaced() -> None:
    groups = ProcessGroups()
    groups.add(2**22 + 1)  # nobody has such a number
    first = groups._killer
    assert first is not None and first.poll() is None
    first.kill()
    first.wait()
    groups.discard(2**22 + 1)
    groups.add(2**22 + 2)
    second = groups._killer
    assert second is not None and second is not first and second.poll() is None
    groups.close()
    assert second.poll() is not None


def _children() -> list[psutil.Process]:
    """Handlers' processes of this one, and what is left of them."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("spawn_main" in part for part in child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True
