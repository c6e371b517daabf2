"""What workers and stores say to each other about who is alive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    """What a beat returns. ``silent_in``: seconds until somebody may be judged, if that is before the next beat, or
    until what another process had under this name may be ended, however long that takes; ``declared``: it had been
    declared dead meanwhile; ``drain``: somebody has asked it to end; ``neighbours``: workers that seem to be of the
    same machine, so that this one can look for their processes."""

    silent_in: float | None = None
    declared: bool = False
    drain: bool = False
    neighbours: Mapping[str, Neighbour] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Silent:
    """Workers that are silent. ``worker_id`` is who says so: it must have beaten without a gap for as long as silence
    takes, and not be late itself. Which workers these are, ``find_silent`` says. Besides, leases that another process
    had under the name of ``worker_id`` end when its process is that old: nobody has taken the name back."""

    worker_id: str
    by: Judgement


@dataclass(slots=True, frozen=True)
class Gone:
    """A worker whose process is known to be gone; none if the worker is another process by now."""

    worker_id: str
    process: Process


@dataclass(slots=True, frozen=True)
class Member:
    """One of the fleet. Times are microseconds of the store's clock. ``beating_since``: the first beat after which none
    was two beats late; ``started_at``: when its process became a worker."""

    id: str
    seen_at: int
    beating_since: int
    started_at: int
    every_ms: int

    def silent_at(self, by: Judgement) -> int:
        """Returns when it would be silent."""
        return self.seen_at + 1000 * max(by.dead_after_ms, 3 * self.every_ms)

    def is_late(self, now: int) -> bool:
        return self.seen_at < now - 2000 * self.every_ms


@dataclass(slots=True, frozen=True)
class SilentMembers:
    """Who of the fleet is silent, and from when on a worker may declare them dead; while nobody is silent, when
    somebody will be. ``cut_off``: it may be the network, so that no task is held responsible."""

    ids: Sequence[str] = ()
    judged_at: int | None = None
    cut_off: bool = False


def find_silent(
    fleet: Sequence[Member], judge_id: str, by: Judgement, now: int, cut_off_before: Callable[[int], int]
) -> SilentMembers:
    """Returns who is silent, for one that may judge (PostgreSQL has the same rule in redrive.silent).

    ``fleet``: who beats, was seen less than ``dead_after`` and a lease ago, was not declared dead, and has not said
    goodbye. Where those who may have been cut off (two beats late by now, or back from a gap only since then) are more
    than those who have been heard all that time, it may be the network: then four times as long must have passed since
    each of them was heard and since the beats of who judges began. ``cut_off_before`` returns how many were declared
    dead in that way since a moment: for as long again they count as well, else the last of them would be taken for the
    only one."""
    patience = 1000 * by.dead_after_ms
    judging_since = next((one.beating_since for one in fleet if one.id == judge_id), None)
    others = [one.silent_at(by) for one in fleet if one.id != judge_id]
    if judging_since is None or not others:
        return SilentMembers()
    silent = [one for one in fleet if one.silent_at(by) <= now]
    if not silent:
        return SilentMembers(judged_at=min(others))
    on_time = [one for one in fleet if not one.is_late(now)]
    heard = [one for one in on_time if one.beating_since <= now - patience]
    returned = [one for one in on_time if one.beating_since > max(now - patience, one.started_at + patience)]
    missing = len(fleet) - len(on_time) + len(returned) + cut_off_before(now - 4 * patience)
    if missing <= len(heard):
        return SilentMembers([one.id for one in silent], max(min(others), judging_since + patience))
    judged_at = max(min(one.seen_at for one in silent), judging_since) + 4 * patience
    return SilentMembers([one.id for one in silent if one.seen_at + 4 * patience <= now], judged_at, cut_off=True)
