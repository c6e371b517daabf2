"""The part of the port by which workers know of each other who is alive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self
from uuid import UUID


@dataclass(slots=True, frozen=True)
class Judgement:
    """After how long a silent worker is dead, and how long a lease lasts: after both, nothing is left to be freed."""

    dead_after: float
    lease: float

    @property
    def dead_after_ms(self) -> int:
        return round(self.dead_after * 1000)

    @property
    def lease_ms(self) -> int:
        return round(self.lease * 1000)


@dataclass(slots=True, frozen=True)
class Beat:
    """A sign of life that does not depend on what a worker runs: a thread of its own sends it."""

    worker_id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    running: int
    version: str
    age: float  # seconds since this process became a worker
    tick_every: float  # seconds between two of its ticks
    every: float  # seconds until the next one of these
    judgement: Judgement
    stalled: float = 0.0  # seconds that its event loop has not answered

    @property
    def every_ms(self) -> int:
        return round(self.every * 1000)


@dataclass(slots=True, frozen=True)
class Heard:
    """What a beat returns. ``silent_in``: seconds until somebody else is to be judged, if that is before the next beat;
    ``declared``: it had been declared dead meanwhile; ``drain``: somebody has asked it to end."""

    silent_in: float | None = None
    declared: bool = False
    drain: bool = False


class Liveness(Protocol):
    """Who lives, and what becomes of the leases of those who do not."""

    def beside(self) -> Self:
        """Returns a store on the same data for the running event loop, with one connection, which is closed at the end
        of that loop. Where one store serves all loops, it is the same one."""

    async def beat(self, beat: Beat) -> Heard: ...

    async def judge(self, worker_id: str, by: Judgement) -> Mapping[str, int]:
        """Ends the leases of workers that are silent, and returns how many each of them had; recovery does the rest.
        ``worker_id`` is who judges: it must have beaten without a gap for as long as silence takes."""

    async def deaths(self, ids: Sequence[UUID]) -> Mapping[UUID, int]:
        """Returns which of these tasks were aboard workers that were lost, and how many."""

    async def set_apart(self, leases: Sequence[tuple[UUID, UUID]], apart: bool) -> None:
        """Notes of tasks that their worker has not begun them and has them wait, or that it begins them now. If it dies
        meanwhile, that is none of their doing."""

    async def bury(self, worker_id: str, host: str, pid: int) -> int:
        """Ends the leases of a worker whose process is known to be gone; returns how many. Another process under the
        same name keeps its own."""
