"""What workers and stores say to each other about who is alive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
class Process:
    """A process, as its machine tells it from others. ``machine``: where its pid means the same process (boot and
    namespaces); ``birth``: which of those that had this pid it is. Both are None where the system does not tell."""

    host: str
    pid: int
    machine: str | None = None
    birth: int | None = None


@dataclass(slots=True, frozen=True)
class Dead:
    """How many tasks a worker had that was declared dead. ``cut_off``: so many were silent that it may have been the
    network."""

    tasks: int
    cut_off: bool = False


@dataclass(slots=True, frozen=True)
class Beat:
    """A sign of life that does not depend on what a worker runs: a thread of its own sends it."""

    worker_id: str
    process: Process
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
class Neighbour:
    """Another worker that says it is of this machine: its process, the seconds since its last beat, and those between
    two of its beats."""

    process: Process
    silence: float
    every: float


@dataclass(slots=True, frozen=True)
class Heard:
    """What a beat returns. ``silent_in``: seconds until somebody may be judged, if that is before the next beat;
    ``declared``: it had been declared dead meanwhile; ``drain``: somebody has asked it to end; ``neighbours``: workers
    that seem to be of the same machine, so that this one can look for their processes."""

    silent_in: float | None = None
    declared: bool = False
    drain: bool = False
    neighbours: Mapping[str, Neighbour] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Silent:
    """Workers that are silent. ``worker_id`` is who says so: it must have beaten without a gap for as long as silence
    takes. Where those who may have been cut off (two beats late by now, or back from a gap only since then) are more
    than those who have been heard all that time, it may be the network: then four times as long must have passed since
    each of them was heard and since the beats of who says so began, and no task is held responsible for what became of
    its worker."""

    worker_id: str
    by: Judgement


@dataclass(slots=True, frozen=True)
class Gone:
    """A worker whose process is known to be gone; none if the worker is another process by now."""

    worker_id: str
    process: Process
