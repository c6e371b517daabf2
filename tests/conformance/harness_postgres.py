"""The conformance harness for PostgreSQL. Time passes by moving every timestamp in the tables into the past."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from redrive.kernel.feature import Feature
from redrive.kernel.ports.store import Store
from redrive.kernel.task import HISTORY, State
from redrive.stores.postgres.store import PostgresStore
from redrive_kit.conformance.harness import Cost, Harness, Totals

# Moves all timestamps but those of the schema itself: a database whose steps are older than the template's is not used
# again. Rows that are known by their time would meet each other on the way: far beyond all of them, and back.
SHIFT = """
select format('with %s select', string_agg(shift, ', ')) from (
  select format('%I as (update redrive.%I set %s)', c.relname, c.relname,
    string_agg(format('%1$I = %1$I - $1::interval', a.attname), ', ')) as shift
  from pg_class c join pg_attribute a on a.attrelid = c.oid
  where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
    and c.relname not in ('migration', 'function_set', 'series')
    and a.atttypid = 'timestamptz'::regtype and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
  group by c.relname) x
"""
SHIFT_SERIES = "update redrive.series set at = at - $1::interval"
FAR = timedelta(days=400_000)
# Counters of this session that are not yet in pg_stat: the difference within a transaction is exact on every version.
WORK = """
select coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0)::bigint as visited,
  json_object_agg(c.relname, pg_stat_get_xact_numscans(c.oid)) filter (where c.relkind = 'r') as scans
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'redrive' and c.relkind in ('r', 'i') and c.relname ~ '^(task|history|attempt|dead|idem)'
"""
STOCK_HISTORY = """
insert into redrive.history (id, finished_at, created_at, state, attempt_count, max_attempts, replay_count, priority,
  kind, queue)
select gen_random_uuid(), clock_timestamp(), clock_timestamp(), $1::text::redrive.state, 1, 3, 0, 0, $2, $3
from generate_series(1, $4::integer)
"""
STOCK_LIVE = """
insert into redrive.task (id, created_at, position, state, next_attempt_at, lease_token, lease_expires_at, max_attempts,
  kind, queue, lane, payload)
select redrive.new_id(), clock_timestamp(), case when $1 = 'queued' then nextval('redrive.position') else 0 end,
  $1::text::redrive.state, case when $1 = 'delayed' then clock_timestamp() + interval '1 day' end,
  case when $1 = 'running' then gen_random_uuid() end,
  case when $1 = 'running' then clock_timestamp() + interval '1 day' end, 3, $2::text, $3,
  coalesce((select k.kind from redrive.kind k where k.kind = $2::text), ''), '{}'
from generate_series(1, $4::integer)
"""


class PostgresHarness(Harness):
    def __init__(self, url: str, features: Sequence[Feature] = ()) -> None:
        self.url = url
        self.features = features
        self._stores: list[PostgresStore] = []
        self._shift = ""
        self._admin: Any = None
        self.store: PostgresStore = self._make()

    def _make(self, features: Sequence[Feature] | None = None) -> PostgresStore:
        store = PostgresStore(self.url, self.features if features is None else features)
        self._stores.append(store)
        return store

    async def connection(self) -> Any:
        if self._admin is None:
            self._admin = await self.store.pool.connect()
        return self._admin

    async def another(self, features: Sequence[Feature] | None = None) -> Store:
        return self._make(features)

    def as_argument(self, value: UUID) -> object:
        return value

    async def advance(self, seconds: float) -> None:
        admin = await self.connection()
        by = timedelta(seconds=seconds)
        self._shift = self._shift or await admin.fetchval(SHIFT)
        async with admin.transaction():
            await admin.execute(self._shift, by)
            await admin.execute(SHIFT_SERIES, by - FAR)
            await admin.execute(SHIFT_SERIES, FAR)
        for store in self._stores:
            store.ticks.checked = {
                queues: (None if checked_to is None else checked_to - by, next_full_check)
                for queues, (checked_to, next_full_check) in store.ticks.checked.items()
            }

    async def stock(self, count: int, state: State, *, kind: str, queue: str = "default") -> None:
        admin = await self.connection()
        await admin.execute(STOCK_HISTORY if state in HISTORY else STOCK_LIVE, state.value, kind, queue, count)
        await admin.execute(
            f"insert into redrive.total_delta (queue, kind, {state}) values ($1, $2, $3)", queue, kind, count
        )
        if state is State.FAILED:
            await admin.execute(
                "update redrive.task set failed_seq = nextval('redrive.failed_seq'), failed_at = created_at,"
                " error_code = 'STOCKED', error_reason = 'stocked', failure_type = 'unknown',"
                " dead_reason = 'non_retryable', error_fingerprint = 'stocked'"
                " where state = 'failed' and failed_seq is null"
            )
            await admin.execute(
                "insert into redrive.failed_delta values ($1, $2, '', 'STOCKED', 'stocked', 'unknown',"
                " 'non_retryable', 'stocked', $3)",
                kind,
                queue,
                count,
            )

    async def stock_causes(self, count: int) -> None:
        await self.sql(
            "insert into redrive.failure_group (fingerprint, n, code, reason, failure_type, message, kind, sample_task,"
            " first_seen, last_seen) select 'f' || i, 1, 'C', 'r', 'unknown', 'm', 'A', gen_random_uuid(),"
            f" clock_timestamp(), clock_timestamp() from generate_series(1, {count}) i"
        )
        await self.sql(
            "insert into redrive.failure_hour (fingerprint, hour, n) select 'f' || i, clock_timestamp(), 1"
            f" from generate_series(1, {count}) i"
        )

    async def tally(self) -> Totals:
        rows = await (await self.connection()).fetch(
            "select queue, kind, state::text, count(*) from redrive.v_tasks group by 1, 2, 3"
        )
        return {(queue, kind, State(state)): n for queue, kind, state, n in rows}

    async def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await (await self.connection()).fetch(text)]

    @asynccontextmanager
    async def measure(self, store: Store) -> AsyncIterator[Cost]:
        assert isinstance(store, PostgresStore)
        cost = Cost()
        async with store.pool.connection() as connection:

            def note(query: Any) -> None:
                # Transaction control costs a round trip as well; our own look at the counters does not count.
                if "pg_stat_get_xact" not in query.query:
                    cost.statements.append(re.sub(r"\s+", " ", query.query).strip())

            turn = asyncio.Lock()

            @asynccontextmanager
            async def lend(**_: Any) -> AsyncIterator[Any]:
                async with turn:
                    yield connection

            async def run(work: Any, *, atomic: bool = False) -> Any:
                async with lend() if not atomic else store.pool.transaction() as lent:
                    return await work(lent)

            connection.add_query_logger(note)
            transaction = connection.transaction()
            borrowed = store.pool.connection, store.pool.run
            store.pool.connection, store.pool.run = lend, run  # type: ignore[method-assign]
            await transaction.start()
            before = await connection.fetchrow(WORK)
            await asyncio.sleep(0)  # loggers are called on the loop's next turn
            cost.statements.clear()
            try:
                yield cost
            finally:
                await asyncio.sleep(0)
                connection.remove_query_logger(note)
                store.pool.connection, store.pool.run = borrowed  # type: ignore[method-assign]
                after = await connection.fetchrow(WORK)
                cost.rows = after["visited"] - before["visited"]
                earlier = json.loads(before["scans"])
                cost.scans = [table for table, n in json.loads(after["scans"]).items() if n > earlier[table]]
                await transaction.commit()

    async def close(self) -> None:
        if self._admin is not None:
            self.store.pool._idle.give(self._admin)
        for store in self._stores:
            await store.close()
