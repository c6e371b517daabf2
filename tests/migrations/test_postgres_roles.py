"""Grants, by trying: every statement on every object of the schema, as each documented role and as a stranger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive.errors import RedriveError
from redrive.kernel.commit import Commit, Target
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import COLLECTION, Operation
from redrive.kernel.outcome import Completed
from redrive.kernel.records import Put
from redrive.kernel.retention import Retention
from redrive.stores.postgres.store import PostgresStore
from redrive_kit.conformance.harness import TERMINAL
from redrive_kit.conformance.series import completed, send, tallied
from tests.conformance.harness_postgres import PostgresHarness
from tests.databases import Databases

pytestmark = pytest.mark.anyio
ROLES = ("producer", "worker", "api", "viewer", "stranger")
FLEET = ("worker", "api")
VIEWS = ("v_tasks", "v_failures", "v_dead_letters", "v_audit", "v_counts", "v_failed_counts", "v_series")
HIDDEN = {"payload", "result", "progress", "error_message", "error_stack", "before", "after", "idempotency_key"}
WORKER_WRITES = {
    ("record", "insert"),
    ("record", "update"),
    ("audit", "insert"),
    ("audit", "delete"),
}
RELATIONS = """
select c.relname, c.relkind::text, array_agg(a.attname::text order by a.attnum) filter (where a.attnum > 0)
from pg_class c left join pg_attribute a on a.attrelid = c.oid and not a.attisdropped
where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'p', 'v') group by 1, 2 order by 1
"""
SCHEMA_CHANGES = (
    "select nextval('redrive.position')",
    "select setval('redrive.position', 1)",
    "select nextval('redrive.failed_seq')",
    "create table redrive.mine (n integer)",
    "create function redrive.mine() returns integer language sql as 'select 1'",
    "create or replace view redrive.v_failures as select 1 as id",
    "create type redrive.mine as (n integer)",
    "create index mine on redrive.task (kind)",
    "create temporary table mine (like redrive.task including all); insert into mine select * from redrive.task;"
    " truncate redrive.task",
    "alter function redrive.enqueue(text, jsonb, text, integer, integer, interval, timestamptz, interval, text, text,"
    " text, text, uuid) security invoker",
    "drop schema redrive cascade",
    "alter schema redrive rename to mine",
    "alter table redrive.task disable trigger all",
    "copy redrive.task from program 'true'",
    "copy redrive.task (id) from stdin",
)
FUNCTIONS = """
select p.proname, p.prosecdef or p.provolatile <> 'v', format('select redrive.%I(%s)', p.proname,
  (select string_agg('null::' || format_type(t, null), ', ' order by n)
   from unnest(p.proargtypes::oid[]) with ordinality x(t, n)))
from pg_proc p where p.pronamespace = 'redrive'::regnamespace and p.prorettype <> 'trigger'::regtype
  and not p.proisstrict  -- with nulls these are not called at all
order by 1, 2
"""


class People:
    """A database, its owner's URL, and one URL for each role."""

    def __init__(self, owner: str, urls: dict[str, str]) -> None:
        self.owner = owner
        self.urls = urls
        self._open: dict[str, psycopg.Connection[Any]] = {}

    def may(self, who: str, statement: str) -> bool:
        """Whether the statement gets past the permission check; whatever it does is rolled back."""
        if who not in self._open:
            self._open[who] = psycopg.connect(self.urls[who])
        try:
            self._open[who].execute(statement)
        except psycopg.errors.InsufficientPrivilege:
            return False
        except psycopg.Error:
            return True  # refused for another reason: the right was there
        finally:
            self._open[who].rollback()
        return True

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()


@pytest.fixture
def people(databases: Databases, database: str) -> Iterator[People]:
    with psycopg.connect(databases.url(database), autocommit=True) as owner, ExitStack() as stack:
        roles = {what: stack.enter_context(databases.role(what)) for what in ROLES}
        for what, role in roles.items():
            stack.callback(owner.execute, f"drop owned by {role}")
            if what != "stranger":
                owner.execute(f"select redrive.grant_{what}('{role}')")
        found = People(databases.url(database), {w: databases.url(database, user=r) for w, r in roles.items()})
        stack.callback(found.close)
        yield found


def relations(people: People) -> list[tuple[str, str, list[str]]]:
    with psycopg.connect(people.owner) as owner:
        return [(name, kind, columns or []) for name, kind, columns in owner.execute(RELATIONS).fetchall()]


def test_who_may_read_what(people: People) -> None:
    for name, kind, columns in relations(people):
        partition = re.match(r"history_", name) is not None
        for who in ROLES:
            expected = who in FLEET or (who == "producer" and name in ("migration", "function_set"))
            assert people.may(who, f"select count(*) from redrive.{name}") == expected or (
                who == "viewer" and kind == "v"  # some columns suffice for a count
            ), (who, name)
            for column in columns:
                expected_here = expected or (who == "viewer" and kind == "v" and column not in HIDDEN)
                if not partition:
                    assert people.may(who, f"select {column} from redrive.{name}") == expected_here, (who, name, column)


@pytest.mark.parametrize("who", ROLES)
def test_who_may_write_what(people: People, who: str) -> None:
    """The permission check comes before the first row: "where false" is enough to meet it."""
    for name, kind, columns in relations(people):
        tried = {
            "insert": f"insert into redrive.{name} default values",
            "delete": f"delete from redrive.{name} where false",
            "lock": f"lock table redrive.{name} in exclusive mode",
            "drop": f"drop {'view' if kind == 'v' else 'table'} redrive.{name} cascade",
            "trigger": f"create trigger t instead of delete on redrive.{name} for each row execute function"
            " redrive.refuse_change()"
            if kind == "v"
            else f"alter table redrive.{name} add column mine integer",
        }
        if columns:
            tried["update"] = f"update redrive.{name} set {columns[0]} = default where false"
        if kind != "v":  # has neither
            tried["truncate"] = f"truncate redrive.{name}"
            tried["row lock"] = f"select 1 from redrive.{name} for key share"
        for verb, statement in tried.items():
            allowed = who in FLEET and (
                (name, verb) in WORKER_WRITES
                # Whoever may delete from a table may lock it, and its rows: these two stop nobody's work.
                or (verb == "lock" and name in ("record", "audit"))
                or (verb == "row lock" and name == "record")
            )
            assert people.may(who, statement) == allowed, (who, verb, name)


@pytest.mark.parametrize("who", ROLES)
def test_who_may_call_what(people: People, who: str) -> None:
    with psycopg.connect(people.owner) as owner:
        functions = owner.execute(FUNCTIONS).fetchall()
    assert len(functions) > 30
    for name, safe, call in functions:
        # The inner parts of others, which have no rights of their own, are nobody's; "apply_own" runs what its caller
        # may do anyhow, as one statement.
        allowed = who in FLEET and (safe or name == "apply_own")
        allowed = allowed or (who == "producer" and name in ("enqueue", "enqueue_declared"))
        allowed = allowed or (who == "api" and name == "administer")
        # A worker erases for an erasure that others decided on, and none is under way here.
        allowed = allowed and not (who == "worker" and name in ("erase", "erase_reasons", "erase_callbacks"))
        assert people.may(who, call) == allowed, (who, call)


@pytest.mark.parametrize("who", ROLES)
def test_nobody_changes_the_schema_or_its_sequences(people: People, who: str) -> None:
    for statement in SCHEMA_CHANGES:
        assert not people.may(who, statement), statement


def test_nothing_is_everybodys(people: People) -> None:
    """Also not by default: functions belong to PUBLIC unless that is taken back."""
    with psycopg.connect(people.owner) as owner:
        rows = owner.execute(
            """
            select 'function ' || p.oid::regprocedure from pg_proc p
            cross join aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
            where p.pronamespace = 'redrive'::regnamespace and a.grantee = 0
            union all
            select 'relation ' || c.oid::regclass from pg_class c
            cross join aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
            where c.relnamespace = 'redrive'::regnamespace and a.grantee = 0
            union all
            select 'schema' from pg_namespace n cross join aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a
            where n.nspname = 'redrive' and a.grantee = 0
            union all
            select 'path of ' || p.oid::regprocedure from pg_proc p
            where p.pronamespace = 'redrive'::regnamespace and p.prosecdef
              and p.oid <> 'redrive.enqueue(text, jsonb, text, integer,
              integer, interval, timestamptz, interval, text, text, text, text, uuid)'::regprocedure
              and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)
            """
        ).fetchall()
    assert rows == []


@pytest.mark.parametrize("who", ["owner", *ROLES])
async def test_views_are_read_only(people: People, who: str) -> None:
    """Whoever tries, and whatever he may do: nothing changes through a view, and totals stay right."""
    harness = PostgresHarness(people.owner)
    await harness.enqueue_many(3)
    for claimed, outcome in zip(await harness.claim(2), (TERMINAL, Completed()), strict=True):
        await harness.settle(claimed, outcome)
    await harness.store.upkeep("series")
    url = people.owner if who == "owner" else people.urls[who]
    with psycopg.connect(url, autocommit=True) as connection:
        for view in VIEWS:
            refused = [f"delete from redrive.{view}", f"insert into redrive.{view} default values"]
            if view == "v_counts":
                refused += ["update redrive.v_counts set queue = 'x'"]
            elif view == "v_audit":
                refused += ["update redrive.v_audit set actor = 'x'"]
            else:
                refused += [f"update redrive.{view} set kind = 'x'"]
            if view == "v_audit":  # nobody has operated yet: a row trigger has no row to refuse
                refused = refused[1:2]
            for statement in refused:
                with pytest.raises(psycopg.Error) as caught:
                    connection.execute(statement)
                state = caught.value.sqlstate
                assert state == ("55000" if who == "owner" else "42501"), (statement, caught.value)
                if who == "owner":
                    assert "read-only" in str(caught.value) and "redrive command" in str(caught.value)
    await harness.check_totals()
    assert len(await harness.sql("select 1 from redrive.v_failures")) == 1
    assert len(await harness.sql("select 1 from redrive.v_dead_letters")) == 1
    await harness.close()


def test_a_filter_reaches_the_indexes_below_a_view(people: People) -> None:
    with psycopg.connect(people.owner) as owner:
        owner.execute("set enable_seqscan = off; set enable_bitmapscan = off")
        for question in (
            "select * from redrive.v_tasks where id = '00000000-0000-0000-0000-000000000000'",
            "select * from redrive.v_failures where kind = 'A'",
            "select * from redrive.v_dead_letters where trace_id = 'A'",
            "select * from redrive.v_audit where batch_id = 'A' order by id desc limit 5",
        ):
            plan = "\n".join(row[0] for row in owner.execute(f"explain {question}").fetchall())
            assert "Index Scan" in plan and "Seq Scan" not in plan and "Subquery" not in plan, plan


async def test_a_worker_feeds_the_time_series_and_a_viewer_sees_them(people: People) -> None:
    harness = PostgresHarness(people.urls["worker"])
    await send(harness, "1", A=tallied(3))
    assert await harness.store.upkeep("series") == 1
    await send(harness, "2", A=tallied(2))
    assert await completed(harness) == 5
    await harness.close()
    with psycopg.connect(people.urls["viewer"]) as viewer:
        question = (
            "select completed, document ->> 'completed' from redrive.v_series where resolution = 'day' and kind = 'A'"
        )
        assert viewer.execute(question).fetchall() == [(3, "3")]
    for who in ("producer", "viewer", "stranger"):
        for call in ("begin_series()", "take_sheets(1)", "put_series('{}', '{}', '{}', '{}', '{}', '{}', '{}')"):
            assert not people.may(who, f"select redrive.{call}"), (who, call)


# How an operation was written down before the first release: the fields of all actions stand side by side.
FORMER: dict[str, Any] = {
    "actor": "ann",
    "total": 5,
    "which": {"scope": "acme"},
    **dict.fromkeys(("reason", "rate", "approval", "note", "fixed", "idempotent", "driver", "canary", "plan")),
    **dict.fromkeys(("done", "skipped", "last_piece", "upto", "cursor", "letters", "cancelled", "given_up_until"), 0),
    "stop_on_return": False,
    "fingerprints": [],
    "archive": None,
    "erased": {},
    "traces": [],
}


@pytest.mark.parametrize(
    "given",
    [
        {"action": "forget", "upto": 9, "cursor": 3, "plan": "p"},
        {"action": "retry", "upto": 9, "cursor": 3, "letters": 4, "stop_on_return": True},
        {"action": "purge", "upto": 9, "cursor": "00000000-0000-0000-0000-000000000007"},
        {"action": "cancel", "upto": 9, "cursor": "2 00000000-0000-0000-0000-000000000007"},
        {"action": "erase", "cursor": "traces 0", "archive": "/a"},
    ],
    ids=lambda given: str(given["action"]),
)
async def test_an_operation_from_before_the_first_release_goes_on(people: People, given: dict[str, Any]) -> None:
    owner, worker = PostgresHarness(people.owner), PostgresHarness(people.urls["worker"])
    await owner.store.apply(Commit(puts=[Put(COLLECTION, "o1", {**FORMER, **given}, 0, "running")]))
    record = await worker.store.record(COLLECTION, "o1")
    assert record is not None
    operation = Operation.of(record)
    for changed in (replace(operation, actor="eve"), replace(operation, which=FailureFilter(kind="OTHER"))):
        with pytest.raises(RedriveError, match="may not write this document"):
            await worker.store.apply(Commit(puts=[changed.put()]))
    await worker.store.apply(Commit(puts=[replace(operation, done=3).put()]))
    record = await worker.store.record(COLLECTION, "o1")
    assert record is not None and Operation.of(record).what == operation.what
    for one in (owner, worker):
        await one.close()


async def test_no_other_role_can_stop_the_fleet(people: People) -> None:
    """Advisory locks, and every lock that a producer, a viewer or a stranger can take, held while others work."""
    harness = PostgresHarness(people.owner)
    await harness.enqueue_many(2)
    for who in ("producer", "viewer", "stranger"):
        with psycopg.connect(people.urls[who], autocommit=True) as connection:
            for key in range(4):
                connection.execute(f"select pg_advisory_lock(72617, {key})")
            connection.autocommit = False
            for name, _, _ in relations(people):
                for mode in ("access share", "row share", "exclusive", "access exclusive"):
                    connection.execute("savepoint s")
                    try:
                        connection.execute(f"lock table redrive.{name} in {mode} mode nowait")
                    except psycopg.Error:
                        connection.execute("rollback to savepoint s")
            await harness.store.failed_end(FailureFilter())
            claimed = await harness.claim_one()
            assert await harness.settle(claimed, TERMINAL)
            await harness.hold(Target.KIND, "B")
            await harness.hold(Target.KIND, "B", on=False)
            for duty in ("fold", "partitions"):
                await harness.store.upkeep(duty, Retention(history_days=10.0, key_days=10.0))
            assert not await harness.sql("select 1 from redrive.total_delta")
            await harness.enqueue()
            await harness.store.migrations.up()
    await harness.close()


def test_the_stores_own_statements_write_nothing_by_hand() -> None:
    """What the Python code sends writes to documents and the audit log only; all else is a function with the owner's
    rights. A worker's role could not do it otherwise."""
    folder = Path(__file__).parents[2] / "src/redrive/stores/postgres"
    sent = (folder / "statements.sql").read_text()
    written = set(re.findall(r"(?:insert into|update|delete from) redrive\.(\w+)", sent))
    assert written <= {"record", "audit"}, written
    made = "\n".join(path.read_text() for path in sorted((folder / "functions").glob("*.sql")))
    called = set(re.findall(r"redrive\.(\w+)\(", sent)) - {"record", "audit"}
    for name in called:
        heads = re.findall(rf"create or replace function redrive\.{name}\((.*?)as \$\$", made, re.DOTALL)
        assert heads, name
        assert any("security definer" in head or "stable" in head for head in heads), name


RIGHTS = """
select p.oid::regprocedure::text, has_function_privilege(%(role)s, p.oid, 'execute')
from pg_proc p where p.pronamespace = 'redrive'::regnamespace
union all
select c.relname || '.' || a.attname, has_column_privilege(%(role)s, c.oid, a.attnum, 'select')
from pg_class c join pg_attribute a on a.attrelid = c.oid
where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'p', 'v') and a.attnum > 0 and not a.attisdropped
order by 1
"""


def rights(owner: psycopg.Connection[Any], role: str) -> list[tuple[str, bool]]:
    return [(what, may) for what, may in owner.execute(RIGHTS, {"role": role}).fetchall()]


KNOWN_BY = ("redrive.cycle(", "redrive.enqueue(", "redrive.administer(")  # what tells which kind a role is of


@pytest.mark.parametrize("what", [role for role in ROLES if role not in ("api", "stranger")])
async def test_what_a_step_adds_is_granted_to_who_had_the_rest(
    databases: Databases, empty_postgres_url: str, what: str
) -> None:
    """A worker that runs while its database is migrated must not be refused what is new."""
    store = PostgresStore(empty_postgres_url)
    with (
        psycopg.connect(empty_postgres_url, autocommit=True) as owner,
        databases.role("before") as before,
        databases.role("after") as after,
    ):
        try:
            await store.migrations.up()
            owner.execute(f"select redrive.grant_{what}('{before}')")
            # As with a set of functions that lacked half of what this one has.
            made = [name for name, _ in rights(owner, before) if "(" in name and not name.startswith(KNOWN_BY)]
            owner.execute(f"drop function {', '.join(made[::2])} cascade")
            owner.execute("delete from redrive.function_set")
            await store.migrations.up()
            owner.execute(f"select redrive.grant_{what}('{after}')")
            assert rights(owner, before) == rights(owner, after)
        finally:
            owner.execute(f"drop owned by {before}, {after}")
            await store.close()


def test_names_that_a_producer_declares_take_none_from_others(databases: Databases, database: str) -> None:
    """Whatever it says, in however many transactions at once; what was announced is never refused to anybody."""
    one = "array[gen_random_uuid()], array[%s]::text[], array[%s]::text[], array['{}'::jsonb]" + ", null" * 9
    some = one.replace(
        "array[gen_random_uuid()], array[%s]", "array(select gen_random_uuid() from unnest(%s::text[])), %s"
    )
    declared, plain, many = (
        f"select redrive.{call}"
        for call in (f"enqueue_declared({one})", f"enqueue({one})", f"enqueue_declared({some})")
    )
    with ExitStack() as stack:
        owner = stack.enter_context(psycopg.connect(databases.url(database), autocommit=True))
        hostile, member, honest = (stack.enter_context(databases.role(f"producer{n}")) for n in range(3))
        for role in (hostile, honest):
            owner.execute(f"select redrive.grant_producer('{role}')")
            stack.callback(owner.execute, f"drop owned by {role}")
        owner.execute(f"grant {hostile} to {member}")  # one role for several logins is one role
        owner.execute("select redrive.know_names('{mail}', '{SEND}', 0)")
        urls = [databases.url(database, user=user) for user in (hostile, member)]
        sessions = [stack.enter_context(psycopg.connect(url)) for url in urls * 6]
        made = 0
        for n, session in enumerate(sessions):  # none is committed before the last has tried
            for part in range(12):
                kinds = [f"RUBBISH_{n}_{part}_{name}" for name in range(25)]
                try:
                    with session.transaction():
                        session.execute(many, (kinds, kinds, "rubbish"))
                    made += 25
                except psycopg.errors.InvalidParameterValue as refused:
                    assert "too many names" in str(refused)
                    break
        assert made == 1000
        for session in sessions:
            session.commit()
        counted = "select count(*) from redrive.used_name where declared_by is not null"
        assert owner.execute(counted).fetchone() == (1000,)
        owner.execute("select redrive.lapse_names(86400)")
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="too many names"):
            sessions[0].execute(declared, ("ONE_MORE", "rubbish"))
        sessions[0].rollback()
        sessions[0].execute(plain, ("SEND", "mail"))
        with psycopg.connect(databases.url(database, user=honest)) as other:
            other.execute(declared, ("REPORT", "reports"))
            other.execute(plain, ("SEND", "mail"))
        # What is given back can be used again; what rolled back was never counted.
        owner.execute("update redrive.task set state = 'completed'")
        owner.execute("delete from redrive.task; delete from redrive.total_delta; delete from redrive.total")
        owner.execute("update redrive.used_name set used_at = now() - interval '2 days'")
        assert owner.execute("select redrive.lapse_names(86400)").fetchone() == (1001,)
        for _ in range(3):
            sessions[0].execute(declared, ("ONE_MORE", "rubbish"))
            sessions[0].rollback()
        used = owner.execute("select sum(used) from redrive.name_allowance").fetchone()
        assert used == (0,)
        for session in sessions:
            session.close()
