"""Counts the files of redrive that one thing goes through, by doing it: an enqueue, a task's run, a bulk retry with an
approval, an item at a provider that is paid for, an event on its way to a sink.

Each is done once before, so that what is only imported or made once does not count. On SQLite, in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from redrive import App, Context, State
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.settings import BatchSettings
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action
from redrive.ledger.application import AppLedger
from redrive.ops.access import Caller, Role
from redrive.remote import RemoteItem, Status
from redrive.settings import load_settings

PACKAGE = str(Path(sys.modules["redrive"].__file__ or "").parent) + "/"
Walk = Callable[[], Awaitable[None]]


class Steps:
    """Notes which files of the package have code that runs within the block, in any thread."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._noting = False
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        self.files.clear()
        self._noting = True
        try:
            yield
        finally:
            self._noting = False

    def _note(self, frame: Any, event: str, _: Any) -> None:
        if self._noting and event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.files.add(frame.f_code.co_filename.removeprefix(PACKAGE))


class Farm:
    """A provider that starts each job at once, and has it done when it is asked for."""

    max_poll = 10

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        return idempotency_key

    async def poll(self, ids: Sequence[str]) -> dict[str, Status]:
        return {one: Status.succeeded({}) for one in ids}


async def _walks(folder: str) -> AsyncIterator[dict[str, Walk]]:
    """Yields what can be done with an application, by name: first alone, then with a worker that has nothing else."""
    quick = BatchSettings(poll_first=0.0, poll_next=0.0, poll_later=0.0, last_look_seconds=0.0)
    settings = load_settings(url=f"sqlite:///{folder}/walks.db", log_format="off", approvals_above=0).holding(quick)
    async with App(settings=settings) as app:
        app.provider("farm", Farm())
        app.outbox.projection("notes", sink=f"fts5:///{folder}/search.db")

        @app.task("DOUBLE")
        async def double(ctx: Context, n: int) -> int:
            return n * 2

        @app.task("BROKEN", max_attempts=1)
        async def broken(ctx: Context) -> None:
            if not ctx.task.replay_count:
                raise ValueError("not this time")

        await app.migrate()
        await app.of(AppLedger).open("acme")
        await app.of(AppLedger).credit("acme", 1000, "walks", reason="to walk")
        asking, agreeing = [await app.operator(Caller(name, Role.ADMIN)) for name in ("ann", "bob")]
        sink: Any = app.outbox.projections["notes"].sink()
        versions = iter(range(1, 10))
        waiting = await app.enqueue_many([("BROKEN", None)] * 2)

        async def enqueue() -> None:
            await double.options(queue="elsewhere").enqueue(n=1)

        async def run() -> None:
            await _until_completed(app, (await double.enqueue(n=1)).id)

        async def retry() -> None:
            one = waiting.pop().id
            which = FailureFilter(ids=(one,))
            begun = await asking.operations.begin(Action.RETRY, which, reason="the service is back")
            assert begun.approval is not None
            await agreeing.approvals.approve(begun.approval.id)
            await _until_completed(app, one)

        async def pay() -> None:
            batches = app.of(RemoteBatches)
            batch = await batches.create([1], provider="farm", account="acme", price=10)
            await _until(lambda: _settled(batches, batch.id))

        async def project() -> None:
            version = next(versions)
            await app.outbox.publish(None, "notes", "note", 17, "update", version, {"title": f"fox {version}"})
            await _until(lambda: _found(sink, f"fox {version}"))

        yield {"enqueue": enqueue}
        async with app.worker(queues=app.queues(), concurrency=4, sleep=60.0):
            for task in waiting:
                await _until(partial(_is, app, task.id, State.FAILED))
            yield {
                "a task's run": run,
                "bulk retry with approval": retry,
                "remote item with credits": pay,
                "event to sink": project,
            }


async def _is(app: App, task_id: UUID, state: State) -> bool:
    found = await app.get(task_id)
    return found is not None and found.state is state


async def _until_completed(app: App, task_id: UUID) -> None:
    await _until(lambda: _is(app, task_id, State.COMPLETED))


async def _settled(batches: RemoteBatches, batch_id: Any) -> bool:
    return (await batches.get(batch_id)).state.value == "completed"


async def _found(sink: Any, text: str) -> bool:
    return bool(await sink.search(text))


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110 (it is looked at as a user would)
            await asyncio.sleep(0.02)


async def main(show: bool) -> None:
    """Prints the number of files of each walk; with their names, where they are asked for."""
    steps, counts = Steps(), dict[str, int]()
    with tempfile.TemporaryDirectory() as folder:
        async for walks in _walks(folder):
            for name, walk in walks.items():
                await walk()
                with steps.noted():
                    await walk()
                counts[name] = len(steps.files)
                if show:
                    sys.stdout.write(f"{name}\n  " + "\n  ".join(sorted(steps.files)) + "\n")
    longest = max(counts, key=counts.__getitem__)
    each = ", ".join(f"{name} {count}" for name, count in counts.items())
    sys.stdout.write(f"files that run: {each}; the longest walk: {counts[longest]} ({longest})\n")


if __name__ == "__main__":
    asyncio.run(main("--files" in sys.argv))
