"""Erasing reaches the tables of features: a marker in every column that can hold text is gone, or kept on purpose."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from redrive import App
from redrive.batches import BATCHES
from redrive.errors import ConfigError, InvalidInput
from redrive.features import installed
from redrive.handlers.registry import Registry
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.diagnosis import Level
from redrive.kernel.feature import Feature
from redrive.kernel.joins import NewJoin
from redrive.kernel.operation import Status
from redrive.kernel.outcome import Completed
from redrive.kernel.payload import encode
from redrive.kernel.reactions import Rows
from redrive.ledger import LEDGER
from redrive.ledger.movements import credit, freeze
from redrive.ops import actions
from redrive.ops.access import Caller, Role
from redrive.ops.audit_rows import ERASE_SUMMARY
from redrive.ops.doctor import examine
from redrive.ops.operations import drive, erase
from redrive.ops.operations.erase_subject import find_erasable
from redrive.ops.operator.session import Policy, Session
from redrive.stores.schema import load
from redrive.webhooks import WEBHOOKS, event_task
from redrive.webhooks.delivery_tasks import deliveries
from redrive.webhooks.events import Event
from redrive_kit.conformance.harness import Harness, failing
from redrive_kit.conformance.probe import PROBE
from redrive_kit.examples.orders import ORDERS
from redrive_kit.examples.orders.service import Orders
from tests.conformance.harness_postgres import PostgresHarness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.ops.test_erase import SCOPE, SECRET, begun, by_the_workers_role, carried_out, driver_of, table
from tests.ops.test_erase_everywhere import (
    CODES,
    COUNTED,
    COUNTED_BY,
    STRUCTURE,
    a_full_house,
    found,
    identifiers,
    plant,
    texts,
)
from tests.ops.test_erase_everywhere import KEPT as CORE

FEATURES = [feature for feature in (*installed(), ORDERS, PROBE) if load(feature.package, "migrations/sqlite")]
BOOKS = "the books add up only with the names of their accounts, of postings and of what those were for"
# What stays, by feature, table and column, and why. A new column is erased, or has its reason here.
KEPT: dict[str, dict[tuple[str, str], str]] = {
    "orders": {("orders_parcel", "state"): CODES},
    "batches": {
        ("batches", "created_by"): "who made it, as in the audit log",
        ("batches", "cancelled_by"): "who cancelled it, as in the audit log",
        ("batches", "cancel_operation"): "the id of an operation",
        ("batches", "parent"): "the id of a batch",
        ("batches_remote", "created_by"): "who made it, as in the audit log",
        ("batches_remote", "cancelled_by"): "who cancelled it, as in the audit log",
        ("batches_remote", "provider"): "the name of a provider",
        ("batches_flight", "provider"): "the name of a provider",
        ("batches_paid", "account"): BOOKS,
        ("batches_remote", "account"): BOOKS,
        ("batches_remote", "join_id"): "the id of a join",
        ("batches_remote", "step_task"): "the id of a task",
        ("batches_item", "task_id"): "the id of a task",
        ("batches_item", "job"): "the id of a job at the provider",
        ("batches_item", "start_key"): "a key of ours, by which the provider knows the job",
        **dict.fromkeys([("batches_remote", "state"), ("batches_item", "state")], CODES),
        **dict.fromkeys([("batches_item", one) for one in ("error_code", "failure_type", "said")], CODES),
    },
    "ledger": {
        **dict.fromkeys(
            [("ledger_account", "name"), ("ledger_movement", "account"), ("ledger_freeze", "account")], BOOKS
        ),
        **dict.fromkeys([("ledger_movement", "reference"), ("ledger_freeze", "reference")], BOOKS),
        ("ledger_movement", "posting"): BOOKS,
        ("ledger_account", "opened_by"): "who opened it, as in the audit log",
    },
    "webhooks": dict.fromkeys([("webhooks_delivery", "state"), ("webhooks_attempt", "outcome")], CODES),
    "outbox": {
        ("outbox_tombstone", "projection"): "the name of a projection",
        ("outbox_tombstone", "key_digest"): "a digest, by which nobody is found",
        ("outbox_life", "projection"): "the name of a projection",
    },
    "probe": dict.fromkeys([("probe", "was"), ("probe", "state"), ("probe", "event")], CODES),
}
# Names the person itself: by it the rest is found.
FOUND_BY = {("webhooks_endpoint", "account"), ("webhooks_endpoint", "id"), ("webhooks_secret", "owner")}
FOUND_BY |= {("batches", "scope"), ("batches_remote", "scope"), ("outbox_life", "key")}


async def an_order(harness: Harness) -> None:
    task = harness.new("A", scope=SCOPE, feature="orders", facts=encode({"order": "o1", "price": 0}, "facts"))
    row = {"task": str(task.id), "order": "o1", "customer": SCOPE, "join": str(new_id())}
    await harness.store.apply(Commit(enqueues=[task], rows=[Rows("orders", "parcels_placed", (row,))]))


async def a_probe(harness: Harness) -> None:
    await harness.settle(await harness.running(feature="probe", scope=SCOPE), Completed())


async def an_account(harness: Harness) -> None:
    moved = [credit(SCOPE, 5, "k"), freeze(SCOPE, 5, "batch:1", "k")]
    row = {"name": SCOPE, "label": "Bob", "who": "ann"}
    rows = [Rows("ledger", "opened", (row,)), *moved[1].rows]
    await harness.store.apply(Commit(postings=[one.postings[0] for one in moved], rows=rows))


async def an_endpoint(harness: Harness) -> None:
    url = "https://ann.example/hook"
    endpoint = {"id": "ep_1", "account": SCOPE, "url": url, "events": "[]", "description": "of Ann"}
    keys = [{"id": one, "owner": one, "secret": "of Ann"} for one in ("endpoint:ep_1", f"account:{SCOPE}")]
    commit = deliveries(Event("a.b", {}, SCOPE, "evt_1"), ["ep_1"], 1)
    attempt = {"id": str(new_id()), "task": str(commit.enqueues[0].id), "attempt": 1, "replay": 0, "outcome": "gone"}
    told = {**attempt, "status": 410, "ms": 1.0, "request": "{}", "response": "{}", "error": "of Ann"}
    rows = {"endpoint_added": (endpoint,), "secret_added": tuple(keys), "attempted": (told,)}
    commit.rows = [*commit.rows, *(Rows("webhooks", name, values) for name, values in rows.items())]
    await harness.store.apply(commit)
    await harness.store.apply(Commit(rows=[Rows("webhooks", "endpoint_disabled", ({"id": "ep_1", "by": "ann"},))]))


async def a_batch(harness: Harness) -> None:
    row = {"id": str(new_id()), "name": "n", "key": "k", "digest": "d", "meta": "{}", "scope": SCOPE, "by": "ann"}
    remote = {"id": str(new_id()), "provider": "video", "price": 0, "scope": SCOPE, "by": "ann"}
    item = {"batch": remote["id"], "n": 1, "payload": "{}"}
    made = {"made": row, "remote_draft": remote, "items_added": item, "flight_locked": {"provider": "video"}}
    await harness.store.apply(Commit(rows=[Rows("batches", name, (one,)) for name, one in made.items()]))
    paid = "(id, account, price, round, completed, captured, released) values"
    await harness.sql(f"insert into {table(harness, 'batches_paid')} {paid} ('{new_id()}', '{SCOPE}', 1, 1, 1, 1, 0)")


async def a_tombstone(harness: Harness) -> None:
    row = {"projection": "notes", "key": "0" * 32, "version": 1}
    life = {"projection": "notes", "key": SCOPE, "base": 3, "changes": -1}
    rows = [Rows("outbox", "bury", (row,)), Rows("outbox", "begin_lives", (life,))]
    await harness.store.apply(Commit(rows=rows))


# Makes rows of the person in all tables of a feature.
HOUSES: dict[str, Callable[[Harness], Awaitable[None]]] = {
    "orders": an_order,
    "probe": a_probe,
    "ledger": an_account,
    "webhooks": an_endpoint,
    "batches": a_batch,
    "outbox": a_tombstone,
}


Make = Callable[..., Awaitable[Harness]]


@pytest.fixture(params=["sqlite", "postgres"])
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Harness] = []
    sqlite = request.param == "sqlite"
    url = "" if sqlite else request.getfixturevalue("store_url")  # now, so that it is there until the end

    async def harness(*features: Feature) -> Harness:
        made.append(SqliteHarness(tmp_path / "redrive.db", features) if sqlite else PostgresHarness(url, features))
        await made[0].store.migrations.up()
        await made[0].store.open()
        await stack.enter_async_context(by_the_workers_role(made[0], request))
        return made[0]

    async with AsyncExitStack() as stack:
        yield harness
    for one in made:
        await one.close()


async def a_batch_of_tasks(harness: Harness) -> list[UUID]:
    """Tasks that do not carry the scope of their batch, in all states, in an inner batch, too."""
    outer, inner, made = new_id(), new_id(), []
    rows = [
        {"id": str(outer), "scope": SCOPE, "by": "ann", "key": "of Ann"},
        {"id": str(inner), "scope": None, "by": "ann", "parent": str(outer)},
    ]
    joins = [NewJoin(outer, open=True), NewJoin(inner, open=True)]
    await harness.store.apply(Commit(joins=joins, rows=[Rows("batches", "made", tuple(rows))]))
    for batch in (outer, inner):
        options: dict[str, Any] = {"join": batch, "payload": json.dumps({"mail": SECRET}), "max_attempts": 1}
        done = await harness.running("DONE", **options)
        await harness.settle(done, Completed(json.dumps({"sent to": SECRET})))
        failed = await harness.running("A", idempotency_key=f"{batch} {SECRET}", **options)
        await harness.settle(failed, failing(f"no such user {SECRET}"))
        gone = await harness.running("A", scope="user:of-the-item", **options)
        await harness.settle(gone, failing(f"no such user {SECRET}"))
        await actions.cancel(harness.store, [gone.id], actor="bob", reason=f"{SECRET} left")
        made += [done.id, failed.id, gone.id, await harness.enqueue("A", **{**options, "queue": "later"})]
    return made


async def test_nothing_is_left_in_the_whole_database(make: Make) -> None:
    """Every feature at once, with a marker in every column of every row that can hold text: also in tasks that only
    belong to something of the person, and in what operators have said of anything."""
    harness = await make(*FEATURES)
    batched = await a_batch_of_tasks(harness)
    for house in HOUSES.values():
        await house(harness)
    await a_full_house(harness)
    for at in sorted({at for at, _ in await texts(harness) if at.startswith(tuple(HOUSES))}):
        assert await harness.sql(f"select 1 from {table(harness, at)} limit 1"), f"have a row in {at}"
    kept = {(at, column) for at, columns in CORE.items() for column in columns}
    kept |= {place for columns in KEPT.values() for place in columns}
    there = await found(harness)
    assert {("circuit", "reason"), ("worker", "drain_reason"), ("record", "body")} <= there
    read = STRUCTURE | FOUND_BY | {("task", "facts")}  # a task whose facts no feature can read is left alone
    for at, column in sorted(await texts(harness) - read - there - kept):
        if at in COUNTED or (at == "task" and column in COUNTED_BY) or await identifiers(harness, at, column):
            continue
        await plant(harness, at, column)
    counted = await erase.preview(harness.store, SCOPE, None)
    ended = await carried_out(harness, await begun(harness))
    assert (ended.status, ended.note) == (Status.COMPLETED, erase.NOT_COVERED)
    await harness.store.upkeep("fold")
    assert sorted(await found(harness) - kept) == [], "erase it, or say above why it stays"
    tasks = await harness.store.get_many(batched)
    assert len(tasks) == len(batched) and all(task.erased_at for task in tasks.values())
    assert ended.done == counted["live"] + counted["finished"]
    await harness.check_totals()


@pytest.mark.parametrize("by", ["scope", "account"])
async def test_what_was_told_of_a_remote_batch(make: Make, by: str) -> None:
    """Also by tasks from before, which carry the account alone, and their deliveries."""
    harness = await make(BATCHES, WEBHOOKS, LEDGER)
    batches, events = [new_id(), new_id()], list[UUID]()
    remote = {"provider": "video", "price": 0, "scope": SCOPE, "account": "acme", "by": "ann"}
    rows = tuple({"id": str(one), **remote} for one in batches)
    await harness.store.apply(Commit(rows=[Rows("batches", "remote_draft", rows)]))
    for batch, scope in zip(batches, (None, SCOPE), strict=True):
        told = event_task("batch.completed", {"name": SECRET}, "acme", f"batch-{batch}-1", scope=scope)
        await harness.store.apply(Commit(enqueues=[told]))
        await harness.settle(await harness.claim_one(queues=(told.queue,)), Completed())
        made = deliveries(Event("batch.completed", {"name": SECRET}, "acme", f"batch-{batch}-1"), ["ep_1"], 1)
        await harness.store.apply(made)
        if scope is None:  # what is completed has no payload
            await harness.settle(await harness.claim_one(queues=(made.enqueues[0].queue,)), Completed())
        events += [told.id, made.enqueues[0].id]
    others = await harness.enqueue(scope="user:bob")
    ended = await carried_out(harness, await begun(harness, scope=SCOPE if by == "scope" else "acme"))
    assert (ended.status, ended.note) == (Status.COMPLETED, erase.NOT_COVERED)
    tasks = await harness.store.get_many([*events, others])
    assert {task.id for task in tasks.values() if task.erased_at} == set(events)
    assert {at for at, _ in await found(harness) if at in ("task", "history", "webhooks_delivery")} == set()


async def test_rows_are_counted_before_and_after(make: Make) -> None:
    harness = await make(ORDERS)
    await an_order(harness)
    assert (await erase.preview(harness.store, SCOPE, None))["orders_rows"] == 1
    ended = await carried_out(harness, await begun(harness))
    assert ended.erased["orders_rows"] == 1
    assert "orders_rows" not in await erase.preview(harness.store, SCOPE, None)


async def test_what_it_wrote_into_the_audit_log_goes_by_its_scope(make: Make) -> None:
    """Rows of no task that name somebody only as their target."""
    harness = await make(ORDERS)
    shop = Orders(Session(harness.store, Registry(), Policy(), Caller("ann", Role.OPERATOR)))
    await shop.pay_in("roberta-smith", 100)
    await shop.place("o1", "roberta-smith", ["High Street 1"], 10)
    assert (await erase.preview(harness.store, "roberta-smith", None))["audit"] == 2
    await carried_out(harness, await begun(harness, scope="roberta-smith"))
    assert "roberta-smith" not in repr(await harness.audit())
    assert await erase.preview(harness.store, "roberta-smith", None) == {}
    assert await harness.store.sql.balance("customer:roberta-smith") == 100, "the books stay as they are"


@pytest.mark.parametrize("by", ["scope", "task"])
async def test_also_when_nothing_else_is_left(make: Make, by: str) -> None:
    harness = await make(ORDERS)
    await an_order(harness)
    (task_id,) = await find_erasable(harness.store, SCOPE, 10)
    await harness.sql(f"delete from {table(harness, 'task')}")
    scope, task = (SCOPE, None) if by == "scope" else (None, task_id)
    assert await erase.preview(harness.store, scope, task) == {"orders_rows": 1}
    await carried_out(harness, await begun(harness, scope=scope, task_id=task))
    assert await erase.preview(harness.store, scope, task) == {}
    assert {at for at, _ in await found(harness)} == set()


async def test_many_rows_of_a_scope_go_in_pieces(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece touches so many rows and no more, and is a transaction of its own with its row of the audit log."""
    monkeypatch.setattr(erase, "FEATURE_ROWS_PER_PIECE", 3)
    harness = await make(ORDERS)
    rows = tuple({"task": str(new_id()), "order": "o1", "customer": SCOPE, "join": str(new_id())} for _ in range(8))
    await harness.store.apply(Commit(rows=[Rows("orders", "parcels_placed", rows)]))
    ended = await carried_out(harness, await begun(harness))
    assert ended.erased["orders_rows"] == 8 and ended.note == erase.NOT_COVERED
    told = [row.after["counts"].get("orders_rows") for row in await harness.audit() if row.action == ERASE_SUMMARY]
    assert sorted(n for n in told if n) == [2, 3, 3]


async def test_one_that_does_not_get_less_ends_all_the_same(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A feature whose statement touches nothing: it is told of at the end, and not tried for ever."""
    monkeypatch.setattr(erase, "FEATURE_ROWS_PER_PIECE", 3)
    harness = await make(ORDERS)
    rows = tuple({"task": str(new_id()), "order": "o1", "customer": SCOPE, "join": str(new_id())} for _ in range(8))
    await harness.store.apply(Commit(rows=[Rows("orders", "parcels_placed", rows)]))
    features: Any = driver_of(harness)
    features.features.erasing["orders"] = [
        text.replace("limit (", "and 1 = 0 limit (") for text in features.features.erasing["orders"]
    ]
    ended = await carried_out(harness, await begun(harness))
    assert "8 orders rows" in ended.note


async def test_who_does_not_know_the_feature_leaves_it_to_others(make: Make) -> None:
    """What its tables hold would stay, and the erasure would say that it is done."""
    harness = await make(ORDERS)
    await an_order(harness)
    stranger = await harness.another(features=())
    with pytest.raises(InvalidInput, match="tables of orders, which this process does not know"):
        await erase.preview(stranger, SCOPE, None)
    operation = await begun(harness)
    for _ in range(3):
        assert await drive.step(stranger, operation.id, "w2") == erase.LEFT_FOR_S
    assert (await carried_out(harness, operation)).erased["orders_rows"] == 1


async def test_tasks_of_a_feature_without_tables_wait_for_who_knows_it(make: Make) -> None:
    harness = await make(PROBE)
    await harness.enqueue(scope=SCOPE, feature="ghosts")
    operation = await begun(harness)
    for _ in range(3):
        waits = await drive.step(harness.store, operation.id, "w1")
    assert waits == erase.LEFT_FOR_S, "it does not go on for ever"
    [record] = await harness.store.records("operation")
    assert "it waits for a worker that knows ghosts" in record.body["note"]
    [told] = [one for one in (await examine(harness.store)) if one.code == "operation"]
    assert told.level is Level.WARNING and record.body["note"] in told.text
    before = len(await harness.audit())
    await drive.step(harness.store, operation.id, "w1")
    assert len(await harness.audit()) == before, "and writes nothing down about nothing"


def test_a_feature_that_has_tables_and_cannot_forget_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "forgetful"
    for dialect in ("sqlite", "postgres"):
        (package / "migrations" / dialect).mkdir(parents=True)
        (package / f"{dialect}.sql").write_text("-- all: everything\nselect 1\n")
        for half in ("up", "down"):
            (package / "migrations" / dialect / f"0001_tables.{half}.sql").write_text("select 1;\n")
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for url in ("sqlite:///:memory:", "postgresql://nobody@127.0.0.1:1/nothing"):
        with pytest.raises(ConfigError, match=r"has tables, and \w+\.sql of forgetful has no statement 'personal'"):
            App(url, features=[Feature("forgetful", "forgetful")])
