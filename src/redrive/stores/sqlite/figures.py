"""Reads figures for the metrics of the fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redrive.kernel.figures import LATE_AFTER_S, MOST_COUNTED, Figures
from redrive.stores.figures import MOST_VALUES, read
from redrive.stores.sql import statements
from redrive.stores.sqlite.session import Session, dumps

SQL = statements("redrive.stores.sqlite", "figures.sql")


def figures(session: Session) -> Figures:
    ((text,),) = session.rows(SQL["figures"], session.now, MOST_VALUES, MOST_COUNTED, LATE_AFTER_S)
    return read(text)


def overdue(session: Session, ages: Mapping[str, float], but: Sequence[str], most: Mapping[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for cap in {most.get(queue, MOST_COUNTED) for queue in ages}:  # a limit is the same for all rows of a statement
        wanted = dumps([(queue, age) for queue, age in ages.items() if most.get(queue, MOST_COUNTED) == cap])
        found |= session.rows(SQL["overdue"], session.now, wanted, dumps(list(but)), cap)
    return found
