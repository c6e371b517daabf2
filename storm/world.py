"""One store, its workers and its producer: what a storm breaks."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from storm.feed import Feed
from storm.fleet import LEASE, Fleet
from storm.processes import TooLate, until

START = 40.0
LEDGER = {
    "postgres": "create table public.ledger (task_id text not null, token text not null, attempt int not null)",
    "sqlite": "create table ledger (task_id text not null, token text not null, attempt integer not null)",
}


class World:
    """``url`` is how workers and producer see the store, perhaps through a bad wire; ``direct`` is how we look."""

    def __init__(self, direct: str, directory: Path, *, url: str | None = None, concurrency: int, seed: int) -> None:
        self.direct = direct
        self.url = url or direct
        self.directory = directory
        self.postgres = direct.startswith("postgresql")
        self.concurrency = concurrency
        self.fleet = Fleet(self.url, directory, concurrency)
        self.feed = Feed(self.url, directory, seed)
        self.notes: list[str] = []
        self.figures: dict[str, Any] = {}

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self, workers: int) -> None:
        """All processes at once."""
        self.begin([f"w{number}" for number in range(1, workers + 1)])

    def begin(self, names: list[str]) -> None:
        """A producer and these workers; returns when all of them are at it."""
        self.feed.start()
        for name in names:
            self.fleet.start(name)
        self.feed.wait_ready()
        self.wait_beating(self.fleet.started)

    def wait_beating(self, count: int, timeout: float = START) -> None:
        def beating() -> bool:
            dead = [worker.name for worker in self.fleet.workers.values() if not worker.alive]
            if dead:
                raise RuntimeError(f"{', '.join(dead)} ended during the start:\n{self.fleet.tails()}")
            return int(self.sql(f"select count(*) from {self.table('worker')}")[0][0]) >= count

        until(beating, f"{count} workers beat", timeout)

    def close(self) -> None:
        self.fleet.close()
        self.feed.kill()

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    # -- the store, seen directly ----------------------------------------------------------------------------------

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        if self.postgres:
            with psycopg.connect(self.direct, autocommit=True, connect_timeout=3) as connection:
                cursor = connection.execute(text.encode())
                return cursor.fetchall() if cursor.description else []
        with contextlib.closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as connection:
            return connection.execute(text).fetchall()

    @property
    def path(self) -> Path:
        return Path(self.direct.removeprefix("sqlite:///"))

    def table(self, name: str) -> str:
        return f"redrive.{name}" if self.postgres else f"redrive_{name}"

    def waiting(self) -> int:
        """Everything that is not finished, by the store's own totals."""
        columns = "coalesce(sum(queued + delayed + running + paused), 0)"
        return int(self.sql(f"select {columns} from {self.table('v_counts')}")[0][0])

    def completed(self) -> int:
        return int(self.sql(f"select coalesce(sum(completed), 0) from {self.table('v_counts')}")[0][0])

    def wait_backlog(self, most: int, timeout: float) -> bool:
        """False when the backlog, with what could not even be enqueued yet, does not come down in time."""
        give_up = time.monotonic() + timeout
        while time.monotonic() < give_up:
            with contextlib.suppress(psycopg.OperationalError, sqlite3.OperationalError):
                if self.waiting() + self.feed.unanswered() <= most:
                    return True
            time.sleep(0.1)
        return False

    def drain(self, timeout: float) -> bool:
        """Nothing more is offered; True when everything that was offered is finished."""
        try:
            self.feed.pause(timeout)
        except TooLate as error:
            self.note(str(error))
            return False
        return self.wait_backlog(0, timeout)

    @property
    def recoverable(self) -> float:
        """A dead worker's tasks are back by then: the lease, a look for expired ones, and a beat."""
        return LEASE + 1.5


@contextlib.contextmanager
def opened(world: World, workers: int) -> Iterator[World]:
    world.sql(LEDGER["postgres" if world.postgres else "sqlite"])
    try:
        world.start(workers)
        yield world
    finally:
        world.close()
