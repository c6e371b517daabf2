"""The targets for the full product, and whether a run's figures meet them. Ratios in one run are what counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bench.figures import median, ratio

MEETS, SHORT, UNKNOWN = "meets", "falls short", "not measured"
SMALLER = "meets, at a smaller size"  # a quick run's rows and seconds are fewer than the target's
Results = dict[str, Any]
LONG_ENOUGH = 120.0  # seconds that the horizon must have been pinned
MANY = 1_000_000  # tasks that the target for growth speaks of
FLAT = -0.05  # a trend above this is no downward trend
ITEMS = 100_000  # items that the target for remote batches speaks of
MOST_GROWTH = 20  # MB that a worker may grow by while it drives them
MOST_EVENTS = 5_000  # of an outbox, in the memory of one worker
MOST_STATEMENTS = 4  # for a claim and a settlement of any size; a batch may be worked on in a few parts


@dataclass(frozen=True)
class Row:
    name: str
    measured: str  # the figures behind the ratio
    value: float | None
    unit: str  # what the value is: "×" or a unit
    target: str
    verdict: str


def verdict(value: float | None, low: float | None = None, high: float | None = None) -> str:
    if value is None:
        return UNKNOWN
    return MEETS if (low is None or value >= low) and (high is None or value <= high) else SHORT


def at_least(name: str, measured: str, value: float | None, low: float, unit: str = "×") -> Row:
    return Row(name, measured, value, unit, f"≥ {low:g}{_with(unit)}", verdict(value, low=low))


def at_most(name: str, measured: str, value: float | None, high: float, unit: str = "×") -> Row:
    return Row(name, measured, value, unit, f"≤ {high:g}{_with(unit)}", verdict(value, high=high))


def judged_at(row: Row, size: float | None, wanted: float) -> Row:
    """A target met with less than it asks for is not met yet; one missed with less is missed."""
    return replace(row, verdict=SMALLER) if row.verdict == MEETS and (size or 0) < wanted else row


def _with(unit: str) -> str:
    return unit if unit in ("×", "%") else f" {unit}"


def dig(results: Results, *path: str) -> Any:
    """The value at this path, or None."""
    found: Any = results
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def per_s(results: Results, peer: str, *path: str) -> float | None:
    found: float | None = dig(results, "peers", peer, *path, "per_s")
    return found


def best_peer(results: Results, processes: str) -> tuple[str, float | None]:
    """The fastest other queue on PostgreSQL in this run."""
    rates = {
        name: rate
        for name, entry in results["peers"].items()
        if entry.get("backend") == "postgres"
        and not name.startswith("redrive")
        and (rate := per_s(results, name, "drain", processes)) is not None
    }
    return max(rates.items(), key=lambda item: item[1]) if rates else ("no peer", None)


def rates(ours: float | None, theirs: float | None, whose: str) -> str:
    return f"{shown(ours)} against {whose}'s {shown(theirs)} /s"


def shown(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def drain_rows(results: Results) -> list[Row]:
    rows = []
    for processes, low in (("1", 2.5), ("2", 2.0)):
        name, theirs = best_peer(results, processes)
        ours = per_s(results, "redrive-postgres", "drain", processes)
        label = f"PostgreSQL drain, {processes} process{'es' if processes == '2' else ''}, against the best peer"
        rows.append(at_least(label, rates(ours, theirs, name), ratio(ours, theirs), low))
    # One worker overlaps its calls, so it is held against the best that our SQL does with any number of clients.
    floors = [dig(results, "floor", f"cycle 1000 x{clients}", "per_s") for clients in (1, 2)]
    floor = max((found for found in floors if found is not None), default=None)
    for processes in ("1", "2"):
        ours = per_s(results, "redrive-postgres", "drain", processes)
        label = f"… as a share of our SQL alone, {processes} process{'es' if processes == '2' else ''}"
        rows.append(at_least(label, rates(ours, floor, "the floor"), _percent(ratio(ours, floor)), 50, "%"))
    return rows


def horizon_rows(results: Results) -> list[Row]:
    found = dig(results, "horizon", "redrive-postgres") or {}
    share, trend = found.get("share_of_clean"), found.get("trend")
    held = found.get("pinned_s")
    when = f"Horizon pinned for {held or LONG_ENOUGH:g} s"
    rows = [
        at_least(f"{when}, share of clean", _windows(found), _percent(share), 90, "%"),
        at_least(f"{when}, trend from first to last window", _windows(found), _percent(trend), FLAT * 100, "%"),
    ]
    return [judged_at(row, held, LONG_ENOUGH) for row in rows]


def _windows(found: Results) -> str:
    pinned = found.get("pinned")
    return (
        "–" if not pinned else " → ".join(f"{rate:,.0f}" for rate in (pinned[0], pinned[len(pinned) // 2], pinned[-1]))
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def growth_rows(results: Results) -> list[Row]:
    rows = []
    cases = dig(results, "growth", "redrive-postgres") or []
    for name in ("waiting", "delayed", "failed", "history"):
        found = max((c for c in cases if c["case"] == name), key=lambda c: c["rows"], default={})
        label = f"PostgreSQL, {found.get('rows', MANY):,} {'in ' if name == 'history' else ''}{name}, share of empty"
        measured = rates(found.get("per_s"), found.get("plain_per_s"), "empty")
        row = at_least(label, measured, _percent(found.get("ratio")), 90, "%")
        rows.append(judged_at(row, found.get("rows"), MANY))
    return rows


def pickup_rows(results: Results) -> list[Row]:
    rows = []
    for share, high in (("p50", 0.6), ("p99", 1.0)):
        ours, theirs = (
            dig(results, "peers", name, "pickup", f"{share}_ms") for name in ("redrive-postgres", "pgqueuer")
        )
        measured = f"{_ms(ours)} against pgqueuer's {_ms(theirs)}"
        rows.append(at_most(f"PostgreSQL pick-up {share}, idle worker", measured, ratio(ours, theirs), high))
    return rows


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} ms"


def enqueue_rows(results: Results) -> list[Row]:
    names = {"one": "one by one", "concurrent": "from 100 coroutines", "bulk": "in bulk"}
    rows = []
    for way, low in (("one", 2), ("concurrent", 10), ("bulk", 2)):
        ours, theirs = (per_s(results, name, "enqueue", way) for name in ("redrive-postgres", "pgqueuer"))
        rows.append(at_least(f"Enqueue {names[way]}", rates(ours, theirs, "pgqueuer"), ratio(ours, theirs), low))
    return rows


def sqlite_rows(results: Results) -> list[Row]:
    ours, theirs = (per_s(results, name, "drain", "1") for name in ("redrive-sqlite", "huey-sqlite"))
    p50 = dig(results, "peers", "redrive-sqlite", "pickup", "p50_ms")
    return [
        at_least("SQLite (FULL) drain", rates(ours, theirs, "huey"), ratio(ours, theirs), 10),
        at_most("SQLite pick-up p50 across processes", _ms(p50), p50, 5, "ms"),
    ]


def cost_rows(results: Results) -> list[Row]:
    drain = dig(results, "peers", "redrive-postgres", "drain", "1") or {}
    idle = dig(results, "peers", "redrive-postgres", "idle") or {}
    batches = [value for value in (dig(results, "statements", size) for size in ("100", "1000")) if value is not None]
    most = max(batches, default=None)
    cpu, memory = drain.get("worker_us_per_task"), drain.get("rss_mb")
    said = "–" if not batches else " / ".join(f"{value:.1f}" for value in batches) + " for 100 / 1,000"
    return [
        at_most("Worker CPU per no-op task", f"{shown(cpu)} µs", cpu, 30, "µs"),
        at_most("Resident memory while draining", f"{shown(memory)} MB", memory, 80, "MB"),
        at_most("Idle worker, statements", "", idle.get("statements_per_s"), 2, "a second"),
        at_most("Idle worker, share of a core", "", _percent(idle.get("cpu_share")), 1, "%"),
        at_most("Statements for a batch of any size", said, most, MOST_STATEMENTS, "statements"),
    ]


def operating_rows(results: Results) -> list[Row]:
    measured = "operating_sqlite" if dig(results, "operating_sqlite", "pages") else None
    return _operating(results, "operating", "") + (_operating(results, measured, " on SQLite") if measured else [])


def _operating(results: Results, place: str, where: str) -> list[Row]:
    found = dig(results, place, "pages") or {}
    failed, history = dig(results, place, "failed"), dig(results, place, "history")
    many = f"{shown(failed or MANY)} failed and {shown(history or 5 * MANY)} in history"
    label = f"An operator's pages with {many}{where}"
    slowest = max(found.items(), key=lambda page: page[1]["median_ms"], default=None)
    said = "–" if slowest is None else f"slowest: {slowest[0]}"
    row = at_most(label, said, None if slowest is None else slowest[1]["median_ms"], 100, "ms")
    return [
        judged_at(row, failed, MANY),
        *(judged_at(row, failed, MANY) for row in console_rows(results, place, where)),
    ]


def batch_rows(results: Results) -> list[Row]:
    """One batch of all tasks: no row that the fleet queues up for."""

    def row(name: str, label: str) -> Row:
        found = dig(results, "batch", name) or {}
        plain, batched = (found.get(one) for one in ("plain", "batched"))
        said = (
            "–" if not plain or not batched else f"{shown(median(batched))}/s against {shown(median(plain))}/s, in turn"
        )
        wanted = at_least(
            f"{label} drain, all in one batch, share of the one without", said, _percent(found.get("ratio")), 60, "%"
        )
        return judged_at(wanted, found.get("tasks"), MANY)

    return [row("redrive-postgres", "PostgreSQL"), row("redrive-sqlite", "SQLite")]


def remote_rows(results: Results) -> list[Row]:
    """Many batches at a slow provider: memory stays flat, and no batch is left behind."""
    rows = []
    for name, label in (("redrive-postgres", "PostgreSQL"), ("redrive-sqlite", "SQLite")):
        found = dig(results, "remote", name) or {}
        items, memory, least, most = (found.get(one) for one in ("items", "rss_mb", "least", "most"))
        said = "–" if not memory else f"{shown(items)} items in {found['batches']} batches, {shown(memory[-1])} MB"
        grown = at_most(f"Remote batches, {label}, growth of a worker", said, found.get("growth_mb"), MOST_GROWTH, "MB")
        share = None if least is None or not most else least / most
        halfway = "–" if least is None else f"{least:.0%} to {most:.0%} of each batch when half had ended"
        fair = at_least(f"Remote batches, {label}, the last batch against the first", halfway, _percent(share), 50, "%")
        rows += [judged_at(grown, items, ITEMS), judged_at(fair, items, ITEMS)]
    return rows


def outbox_rows(results: Results) -> list[Row]:
    """Events into sinks, held against a bulk kind that does nothing."""
    found = dig(results, "outbox") or {}
    plain, backlog = dig(found, "bulk", "per_s"), found.get("backlog")
    rows = []
    for sink, label in (("fts5", "full text"), ("http", "HTTP")):
        ours, behind = dig(found, sink, "per_s"), dig(found, "behind", sink, "per_s")
        share, flat = (_percent(dig(found, one, sink)) for one in ("shares", "flat"))
        rows.append(
            at_least(f"Outbox into {label}, share of a plain bulk kind", rates(ours, plain, "bulk"), share, 60, "%")
        )
        row = at_least(
            f"… with {backlog or MANY:,} events of backlog, share of without",
            rates(behind, ours, "none"),
            flat,
            90,
            "%",
        )
        rows.append(judged_at(row, backlog, MANY))
    most = found.get("most_events")
    row = at_most("Outbox, events in a worker's memory", "the most that were counted", most, MOST_EVENTS, "events")
    return [*rows, judged_at(row, backlog, MANY)]


def scraped_rows(results: Results) -> list[Row]:
    found = dig(results, "scraped") or {}
    plain, read = (found.get(name) for name in ("plain", "scraped"))
    said = "–" if not plain or not read else f"{shown(median(read))}/s against {shown(median(plain))}/s, in turn"
    label = "PostgreSQL drain, metrics read every second, share of the one without"
    return [at_least(label, said, _percent(found.get("ratio")), 97, "%")]


def console_rows(results: Results, place: str = "operating", where: str = "") -> list[Row]:
    pages = dig(results, place, "console") or {}

    def most(figure: str, label: str, factor: float, target: float, unit: str) -> Row:
        path, page = max(pages.items(), key=lambda page: page[1][figure], default=("–", None))
        return at_most(label, path or "/", None if page is None else page[figure] / factor, target, unit)

    return [
        most("median_ms", f"The console's slowest page{where}", 1, 100, "ms"),
        most("bytes", f"The console's largest page{where}", 1000, 100, "KB"),
    ]


TABLES: tuple[Callable[[Results], list[Row]], ...] = (
    drain_rows,
    horizon_rows,
    growth_rows,
    pickup_rows,
    enqueue_rows,
    sqlite_rows,
    cost_rows,
    operating_rows,
    scraped_rows,
    batch_rows,
    remote_rows,
    outbox_rows,
)


def evaluate(results: Results) -> list[Row]:
    return [row for table in TABLES for row in table(results)]
