"""Kinds of a feature: its reaction makes typed tasks of them wherever it is known, without an application."""

from __future__ import annotations

import asyncio
import dataclasses
import re

import pytest

from redrive import App, Context
from redrive.errors import ConfigError, InvalidInput, PayloadInvalid, RedriveError
from redrive.handlers.kinds import Kinds
from redrive.handlers.new_task import make_task
from redrive.kernel.commit import Commit
from redrive.kernel.feature import Feature
from redrive.kernel.joins import as_document, from_document
from redrive.kernel.machine import Policy, Transition, settle
from redrive.kernel.outcome import Expired
from redrive.kernel.ports.store import ClaimRequest
from redrive.kernel.reactions import Effects, Landed
from redrive.kernel.task import State
from redrive.settings import load_settings
from redrive.stores import make_store
from redrive_kit.examples.orders import ORDERS
from redrive_kit.examples.orders.handlers import deliver
from redrive_kit.examples.orders.service import Shop
from tests.features.conftest import orders

kinds = Kinds()
told: list[str] = []


@kinds.task("NOTES_TELL", queue="notes", max_attempts=7, priority=-3, public=("about",))
async def tell(ctx: Context, about: str, times: int = 1) -> None:
    told.append(about * times)


@kinds.task("NOTES_WORK", max_attempts=1)
async def work(ctx: Context) -> None: ...


def react(transition: Transition, landed: Landed) -> Effects | None:
    if landed.state not in (State.FAILED, State.COMPLETED):
        return None
    carried = [from_document(landed.facts["then"])] if "then" in landed.facts else []
    return Effects(
        tasks=[tell.options(scope=landed.scope).new(about=landed.state, times=landed.facts["times"]), *carried]
    )


NOTES = Feature("notes", "tests.features", react=react, kinds=kinds)


@pytest.fixture
def url(app: App) -> str:
    return app.url


def test_a_task_of_a_kind_has_its_payload_and_its_defaults() -> None:
    new = tell.options(scope="bob", facts={"a": 1}, feature="notes").new("x", times=2)
    assert (new.kind, new.queue, new.max_attempts, new.priority) == ("NOTES_TELL", "notes", 7, -3)
    assert (new.payload, new.scope, new.feature, new.facts) == ('{"about":"x","times":2}', "bob", "notes", '{"a":1}')
    assert tell.new("x").id != new.id and tell.new("x").scope is None
    with pytest.raises(PayloadInvalid, match="times"):
        tell.new("x", times="many")  # type: ignore[arg-type]


async def test_it_is_called_like_the_function_that_it_is() -> None:
    assert await deliver(None, address="here") == "delivered to here"


async def test_every_application_takes_them_up(url: str) -> None:
    first, second = (App(url, features=[NOTES]) for _ in range(2))
    for app in (first, second):
        handler = app.registry.handlers["NOTES_TELL"]
        assert (handler.queue, handler.max_attempts, handler.public) == ("notes", 7, ("about",))
        assert handler.policy.backoff == app.settings.backoff


async def test_a_reaction_makes_typed_tasks_where_no_application_is(app: App, url: str) -> None:
    """Recovery by a process that has the feature and nothing else: the application's own kind comes along in the row,
    where whoever knew it has written it."""
    store = make_store(url, [*app.features, NOTES])
    await store.open()
    shop = App(settings=load_settings(url=url, log_format="off"), features=[ORDERS])
    shop.declare("OWN", queue="own", max_attempts=2)
    facts = {"times": 2, "then": as_document(make_task(shop.registry, "OWN", {"n": 1}))}
    await store.apply(Commit(enqueues=[work.options(feature="notes", scope="bob", facts=facts).new()]))
    (claimed,) = (await store.cycle(Commit(), ClaimRequest("w", ("default",), 1, 0.0))).claimed
    moves = [settle(lease, Expired(), Policy(), 0.5) for lease in await store.expired(5, "notes")]
    assert not (await store.apply(Commit(transitions=moves))).lost
    found = (await store.cycle(Commit(), ClaimRequest("w", ("notes", "own"), 5, 60.0))).claimed
    assert [(task.kind, task.max_attempts, task.scope) for task in found] == [
        ("NOTES_TELL", 7, "bob"),
        ("OWN", 2, None),
    ]
    assert claimed.id not in {task.id for task in found}
    await store.close()
    await shop.close()


async def test_its_worker_runs_them(url: str, app: App) -> None:
    notes = App(settings=load_settings(url=url, log_format="off"), features=[ORDERS, NOTES])
    store = await notes.store()
    await store.apply(Commit(enqueues=[work.options(feature="notes", facts={"times": 2}).new()]))
    await notes.worker(stop_when_empty=True).run()
    assert told == ["completedcompleted"]
    told.clear()
    await notes.close()


async def test_tasks_of_a_feature_without_a_reaction_run_too(url: str, app: App) -> None:
    quiet = App(
        settings=load_settings(url=url, log_format="off"),
        features=[ORDERS, Feature("quiet", "tests.features", kinds=kinds)],
    )
    store = await quiet.store()
    task = work.options(feature="quiet").new()
    await store.apply(Commit(enqueues=[task]))
    await quiet.worker(stop_when_empty=True).run()
    found = await quiet.get(task.id)
    assert found is not None and (found.state, found.attempt_count) == (State.COMPLETED, 1)
    await quiet.close()


async def test_a_service_is_on_the_application(app: App) -> None:
    shop = await orders(app)
    await shop.pay_in("bob", 100)
    await app.orders.place("o1", "bob", ["here"], 10)  # type: ignore[attr-defined]
    await app.of(Shop).place("o2", "bob", ["here", "there"], 10)
    assert app.orders is app.of(Shop)  # type: ignore[attr-defined]
    assert (await shop.show("o2")).held == 20
    with pytest.raises(AttributeError, match="has no attribute 'oders'"):
        app.oders  # type: ignore[attr-defined]  # noqa: B018


async def test_it_is_there_without_await(app: App) -> None:
    shop = await orders(app)
    await shop.pay_in("bob", 100)
    await asyncio.to_thread(app.sync.orders.place, "o1", "bob", ["here"], 10)  # type: ignore[attr-defined]
    assert (await shop.show("o1")).held == 10
    with pytest.raises(RedriveError, match=r"app.sync.orders.place\(\) was called on an event loop"):
        app.sync.orders.place("o2", "bob", ["here"], 10)  # type: ignore[attr-defined]


def test_a_service_takes_no_name_of_the_application(tmp_path: object) -> None:
    taken = Feature("mine", __package__, services={"enqueue": "nowhere:Nothing"})
    with pytest.raises(ConfigError, match="cannot put 'enqueue' on the application"):
        App(f"sqlite:///{tmp_path}/x.db", features=[taken])
    with pytest.raises(ConfigError, match="is no name"):
        Feature("mine", __package__, services={"Mine!": "nowhere:Nothing"})
    lazy = App(
        f"sqlite:///{tmp_path}/x.db", features=[Feature("mine", __package__, services={"mine": "nowhere:Nothing"})]
    )
    with pytest.raises(ModuleNotFoundError):
        lazy.mine  # type: ignore[attr-defined]  # noqa: B018


async def test_a_misspelt_feature_is_refused(url: str) -> None:
    """Nobody would run its tasks, and nobody would know."""
    app = App(url, features=[NOTES])
    try:
        with pytest.raises(InvalidInput, match="no feature 'nots'") as refused:
            await app.apply(Commit(enqueues=[work.options(feature="nots").new()]))
        assert re.search("it has: .*notes", refused.value.hint or "")
    finally:
        await app.close()


def test_a_retention_of_a_statement_that_is_not_there_is_refused_at_start() -> None:
    odd = dataclasses.replace(ORDERS, retention=lambda settings: {"prune_ordres": 3})
    with pytest.raises(ConfigError, match="prunes by 'prune_ordres'"):
        App("sqlite:///:memory:", features=[odd])
