"""The outcome of a run: a table for people, JSON for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from storm.verdict import Result

COLUMNS = (
    "storm",
    "acked",
    "accounted",
    "lost",
    "twice",
    "stuck",
    "runs>att",
    "base/s",
    "stress",
    "recov",
    "after",
    "longest",
    "took",
    "verdict",
)


def table(results: list[Result]) -> str:
    lines = [COLUMNS, *map(cells, results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def cells(result: Result) -> tuple[str, ...]:
    account, rates = result.account, result.rates
    books = ["-"] * 6
    if account is not None:
        wrong = account.wrong
        numbers = (
            account.acknowledged,
            account.accounted,
            wrong["lost"],
            wrong["committed twice"],
            wrong["stuck"],
            wrong["runs over attempts"],
        )
        books = [str(number) for number in numbers]
    speeds = ["-"] * 5
    if rates is not None:
        after = "never" if rates.recovered_after is None else f"{rates.recovered_after:.1f} s"
        speeds = [f"{rates.baseline:.0f}", f"{rates.stress_ratio:.0%}", f"{rates.recovery_ratio:.0%}", after]
        speeds.append(f"{rates.longest:.1f} s")
    return (result.name, *books, *speeds, f"{result.seconds:.0f} s", "ok" if result.holds else "FAILED")


def remarks(result: Result) -> list[str]:
    """What else is worth a line: verdicts that do not hold, how it was done, what was measured."""
    lines = [f"  ✗ {v.what}: {v.detail or 'does not hold'}" for v in result.verdicts if not v.holds]
    lines += [f"  · {note}" for note in result.notes]
    if result.figures:
        lines.append("  · " + ", ".join(f"{name} {value}" for name, value in result.figures.items()))
    return lines


def document(results: list[Result], about: dict[str, Any]) -> dict[str, Any]:
    return {
        **about,
        "holds": all(result.holds for result in results),
        "storms": [asdict(result) | {"holds": result.holds, "ratios": _ratios(result)} for result in results],
    }


def _ratios(result: Result) -> dict[str, float] | None:
    if result.rates is None:
        return None
    return {"stress": round(result.rates.stress_ratio, 4), "recovery": round(result.rates.recovery_ratio, 4)}
