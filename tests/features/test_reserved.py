"""Kinds and keys of features are not for producers, whichever way they come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive import App
from redrive.batches.names import RESERVED_KINDS
from redrive.errors import InvalidInput
from redrive.features import features_of
from redrive.handlers.registry import KindReserved
from redrive.kernel.task import Task
from redrive.ops.access import Caller, Role
from redrive.settings import load_settings
from redrive.stores.features import Features
from tests.databases import Databases

KINDS = ["BATCH_SETTLE", "BATCH_ITEM_ELSEWHERE", "WEBHOOK_DELIVERY", "WEBHOOK_EVENT", "ORDERS_PARCEL"]


async def test_an_application_does_not_enqueue_them(app: App) -> None:
    own = await app.operator(Caller("ann", Role.OPERATOR))
    for kind in KINDS:
        for call in (
            lambda kind=kind: app.enqueue(kind, {}),
            lambda kind=kind: app.enqueue_many([("SYSTEM_HEALTH_CHECK", None), (kind, {})]),
            lambda kind=kind: own.tasks.enqueue(kind, {}),
            lambda kind=kind: app.batch([(kind, {})]),
        ):
            with pytest.raises(InvalidInput, match=f"the kind {kind} is kept for the feature"):
                await call()
        with pytest.raises(KindReserved):
            app.periodic(kind, cron="* * * * *")


async def test_nor_their_keys(app: App) -> None:
    for call in (
        lambda: app.enqueue("SYSTEM_HEALTH_CHECK", idempotency_key="redrive:batch:1:1:4"),
        lambda: app.enqueue_many([{"kind": "SYSTEM_HEALTH_CHECK", "idempotency_key": "redrive:webhook:1"}]),
    ):
        with pytest.raises(InvalidInput, match="kept for tasks of features"):
            await call()


async def test_a_name_that_only_looks_alike_is_free(app: App) -> None:
    app.declare("BATCH_IMPORT")
    task: Task = await app.enqueue("BATCH_IMPORT", {}, idempotency_key="batch:1:1:4")
    assert task.kind == "BATCH_IMPORT"


def test_every_kind_of_a_feature_is_kept_for_it(tmp_path: Path) -> None:
    """But for events of the outbox, which are for producers."""
    app = App(settings=load_settings(url=f"sqlite:///{tmp_path}/redrive.db"))
    open_ones = {kind for kind in app.registry.brought if not kind.startswith("OUTBOX:")}
    assert open_ones
    for kind in open_ones:
        with pytest.raises(KindReserved):
            app.registry.reserved.refuse(kind)


@pytest.fixture
def producer(databases: Databases, database: str) -> Iterator[str]:
    with databases.role("producer") as role, psycopg.connect(databases.url(database), autocommit=True) as owner:
        owner.execute(f"select redrive.grant_producer('{role}')")
        yield databases.url(database, user=role)
        owner.execute(f"drop owned by {role}")


STATEMENTS = (
    "select redrive.enqueue(%s)",
    "select redrive.enqueue(%s, idempotency_key => 'k')",
    "select redrive.enqueue(%s, delay => interval '1 s')",
    "select redrive.enqueue(array[gen_random_uuid(), gen_random_uuid()], array['A', %s], array['q'],"
    " null, null, null, null, null, null, null, null, null, null)",
)


def test_a_role_that_enqueues_does_not_either(producer: str) -> None:
    with psycopg.connect(producer, autocommit=True) as connection:
        for statement in STATEMENTS:
            for kind in (*RESERVED_KINDS, "BATCH_ITEM_VIDEO", "WEBHOOK_DELIVERY"):
                with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"the kind {kind} is kept"):
                    connection.execute(statement, [kind])
            connection.execute(statement, ["BATCH_IMPORT"])
        with pytest.raises(psycopg.errors.InvalidParameterValue, match='must not begin with "redrive:"'):
            connection.execute("select redrive.enqueue('A', idempotency_key => 'redrive:batch:1:1:4')")


def test_the_database_has_the_same_list(postgres_url: str) -> None:
    features: Any = Features(features_of(()), "postgres").all
    declared = {(begins, one.name) for one in features for begins in one.reserved_kinds}
    with psycopg.connect(postgres_url) as connection:
        assert {*connection.execute("select begins, feature from redrive.reserved_kind")} == declared
