"""The report: a table of targets for the terminal, and everything as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.labels import label
from bench.targets import MEETS, SHORT, SMALLER, Row, dig

Results = dict[str, Any]
METHOD = Path(__file__).parent / "method.md"
MARKS = {MEETS: "✓", SHORT: "✗", SMALLER: "(✓)"}


def value(row: Row) -> str:
    if row.value is None:
        return "–"
    digits = 2 if row.unit in ("×", "ms") or abs(row.value) < 10 else 0
    return f"{row.value:,.{digits}f}{row.unit if row.unit in ('×', '%') else ' ' + row.unit}"


def targets_table(rows: Sequence[Row]) -> str:
    """For the terminal: aligned, what falls short marked."""
    lines = [(MARKS.get(row.verdict, "?"), row.name, value(row), row.target, row.verdict, row.measured) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[5]]).rstrip()
        for line in lines
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = True) -> str:
    """A Markdown table; with ``numbers``, all columns but the first are aligned to the right."""
    lines = [f"| {' | '.join(head)} |", f"|---|{('---:|' if numbers else '---|') * (len(head) - 1)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def number(found: float | None, digits: int = 0) -> str:
    return "–" if found is None else f"{found:,.{digits}f}"


def markdown(results: Results, rows: Sequence[Row], plots: Sequence[str]) -> str:
    parts = [
        "# How fast is redrive",
        f"`./dev bench --{results['mode']}`, one run on one machine. Absolute figures move from machine to machine; "
        "ratios within one run are what counts.",
        facts(results["machine"]),
        "## Targets",
        table(
            ("target", "measured", "asked for", "verdict", "from"),
            (
                (row.name, value(row), row.target, f"{MARKS.get(row.verdict, '')} {row.verdict}".strip(), row.measured)
                for row in rows
            ),
            numbers=False,
        ),
        *(f"![{name}]({name}.svg)" for name in plots),
        "## Drain, enqueue, pick-up",
        "Tasks per second of no-op tasks with one and two worker processes (median, and spread of the runs where there "
        "were several); milliseconds from the enqueue call to the handler on an idle worker.",
        speeds(results),
        "## What a task costs",
        costs(results),
        *floor(results),
        *growth(results),
        *horizon(results),
        *operating(results),
        *outbox(results),
        "## How each was set up",
        setups(results),
        METHOD.read_text(encoding="utf-8").strip(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def facts(machine: Results) -> str:
    return "\n".join(f"- {name.replace('_', ' ')}: {found}" for name, found in machine.items() if found is not None)


def measured_peers(results: Results) -> list[Results]:
    return [entry for entry in results["peers"].values() if "not_measured" not in entry]


def speeds(results: Results) -> str:
    head = ("", "1 process", "2 processes", "enqueue one by one", "100 coroutines", "bulk", "pick-up p50 ms", "p99 ms")
    return table(
        head,
        (
            (
                f"{entry['name']} {entry['version']}",
                *(_rate(dig(entry, "drain", processes)) for processes in ("1", "2")),
                *(_rate(dig(entry, "enqueue", way)) for way in ("one", "concurrent", "bulk")),
                *(number(dig(entry, "pickup", share), 2) for share in ("p50_ms", "p99_ms")),
            )
            for entry in measured_peers(results)
        ),
    )


def _rate(found: Results | None) -> str:
    if not found or "per_s" not in found:
        return "–"
    several = len(found.get("runs", ())) > 1
    return number(found["per_s"]) + (f" ±{found['spread'] / 2:.0%}" if several else "")


def costs(results: Results) -> str:
    head = (
        "drain, 1 process",
        "worker µs",
        "server µs",
        "memory MB",
        "statements",
        "commits",
        "WAL bytes",
        "WAL bytes to enqueue in bulk",
    )
    keys = (
        ("worker_us_per_task", 0),
        ("server_us_per_task", 0),
        ("rss_mb", 0),
        ("statements_per_task", 3),
        ("commits_per_task", 3),
        ("wal_bytes_per_task", 0),
    )
    return table(
        head,
        (
            (
                entry["name"],
                *(number(dig(entry, "drain", "1", key), digits) for key, digits in keys),
                number(dig(entry, "enqueue", "bulk", "wal_bytes_per_task")),
            )
            for entry in measured_peers(results)
        ),
    )


def floor(results: Results) -> list[str]:
    found = {name: run for name, run in results["floor"].items() if "per_s" in run}
    if not found:
        return []
    names = {"cycle": "settle and claim", "enqueue": "enqueue"}
    rows = (
        (names[name.split()[0]], number(run["batch"]), number(run["clients"]), number(run["per_s"]), run["by"])
        for name, run in found.items()
    )
    head = ("", "tasks a call", "clients", "tasks per s", "driven by")
    return ["## The floor: our SQL without our Python", table(head, rows)]


def growth(results: Results) -> list[str]:
    parts = []
    for name, cases in results["growth"].items():
        rows = [
            (
                label(case),
                number(case.get("per_s")),
                number(case.get("plain_per_s")),
                _share(case.get("ratio")),
                number(case.get("worker_us_per_task")),
                number(case.get("server_us_per_task")),
                number(case.get("rss_mb")),
                case.get("not_measured", ""),
            )
            for case in cases
        ]
        head = ("one worker process", "per s", "plain, around it", "share", "worker µs", "server µs", "memory MB", "")
        parts += [f"## Growth, {name}", table(head, rows)]
    return parts


def _share(found: float | None) -> str:
    return "–" if found is None else f"{found:.0%}"


def horizon(results: Results) -> list[str]:
    rows = [
        (f"{name}, {kind}", " → ".join(number(rate) for rate in found.get(kind, ())) or "–")
        for name, found in results["horizon"].items()
        for kind in ("clean", "pinned")
    ]
    head = (f"windows of {next(iter(results['horizon'].values()), {}).get('window_s', 0):g} s", "tasks per second")
    return ["## The pinned horizon", table(head, rows)] if rows else []


def operating(results: Results) -> list[str]:
    return [*_operating(results, "operating", ""), *_operating(results, "operating_sqlite", ", on SQLite")]


def _operating(results: Results, place: str, where: str) -> list[str]:
    pages = dig(results, place, "pages") or {}
    rows = [
        (name, number(page["median_ms"], 1), number(page["worst_ms"], 1), number(page["first_ms"], 1))
        for name, page in pages.items()
    ]
    head = ("through the HTTP API", "median ms", "worst", "first call")
    failed, history = (dig(results, place, name) for name in ("failed", "history"))
    title = f"## Operating, with {number(failed)} failed and {number(history)} in history{where}"
    return [title, table(head, rows), *console(results, place), *hostile(results, place)] if rows else []


def console(results: Results, place: str) -> list[str]:
    rows = [
        (f"`{path or '/'}`", number(page["median_ms"], 1), number(page["worst_ms"], 1), number(page["bytes"] / 1000, 1))
        for path, page in (dig(results, place, "console") or {}).items()
    ]
    return [table(("in the console", "median ms", "worst", "KB of HTML"), rows)] if rows else []


def hostile(results: Results, place: str) -> list[str]:
    found = dig(results, place, "hostile") or {}
    rows = [
        (name, *(number(page[figure], 1) for figure in ("cpu_ms", "lag_ms", "worst_ms")), number(page["bytes"]))
        for name, page in found.get("pages", {}).items()
    ]
    head = ("tasks that carry the worst", "loop held, ms of CPU", "by the clock, best", "worst of three", "bytes")
    grown = f"The process grew by {found.get('grown_mb')} MB over all of them."
    return ["### Who holds the event loop", table(head, rows), grown] if rows else []


def outbox(results: Results) -> list[str]:
    found = results.get("outbox") or {}
    if "events" not in found:
        return []
    names = {"bulk": "a plain bulk kind", "fts5": "events into full text", "http": "events to an HTTP receiver"}
    rows = [(names[name], *_outbox_figures(found[name]), _share(found["shares"].get(name))) for name in names]
    behind = found["behind"]
    rows += [
        (f"… {names[name]}, {found['backlog']:,} waiting", *_outbox_figures(behind[name]), _share(found["flat"][name]))
        for name in behind
    ]
    head = ("one worker process", "per s", "worker µs", "server µs", "memory MB", "events in memory", "share")
    return [f"## The outbox, {found['events']:,} events", table(head, rows)]


def _outbox_figures(run: Results) -> list[str]:
    return [number(run[name]) for name in ("per_s", "worker_us_per_task", "server_us_per_task", "rss_mb", "most")]


def setups(results: Results) -> str:
    return "\n".join(
        f"- **{entry['name']}**: {entry.get('settings') or 'not measured: ' + entry['not_measured']}" + _gaps(entry)
        for entry in results["peers"].values()
    )


def _gaps(entry: Results) -> str:
    """Measurements that did not work out, with their reasons."""
    found = [(f"drain with {count}", run) for count, run in entry["drain"].items()]
    found += [(f"enqueue {way}", run) for way, run in entry["enqueue"].items()]
    found += [(name, entry.get(name)) for name in ("pickup", "idle")]
    return "".join(
        f"; {name} not measured: {run['not_measured']}" for name, run in found if run and "not_measured" in run
    )
