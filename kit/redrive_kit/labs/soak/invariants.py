"""What has to hold: some of it all the time, the rest at quiet points, when nothing is offered and nothing broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

from redrive_kit.labs import journal
from redrive_kit.labs.processes import events_of
from redrive_kit.labs.soak.books import BOOKED, FAILING, FAILS_AFTER, Books
from redrive_kit.labs.soak.fleet import LEASE_S, Fleet
from redrive_kit.labs.soak.rows import Row, Rows

# A dead worker's tasks are back by then: its lease, a look for such, and what a busy machine takes for it.
RECOVERED_WITHIN_S = LEASE_S + 40.0
SAMPLES = 5
DONE = ("completed", "failed", "cancelled")


class Broken(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, found: Iterable[object]) -> None:
        listed = [str(one) for one in found]
        more = f" and {len(listed) - SAMPLES} more" if len(listed) > SAMPLES else ""
        super().__init__(f"{invariant}: {len(listed)}: {'; '.join(listed[:SAMPLES])}{more}")
        self.invariant = invariant


def insist(invariant: str, found: Iterable[object]) -> None:
    """Raises Broken where there is anything."""
    if listed := list(found):
        raise Broken(invariant, listed)


class Invariants:
    """Looks at tables, journals, logs and metrics. ``checked`` counts how often."""

    def __init__(self, rows: Rows, books: Books, fleet: Fleet) -> None:
        self._rows = rows
        self._books = books
        self._fleet = fleet
        self._processed: dict[str, float] = {}
        self.checked = 0

    async def always(self) -> None:
        """Checks what has to hold at any moment, whatever is broken."""
        insist("a worker ended by itself", self._fleet.dead())
        fresh, self._books.fresh = self._books.fresh, []
        live = await self._rows.live()
        late = [row for row in live if row.state == "running" and row.lease_over > RECOVERED_WITHIN_S]
        insist("running without a lease", late)
        insist("failed", (row for row in live if row.state == "failed" and row.kind != FAILING))
        booked, completed = await self._rows.bookings()
        insist("committed twice", (task for task, n in booked.items() if n > 1))
        insist("torn", completed ^ set(booked))
        there = {row.id for row in live}
        gone = [one for one in fresh if one not in there]
        if gone:
            known = {row.id for row in await self._rows.all()}
            insist("lost", (one for one in gone if one not in known))
        await self._metrics_grow()
        self.checked += 1

    async def _metrics_grow(self) -> None:
        """Counters of a process never go back."""
        for worker in self._fleet.projecting():
            now = (await worker.metrics()).get("outbox_processed_total")
            if now is not None:
                before = self._processed.get(worker.name, 0.0)
                insist("a counter went back", [f"{worker.name}: {before:g} → {now:g}"] if now < before else [])
                self._processed[worker.name] = now

    async def drained(self) -> bool:
        """Returns whether everything has ended."""
        return not any(row.state not in DONE for row in await self._rows.live())

    async def quiet(self) -> int:
        """Checks everything; returns how many tasks and events were looked at."""
        rows = await self._rows.all()
        by_id = {row.id: row for row in rows}
        acknowledged = self._books.tasks.keys() | self._books.events
        insist("lost", (one for one in acknowledged if one not in by_id))
        insist("two rows of one task", (one for one, n in Counter(row.id for row in rows).items() if n > 1))
        insist("unfinished", (row for row in rows if row.state not in DONE))
        wrong = (row for row in rows if (row.state == "failed") != (row.kind == FAILING))
        insist("ended otherwise than it has to", wrong)
        insist(
            "failed after other than all of its attempts",
            (row for row in rows if row.kind == FAILING and row.attempts != FAILS_AFTER),
        )
        booked, completed = await self._rows.bookings()
        insist("committed twice", (task for task, n in booked.items() if n > 1))
        insist("torn", completed ^ set(booked))
        insist("booked, and unknown", (one for one in booked if self._books.tasks.get(one, BOOKED) != BOOKED))
        self._runs(by_id)
        real = Counter((row.queue, row.kind, row.state) for row in rows)
        kept = await self._rows.totals()
        insist(
            "totals", (f"{key}: {kept[key]} kept, {real[key]} real" for key in kept | real if kept[key] != real[key])
        )
        await self._timelines(rows)
        await self._sink()
        return len(rows)

    def _runs(self, by_id: dict[UUID, Row]) -> None:
        """A task runs once for each attempt and each time it was handed back, and never twice on one lease."""
        runs: Counter[UUID] = Counter()
        tokens: Counter[tuple[str, str]] = Counter()
        ended: set[UUID] = set()
        for what, task_id, _, token in journal.read(self._fleet.directory, "runs"):
            if what == "end":
                ended.add(UUID(task_id))
            else:
                runs[UUID(task_id)] += 1
                tokens[task_id, token] += 1
        handed_back = self._handed_back(self._fleet.directory)
        insist("ran twice on one lease", (one for one, n in tokens.items() if n > 1))
        insist(
            "runs over attempts",
            (f"{by_id.get(one)}: {n} runs" for one, n in runs.items() if n > _allowed(by_id, one, handed_back)),
        )
        done = (row for row in by_id.values() if row.state == "completed" and row.id in self._books.tasks)
        insist("completed without having run", (row for row in done if row.id not in ended))

    @staticmethod
    def _handed_back(directory: Path) -> Counter[UUID]:
        """Returns how often tasks were given back without using up an attempt."""
        return Counter(
            UUID(event["task_id"])
            for log in directory.glob("worker-*.log")
            for event in events_of(log)
            if event["event"] == "task.requeued" and event.get("error_code") is None
        )

    async def _timelines(self, rows: list[Row]) -> None:
        """Every attempt but the last of a completed task failed or expired, and each of those is on record, once."""
        recorded = await self._rows.attempts()
        insist(
            "timelines",
            (
                f"{row}: attempts {sorted(recorded.get(row.id, []))}"
                for row in rows
                if row.state == "completed" and sorted(recorded.get(row.id, [])) != list(range(1, row.attempts))
            ),
        )

    async def _sink(self) -> None:
        found, wanted = await self._fleet.sink.versions(), self._books.documents
        insist(
            "sink and source differ",
            (
                f"{key}: {found.get(key)} in the sink, {wanted.get(key)} in the source"
                for key in sorted(found.keys() | wanted.keys())
                if found.get(key) != wanted.get(key)
            ),
        )

    async def metrics_agree(self) -> bool:
        """Returns whether every worker's metrics say that nothing waits, is under way or stuck; they are kept for some
        seconds."""
        names = ("outbox_lag_events", "outbox_inflight_events", "outbox_stuck_processing_events")
        pages = [await worker.metrics() for worker in self._fleet.projecting()]
        return bool(pages) and all(page.get(name) == 0 for page in pages for name in names)


def _allowed(by_id: dict[UUID, Row], task: UUID, handed_back: Counter[UUID]) -> int:
    row = by_id.get(task)
    return 0 if row is None else row.attempts + handed_back[task]
