"""Which workers are alive, and which tasks are lost with those that are not. Every face asks here, so that none calls a
worker alive that another calls silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from redrive.kernel.ports.store import Overview, WorkerLeases, WorkerRow
from redrive.kernel.wording import span

# A heartbeat is written every few seconds at most: after so long, or after three intervals, it is overdue.
QUIET, WRITTEN = timedelta(seconds=10), timedelta(seconds=4)
GONE_AFTER = timedelta(seconds=30)  # or twice the time after which it is overdue
# What ends the leases of a silent worker that used to beat.
DECLARED_DEAD = "a live worker declares it dead, by default within 75 s"
OUTSIDE, ABROAD = "http", timedelta(minutes=15)  # the host of those who claim from outside; they come now and then


class Standing(StrEnum):
    ALIVE = "alive"
    STOPPING = "stopping"  # it finishes what it has, and takes nothing new
    SILENT = "silent"  # its heartbeat is overdue: nobody may be at work on what it has
    GONE = "gone"  # it said goodbye, was declared dead, or has been silent for long


def standing(worker: WorkerRow, now: datetime) -> Standing:
    """Returns whether a worker is alive, stopping, silent or gone. An executor has no heartbeat, and is given more
    time."""
    quiet = now - worker.seen_at
    if worker.dead:
        return Standing.GONE
    if worker.host == OUTSIDE:
        return Standing.ALIVE if quiet < ABROAD and not worker.stopping else Standing.GONE
    overdue = max(QUIET, WRITTEN + 3 * timedelta(seconds=worker.every))
    if worker.stopping:
        # Its last words may be from while it was still finishing.
        return Standing.STOPPING if worker.running and quiet < overdue else Standing.GONE
    if quiet < overdue:
        return Standing.ALIVE
    return Standing.SILENT if quiet < max(GONE_AFTER, 2 * overdue) else Standing.GONE


def live_workers(overview: Overview) -> list[WorkerRow]:
    """Returns those that serve queues, executors included."""
    return [worker for worker in overview.workers if standing(worker, overview.now) is Standing.ALIVE]


def alone_at(overview: Overview) -> dict[str, list[str]]:
    """Returns workers after which a queue would have none: each with those queues. Who drains is counted out."""
    staying = [worker for worker in live_workers(overview) if worker.drain_at is None]
    served = Counter(queue for worker in staying for queue in worker.queues)
    alone = {worker.id: [queue for queue in worker.queues if served[queue] == 1] for worker in staying}
    return {name: queues for name, queues in alone.items() if queues}


def drivers(overview: Overview) -> list[WorkerRow]:
    """Returns live workers that also carry operations out."""
    return [worker for worker in live_workers(overview) if worker.host != OUTSIDE]


def is_lost(worker: WorkerRow, now: datetime) -> bool:
    """Returns whether nobody works on what this worker has. Of executors nobody knows that before their leases
    end."""
    return worker.host != OUTSIDE and standing(worker, now) in (Standing.SILENT, Standing.GONE)


def fell_silent(worker: WorkerRow, now: datetime) -> bool:
    """Returns whether a worker is not heard of any more, and did not say goodbye."""
    return not worker.stopping and is_lost(worker, now)


@dataclass(slots=True, frozen=True)
class Lost:
    """Tasks that run on a worker of which nothing is heard; they come back when others declare it dead, or when their
    leases end. ``restarted``: it runs again, and knows nothing of them."""

    worker: WorkerRow
    queue: str
    tasks: int
    first_ends: datetime
    last_ends: datetime
    restarted: bool

    def worker_told(self, now: datetime) -> str:
        """Returns what became of the worker, as the end of "which …"."""
        if self.restarted:
            return f"was started anew {span(now - self.worker.started_at)} ago"
        return f"has been silent for {span(now - self.worker.seen_at)}"

    def return_told(self, now: datetime) -> str:
        """Returns when the tasks come back."""
        lease, they = ("its lease", "it comes") if self.tasks == 1 else ("their leases", "they come")
        if self.last_ends > now:
            ends = "ends" if self.tasks == 1 else "end"
            judged = f"{DECLARED_DEAD}, or " if self.worker.hears else ""
            return f"{they} back when {judged}{lease} {ends}, in {span(self.last_ends - now)} at the latest"
        ended = span(now - self.last_ends)
        return f"{lease} ended {ended} ago, and {they} back as soon as a live worker looks"


def lost(leases: Sequence[WorkerLeases], overview: Overview) -> list[Lost]:
    """Returns tasks whose worker is silent or was restarted, by worker and queue."""
    workers = {worker.id: worker for worker in overview.workers}
    found = []
    for own in leases:
        worker = workers.get(own.worker_id)
        if worker is None:
            continue
        silent = is_lost(worker, overview.now)
        if tasks := own.tasks if silent else own.earlier:
            found.append(Lost(worker, own.queue, tasks, own.first_ends, own.last_ends, not silent))
    return found
