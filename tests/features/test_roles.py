"""What roles do with tables of features; and what a worker's cannot: let others in, sign for all, remove accounts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

import psycopg
import pytest

from redrive import App
from redrive.errors import StoreError
from redrive.ids import new_id
from redrive.kernel.approved import Request
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.joins import NewJoin
from redrive.kernel.operation import Action, Status
from redrive.kernel.outcome import Completed
from redrive.kernel.reactions import Rows
from redrive.ops import access, approvals, audit
from redrive.ops.access import Role
from redrive.ops.allowance import UNRESTRICTED, Rule
from redrive.ops.operations import drive, erase, lifecycle
from redrive.ops.retention import retention_of
from redrive.settings import load_settings
from redrive.stores.postgres.store import PostgresStore
from redrive.webhooks.delivery_tasks import deliveries
from redrive.webhooks.events import Event
from redrive_kit.conformance.harness import TERMINAL
from redrive_kit.examples.orders import ORDERS
from redrive_kit.examples.orders.settings import OrderSettings
from tests.conformance.harness_postgres import PostgresHarness
from tests.databases import Databases
from tests.features.conftest import placed
from tests.worker.conftest import drain


async def test_it_reacts_examines_prunes_and_erases(databases: Databases, database: str) -> None:
    url = databases.url(database)
    owner = App(url, features=[ORDERS])
    assert await owner.migrate() == ["orders/0001_parcels"]
    await owner.close()
    with psycopg.connect(url, autocommit=True) as admin, databases.role("worker") as role:
        admin.execute(f"select redrive.grant_worker('{role}')")
        settings = load_settings(url=databases.url(database, user=role), log_format="off")
        app = App(settings=settings.holding(OrderSettings(keep_days=1e-7, late_hours=0)), features=[ORDERS])
        operator = App(url, features=[ORDERS])
        try:
            await as_a_worker(app, operator)
        finally:
            await operator.close()
            await app.close()
            admin.execute(f"drop owned by {role}")


async def as_a_worker(app: App, operator: App) -> None:
    await placed(app, addresses=("here", "nowhere"))
    await drain(app)
    store = await app.store()
    assert ORDERS.examine is not None
    assert [one.code for one in await ORDERS.examine(store, app.settings)] == ["orders_late"]
    await store.upkeep("prune", retention_of(app.settings, app.features))
    assert (await erase.preview(store, "bob", None))["orders_rows"] == 1
    with pytest.raises(StoreError, match="may not write this document of the collection operation"):
        await erase.begin(store, "bob", None, actor="ann", rule=UNRESTRICTED)
    operation, _ = await erase.begin(await operator.store(), "bob", None, actor="ann", rule=UNRESTRICTED)
    while await drive.step(store, operation.id, "w1") is not None:
        pass
    assert "orders_rows" not in await erase.preview(store, "bob", None)


FLEET = ("worker", "api")
FINDER = "comment on function redrive.batches_meant(text, uuid[], uuid[])"
EMPTY_AUDIT = (
    "select redrive.erase('{}', 'x', array(select id from redrive.audit order by id),"
    " array(select 'x' from redrive.audit), null, '[]', '{}')"
)
NEW_DOCUMENT = (
    "insert into redrive.record (collection, id, state, version, created_at, updated_at, body)"
    " values ('{collection}', 'x', '{state}', 1, now(), now(), '{body}')"
)
# What a worker's role is left of the tables that say so; of all others of features it has everything.
WORKERS = {
    ("ledger_account", "select"),
    ("ledger_account", "insert"),
}
TABLES = """
select c.relname, array_agg(a.attname::text order by a.attnum)
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
where c.relnamespace = 'redrive'::regnamespace and c.relkind = 'r' and not a.attisdropped and exists (
  select 1 from redrive.migration m
  where m.feature <> '' and (c.relname = m.feature or starts_with(c.relname, m.feature || '_')))
group by 1 order by 1
"""


class Fleet(NamedTuple):
    """A connection of the owner, the URL of each role, and a connection of the worker's."""

    owner: psycopg.Connection[Any]
    urls: dict[str, str]
    worker: psycopg.Connection[Any]


@pytest.fixture
async def own(databases: Databases, database: str) -> AsyncIterator[App]:
    """The application of the owner, with all tables."""
    app = App(databases.url(database))
    await app.migrate()
    yield app
    await app.close()


@pytest.fixture
def fleet(own: App, databases: Databases, database: str) -> Iterator[Fleet]:
    with psycopg.connect(databases.url(database), autocommit=True) as owner, ExitStack() as stack:
        roles = {what: stack.enter_context(databases.role(what)) for what in FLEET}
        for what, role in roles.items():
            stack.callback(owner.execute, f"drop owned by {role}")
            owner.execute(f"select redrive.grant_{what}('{role}')")
        urls = {what: databases.url(database, user=role) for what, role in roles.items()}
        yield Fleet(owner, urls, stack.enter_context(psycopg.connect(urls["worker"])))


async def audit_row(store: Any, reason: str) -> None:
    await store.apply(Commit(audits=[Audit("ann", "NOTE", reason)]))


def may(connection: psycopg.Connection[Any], statement: str) -> bool:
    """Whether a statement gets past the check of rights; whatever it does is rolled back."""
    try:
        connection.execute(statement)
    except psycopg.errors.InsufficientPrivilege:
        return False
    except psycopg.Error:
        return True
    finally:
        connection.rollback()
    return True


async def test_every_table_of_every_feature(fleet: Fleet) -> None:
    owner, urls = fleet.owner, fleet.urls
    tables = owner.execute(TABLES).fetchall()
    assert {"webhooks_secret", "ledger_account", "batches_item", "outbox_tombstone"} <= {name for name, _ in tables}
    for who, url in urls.items():
        with psycopg.connect(url) as connection:
            for name, columns in tables:
                tried = {
                    "select": f"select * from redrive.{name}",
                    "insert": f"insert into redrive.{name} default values",
                    "update": f"update redrive.{name} set {columns[0]} = default where false",
                    "delete": f"delete from redrive.{name} where false",
                    "truncate": f"truncate redrive.{name}",
                    "alter": f"comment on table redrive.{name} is 'For workers: all'",
                }
                kept = name in ("webhooks_secret", "ledger_account") and who == "worker"
                for verb, statement in tried.items():
                    open_to = verb not in ("truncate", "alter") and (not kept or (name, verb) in WORKERS)
                    assert may(connection, statement) == open_to, (who, verb, name)
            assert may(connection, "select secret from redrive.webhooks_secret") == (who == "api")
            assert may(connection, "select id, owner, expires_at from redrive.webhooks_secret")
            assert may(connection, "update redrive.ledger_account set label = null")


async def test_a_workers_role_lets_nobody_in(own: App, fleet: Fleet) -> None:
    """Tokens, sessions and approvals: not made, not changed, not removed; those that nobody decided run out."""
    made = await access.create(await own.store(), "ann", Role.ADMIN, actor="ann")
    asked = Request("ledger", "adjust", {"change": 5}, 5, "title", "told")
    pending = await approvals.ask_for(await own.store(), "ann", asked, "why", "much")
    urls = fleet.urls
    worker, api = App(urls["worker"]), App(urls["api"])
    store = await worker.store()
    assert await access.any_token(store), "a door that is closed stays so"
    with pytest.raises(StoreError, match="may not write this document of the collection token") as refused:
        await access.create(store, "eve", Role.ADMIN, actor="eve")
    assert refused.value.hint is not None and "select redrive.grant_api('" in refused.value.hint
    with pytest.raises(StoreError, match="of the collection approval"):
        await approvals.ask_for(store, "eve", replace(asked, arguments={"change": 6}), "why", "much")
    with psycopg.connect(urls["worker"]) as connection:
        body = """jsonb_set(body, '{arguments,change}', '500')"""
        for statement in (
            "update redrive.record set state = 'approved' where collection = 'approval'",
            f"update redrive.record set body = {body} where collection = 'approval'",
            "update redrive.record set collection = 'token' where collection = 'approval'",
            "update redrive.record set collection = 'plan' where collection = 'token'",
            """update redrive.record set body = jsonb_set(body, '{role}', '"admin"') where collection = 'token'""",
            "delete from redrive.record where collection = 'token'",
            "insert into redrive.record (collection, id, state, version, created_at, updated_at, body)"
            " values ('session', 'x', 'active', 1, now(), now(), '{}')",
            NEW_DOCUMENT.format(collection="alone", state="", body="{}"),
        ):
            assert not may(connection, statement), statement
        expired = "set state = 'expired', version = version + 1, updated_at = now() where collection = 'approval'"
        assert may(connection, f"update redrive.record {expired}")
    assert await api.migrate() == await worker.migrate() == [], "redrive up looks, and has nothing to do"
    assert (await approvals.reject(await api.store(), pending.id, actor="bob")).state == approvals.REJECTED
    other = await access.create(await api.store(), "bob", Role.ADMIN, actor="ann")
    assert await access.check(store, made.secret) and await access.check(store, other.secret)
    await worker.close()
    await api.close()


async def test_a_workers_role_drives_what_others_decided(own: App, fleet: Fleet) -> None:
    """Operations of people are begun, approved and described by the API's role; workers carry them out as they are."""
    urls, connection = fleet.urls, fleet.worker
    harness, worker, api = PostgresHarness(urls["worker"], own.features), App(urls["worker"]), App(urls["api"])
    await harness.enqueue_many(3)
    for claimed in await harness.claim(3):
        await harness.settle(claimed, TERMINAL)
    operators = await api.store()
    waiting, request = await lifecycle.begin(operators, Action.RETRY, actor="ann", reason="r", rule=Rule(2))
    assert waiting.status is Status.WAITING and request is not None
    ours = "where collection = 'operation'"
    for statement in (
        f"update redrive.record set state = 'running' {ours}",
        f"""update redrive.record set body = body || '{{"actor": "bob"}}' {ours}""",
        f"""update redrive.record set body = body || '{{"which": {{"kind": "B"}}}}' {ours}""",
        f"""update redrive.record set body = body || '{{"reason": "another"}}' {ours}""",
        f"delete from redrive.record {ours}",
        NEW_DOCUMENT.format(collection="operation", state="running", body='{"action": "retry", "actor": "ann"}'),
        NEW_DOCUMENT.format(collection="operation", state="running", body='{"action": "erase", "actor": "app"}'),
        NEW_DOCUMENT.format(collection="operation", state="waiting", body='{"action": "retry", "actor": "app"}'),
    ):
        assert not may(connection, statement), statement
    of_the_application = '{"action": "cancel", "actor": "app"}'
    assert may(connection, NEW_DOCUMENT.format(collection="operation", state="running", body=of_the_application))
    late = "state = 'cancelled', version = version + 1, updated_at = now()"
    assert may(connection, f"update redrive.record set {late} {ours}"), "nobody decided in time"
    await approvals.approve(operators, request.id, actor="bob")
    store = await worker.store()
    while await drive.step(store, waiting.id, "w1") is not None:
        pass
    done = await operators.record("operation", waiting.id)
    assert done is not None and (done.state, done.body["done"], done.body["actor"]) == ("completed", 3, "ann")
    assert not may(connection, f"update redrive.record set state = 'running' {ours}"), "what is over stays so"
    for one in (harness, worker, api):
        await one.close()


async def test_a_workers_role_erases_what_requests_quote(own: App, fleet: Fleet) -> None:
    """Cleaning changes words of what was decided, and withdraws what was not: nobody agrees to other words."""
    owner, urls, connection = fleet
    operators, worker = await own.store(), App(urls["worker"])
    asked = Request("ledger", "adjust", {"scope": "customer-7", "change": 5}, 5, "title", "told")
    await approvals.ask_for(operators, "ann", asked, "for customer-7", "much")
    old = await approvals.ask_for(operators, "ann", replace(asked, arguments={"change": 7}), "for customer-7", "much")
    await approvals.reject(operators, old.id, actor="bob", reason="not for customer-7")
    await audit_row(operators, "about customer-7")
    await audit_row(operators, "about another")
    operation, _ = await erase.begin(operators, "customer-7", None, actor="ann", rule=UNRESTRICTED)
    tombstone = f"erased:{operation.id[-12:]}"
    for path, value in (("{reason}", "for x-erased"), ("{reason}", f"{tombstone} paid"), ("{title}", "erased")):
        forged = f"""jsonb_set(body, '{path}', '"{value}"'), version = version + 1, updated_at = now()"""
        assert not may(connection, f"update redrive.record set body = {forged} where id = '{old.id}'"), value
    # Nor does it say by which words an erasure finds what quotes somebody: by traces of tasks from before it.
    other = await own.enqueue("ANY", scope="customer-8", trace_id="about another")
    early = await own.enqueue("ANY", scope="customer-7", trace_id="trace-of-7")
    owner.execute("update redrive.task set created_at = now() - interval '1 day' where id = %s", (early.id,))
    planted = await own.enqueue("ANY", scope="customer-7", trace_id="about another one")
    traces = "body = jsonb_set(body, '{traces}', %s), version = version + 1, updated_at = now()"
    for task in (other, planted, early):
        words = f'["{task.trace_id}"]'
        with ExitStack() as tried:
            tried.callback(connection.rollback)
            if task is not early:
                tried.enter_context(pytest.raises(psycopg.errors.InsufficientPrivilege))
            connection.execute(f"update redrive.record set {traces} where id = '{operation.id}'", (words,))
    connection.execute(EMPTY_AUDIT)
    connection.commit()
    left = "select reason from redrive.audit where reason like 'about %'"
    assert owner.execute(left).fetchall() == [("about another",)], "rows that the erasure is not about stay"
    store = await worker.store()
    while await drive.step(store, operation.id, "w1") is not None:
        pass
    said = owner.execute("select collection, state, body::text from redrive.record").fetchall()
    assert not any("customer-7" in body for *_, body in said)
    states = {(name, state) for name, state, _ in said}
    assert {("operation", "completed"), ("approval", "withdrawn"), ("approval", "rejected")} <= states
    assert any(erase.OUT_OF_DATE in body for *_, body in said), "who asked is told why"
    changed = """jsonb_set(body, '{arguments,change}', '6'), version = version + 1, updated_at = now()"""
    assert not may(connection, f"update redrive.record set body = {changed} where collection = 'approval'")
    assert not may(connection, EMPTY_AUDIT), "without an erasure nothing is emptied"
    assert not may(connection, "select redrive.erase_reasons('x'), redrive.erase_callbacks('x')")
    await worker.close()


async def test_a_workers_role_erases_what_belongs_to_the_scope_and_nothing_else(
    own: App, fleet: Fleet, databases: Databases, database: str
) -> None:
    """By what features know: a batch about the scope, whose items may carry another. None of that can be forged."""
    owner, urls, connection = fleet
    worker, operators = App(urls["worker"]), await own.store()
    harness = PostgresHarness(databases.url(database), own.features)
    batches = [new_id(), new_id(), new_id()]
    ids = [{"id": str(one), "by": "ann"} for one in batches[:2]]
    rows = ({**ids[0], "scope": "customer-7"}, {**ids[1], "scope": "customer-8"})
    joins = [NewJoin(one, open=True) for one in batches]
    await operators.apply(Commit(joins=joins, rows=[Rows("batches", "made", rows)]))
    done = [await harness.running(join=one, scope="customer-9") for one in (*batches, None)]
    for task in done:
        await harness.settle(task, Completed())
    operation, _ = await erase.begin(operators, "customer-7", None, actor="ann", rule=UNRESTRICTED)
    for statement in (
        f"update redrive.batches set scope = 'customer-7' where id = '{batches[1]}'",
        f"update redrive.batches set parent = '{batches[0]}' where id = '{batches[1]}'",
        f"insert into redrive.batches (id, created_by, scope) values ('{batches[2]}', 'x', 'customer-7')",
    ):
        assert not may(connection, statement), statement
    every = f"array{[str(task.id) for task in done]}::uuid[]"
    owner.execute(f"{FINDER} is null")  # as before the migration, or of a feature that has none
    store, audited = await worker.store(), "select count(*) from redrive.audit"
    before = owner.execute(audited).fetchone()
    assert [await drive.step(store, operation.id, "w1") for _ in range(3)][-1] == erase.LEFT_FOR_S
    assert owner.execute(audited).fetchone() == before, "what does not go on is not written down again and again"
    noted = await operators.record("operation", operation.id)
    assert noted is not None and noted.body["note"] == erase.NOT_LET.format(f"task {done[0].id}")
    owner.execute(f"{FINDER} is 'For erasing: …'")
    connection.execute(f"select redrive.erase({every}, 'x', '{{}}', '{{}}', null, '[]', '{{}}')")
    erased = "select id from redrive.history where erased_at is not null"
    assert connection.execute(erased).fetchall() == [(done[0].id,)], "whatever it names"
    connection.rollback()
    while await drive.step(store, operation.id, "w1") is not None:
        pass
    assert owner.execute(erased).fetchall() == [(done[0].id,)]
    ended = await operators.record("operation", operation.id)
    assert ended is not None and (ended.state, ended.body["note"]) == ("completed", erase.NOT_COVERED)
    for one in (worker, harness):
        await one.close()


async def test_what_waits_for_a_decision_stays_as_it_was_asked_for(own: App, fleet: Fleet) -> None:
    """As the worker's role: every field of a request and of its operation, and every column, with the words of an
    erasure that is under way and with others."""
    owner, _, connection = fleet
    operators = await own.store()
    arguments = {"account": "customer-7", "scope": "customer-7", "change": 5}
    asked = Request("ledger", "adjust", arguments, 5, "adjust customer-7", "customer-7 gets 5", scope="customer-7")
    await approvals.ask_for(operators, "ann", asked, "for customer-7", "much")
    under_way, _ = await erase.begin(operators, "customer-7", None, actor="ann", rule=UNRESTRICTED)
    await erase.begin(operators, "customer-8", None, actor="ann", reason="r", rule=Rule(0))
    waiting = owner.execute(
        "select collection, id, body from redrive.record where state in ('pending', 'waiting')"
    ).fetchall()
    assert [name for name, *_ in waiting].count("approval") == 2 and len(waiting) == 3
    words = ("mallory-erased", "erased", f"erased:{under_way.id[-12:]}", "customer-9")
    for name, found, body in waiting:
        paths = [f"{{{key}}}" for key in body] + ["{arguments,account}", "{which,scope}", "{filter,scope}"]
        tried = [f"body = jsonb_set(body, '{path}', '\"{word}\"')" for path in paths for word in words]
        tried += ["body = body - 'total'", "created_at = now() + interval '1 day'", "expires_at = now()"]
        for change in tried:
            statement = f"update redrive.record set {change}, version = version + 1, updated_at = clock_timestamp()"
            try:
                row = connection.execute(f"{statement} where id = '{found}' returning body").fetchone()
                assert "body" in change and row == (body,), (name, change)
            except psycopg.errors.InsufficientPrivilege:
                pass
            finally:
                connection.rollback()


async def test_a_workers_role_prunes_what_is_past_its_keep_and_nothing_else(own: App, fleet: Fleet) -> None:
    owner, _, worker = fleet
    worker.autocommit = True
    store = await own.store()
    tokens = [(await access.create(store, name, Role.ADMIN, actor="ann")).record.id for name in ("ann", "bob")]
    await access.revoke(store, tokens[0], actor="ann")
    states = {"session": "", "alone": "", "approval": "pending", "operation": "waiting", "audit-seal": ""}
    for name, state in states.items():
        owner.execute(NEW_DOCUMENT.format(collection=name, state=state, body="{}"))
    owner.execute(NEW_DOCUMENT.format(collection="plan", state="", body="{}"))
    guarded = ("access", "token", *states)
    rules = [{"collection": name, "days": -1, "keep_last": False} for name in (*guarded, "plan")]
    count = "select collection, count(*) from redrive.record where collection = any(%s) group by 1"
    before = dict(owner.execute(count, (list(guarded),)).fetchall())
    assert before == {"access": 1, "token": 2, **dict.fromkeys(states, 1)}
    pruned = "select removed from redrive.prune(%s, 1000)"
    assert worker.execute(pruned, (json.dumps({"records": rules}),)).fetchall() == [(1,)], "the plan"
    assert dict(owner.execute(count, (list(guarded),)).fetchall()) == before
    owner.execute("update redrive.record set expires_at = 'epoch' where collection in ('session', 'alone')")
    owner.execute("update redrive.record set state = 'completed' where collection in ('approval', 'operation')")
    owner.execute("update redrive.record set updated_at = now() - interval '2 days'")
    worker.execute(pruned, (json.dumps({"records": rules}),))
    left = owner.execute("select collection, state from redrive.record where collection = any(%s)", (list(guarded),))
    assert sorted(left.fetchall()) == [("access", ""), ("audit-seal", ""), ("token", "active")]
    owner.execute("delete from redrive.record where collection = 'token'")
    assert await access.any_token(store), "that there was one is known without any"


async def test_a_workers_role_leaves_the_audit_log_of_today(own: App, fleet: Fleet) -> None:
    """Retention removes what is older than a day; seals are added, and stay as they are."""
    owner, urls, connection = fleet
    worker = App(urls["worker"])
    await access.create(await own.store(), "ann", Role.VIEWER, actor="ann")
    with pytest.raises(StoreError, match="rows of the audit log that are younger than a day") as refused:
        await audit.prune(await worker.store(), older_than_days=0, actor="eve")
    assert refused.value.hint is not None and "TASK_AUDIT_LOG_TTL_DAYS" in refused.value.hint
    owner.execute("update redrive.audit set at = at - interval '2 days'")
    assert (await audit.prune(await worker.store(), older_than_days=1, actor="redrive")).removed == 1
    assert owner.execute("select 1 from redrive.record where collection = 'audit-seal'").fetchall()
    assert not may(connection, "update redrive.record set body = '{}' where collection = 'audit-seal'")
    await worker.close()


async def test_a_workers_role_gives_and_removes_no_secret(own: App, fleet: Fleet) -> None:
    """Only that of a URL that is named for one event; pruning and an erasure that is under way remove others."""
    owner, urls, connection = fleet
    worker = App(urls["worker"])
    await worker.webhooks.send("a.b", {}, url="https://example.com/x", secret="whsec_" + "A" * 32)
    await worker.webhooks.send("a.b", {}, url="https://example.com/x", secret="whsec_" + "A" * 32)
    with pytest.raises(StoreError, match=r"may not give endpoint:ep_.* a secret"):
        await worker.webhooks.add("https://example.com/y", account="acme")
    made = await own.webhooks.add("https://example.com/y", account="acme")
    count = "select count(*) from redrive.webhooks_secret"
    assert owner.execute(count).fetchall() == [(2,)]
    assert not may(connection, "delete from redrive.webhooks_secret")
    assert connection.execute("select redrive.erase_webhook_secrets('acme')").fetchall() == []
    pruned = "select redrive.prune_webhook_secrets('infinity', 10)"
    assert connection.execute(pruned).fetchall() == []
    connection.commit()
    operation, _ = await erase.begin(await own.store(), "acme", None, actor="ann", rule=UNRESTRICTED)
    store = await worker.store()
    while await drive.step(store, operation.id, "w1") is not None:
        pass
    left = owner.execute("select owner from redrive.webhooks_secret").fetchall()
    assert len(left) == 1 and left[0][0] != f"endpoint:{made['id']}"
    owner.execute("delete from redrive.webhooks_endpoint")
    assert len(connection.execute(pruned).fetchall()) == 1
    await worker.close()


async def test_a_worker_reads_the_secret_of_a_delivery_whose_lease_it_holds(own: App, fleet: Fleet) -> None:
    owner, urls = fleet.owner, fleet.urls
    owner.execute(
        "insert into redrive.webhooks_endpoint (id, account, url, events, state)"
        " values ('ep_1', 'acme', 'https://a.example', '[]', 'enabled')"
    )
    owner.execute("insert into redrive.webhooks_secret (id, owner, secret) values ('s', 'account:acme', 'whsec_x')")
    store = await own.store()
    commit = deliveries(Event("a.b", {}, "acme", "evt_1"), ["ep_1"], 1)
    await store.apply(commit)
    harness = PostgresHarness(urls["worker"], own.features)
    [claimed] = await harness.claim(1, queues=("webhooks",))
    asked = "select * from redrive.webhook_keys(%s, %s)"
    with psycopg.connect(urls["worker"]) as connection:
        assert connection.execute(asked, (claimed.id, claimed.token)).fetchall() == [("account:acme", "whsec_x")]
        assert connection.execute(asked, (claimed.id, new_id())).fetchall() == []
        assert connection.execute(asked, (new_id(), claimed.token)).fetchall() == []
        connection.commit()
        await harness.settle(claimed, Completed())
        assert connection.execute(asked, (claimed.id, claimed.token)).fetchall() == []
    await harness.close()


async def test_migrate_takes_back_what_was_granted_before(
    own: App, fleet: Fleet, databases: Databases, database: str
) -> None:
    """For a day after a step a role keeps what it had, while workers from before run; after that the next one takes
    it, and whatever a worker says of itself brings nothing back."""
    owner, urls, worker = fleet
    role, secrets = worker.info.user, "select secret from redrive.webhooks_secret"
    harness = PostgresHarness(urls["worker"], own.features)
    await harness.tick("old")
    owner.execute("update redrive.worker set started_at = 'epoch'")
    for grant in (own.migrate(), granted(owner, role)):
        await grant
        assert not may(worker, secrets) and not may(worker, "delete from redrive.ledger_account")
    wide = f"grant select, insert, update, delete on all tables in schema redrive to {role}"
    owner.execute(wide)
    store = PostgresStore(databases.url(database), own.features)
    await store.migrations.up()
    revoked = store.migrations.revoked[role]
    await store.close()
    assert "delete on task" in revoked and "select on webhooks_secret" not in revoked
    assert may(worker, secrets) and not may(worker, "delete from redrive.task")
    owner.execute("update redrive.worker set started_at = clock_timestamp()")
    await own.migrate()
    assert not may(worker, secrets) and not may(worker, "delete from redrive.ledger_account")
    owner.execute(wide)
    owner.execute("update redrive.migration set applied_at = applied_at - interval '2 days'")
    owner.execute("update redrive.function_set set loaded_at = loaded_at - interval '2 days'")
    owner.execute("update redrive.worker set started_at = 'epoch', seen_at = clock_timestamp()")
    await own.migrate()
    assert not may(worker, secrets) and not may(worker, "delete from redrive.ledger_account")
    await harness.close()


async def granted(owner: psycopg.Connection[Any], role: str) -> None:
    owner.execute(f"select redrive.grant_worker('{role}')")
