"""The conformance harness for SQLite. Time passes by moving the stores' clock."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from uuid import UUID

from redrive.kernel.feature import Feature
from redrive.kernel.ports.store import Store
from redrive.kernel.task import State
from redrive.stores.sqlite.session import Session
from redrive.stores.sqlite.store import SqliteStore
from redrive_kit.conformance.harness import Cost, Harness, Totals

STEPS = 20  # of SQLite's virtual machine between two looks
BIG = re.compile(r"\b(task|history|attempt|dead_letter|idempotency_key)\b(?:\s+(?:as\s+)?(\w+))?")
DAY = 86_400_000_000


class SqliteHarness(Harness):
    def __init__(self, path: Path, features: Sequence[Feature] = ()) -> None:
        self.path = path
        self.features = features
        self._offset = 0.0
        self._stores: list[SqliteStore] = []
        self.store = self._make()

    def _make(self, features: Sequence[Feature] | None = None) -> SqliteStore:
        store = SqliteStore(
            f"sqlite:///{self.path}?synchronous=normal", self.features if features is None else features
        )
        store.clock = lambda: time.time() + self._offset
        self._stores.append(store)
        return store

    async def another(self, features: Sequence[Feature] | None = None) -> Store:
        return self._make(features)

    def as_argument(self, value: UUID) -> object:
        return str(value)

    async def advance(self, seconds: float) -> None:
        self._offset += seconds

    async def stock(self, count: int, state: State, *, kind: str, queue: str = "default") -> None:
        now = round((time.time() + self._offset) * 1_000_000)
        with closing(sqlite3.connect(self.path)) as connection, connection:
            numbers = f"with recursive n(i) as (select 1 union all select i + 1 from n where i < {count})"
            new_id = "lower(hex(randomblob(16)))"
            if state in (State.COMPLETED, State.CANCELLED):
                connection.execute(
                    f"{numbers} insert into redrive_history (id, finished_at, created_at, state, attempt_count,"
                    f" max_attempts, replay_count, priority, kind, queue)"
                    f" select {new_id}, {now}, {now}, ?, 1, 3, 0, 0, ?, ? from n",
                    (state, kind, queue),
                )
            else:
                (tail,) = connection.execute(
                    f"update redrive_position set value = value + {count} returning value"
                ).fetchone()
                lane = connection.execute("select kind from redrive_kind where kind = ?", (kind,)).fetchone()
                connection.execute(
                    f"{numbers} insert into redrive_task (id, created_at, position, state, next_attempt_at,"
                    f" lease_token, lease_expires_at, max_attempts, kind, queue, lane, payload) select {new_id}, {now},"
                    f" {tail - count} + i, ?, {now + DAY if state is State.DELAYED else 'null'},"
                    f" {new_id if state is State.RUNNING else 'null'},"
                    f" {now + DAY if state is State.RUNNING else 'null'}, 3, ?, ?, ?, '{{}}' from n",
                    (state, kind, queue, lane[0] if lane else ""),
                )
            if state is State.FAILED:
                connection.execute(
                    "update redrive_task set failed_seq = position, failed_at = created_at, error_code = 'STOCKED',"
                    " error_reason = 'stocked', failure_type = 'unknown', dead_reason = 'non_retryable',"
                    " error_fingerprint = 'stocked' where state = 'failed' and failed_seq is null"
                )
                connection.execute(
                    "update redrive_failed_seq set value = max(value, (select value from redrive_position))"
                )
                connection.execute(
                    "insert into redrive_failed_total values (?, ?, '', 'STOCKED', 'stocked', 'unknown',"
                    " 'non_retryable', 'stocked', ?) on conflict do update set n = n + excluded.n",
                    (kind, queue, count),
                )
                for dimension, value in (
                    ("total", ""),
                    ("kind", kind),
                    ("queue", queue),
                    ("group", ""),
                    ("code", "STOCKED"),
                    ("type", "unknown"),
                    ("reason", "non_retryable"),
                    ("cause", "stocked"),
                ):
                    connection.execute(
                        "insert into redrive_failed_sum values (?, ?, ?) on conflict do update set n = n + excluded.n",
                        (dimension, value, count),
                    )
            connection.execute(
                f"insert into redrive_total (queue, kind, {state}) values (?, ?, ?)"
                f" on conflict (queue, kind) do update set {state} = {state} + excluded.{state}",
                (queue, kind, count),
            )

    async def stock_causes(self, count: int) -> None:
        now = round((time.time() + self._offset) * 1_000_000)
        numbers = f"with recursive n(i) as (select 1 union all select i + 1 from n where i < {count})"
        await self.sql(
            f"{numbers} insert into redrive_failure_group (fingerprint, n, code, reason, failure_type, message, kind,"
            f" sample_task, first_seen, last_seen) select 'f' || i, 1, 'C', 'r', 'unknown', 'm', 'A',"
            f" '00000000-0000-0000-0000-000000000000', {now}, {now} from n"
        )
        await self.sql(
            f"{numbers} insert into redrive_failure_hour (fingerprint, hour, n) select 'f' || i, {now}, 1 from n"
        )

    async def tally(self) -> Totals:
        rows = await self.sql(
            "select queue, kind, state, count(*) from (select queue, kind, state from redrive_task"
            " union all select queue, kind, state from redrive_history) group by 1, 2, 3"
        )
        return {(queue, kind, State(state)): n for queue, kind, state, n in rows}

    async def sql(self, text: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=10)) as connection, connection:
            return connection.execute(text).fetchall()

    @asynccontextmanager
    async def measure(self, store: Store) -> AsyncIterator[Cost]:
        assert isinstance(store, SqliteStore)
        cost, sent = Cost(), list[str]()

        def watch(session: Session) -> None:
            def step() -> int:
                cost.rows += STEPS
                return 0

            session.connection.set_trace_callback(sent.append)
            session.connection.set_progress_handler(step, STEPS)

        def leave(session: Session) -> None:
            session.connection.set_trace_callback(None)
            session.connection.set_progress_handler(None, 0)

        for desk in (store._writer, store._reader):
            await desk.run(watch)
        sent.clear()
        cost.rows = 0
        try:
            yield cost
        finally:
            for desk in (store._writer, store._reader):
                await desk.run(leave)
            # Transaction control and group commit's savepoints are no work of the verb's own.
            control = ("begin", "commit", "rollback", "savepoint", "release", "pragma", "--")
            worked = [text for text in sent if not text.lower().startswith(control)]
            # The same statement run for one row after the other is one call: there is no wire to cross in between.
            cost.statements = [
                text for text, before in zip(worked, ["", *worked], strict=False) if not _same(text, before)
            ]
            cost.scans = self._scans(cost.statements)

    def _scans(self, statements: list[str]) -> list[str]:
        found = set()
        with closing(sqlite3.connect(self.path)) as connection:
            for text in set(statements):
                names = {name: table for table, alias in BIG.findall(text) for name in (table, alias) if name}
                for *_, detail in connection.execute(f"explain query plan {text}"):
                    scan = re.fullmatch(r"SCAN (\w+)", detail)
                    if scan and scan[1] in names:
                        found.add(names[scan[1]])
        return sorted(found)

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


def _same(text: str, other: str) -> bool:
    return text.lower().partition("values")[0] == other.lower().partition("values")[0]
