"""Rebinds an App to memory for the length of a test, with its worker on demand and questions about its tasks.

Questions are plain calls, not coroutines, also in async tests: an assertion that somebody forgot to await would
pass without looking.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redrive.app import App
from redrive.kernel.applied import Applied
from redrive.kernel.commit import Commit
from redrive.kernel.payload import decode
from redrive.kernel.ports.reads import get_task
from redrive.kernel.ports.store import Heartbeat, Query, Store
from redrive.kernel.task import State, Task
from redrive.observe.logs import TaskLog
from redrive.ops import inspect
from redrive.settings import Options
from redrive.sync import Portal
from redrive.worker.worker import Worker

if TYPE_CHECKING:
    from redrive.testing.client import ApiClient

MEMORY = "sqlite:///:memory:"
TASKS_PER_PAGE = 1000
MOST_TASKS_SHOWN = 20


class Clock:
    """A clock that stands still until a test moves it. Delays, retries, leases and schedules follow it and nothing
    else."""

    def __init__(self) -> None:
        self._at = time.time()

    def __call__(self) -> float:
        return self._at

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self._at, UTC)

    def advance(self, seconds: float | timedelta) -> None:
        step = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if not step >= 0:
            raise ValueError(f"a clock goes forward: {step!r} seconds cannot be added")
        self._at += step


@dataclass(slots=True)
class Drained:
    """What ``drain`` did, in attempts."""

    claimed: int = 0
    completed: int = 0
    requeued: int = 0
    failed: int = 0
    cancelled: int = 0


class TestKit:
    """What a test holds while its App is in memory. Made by ``using`` and ``using_sync``."""

    __test__ = False  # for pytest, which would otherwise collect it by its name

    def __init__(self, app: App, store: Store, clock: Clock) -> None:
        self.app = app
        self.store = store
        self.clock = clock
        self._portal = Portal()
        self._payloads: dict[UUID, Any] = {}
        self._remember_payloads()

    # -- running ---------------------------------------------------------------------------------------------------

    def advance(self, seconds: float | timedelta) -> None:
        """Moves the clock forward; whatever becomes due runs in the next ``drain``."""
        self.clock.advance(seconds)

    async def drain(self, *, limit: int = 10_000) -> Drained:
        """Runs everything that can run now, and what that enqueues. Retries and delays wait for ``advance``."""
        total = Drained()
        while True:
            worker = await self._worker(limit - total.claimed)
            await self._make_due(worker)
            await worker.run()
            for name in Drained.__dataclass_fields__:
                setattr(total, name, getattr(total, name) + getattr(worker.health, name))
            if worker.health.claimed == 0:
                return total
            if total.claimed >= limit:
                raise AssertionError(f"{total.claimed} tasks ran and there are still more; does one enqueue itself?")

    def drain_sync(self, *, limit: int = 10_000) -> Drained:
        """Runs ``drain`` for tests that are ordinary functions."""
        return self._portal.call(self.drain(limit=limit))

    async def _worker(self, jobs: int) -> Worker:
        queues = await inspect.known_queues(self.store, sorted(self.app.registry.queues()))
        options = Options(queues=tuple(sorted(queues)), concurrency=10, sleep=0.01, stop_when_empty=True, max_jobs=jobs)
        return self.app.worker(self.store, options, log=TaskLog(style="off"))

    async def _make_due(self, worker: Worker) -> None:
        """Does at once what the fleet's heartbeats do over time: schedules, expired leases, delays that are over, and
        what features end when its time is."""
        await worker.prepare()
        for duty in worker.duties.values():
            if duty.by_time:
                await duty.run(self.store, worker.id, lambda: False)
        beat = Heartbeat(worker.id, "test", 0, worker.options.queues, worker.options.concurrency, 0, "test", {})
        while (await self.store.tick(beat)).promoted:
            pass

    @cached_property
    def api(self) -> ApiClient:
        """The HTTP API of this application, without a network: ``kit.api.get("/api/tasks/ops").ok()``."""
        from redrive.testing.client import ApiClient  # the web framework takes longer to import than most tests to run

        return ApiClient(self.app, self._portal)

    # -- asking ----------------------------------------------------------------------------------------------------

    def enqueued(self, kind: str | None = None) -> list[Task]:
        """Returns all tasks so far, in any state, oldest first."""
        return self._find(Query(kind=kind, limit=TASKS_PER_PAGE))

    def failures(self, kind: str | None = None) -> list[Task]:
        """Returns tasks that ended as failed, oldest first."""
        return self._find(Query(states=(State.FAILED,), kind=kind, limit=TASKS_PER_PAGE))

    def get(self, task: Task | UUID | str) -> Task:
        """Returns a task as it is now."""
        task_id = task.id if isinstance(task, Task) else UUID(str(task))
        found = self._portal.call(get_task(self.store, task_id))
        if found is None:
            raise AssertionError(f"there is no task {task_id}")
        return found

    def assert_enqueued(self, kind: str, /, **payload: Any) -> Task:
        """Asserts that a task of this kind with these payload fields was enqueued; returns the newest such task."""
        matching = [task for task in self.enqueued(kind) if _fits(task, payload)]
        if not matching:
            raise AssertionError(f"no {_named(kind, payload)} was enqueued; {self._instead(kind)}")
        return matching[-1]

    def assert_not_enqueued(self, kind: str, /, **payload: Any) -> None:
        matching = [task for task in self.enqueued(kind) if _fits(task, payload)]
        if matching:
            raise AssertionError(f"{len(matching)} × {_named(kind, payload)} was enqueued:\n{_listed(matching)}")

    def assert_no_failures(self, kind: str | None = None) -> None:
        """Asserts that no task ended as failed, and none waits for another attempt after a failed one."""
        failed = [task for task in self.enqueued(kind) if task.state is State.FAILED or _failing(task)]
        if failed:
            raise AssertionError(f"{len(failed)} × a task failed:\n{_listed(failed, _cause)}")

    def _find(self, query: Query) -> list[Task]:
        found = self._portal.call(_all(self.store, query))
        for task in found:
            if task.payload is None:
                task.payload = self._payloads.get(task.id)
        return found

    def _remember_payloads(self) -> None:
        """Keeps payloads: history has none of a completed task, but a test may ask for it after ``drain``."""
        apply = self.store.apply

        async def remembering(commit: Commit, *, again: bool = False, in_parts: bool = False) -> Applied:
            for task in (*commit.enqueues, *(task for fire in commit.fires for task in fire.tasks)):
                self._payloads[task.id] = decode(task.payload)
            return await apply(commit, again=again, in_parts=in_parts)

        self.store.apply = remembering  # type: ignore[method-assign]

    def _instead(self, kind: str) -> str:
        same = self.enqueued(kind)
        if same:
            return f"these {kind} were:\n{_listed(same)}"
        others = self.enqueued()
        return f"these tasks were:\n{_listed(others)}" if others else "nothing was enqueued at all"

    def close(self) -> None:
        self._portal.close()


@asynccontextmanager
async def using(app: App | None = None) -> AsyncIterator[TestKit]:
    """Rebinds an App (or makes one) to an empty database in memory; afterwards it is what it was."""
    chosen = app or App(MEMORY)
    with _rebound(chosen):
        kit = await _open(chosen)
        try:
            yield kit
        finally:
            await _close(kit)


@contextmanager
def using_sync(app: App | None = None) -> Iterator[TestKit]:
    """``using`` for tests that are ordinary functions: ``app.sync.enqueue(…)``, ``kit.drain_sync()``."""
    chosen = app or App(MEMORY)
    with _rebound(chosen):
        portal = Portal()
        kit = portal.call(_open(chosen))
        try:
            yield kit
        finally:
            portal.call(_close(kit))
            portal.close()


@contextmanager
def _rebound(app: App) -> Iterator[None]:
    kept = app.settings
    # A kind that is declared for another application to handle stays queued, to be asserted on.
    # Workers come one after the other, and no time passes between: they are one worker.
    app.settings = app.settings.with_values(url=MEMORY, unknown_kind="leave", worker_id="kit")
    try:
        with app.connections.all_at(MEMORY):  # what goes to any of them is there to be asserted on, and run
            yield
    finally:
        app.settings = kept


async def _open(app: App) -> TestKit:
    store: Any = await app.store()
    clock = Clock()
    await store.go_by(clock)
    kit = TestKit(app, store, clock)
    # Schedules are known from the start, so that the first `advance` can already make them due.
    await app.worker(store, log=TaskLog(style="off")).prepare()
    return kit


async def _close(kit: TestKit) -> None:
    await kit.store.close()
    kit.close()


async def _all(store: Store, query: Query) -> list[Task]:
    found: list[Task] = []
    while True:
        page = await inspect.list_tasks(store, query)
        found += page.tasks
        if page.next_before is None:
            return found[::-1]
        query = Query(query.states, kind=query.kind, limit=query.limit, before=page.next_before)


def _fits(task: Task, wanted: Mapping[str, Any]) -> bool:
    given = task.payload if isinstance(task.payload, dict) else {}
    return all(name in given and given[name] == value for name, value in wanted.items())


def _named(kind: str, payload: Mapping[str, Any]) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in payload.items())
    return f"{kind} with {fields}" if fields else kind


def _failing(task: Task) -> bool:
    return task.state is State.DELAYED and task.error_code is not None


def _cause(task: Task) -> str:
    return f"\n    attempt {task.attempt_count} of {task.max_attempts}: {task.error_code}: {task.error_message}"


def _listed(tasks: list[Task], more: Callable[[Task], str] = lambda _: "") -> str:
    lines = [
        f"  {task.kind} {json.dumps(task.payload, ensure_ascii=False)} ({task.state}){more(task)}"
        for task in tasks[:MOST_TASKS_SHOWN]
    ]
    return "\n".join(
        [*lines, f"  … and {len(tasks) - MOST_TASKS_SHOWN} more"] if len(tasks) > MOST_TASKS_SHOWN else lines
    )
