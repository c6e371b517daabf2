"""Defines what one request works with: the connection, the time, and what has to follow from it."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from redrive.kernel.microseconds import to_datetime as to_datetime
from redrive.kernel.microseconds import to_micros as to_micros
from redrive.kernel.ports.store import Wake
from redrive.kernel.retry_guard import Withheld
from redrive.kernel.task import State
from redrive.stores.features import Features
from redrive.stores.sql import statements

# Converts times to what SQLite holds: whole microseconds since 1970, UTC.

SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000


def micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


SQL = statements("redrive.stores.sqlite", "session.sql")
DUE_SOON_US = 5_000_000
BEAT_WITHIN_S = 0.02
FORGOTTEN = "forgotten"  # counted beside the states: these are cancelled, too
_COLUMN = {name: index for index, name in enumerate([*(state.value for state in State), FORGOTTEN])}

NO_FEATURES = Features((), "sqlite")

T = TypeVar("T")
Row = Any  # a sequence of columns
Execute = Callable[[str, tuple[Any, ...]], Iterable[Any]]


class Tally:
    """Gathers changes of the totals, written once per transaction; and what became of tasks that were retried."""

    __slots__ = ("_changes", "_retries")

    def __init__(self) -> None:
        self._retries: Counter[tuple[str, str, str]] = Counter()
        self._changes: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * len(_COLUMN))

    def add(self, queue: str, kind: str, state: str, n: int = 1) -> None:
        self._changes[queue, kind][_COLUMN[state]] += n

    def move(self, queue: str, kind: str, source: str, target: str, n: int = 1) -> None:
        change = self._changes[queue, kind]
        change[_COLUMN[source]] -= n
        change[_COLUMN[target]] += n

    def retry(self, bulk_id: str | None, outcome: str, n: int = 1, cause: str = "") -> None:
        """Counts tasks of a bulk retry; of others nothing."""
        if bulk_id is not None:
            self._retries[bulk_id, outcome, cause] += n

    def merge(self, other: Tally) -> None:
        self._retries.update(other._retries)
        for key, change in other._changes.items():
            mine = self._changes[key]
            for index, n in enumerate(change):
                mine[index] += n

    def flush(self, execute: Execute) -> None:
        rows = [[*key, *change] for key, change in self._changes.items() if any(change)]
        self._changes.clear()
        if rows:
            execute(SQL["totals"], (dumps(rows),))
        if self._retries:
            execute(SQL["retries"], (dumps([[*key, n] for key, n in self._retries.items() if n]),))
            self._retries.clear()


@dataclass(slots=True)
class PendingWakes:
    """Gathers why somebody should look, sent once the transaction is committed."""

    queues: set[str] = field(default_factory=set)
    due: int | None = None
    cancel: bool = False
    anything: bool = False

    def due_at(self, at: int, now: int) -> None:
        """Notes a time if it is soon: workers look at the clock every few seconds anyway."""
        if at - now < DUE_SOON_US:
            self.due = at if self.due is None else min(self.due, at)

    def merge(self, other: PendingWakes) -> None:
        self.queues |= other.queues
        self.cancel |= other.cancel
        self.anything |= other.anything
        if other.due is not None:
            self.due = other.due if self.due is None else min(self.due, other.due)

    def to_send(self, now: int) -> list[Wake]:
        # What another process committed may be ready now, due soon or a request to cancel: look, and beat. Not at
        # once: its next commits within this moment are answered by the same beat.
        """Returns the hints to send."""
        found = [Wake(), Wake(due_in=BEAT_WITHIN_S)] if self.anything else [Wake(queue=queue) for queue in self.queues]
        if self.due is not None:
            found.append(Wake(due_in=max(self.due - now, 0) / 1_000_000))
        if self.cancel:
            found.append(Wake(cancel=True))
        return found


@dataclass(slots=True)
class Session:
    """One request's connection, clock and what it gathers. ``now`` is the store's clock, in microseconds, read when the
    request's turn came."""

    connection: sqlite3.Connection
    now: int
    features: Features = NO_FEATURES
    tally: Tally = field(default_factory=Tally)
    wakes: PendingWakes = field(default_factory=PendingWakes)
    instead: dict[UUID, State] = field(default_factory=dict)  # as in Applied
    withheld: dict[UUID, Withheld] = field(default_factory=dict)  # as in Applied

    def rows(self, sql: str, *args: Any) -> list[Row]:
        return self.connection.execute(sql, args).fetchall()

    def gathered(self, sql: str, *args: Any) -> list[Any]:
        """Returns many rows that are sent as one, of ``json_group_array``. Between two rows SQLite's thread lets others
        have the interpreter, and gets it back five milliseconds later when a handler is busy: five hundred rows would
        take seconds."""
        ((text,),) = self.connection.execute(sql, args).fetchall()
        found: list[Any] = json.loads(text)
        return found

    def row(self, sql: str, *args: Any) -> Row | None:
        found: Row | None = self.connection.execute(sql, args).fetchone()
        return found

    def run(self, sql: str, *args: Any) -> int:
        """Executes a statement; returns how many rows changed."""
        return self.connection.execute(sql, args).rowcount

    def positions(self, count: int) -> int:
        """Takes ``count`` places at the tail; returns the first."""
        return take_positions(lambda sql, args: self.connection.execute(sql, args).fetchall(), count)

    def failed_places(self, count: int) -> int:
        """Takes ``count`` places in the order of failures; returns the first."""
        ((last,),) = self.rows(SQL["take_failed"], count)
        return int(last) - count + 1


def inside(session: Session, work: Callable[[Session], T], *, keep: bool = True) -> T:
    """Runs work in a savepoint of its own, with totals of its own: what fails leaves nothing behind."""
    inner = Session(session.connection, session.now, session.features)
    session.connection.execute("savepoint redrive_part")
    try:
        answer = work(inner)
    except BaseException:
        session.connection.execute("rollback to redrive_part")
        session.connection.execute("release redrive_part")
        raise
    if not keep:
        session.connection.execute("rollback to redrive_part")
    session.connection.execute("release redrive_part")
    if keep:
        session.tally.merge(inner.tally)
        session.wakes.merge(inner.wakes)
        session.instead |= inner.instead
        session.withheld |= inner.withheld
    return answer


def take_positions(execute: Execute, count: int) -> int:
    ((last,),) = execute(SQL["take_positions"], (count,))
    return int(last) - count + 1


def dumps(value: Any) -> str:
    """Returns JSON for ``json_each``. Not ASCII-only: text that is not valid is then refused where it is bound."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
