"""Migrations on PostgreSQL: up, down, from many hosts, and the two kinds of users."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import date, timedelta
from itertools import pairwise
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
from tools import functions_number

from redrive.errors import InvalidInput, RedriveError, SchemaError, StoreError
from redrive.ids import new_id
from redrive.kernel.commit import CloseJoin, Commit, Hold, Limit, Target
from redrive.kernel.joins import NewJoin
from redrive.kernel.ledger import Posting
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed
from redrive.kernel.ports.reads import get_task
from redrive.kernel.ports.store import Query
from redrive.kernel.retention import Retention
from redrive.kernel.task import NewTask, State
from redrive.stores.postgres import migrate
from redrive.stores.postgres.migrate import STEPS
from redrive.stores.postgres.store import PostgresStore
from redrive.stores.schema import LAST, Functions, Migration
from redrive_kit.conformance.harness import FEATURES, LEASE, TERMINAL, failing
from tests.conformance.harness_postgres import PostgresHarness
from tests.databases import Databases

pytestmark = pytest.mark.anyio
LATEST = len(STEPS)
assert migrate.FUNCTIONS is not None
FUNCTIONS = migrate.FUNCTIONS
MORE = Migration(
    LATEST + 1,
    "more",
    "alter table redrive.history add column if not exists more integer;"
    "alter table redrive.task add column if not exists more integer;",
    "",
)

CATALOG = """
select 'column', c.table_name || '.' || c.column_name, concat_ws(' ', c.data_type, c.udt_name, c.is_nullable,
  c.column_default, c.is_identity)
from information_schema.columns c where c.table_schema = 'redrive'
union all
select 'table', c.relname, concat_ws(' ', c.relkind, c.reloptions::text, pg_get_partkeydef(c.oid),
  pg_get_expr(c.relpartbound, c.oid))
from pg_class c where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'p', 'v', 'S')
union all
select 'index', i.indexname, i.indexdef from pg_indexes i where i.schemaname = 'redrive'
union all
select 'constraint', r.conname || ' on ' || r.conrelid::regclass, pg_get_constraintdef(r.oid)
from pg_constraint r where r.connamespace = 'redrive'::regnamespace
union all
select 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid) || coalesce(p.proacl::text, '')
from pg_proc p where p.pronamespace = 'redrive'::regnamespace
union all
select 'view', v.viewname, v.definition from pg_views v where v.schemaname = 'redrive'
union all
select 'type', t.typname, coalesce((select string_agg(e.enumlabel, ',' order by e.enumsortorder) from pg_enum e
  where e.enumtypid = t.oid), format_type(nullif(t.typbasetype, 0), null),
  (select string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' order by a.attnum)
   from pg_attribute a where a.attrelid = nullif(t.typrelid, 0) and a.attnum > 0 and not a.attisdropped), '')
from pg_type t where t.typnamespace = 'redrive'::regnamespace and t.typtype in ('e', 'c', 'd')
union all
select 'trigger', g.tgname || ' on ' || g.tgrelid::regclass, pg_get_triggerdef(g.oid)
from pg_trigger g join pg_class c on c.oid = g.tgrelid
where c.relnamespace = 'redrive'::regnamespace and not g.tgisinternal
order by 1, 2
"""


async def catalog(url: str) -> list[tuple[str, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return undated([tuple(row) for row in await connection.fetch(CATALOG)])
    finally:
        await connection.close()


def undated(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The same with the days of history numbered: two databases may have been made on two days."""
    names = {day for row in rows for day in re.findall(r"history_(\d{8})", row[1])}
    days = [date.fromisoformat(name) for name in sorted(names)]
    days += [days[-1] + timedelta(days=1)] if days else []
    for number, day in enumerate(days):
        written = re.compile(f"{day:%Y%m%d}|{day:%Y-%m-%d}")
        rows = [tuple(written.sub(f"day{number}", value) for value in row) for row in rows]
    return rows


def test_a_catalog_does_not_say_on_which_day_it_was_made() -> None:
    def made(first: date) -> list[tuple[str, ...]]:
        days = [first + timedelta(days=n) for n in range(5)]
        bounds = [f"FOR VALUES FROM ('{a} 00:00:00+00') TO ('{b} 00:00:00+00')" for a, b in pairwise(days)]
        return [("table", f"history_{day:%Y%m%d}", bound) for day, bound in zip(days, bounds, strict=False)]

    one, other = made(date(2026, 12, 30)), made(date(2026, 12, 31))
    assert one != other and undated(one) == undated(other)
    assert undated(one)[3][1:] == ("history_day3", "FOR VALUES FROM ('day3 00:00:00+00') TO ('day4 00:00:00+00')")
    assert undated(one[:3]) != undated(one), "but how many days there are"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    try:
        yield store
    finally:
        await store.close()


class TestUpAndDown:
    async def test_down_to_nothing_and_up_is_the_same_schema(self, postgres_url: str) -> None:
        before = await catalog(postgres_url)
        async with opened(postgres_url) as store:
            assert await store.migrations.down(0) == [STEPS[0].label]
            left = {name for kind, name, _ in await catalog(postgres_url) if kind in ("table", "function", "type")}
            assert left == {"migration", "function_set"}
            status = await store.migrations.status()
            assert (status.version, status.pending) == (0, (*(step.label for step in STEPS), FUNCTIONS.label))
            with pytest.raises(SchemaError, match="redrive migrate"):
                await store.open()
            await store.migrations.up()
            await store.open()
        assert await catalog(postgres_url) == before

    async def test_down_to_nothing_is_refused_while_anybody_is_connected(self, postgres_url: str) -> None:
        before = await catalog(postgres_url)
        async with opened(postgres_url) as store, opened(postgres_url) as worker:
            await worker.open()
            with psycopg.connect(postgres_url, application_name="billing"):
                with pytest.raises(
                    SchemaError, match=r"in use by 2 other connections: \w+ redrive from .*, \w+ billing"
                ):
                    await store.migrations.down(0)
            assert await catalog(postgres_url) == before
            await worker.close()
            await store.migrations.down(0)

    async def test_a_step_down_leaves_what_calls_in_flight_name(
        self, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Steps add, and their way back only says so: the functions of both versions go on with what is there."""
        monkeypatch.setattr(migrate, "STEPS", (*STEPS, MORE))
        async with opened(postgres_url) as store:
            assert await store.migrations.up() == [MORE.label]
            assert await store.migrations.down(LATEST) == [MORE.label]
            assert (await store.migrations.status()).pending == (MORE.label, FUNCTIONS.label)
            assert await store.migrations.up() == [MORE.label, FUNCTIONS.label]

    async def test_up_is_idempotent(self, postgres_url: str) -> None:
        async with opened(postgres_url) as store:
            assert await store.migrations.up() == []
            status = await store.migrations.status()
            assert (status.version, status.latest, status.pending) == (LATEST, LATEST, ())
            assert [(version, name) for version, name, _ in status.applied] == [(s.version, s.name) for s in STEPS]

    @pytest.mark.parametrize("to", [-1, LATEST + 1, 99])
    async def test_an_unknown_version_is_refused(self, postgres_url: str, to: int) -> None:
        async with opened(postgres_url) as store:
            for move in (store.migrations.up, store.migrations.down):
                with pytest.raises(InvalidInput, match="no schema version"):
                    await move(to)

    async def test_five_hosts_at_once(self, empty_postgres_url: str, postgres_url: str) -> None:
        stores = [PostgresStore(empty_postgres_url) for _ in range(5)]
        done = await asyncio.gather(*(store.migrations.up() for store in stores))
        assert [label for labels in done for label in labels] == [*(step.label for step in STEPS), FUNCTIONS.label]
        for store in stores:
            await store.open()
            await store.close()
        assert await catalog(empty_postgres_url) == await catalog(postgres_url)

    async def test_a_failing_step_leaves_nothing_behind(
        self, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = (*STEPS[:1], Migration(2, "broken", "create table redrive.half (n integer); select 1/0;", ""))
        monkeypatch.setattr(migrate, "STEPS", broken)
        async with opened(empty_postgres_url) as store:
            with pytest.raises(RedriveError):
                await store.migrations.up()
            assert (await store.migrations.status()).version == 1
        names = [name for kind, name, _ in await catalog(empty_postgres_url) if kind == "table"]
        assert "task" in names and "half" not in names

    async def test_a_step_that_is_undone_to_end_a_deadlock_is_taken_again(
        self, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Workers go on meanwhile, and lock tables in an order of their own."""
        waits = "select 1 from pg_locks where not granted and relation = 'redrive.task'::regclass"
        with psycopg.connect(postgres_url, autocommit=True) as look, psycopg.connect(postgres_url) as worker:
            name = look.execute("select current_database()").fetchone()
            assert name is not None
            look.execute(f"alter database \"{name[0]}\" set deadlock_timeout = '3s'")
            monkeypatch.setattr(migrate, "STEPS", (*STEPS, MORE))
            async with opened(postgres_url) as store:
                worker.execute("set deadlock_timeout = '10min'")  # whoever looks first is the one that is undone
                worker.execute("lock table redrive.task in row exclusive mode")
                up = asyncio.create_task(store.migrations.up())
                async with asyncio.timeout(60):
                    while not look.execute(waits).fetchone():
                        await asyncio.sleep(0.01)
                await asyncio.to_thread(worker.execute, "lock table redrive.history in row exclusive mode")
                worker.commit()
                assert await up == [MORE.label]

    async def test_migrating_while_workers_work(self, postgres_url: str) -> None:
        harness = PostgresHarness(postgres_url)
        other = await harness.another()
        await harness.enqueue_many(100)

        async def work() -> int:
            done = 0
            while claimed := await harness.claim(5):
                done += len(claimed)
                await harness.settle_many([(task, Completed()) for task in claimed])
            return done

        done, labels = await asyncio.gather(work(), other.migrations.up())
        assert (done, labels) == (100, [])
        await harness.close()


class TestFunctions:
    """Read from ``functions/*.sql`` as one set, under a number that rises."""

    @staticmethod
    def numbered(number: int, returns: str) -> Functions:
        """Another version's set: ours, and a function that says whose it is."""
        script = "create or replace function redrive.whose() returns text language sql as $$ select '%s' $$;\n"
        return Functions(number, FUNCTIONS.script + script % returns)

    async def test_only_a_newer_set_replaces_another(self, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        async def loads(functions: Functions) -> list[str]:
            monkeypatch.setattr(migrate, "FUNCTIONS", functions)
            async with opened(postgres_url) as store:
                done = await store.migrations.up()
                await store.open()
                return done

        older, newer = self.numbered(FUNCTIONS.number + 1, "older"), self.numbered(FUNCTIONS.number + 2, "newer")
        assert await loads(older) == [older.label]
        assert await loads(newer) == [newer.label]
        for _ in range(2):  # two hosts of different versions, in turn
            assert await loads(older) == await loads(newer) == []
        with psycopg.connect(postgres_url) as connection:
            assert connection.execute("select redrive.whose()").fetchone() == ("newer",)

    async def test_a_set_can_be_loaded_over_itself(self, postgres_url: str) -> None:
        before = await catalog(postgres_url)
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(FUNCTIONS.script)
        assert await catalog(postgres_url) == before

    def test_files_hold_what_can_be_replaced(self) -> None:
        replaceable = re.compile(
            r"create or replace (function|view|trigger)|comment on|do \$\$|select redrive\.partitions"
        )
        for folder in functions_number.function_folders():
            for path in folder.glob("*.sql"):
                code = re.sub(r"(?<=\$\$).*?(?=\$\$)|--[^\n]*", "", path.read_text(), flags=re.DOTALL)
                found = [statement.strip() for statement in code.split(";")]
                assert found.pop() == "" and found, path
                assert all(replaceable.match(statement) for statement in found), path


class TestJoinedSteps:
    """Databases from before the steps were joined."""

    async def made_before(self, url: str, missing: int = 0) -> None:
        """Writes the record that such a database has; its tables are the same."""
        connection = await asyncpg.connect(url)
        await connection.execute("drop table redrive.function_set; delete from redrive.migration")
        for (dialect, feature), (last, digest) in LAST.items():
            for version in range(1, last + 1 - missing) if dialect == "postgres" else ():
                await connection.execute(
                    "insert into redrive.migration (feature, version, name, needs, digest) values ($1, $2, 'x', 1, $3)",
                    feature,
                    version,
                    digest if version == last else f"digest {version}",
                )
        await connection.close()

    async def test_they_are_taken_over(self, postgres_url: str) -> None:
        before = await catalog(postgres_url)
        harness = PostgresHarness(postgres_url)
        task = await harness.enqueue()
        await harness.close()
        await self.made_before(postgres_url)
        async with opened(postgres_url) as store:
            with pytest.raises(SchemaError, match="functions of an older redrive"):
                await store.open()
            assert await store.migrations.up() == [FUNCTIONS.label]
            await store.open()
            assert [(row[0], row[1]) for row in (await store.migrations.status()).applied] == [(1, "tables")]
            assert await get_task(store, task) is not None
        assert await catalog(postgres_url) == before

    async def test_one_that_is_not_at_its_end_is_refused(self, postgres_url: str) -> None:
        await self.made_before(postgres_url, missing=1)
        async with opened(postgres_url) as store:
            with pytest.raises(SchemaError, match="another 0001_tables than this version's"):
                await store.migrations.up()


class TestCompatibility:
    async def pretend(self, url: str, version: int, needs: int) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(
            "insert into redrive.migration (version, name, needs) values ($1, 'from_the_future', $2)", version, needs
        )
        await connection.close()

    async def test_a_newer_breaking_schema_is_refused(self, postgres_url: str) -> None:
        await self.pretend(postgres_url, LATEST + 1, LATEST + 1)
        async with opened(postgres_url) as store:
            with pytest.raises(SchemaError, match=f"this redrive knows {LATEST}") as caught:
                await store.open()
            assert "upgrade" in (caught.value.hint or "")
            assert await store.migrations.up() == []

    async def test_a_newer_additive_schema_is_fine(self, postgres_url: str) -> None:
        await self.pretend(postgres_url, LATEST + 1, 1)
        async with opened(postgres_url) as store:
            await store.open()

    async def test_a_database_of_a_development_version_is_refused(self, postgres_url: str) -> None:
        connection = await asyncpg.connect(postgres_url)
        await connection.execute("update redrive.migration set digest = 'other' where version = 1")
        await connection.close()
        async with opened(postgres_url) as store:
            for work in (store.open, store.migrations.up, store.migrations.status):
                with pytest.raises(SchemaError, match="another 0001_tables than this version's"):
                    await work()

    async def test_an_older_schema_is_refused(self, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(migrate, "STEPS", (*STEPS, MORE))
        async with opened(postgres_url) as store:
            with pytest.raises(SchemaError, match=f"has schema version {LATEST}, this redrive needs {LATEST + 1}"):
                await store.open()

    async def test_no_schema_at_all(self, empty_postgres_url: str) -> None:
        async with opened(empty_postgres_url) as store:
            with pytest.raises(SchemaError, match="redrive migrate"):
                await store.open()
            with pytest.raises(SchemaError, match="redrive migrate"):
                await store.counts()


class TestScript:
    async def test_the_printed_script_makes_the_same_schema(self, empty_postgres_url: str, postgres_url: str) -> None:
        """Executed as psql would: one plain text, no parameters."""
        script = PostgresStore(empty_postgres_url).migrations.sql()
        with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
            connection.execute(script)
        assert await catalog(empty_postgres_url) == await catalog(postgres_url)
        async with opened(empty_postgres_url) as store:
            await store.open()
            assert await store.migrations.up() == []

    async def test_the_printed_script_goes_down_too(self, postgres_url: str) -> None:
        store = PostgresStore(postgres_url)
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(store.migrations.sql(down=True, to=0))
        assert (await store.migrations.status()).version == 0
        assert await store.migrations.up() == [*(step.label for step in STEPS), FUNCTIONS.label]
        await store.open()
        await store.close()

    async def test_part_of_the_script(self, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(migrate, "STEPS", (*STEPS, MORE))
        script = PostgresStore(postgres_url).migrations.sql(to=LATEST)
        assert STEPS[-1].label in script and MORE.label not in script and FUNCTIONS.label not in script


class TestRoles:
    @pytest.fixture
    def producer(self, databases: Databases, database: str) -> Iterator[str]:
        yield from self.role(databases, database, "producer")

    @pytest.fixture
    def worker(self, databases: Databases, database: str) -> Iterator[str]:
        yield from self.role(databases, database, "worker")

    def role(self, databases: Databases, database: str, what: str) -> Iterator[str]:
        with databases.role(what) as role, psycopg.connect(databases.url(database), autocommit=True) as owner:
            owner.execute(f"select redrive.grant_{what}('{role}')")
            yield databases.url(database, user=role)
            owner.execute(f"drop owned by {role}")

    async def test_a_producer_enqueues_both_ways(self, producer: str, postgres_url: str) -> None:
        with psycopg.connect(producer, autocommit=True) as connection:
            row = connection.execute(
                "select redrive.enqueue('SEND_EMAIL', '{\"to\": \"a@b.c\"}', queue => 'mail', priority => 3,"
                " delay => interval '1 hour', idempotency_key => 'k', timeout => interval '5 s')"
            ).fetchone()
            again = connection.execute(
                "select redrive.enqueue('SEND_EMAIL', '{\"to\": \"a@b.c\"}', queue => 'mail', idempotency_key => 'k')"
            ).fetchone()
            assert row is not None and row == again
        async with opened(producer) as store:
            await store.open()
            applied = await store.apply(Commit(enqueues=[NewTask(new_id(), "A", "default", "{}") for _ in range(3)]))
            assert all(answer.created for answer in applied.enqueued)
        async with opened(postgres_url) as owner:
            task = await get_task(owner, row[0])
            assert task is not None
            assert (task.kind, task.queue, task.priority, task.timeout, task.state) == (
                "SEND_EMAIL",
                "mail",
                3,
                5.0,
                State.DELAYED,
            )
            assert len(await owner.find(Query(kind="A"))) == 3

    @pytest.mark.parametrize("named", ["uuid", "text", "int8", "timestamptz", "regclass"])
    async def test_a_producers_own_types_are_not_run_with_the_owners_rights(self, producer: str, named: str) -> None:
        """The functions have the rights of their owner: whatever they resolve by name must not be the caller's."""
        with psycopg.connect(producer, autocommit=True) as connection:
            connection.execute(
                f"create function pg_temp.caught(pg_catalog.{named}) returns boolean language plpgsql as"
                " $$ begin raise exception 'run as %', current_user; end $$"
            )
            connection.execute(f"create domain pg_temp.{named} as pg_catalog.{named} check (pg_temp.caught(value))")
            for path in ("public", "pg_temp, public", "pg_temp, pg_catalog"):
                connection.execute(f"set search_path = {path}")
                for call in (
                    "redrive.enqueue('A', '{}')",
                    "redrive.enqueue('A', '{}', idempotency_key => 'k', delay => '1 s', timeout => '1 s')",
                    "count(*) from redrive.enqueue(array[gen_random_uuid()], array['A'], array['q'], null, null, null,"
                    " null, null, null, null, null, null, null)",
                ):
                    assert connection.execute(f"select {call}").fetchone() is not None

    @pytest.mark.parametrize(
        "statement",
        [
            "select * from redrive.task",
            "select * from redrive.v_tasks",
            "select * from redrive.history",
            "select * from redrive.audit",
            "insert into redrive.task (id, created_at, state, max_attempts, kind, queue)"
            " values (gen_random_uuid(), now(), 'queued', 1, 'A', 'q')",
            "update redrive.task set state = 'failed'",
            "delete from redrive.task",
            "delete from redrive.migration",
            "insert into redrive.migration values ('', 99, 'x', now(), 99, 'x')",
            "select redrive.complete(array[gen_random_uuid()], array[gen_random_uuid()], null, null)",
            "select redrive.move('[]')",
            "select redrive.renew('{}', '{}', 1, null, null)",
            "select redrive.fold(1)",
            "select redrive.promote(array['default'], null, 1)",
            "select redrive.resume_groups(1)",
            "select redrive.add(array[gen_random_uuid()], array['A'], array['q'], null, null, null, null, null, null,"
            " null, null, null, array['schedule:x'])",
            "select redrive.partitions(0)",
            "select redrive.prune('{}', 10)",
            "select redrive.set_hold('queue', 'q', true, 'me', null)",
            "select redrive.set_limit('A', 1, null, null)",
            "select redrive.request_cancel(gen_random_uuid(), 'me', null)",
            "select redrive.post('[]')",
            "select redrive.grant_worker(current_user::text)",
            "select nextval('redrive.position')",
            "create table redrive.mine (n integer)",
            "drop table redrive.task",
        ],
    )
    async def test_a_producer_does_nothing_else(self, producer: str, statement: str) -> None:
        with psycopg.connect(producer, autocommit=True) as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)

    async def test_a_producer_cannot_claim(self, producer: str) -> None:
        harness = PostgresHarness(producer)
        await harness.enqueue()
        with pytest.raises(StoreError, match="permission denied") as caught:
            await harness.claim(1)
        assert "grant" in (caught.value.hint or "")
        await harness.close()

    async def with_features(self, owner: PostgresHarness, worker: str) -> None:
        with pytest.raises(SchemaError, match="lacks tables of the feature 'probe'"):
            await owner.store.open()
        assert await owner.store.migrations.up() == ["probe/0001_probe"]
        await owner.store.migrations.grant(worker=urlsplit(worker).username)

    async def react_and_join(self, harness: PostgresHarness) -> None:
        join = NewJoin(new_id(), harness.new("AFTER", queue="after"))
        tasks = [harness.new(queue="joined", feature="probe", join=join.id) for _ in range(2)]
        await harness.store.apply(Commit(joins=[join], enqueues=tasks))
        for claimed in await harness.claim(2, queues=("joined",)):
            assert await harness.settle(claimed, Completed())
        await harness.control(CloseJoin(join.id))
        assert [task.kind for task in await harness.claim(1, queues=("after",))] == ["AFTER"]

    async def test_a_worker_runs_the_whole_cycle(self, worker: str, postgres_url: str) -> None:
        harness, owner = PostgresHarness(worker, FEATURES), PostgresHarness(postgres_url, FEATURES)
        await self.with_features(owner, worker)
        await harness.store.open()
        await harness.limit("K", concurrency=2)
        await harness.enqueue_many(4, "K", idempotency_key=None)
        await harness.enqueue("A", idempotency_key="k", delay=5.0)
        await owner.advance(6)
        tick = await harness.tick(prune=60.0, partitions=60.0)
        assert tick.promoted == 1 and set(tick.duties) == {"prune", "partitions"}
        for outcome in (Completed(), failing(), TERMINAL):
            claimed = await harness.claim_one()
            assert await harness.renew(claimed, progress={claimed.id: "1"})
            assert await harness.settle(claimed, outcome)
        await harness.claim_one()
        await owner.advance(LEASE + 1)
        assert len(await harness.recover()) == 1
        (failed,) = await harness.store.find(Query(states=(State.FAILED,)))
        await harness.operate(Event.REDRIVE, failed.id)
        await harness.operate(Event.CANCEL, failed.id)
        await harness.operate(Event.REDRIVE, failed.id)
        await harness.control(Hold(Target.QUEUE, "q", True, "ann"), Limit("K", 3, None, "ann"))
        await harness.store.apply(Commit(postings=[Posting("p", (("system:w", -1), ("a", 1)))]))
        await self.react_and_join(harness)
        for duty in ("fold", "recount", "prune"):
            await harness.store.upkeep(duty, Retention(history_days=10.0, key_days=10.0))
        await harness.check_totals()
        assert await harness.store.timeline(failed.id) is not None
        await harness.store.overview()
        await harness.close()
        await owner.close()

    async def test_a_worker_makes_and_drops_partitions(self, worker: str, postgres_url: str) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            for (name,) in owner.execute(
                "select relname from pg_class where relname ~ '^history_\\d{8}$' and relkind = 'r'"
            ).fetchall():
                owner.execute(f"drop table redrive.{name}")
            owner.execute(
                "create table redrive.history_20200101 partition of redrive.history"
                " for values from ('2020-01-01') to ('2020-01-02')"
            )
        harness = PostgresHarness(worker)
        assert await harness.store.upkeep("partitions", Retention(history_days=10.0)) == 5
        claimed = await harness.running()
        await harness.settle(claimed, Completed())
        assert await harness.state(claimed.id) is State.COMPLETED
        await harness.close()
        with psycopg.connect(postgres_url) as owner:
            rows = owner.execute("select tableoid::regclass::text from redrive.history").fetchall()
        assert rows and rows[0][0].startswith("redrive.history_2")

    @pytest.mark.parametrize(
        "statement",
        [
            "drop table redrive.task",
            "alter table redrive.task add column mine integer",
            "create table redrive.mine (n integer)",
            "create index mine on redrive.task (kind)",
            "drop function redrive.fold(integer)",
            "delete from redrive.migration",
            "update redrive.migration set needs = 99",
            "select redrive.grant_worker(current_user::text)",
            "truncate redrive.task",
        ],
    )
    async def test_a_worker_does_not_change_the_schema(self, worker: str, statement: str) -> None:
        with psycopg.connect(worker, autocommit=True) as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)

    async def test_a_stranger_may_do_nothing(self, databases: Databases, database: str) -> None:
        with databases.role("stranger") as role, psycopg.connect(databases.url(database, user=role)) as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("select redrive.enqueue('A', '{}')")


class TestEnqueueFunction:
    """The door for other languages: clear refusals, and the caller's own transaction."""

    @pytest.mark.parametrize(
        "call, says",
        [
            ("redrive.enqueue('bad name', '{}')", "not a valid name"),
            ("redrive.enqueue(null, '{}')", "not a valid name"),
            ("redrive.enqueue('A', '{}', queue => '')", "not a valid name"),
            ("redrive.enqueue('A', '{}', delay => interval '-1 s')", "delay must be from 0"),
            ("redrive.enqueue('A', '{}', max_attempts => 0)", "at least 1"),
            ("redrive.enqueue('A', '{}', max_attempts => 2000000)", "at most 1,000,000"),
            ("redrive.enqueue('A', '{}', timeout => interval '24 days')", "timeout must be from 1 ms to 2,000,000 s"),
            ("redrive.enqueue('A', '{}', timeout => interval '40 years')", "timeout must be from 1 ms to 2,000,000 s"),
            ("redrive.enqueue('A', '{}', timeout => interval '-40 years')", "timeout must be from 1 ms"),
            ("redrive.enqueue('A', '{}', delay => interval '200000000 days')", "delay must be from 0 to 10 years"),
            ("redrive.enqueue('A', '{}', priority => 40000)", "priority must be from -32,768 to 32,767"),
            ("redrive.enqueue('A', '{}', priority => -40000, idempotency_key => 'k')", "priority must be from -32,768"),
            (
                "redrive.enqueue(array[gen_random_uuid()], array['A'], array['default'], null, array[40000], array[3],"
                " null, null, null, null, null, null, null)",
                "priority must be from -32,768",
            ),
            ("redrive.enqueue('A', '{}', task_group => repeat('x', 12000))", "group must be text of 1-512 characters"),
            ("redrive.enqueue('A', '{}', scope => '')", "scope must be text"),
            ("redrive.enqueue('A', '{}', trace_id => E'a\\nb')", "trace_id must be text"),
            ("redrive.enqueue('A', '{}', idempotency_key => repeat('x', 12000))", "idempotency_key must be text"),
            (
                "redrive.enqueue('A', '{}', task_group => repeat('x', 513), delay => interval '1 s')",
                "group must be text",
            ),
            ("redrive.enqueue('A', to_jsonb(repeat('x', 1048575)))", "payload is 1048577 bytes"),
            ("redrive.enqueue('A', (repeat('[', 300) || repeat(']', 300))::jsonb)", "more than 100 levels deep"),
            # Eight bytes each on the way in, and 131 kB for everybody who reads them.
            (
                "redrive.enqueue('A', (select jsonb_agg('1e131071'::jsonb) from generate_series(1, 20)))",
                "over the limit of 1,048,576",
            ),
        ],
    )
    async def test_bad_input(self, postgres_url: str, call: str, says: str) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            with pytest.raises(psycopg.errors.InvalidParameterValue, match=says):
                connection.execute(f"select {call}")
            assert connection.execute("select count(*) from redrive.v_tasks").fetchone() == (0,)
            with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
                connection.execute(f"select {call}")
            if "name" in says or "payload" in call or "text" in says:
                assert caught.value.diag.message_hint

    @pytest.mark.parametrize(
        "column, value",
        [
            ("kind", "repeat('x', 121)"),
            ("queue", "''"),
            ("task_group", "repeat('x', 12000)"),
            ("scope", "''"),
            ("trace_id", "repeat('x', 3000)"),
            ("idempotency_key", "repeat('x', 3000)"),
            ("max_attempts", "2000000"),
            ("payload", "(repeat('[', 300) || repeat(']', 300))::jsonb"),
            ("payload", "to_jsonb(repeat('x', 2000000))"),
        ],
    )
    async def test_a_row_inserted_by_hand(self, postgres_url: str, column: str, value: str) -> None:
        """The owner may. What enqueue refuses is refused there, too; and no update gets past the lengths."""
        values = {
            "id": "gen_random_uuid()",
            "created_at": "now()",
            "state": "'queued'",
            "max_attempts": "3",
            "kind": "'A'",
            "queue": "'q'",
        }
        insert = "insert into redrive.task ({}) select {} returning id"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(insert.format(", ".join(values), ", ".join(values.values())))
            bad = values | {column: value}
            with pytest.raises((psycopg.errors.InvalidParameterValue, psycopg.errors.CheckViolation)):
                connection.execute(insert.format(", ".join(bad), ", ".join(bad.values())))
            if column != "payload":
                with pytest.raises(psycopg.errors.CheckViolation):
                    connection.execute(f"update redrive.task set {column} = {value}")

    async def test_a_conflicting_key(self, postgres_url: str) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("select redrive.enqueue('A', '{\"n\": 1}', idempotency_key => 'k')")
            with pytest.raises(psycopg.errors.UniqueViolation, match="another kind, queue or payload"):
                connection.execute("select redrive.enqueue('A', '{\"n\": 2}', idempotency_key => 'k')")

    async def test_commit_and_rollback(self, postgres_url: str) -> None:
        harness = PostgresHarness(postgres_url)
        with psycopg.connect(postgres_url) as connection:
            connection.execute("select redrive.enqueue('A', '{}'), redrive.enqueue('B', '{}', queue => 'q')")
            assert await harness.totals() == {}
            assert await harness.claim(5) == []
            connection.rollback()
            connection.execute("select redrive.enqueue('C', '{}')")
            connection.commit()
        assert [task.kind for task in await harness.claim(5, queues=("default", "q"))] == ["C"]
        await harness.check_totals()
        await harness.close()
