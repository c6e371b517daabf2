"""A worker whose steps a test takes one by one: it claims, runs the real handlers, and keeps what came of it until that
is to land, which may be after its lease is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from redrive import App
from redrive.handlers.bulk import Bulk, Item, collect_answers
from redrive.handlers.context import Context
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Lease, Transition, settle
from redrive.kernel.ports.store import ClaimRequest, Heartbeat, Store
from redrive.kernel.task import Claimed, State
from redrive.remote import ProviderError, RemoteItem, Status
from redrive.worker.runner import outcome_of
from redrive_kit.conformance.harness import LEASE, Harness

STARTS = ("ok", "transient", "refused")
POLLS = ("running", "ok", "failed", "cancelled", "unknown", "error")


class Told:
    """A provider that is told what to answer next. A key names one job, and a job that has ended stays as it is."""

    max_poll = 100

    def __init__(self) -> None:
        self.starts: Counter[str] = Counter()
        self.jobs: dict[str, Status | None] = {}
        self.start_next, self.poll_next = "ok", "ok"
        self.asked_to_end: set[str] = set()

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        if self.start_next == "transient":
            raise ProviderError("busy", status_code=503)
        if self.start_next == "refused":
            raise ProviderError("no", status_code=400)
        self.starts[idempotency_key] += 1
        self.jobs.setdefault(idempotency_key, None)
        return idempotency_key

    async def poll(self, ids: Sequence[str]) -> dict[str, Status]:
        if self.poll_next == "error":
            raise ProviderError("busy", status_code=503)
        return {job: status for job in ids if (status := self._status(job)) is not None}

    async def cancel(self, job: str) -> None:
        self.asked_to_end.add(job)

    def _status(self, job: str) -> Status | None:
        if (ended := self.jobs[job]) is not None:
            return ended
        match self.poll_next:
            case "running":
                return Status.running(None)
            case "unknown":
                return None
            case "ok":
                self.jobs[job] = Status.succeeded({"did": job})
            case "failed":
                self.jobs[job] = Status.failed("bad luck")
            case _:
                self.jobs[job] = Status.cancelled()
        return self.jobs[job]


@dataclass(slots=True)
class Runtime:
    """What handlers are given of a worker."""

    store: Store
    settings: Any
    loop: asyncio.AbstractEventLoop
    connection: str = "default"

    def note_progress(self, task: Claimed, progress: str) -> None: ...

    def transaction(self, task: Claimed, result: Any) -> Any: ...


class Hands:
    """Workers of an application. ``held`` is what they have done, and not told the store."""

    def __init__(self, app: App, harness: Harness) -> None:
        self.app = app
        self.harness = harness
        self.held: list[list[Transition]] = []

    async def tick(self) -> None:
        """Makes ready what is due in the queues of the application."""
        await self.harness.store.tick(Heartbeat("w1", "host", 1, tuple(self.app.queues()), 4, 0, "0", {}))

    async def ready(self, kinds: Sequence[str]) -> list[str]:
        """Returns those of these kinds that have work."""
        await self.tick()
        found = {one.kind for one in await self.harness.store.counts() if one.state is State.QUEUED and one.n}
        return [kind for kind in kinds if kind in found]

    async def work(self, kind: str, count: int, calls: int = 1) -> int:
        """Claims tasks of a kind and runs their handler, several times at once if it is told to: then somebody else had
        the same tasks, and comes late. Returns how many there were."""
        await self.tick()
        handler = self.app.registry.handlers[kind]
        want = ClaimRequest("w1", (handler.queue,), count, LEASE, only=kind)
        claimed = (await self.harness.store.cycle(Commit(), want)).claimed
        if claimed:
            done = await asyncio.gather(*(self._run(kind, claimed) for _ in range(calls)))
            self.held += done[:1]
        return len(claimed)

    async def land(self, nth: int) -> set[UUID]:
        """Sends what was done; returns which tasks somebody else has."""
        cycle = await self.harness.store.cycle(Commit(transitions=self.held.pop(nth)), None)
        return cycle.lost

    async def lose(self) -> None:
        """Lets the leases of all workers end, and recovers their tasks. What they have done they still hold."""
        await self.harness.advance(LEASE + 1)
        await self.harness.recover()

    async def _run(self, kind: str, claimed: Sequence[Claimed]) -> list[Transition]:
        handler = self.app.registry.handlers[kind]
        runtime = Runtime(self.harness.store, self.app.settings, asyncio.get_running_loop())
        bulk = Bulk([Item(Context(task, runtime, "w1"), handler.payload.whole(task.payload)) for task in claimed])
        await handler.function(bulk)
        answers = collect_answers(bulk, None, None)
        return [
            settle(_lease(task), outcome_of(answer, handler, task), handler.policy, 0.0)
            for task, answer in zip(claimed, answers, strict=True)
        ]


def _lease(task: Claimed) -> Lease:
    return Lease(task.id, task.token, task.attempt, task.max_attempts, "w1", 1.0, task.feature, task.join)
