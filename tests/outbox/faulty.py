"""A sink that fails as it is told to, and passes the rest on to a real one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redrive.outbox.event import Event
from redrive.outbox.sink import Sink
from redrive.outbox.verdict import Verdict

# Gets the events of a request; returns verdicts to give in place of the real ones, by position; or raises.
Fault = Callable[[Sequence[Event]], dict[int, Verdict]]


class Faulty:
    def __init__(self, real: Sink) -> None:
        self._real = real
        self.remembers_deletes = real.remembers_deletes
        self.compares_versions = real.compares_versions
        self.faults: list[Fault | BaseException] = []  # of the next requests, in their order
        self.fault: Fault | None = None  # of every other
        self.before: Callable[[], Awaitable[None]] | None = None  # called first, at each request
        self.unreachable = False
        self.lost: list[bool] = []  # of the next requests: whether the answer is lost when all is written
        self.requests: list[list[Event]] = []

    async def write(self, events: Sequence[Event], index: str | None = None) -> Sequence[Verdict]:
        self.requests.append(list(events))
        if self.before is not None:
            await self.before()
        fault: Any = self.faults.pop(0) if self.faults else self.fault
        if isinstance(fault, BaseException):
            raise fault
        instead: dict[int, Verdict] = {} if fault is None else fault(events)
        passed = [event for n, event in enumerate(events) if n not in instead]
        real = iter(await self._real.write(passed, index) if passed else ())
        if self.lost and self.lost.pop(0):
            raise ConnectionResetError("the answer is lost")
        return [instead[n] if n in instead else next(real) for n in range(len(events))]

    async def check(self) -> None:
        if self.unreachable:
            raise ConnectionError
        await self._real.check()

    async def close(self) -> None:
        await self._real.close()
