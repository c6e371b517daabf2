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


def overdue(session: Session, ages: Mapping[str, float], but: Sequence[str]) -> dict[str, int]:
    wanted = dumps(list(ages.items()))
    return dict(session.rows(SQL["overdue"], session.now, wanted, dumps(list(but)), MOST_COUNTED))
