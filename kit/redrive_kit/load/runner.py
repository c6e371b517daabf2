"""Makes load: so many operations at a time, at a rate, until all are done or somebody stops it."""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from redrive.errors import RedriveError
from redrive.ids import new_id
from redrive_kit.load.plan import LoadPlan, Scenario
from redrive_kit.load.targets import Target, error_kind

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
GRACE_S = 2.0  # what is under way when it is stopped may take so long to end
CREATES, UPDATES = 0.5, 0.8  # of a mixed load: half are new, three tenths are changed, the rest is deleted
WORDS = ("bottle", "bread", "candle", "copper", "cotton", "dinner", "engine", "father", "garden", "hammer", "island")


class LoadFailed(RedriveError):
    """Load could not be made."""

    code = "LOAD_FAILED"


class Runner:
    """One load. ``tally`` can be read at any time, also while it runs and after it was stopped."""

    def __init__(self, plan: LoadPlan, target: Target, told: Callable[[int], None] = lambda _: None) -> None:
        self._plan, self._target, self.told = plan, target, told
        self._notes: list[str] = []  # that nobody is busy with
        self._mark = str(new_id())[:13]  # in the titles of this load
        self._next = 0
        self._stopped = asyncio.Event()
        self.tally = Tally()

    def stop(self) -> None:
        """Begins no more operations."""
        self.tally.interrupted = True
        self._stopped.set()

    async def prepare(self) -> None:
        """Makes the notes that are changed or deleted, as fast as it goes; they are not counted."""
        wanted = self._plan.needed
        places = iter(range(wanted))

        async def make() -> None:
            for n in places:
                if self._stopped.is_set():
                    return
                self._notes.append(await self._target.create(f"load {self._mark} {n}", self._text()))
                self.tally.prepared += 1
                self.told(1)

        makers = [asyncio.create_task(make()) for _ in range(min(self._plan.concurrency, wanted))]
        try:
            await asyncio.gather(*makers)
        except Exception as error:
            for one in makers:
                one.cancel()
            said = f"only {self.tally.prepared:,} could be made: {error_kind(error)}"
            raise LoadFailed(
                f"{self._plan.scenario} needs {wanted:,} notes, and {said}",
                hint="is the application, or the database, in order? --scenario create needs none",
            ) from error

    async def run(self) -> None:
        """Does the operations of the plan. One that fails is counted, and the others go on."""
        self.tally.began = time.monotonic()
        workers = [asyncio.create_task(self._work()) for _ in range(min(self._plan.concurrency, self._plan.total))]
        stopped = asyncio.create_task(self._stopped.wait())
        left = set(workers)
        while left and not stopped.done():
            _, others = await asyncio.wait({stopped, *left}, return_when=asyncio.FIRST_COMPLETED)
            left &= others
        if left:
            await asyncio.wait(left, timeout=GRACE_S)
        self.tally.ended = time.monotonic()
        for one in (stopped, *workers):
            one.cancel()
        await asyncio.gather(stopped, *workers, return_exceptions=True)

    async def _work(self) -> None:
        while self._next < self._plan.total and not self._stopped.is_set():
            n, self._next = self._next, self._next + 1
            await self._until_due(n)
            if self._stopped.is_set():
                return
            op, work = self._operation(n)
            began = time.perf_counter()
            try:
                await work
                self.tally.succeeded(op, time.perf_counter() - began)
            except Exception as error:
                self.tally.failed(error_kind(error))
            self.told(1)

    async def _until_due(self, n: int) -> None:
        if not self._plan.rate:
            return
        wait = self.tally.began + n / self._plan.rate - time.monotonic()
        if wait > 0:
            try:
                await asyncio.wait_for(self._stopped.wait(), wait)
            except TimeoutError:
                return

    def _operation(self, n: int) -> tuple[str, Awaitable[None]]:
        """Returns the next operation. A note that somebody is busy with is nobody else's."""
        scenario, dice = self._plan.scenario, random.random()  # noqa: S311 (which note, not a secret)
        if scenario is Scenario.MIXED:
            scenario = Scenario.CREATE if dice < CREATES else Scenario.UPDATE if dice < UPDATES else Scenario.DELETE
        if scenario is Scenario.CREATE or not self._notes:
            return Scenario.CREATE, self._create(n)
        at = random.randrange(len(self._notes))  # noqa: S311
        self._notes[at], self._notes[-1] = self._notes[-1], self._notes[at]
        note = self._notes.pop()
        return scenario, self._update(note) if scenario is Scenario.UPDATE else self._target.delete(note)

    async def _create(self, n: int) -> None:
        note = await self._target.create(f"load {self._mark} {n}", self._text())
        if self._plan.scenario is Scenario.MIXED:
            self._notes.append(note)

    async def _update(self, note: str) -> None:
        try:
            await self._target.update(note, self._text())
        finally:
            self._notes.append(note)

    def _text(self) -> str:
        """Returns words of so many bytes, which can be searched for."""
        size = self._plan.bytes
        return " ".join(random.choices(WORDS, k=size // 5 + 1))[:size].ljust(size, ".")  # noqa: S311


@dataclass(slots=True)
class Tally:
    """Times are kept as four bytes each: ten million of them are forty megabytes."""

    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    done: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    times: array[float] = field(default_factory=lambda: array("f"))
    prepared: int = 0
    interrupted: bool = False

    def succeeded(self, op: str, seconds: float) -> None:
        self.done[op] += 1
        self.times.append(seconds)

    def failed(self, kind: str) -> None:
        self.errors[kind] += 1

    def latency_ms(self) -> dict[str, float | None]:
        """Returns how long operations that were done took: so many of them took no longer."""
        ordered = sorted(self.times)
        if not ordered:
            return dict.fromkeys(SHARES)
        return {
            name: round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 2)
            for name, share in SHARES.items()
        }

    def summary(self, plan: LoadPlan, into: str) -> dict[str, Any]:
        """Returns everything as one document."""
        seconds = max((self.ended or time.monotonic()) - self.began, 1e-9)
        done = self.done.total()
        return {
            "into": into,
            "scenario": plan.scenario.value,
            "total": plan.total,
            "bytes": plan.bytes,
            "rate": plan.rate,
            "concurrency": plan.concurrency,
            "prepared": self.prepared,
            "done": done,
            "failed": self.errors.total(),
            "operations": dict(self.done),
            "errors": dict(self.errors.most_common()),
            "seconds": round(seconds, 3),
            "per_second": round(done / seconds, 1),
            "latency_ms": self.latency_ms(),
            "interrupted": self.interrupted,
        }
