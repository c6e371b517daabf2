"""How long each thing that is written is kept. Stores remove what is past its keep, in bounded pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True, frozen=True)
class RecordRule:
    """Removes documents of one collection so many days after they last changed. ``states``: only those that are over;
    None: all. ``keep_last``: the newest one stays, because that there ever was one matters."""

    days: float
    states: tuple[str, ...] | None = None
    keep_last: bool = False


@dataclass(slots=True, frozen=True)
class FeatureRule:
    """Removes rows of a feature's own tables that are older than so many days, by one of its statements. That gets the
    time before which rows go (SQLite: in microseconds) and how many it may remove at once."""

    feature: str
    statement: str
    days: float


@dataclass(slots=True, frozen=True)
class Retention:
    """How many days things are kept. What belongs to a task stays at least as long as the task."""

    history_days: float = 30.0  # completed and cancelled tasks, from their end
    key_days: float = 30.0  # idempotency keys, from their enqueue, unless their task is live
    attempt_days: float = 30.0  # failed attempts
    dead_letter_days: float = 90.0
    cause_days: float = 90.0  # causes by which nothing is failed now, from when they were last seen
    noted_cause_days: float = 365.0  # the same for those that somebody annotated; what was said goes with them
    name_days: float = 1.0  # kinds in queues that no application has declared, from their last use
    trend_days: float = 7.0  # failures by the hour
    series_minute_days: float = 26 / 24  # the product's own time series, by the length of their rows
    series_hour_days: float = 31.0
    series_day_days: float = 400.0
    worker_days: float = 1.0  # workers that are not seen any more
    records: Mapping[str, RecordRule] | None = None
    features: tuple[FeatureRule, ...] = ()

    def values(self) -> dict[str, Any]:
        """Returns it as JSON values, but for what features keep."""
        rules = {} if self.records is None else self.records
        values = asdict(self)
        del values["features"]
        values["records"] = [{"collection": name, **asdict(rule)} for name, rule in rules.items()]
        return values


DEFAULTS = Retention()
