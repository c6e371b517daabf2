"""Takes over databases whose steps were applied one by one, before 0.1.0 joined them into one for each owner.

What the old steps had made by their end is what the joined one makes, so that only the record of steps changes. A
database that has only some of them is refused, like any other that was made by a version in development.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from redrive.stores.schema import Line, Migration

RECORD = {"postgres": "redrive.migration", "sqlite": "redrive_migration"}
# The last step before, by dialect and owner: its number, and its digest.
LAST: Mapping[tuple[str, str], tuple[int, str]] = {
    ("postgres", ""): (13, "2459d2ef8ac3451c"),
    ("postgres", "batches"): (8, "6dcc88bd34648c3c"),
    ("postgres", "ledger"): (3, "765f3f973bd1c621"),
    ("postgres", "outbox"): (3, "01415de1d8d0c6a7"),
    ("postgres", "webhooks"): (4, "7ac57d47cb66b433"),
    ("sqlite", ""): (9, "0d50ba515d2fae7c"),
    ("sqlite", "batches"): (7, "5784134881ce2fd2"),
    ("sqlite", "ledger"): (2, "47507720d4929193"),
    ("sqlite", "outbox"): (5, "912d9efe5d4fb256"),
    ("sqlite", "webhooks"): (2, "ac8267cac4c273b2"),
}


def joined(dialect: str, lines: Sequence[Line], rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows of the record of steps as they are once the old ones are joined."""
    found = [dict(row) for row in rows]
    for line in _lines_to_join(dialect, lines, found):
        last = next(row for row in reversed(found) if row["feature"] == line.feature)
        step = line.steps[0]
        found = [row for row in found if row["feature"] != line.feature]
        found.append({**last, "version": step.version, "name": step.name, "needs": 1, "digest": step.digest})
    return found


def join_script(
    dialect: str, lines: Sequence[Line], rows: Iterable[Mapping[str, Any]], note: Callable[[Line, Migration], str]
) -> str:
    """Returns what writes the joined steps in place of the old ones; empty where there are none of those."""
    return "".join(
        f"delete from {RECORD[dialect]} where feature = '{line.feature}';\n{note(line, line.steps[0])}\n"  # noqa: S608
        for line in _lines_to_join(dialect, lines, rows)
    )


def _lines_to_join(dialect: str, lines: Sequence[Line], rows: Iterable[Mapping[str, Any]]) -> list[Line]:
    last = {(row["feature"], row["version"]): row["digest"] for row in rows}
    found = []
    for line in lines:
        number, digest = LAST.get((dialect, line.feature), (0, ""))
        if last.get((line.feature, number)) == digest and (line.feature, number + 1) not in last:
            found.append(line)
    return found
