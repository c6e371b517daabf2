"""The audit after a storm: what was acknowledged, what the store says became of it, and what the handlers did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from redrive_kit.labs import journal
from storm.rows import Row, kept_totals, ledger_rows, read_attempts, read_rows
from storm.world import World

SAMPLES = 5


@dataclass(slots=True)
class Account:
    """Counts that have to be zero are in ``wrong``, with examples in ``samples``."""

    acknowledged: int = 0
    accounted: int = 0
    states: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    recovered: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[str]] = field(default_factory=dict)

    def count(self, name: str, found: Iterable[object]) -> None:
        listed = [str(element) for element in found]
        self.wrong[name] = len(listed)
        if listed:
            self.samples[name] = listed[:SAMPLES]

    @property
    def balanced(self) -> bool:
        return not any(self.wrong.values())


def audit(world: World) -> tuple[Account, list[Row]]:
    """Taken when nothing is offered any more and the workers have had the time to finish."""
    account, rows = Account(), read_rows(world)
    by_id = {row.id: row for row in rows}
    acks = world.feed.acks()
    events = list(world.fleet.events())
    account.acknowledged = len(acks)
    account.accounted = sum(1 for ack in acks if ack.task_id in by_id)
    account.states = dict(Counter(row.state for row in rows))
    account.refusals = world.feed.refusals()
    account.recovered = sum(1 for event in events if "expired" in event)

    account.count("lost", (ack.task_id for ack in acks if ack.task_id not in by_id))
    offered = world.feed.offers()
    account.count("never offered", (row for row in rows if row.key not in offered))
    _twice(account, world, rows, events)
    account.count("stuck", (row for row in rows if row.state == "running" and row.lease_left < 0))
    account.count("unfinished", (row for row in rows if row.state not in ("completed", "failed", "cancelled")))
    account.count("failed", (row for row in rows if row.state in ("failed", "cancelled")))
    _effects(account, world, by_id, events)
    _totals(account, world, rows)
    _timelines(account, world, rows)
    return account, rows


def _twice(account: Account, world: World, rows: list[Row], events: list[dict[str, object]]) -> None:
    """A second commit shows in one of three places: two rows, two bookings, two completions that were accepted."""
    places = Counter(row.id for row in rows)
    booked = Counter(ledger_rows(world))
    accepted = Counter(str(event["task_id"]) for event in events if event["event"] == "task.completed")
    twice = {found for counts in (places, booked, accepted) for found, n in counts.items() if n > 1}
    account.count("committed twice", sorted(twice))
    # The booking and the completion are one transaction: neither exists without the other.
    completed = {row.id for row in rows if row.kind in ("LEDGER", "GATED_LEDGER") and row.state == "completed"}
    account.count("torn", sorted(completed ^ set(booked)))


def _effects(account: Account, world: World, by_id: dict[str, Row], events: list[dict[str, object]]) -> None:
    runs: Counter[str] = Counter()
    tokens: Counter[tuple[str, str]] = Counter()
    ended: set[str] = set()
    for line in journal.read(world.directory, "effects"):
        what, task_id, _attempt, token = line[:4]
        if what == "end":
            ended.add(task_id)
            continue
        runs[task_id] += 1
        tokens[task_id, token] += 1
    # Work that was handed back (a shutdown, a lost connection) ran without using up its attempt.
    handed_back = Counter(
        str(event["task_id"])
        for event in events
        if event["event"] == "task.requeued" and event.get("error_code") is None
    )
    account.runs = runs.total()
    account.count(
        "runs over attempts",
        (f"{by_id.get(i)}: {n} runs" for i, n in runs.items() if n > _allowed(by_id.get(i), handed_back[i])),
    )
    account.count("ran twice on one lease", (found for found, n in tokens.items() if n > 1))
    completed = (row for row in by_id.values() if row.state == "completed")
    account.count("completed without its effect", (row for row in completed if row.id not in ended))


def _allowed(row: Row | None, handed_back: int) -> int:
    return 0 if row is None else row.attempts + handed_back


def _totals(account: Account, world: World, rows: list[Row]) -> None:
    real = Counter((row.queue, row.kind, row.state) for row in rows)
    kept = kept_totals(world)
    account.count(
        "totals", (f"{key}: {kept[key]} kept, {real[key]} real" for key in kept | real if kept[key] != real[key])
    )


def _timelines(account: Account, world: World, rows: list[Row]) -> None:
    """Every attempt but the last of a completed task failed or expired, and each of those is on record, once."""
    recorded = read_attempts(world)
    account.count(
        "timelines",
        (
            f"{row}: attempts {sorted(recorded.get(row.id, []))}"
            for row in rows
            if row.state == "completed" and sorted(recorded.get(row.id, [])) != list(range(1, row.attempts))
        ),
    )
