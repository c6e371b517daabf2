"""What a feature adds in the caller's own transaction, on every kind of connection: tasks with their joins, money, rows
and an audit row, all of it with the caller's writes or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from redrive import App, Context
from redrive.errors import IdempotencyConflict, InvalidInput
from redrive.handlers.new_task import make_task
from redrive.ids import new_id
from redrive.kernel.commit import CloseJoin, Commit, Hold, Target
from redrive.kernel.joins import NewJoin
from redrive.kernel.ledger import Posting
from redrive.kernel.task import NewTask
from redrive.settings import load_settings
from redrive_kit.examples.orders import ORDERS
from tests.integrations.callers import Caller, settled
from tests.integrations.conftest import EACH_KIND, Outside


@pytest.fixture
def bob() -> str:
    return f"bob-{uuid4()}"


@pytest.fixture
def own_app(caller: Caller, outside: Outside, bob: str) -> Iterator[App]:
    """An application with the feature, and a customer with money."""
    app = App(settings=load_settings(url=outside.app.url, log_format="off"), features=[ORDERS])

    async def begin() -> None:
        await app.migrate()
        pay_in = Posting(f"pay:{bob}", (("system:bank", -50), (f"customer:{bob}", 50)))
        await app.apply(Commit(postings=[pay_in]))
        await app.close()

    asyncio.run(begin())
    caller.app = app
    yield app


async def place(caller: Caller, order: str, customer: str, addresses: list[str], price: int) -> None:
    given: dict[str, Any] = {"connection": caller.handle}
    if caller.blocking:
        caller.app.sync.orders.place(order, customer, addresses, price, **given)  # type: ignore[attr-defined]
    else:
        await caller.app.orders.place(order, customer, addresses, price, **given)  # type: ignore[attr-defined]


def seen(outside: Outside, order: str) -> tuple[int, int, int]:
    """Parcels of an order, money that is held for it, and audit rows about it."""
    parcels = outside.table("orders_parcel")
    ((rows,),) = outside.ask(f"select count(*) from {parcels} where name = '{order}'")
    held = outside.ask(f"select balance from {outside.table('account')} where name = 'held:{order}'")
    ((audits,),) = outside.ask(f"select count(*) from {outside.table('audit')} where target = 'order:{order}'")
    return int(rows), int(held[0][0]) if held else 0, int(audits)


@EACH_KIND
def test_an_order_in_the_callers_transaction(caller: Caller, outside: Outside, own_app: App, bob: str) -> None:
    first, second = f"o-{uuid4()}", f"o-{uuid4()}"

    async def undone(caller: Caller) -> None:
        await place(caller, first, bob, ["here", "there"], 10)
        await settled(caller.rollback())

    async def scenario(caller: Caller) -> None:
        await caller.write("order")
        await place(caller, second, bob, ["here", "there"], 10)
        assert seen(outside, second) == (0, 0, 0)
        await settled(caller.commit())

    caller.play(undone)
    caller.play(scenario)
    assert seen(outside, first) == (0, 0, 0) and seen(outside, second) == (2, 20, 1)
    assert outside.business == ["order"] and outside.totals == (2, 0)

    async def work() -> None:
        await own_app.worker(stop_when_empty=True).run()
        await own_app.close()

    asyncio.run(work())
    assert seen(outside, second) == (2, 0, 1)
    done = f"select count(*) from {outside.table('history')} where kind = 'ORDERS_DONE'"
    assert outside.ask(done)[0][0] == 1, "the join came, too"


def test_money_that_is_not_there_refuses_all_of_it(caller: Caller, outside: Outside, own_app: App, bob: str) -> None:
    order = f"o-{uuid4()}"

    async def scenario(caller: Caller) -> None:
        with pytest.raises(InvalidInput, match=f"account 'customer:{bob}' would go below zero"):
            await place(caller, order, bob, ["here"], 51)
        await settled(caller.rollback())

    caller.play(scenario)
    assert seen(outside, order) == (0, 0, 0) and outside.totals == (0, 0)


def test_a_key_of_other_work_refuses_all_of_it(caller: Caller, outside: Outside, own_app: App, bob: str) -> None:
    """And the caller's transaction goes on without it."""
    key, account = f"k-{uuid4()}", f"customer:{bob}"
    move = Posting(f"m:{key}", ((account, -5), ("shop", 5)))

    async def scenario(caller: Caller) -> None:
        first = NewTask(new_id(), "OTHER", "default", '{"n": 1}', idempotency_key=key)
        await own_app.apply(Commit(enqueues=[first], all_or_none=True), connection=caller.handle)
        second = NewTask(new_id(), "OTHER", "default", '{"n": 2}', idempotency_key=key)
        join = NewJoin(new_id())
        commit = Commit(joins=[join], enqueues=[second], postings=[move], all_or_none=True)
        with pytest.raises(IdempotencyConflict):
            await own_app.apply(commit, connection=caller.handle)
        await caller.write("order")
        await settled(caller.commit())

    caller.play(scenario)
    assert outside.business == ["order"] and outside.totals == (1, 0)
    assert outside.ask(f"select balance from {outside.table('account')} where name = '{account}'")[0][0] == 50
    assert outside.ask(f"select count(*) from {outside.table('posting')} where key = 'm:{key}'")[0][0] == 0


def test_postings_that_were_there_are_named(caller: Caller, own_app: App, bob: str) -> None:
    move = Posting(f"m:{bob}", ((f"customer:{bob}", -5), ("shop", 5)))

    async def scenario(caller: Caller) -> None:
        answers = [await own_app.apply(Commit(postings=[move]), connection=caller.handle) for _ in range(2)]
        await settled(caller.commit())
        assert [answer.repeated for answer in answers] == [set(), {move.key}]

    caller.play(scenario)


async def _end(app: App, tx: Any, join_id: Any) -> None:
    follow = make_task(app.registry, "OTHER", join=join_id)
    await app.apply(Commit(enqueues=[follow], controls=[CloseJoin(join_id)]), connection=tx)


@pytest.mark.parametrize("where", ["on_sqlite", "on_postgres"])
def test_a_handler_adds_to_its_own_join_with_its_completion(request: pytest.FixtureRequest, where: str) -> None:
    """Its transaction holds the further member, closes the join, and completes it."""
    outside: Outside = request.getfixturevalue(where)
    app, join = outside.app, NewJoin(new_id(), open=True)

    @app.task("GROW")
    async def grow(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await _end(app, tx, ctx.task.join)

    async def whole() -> tuple[int, int, bool]:
        store = await app.store()
        await store.apply(Commit(joins=[join], enqueues=[make_task(app.registry, "GROW", join=join.id)]))
        await app.worker(stop_when_empty=True).run()
        (found,) = await store.joins([join.id])
        await app.close()
        return found.total, found.completed, found.succeeded_at is not None

    assert asyncio.run(whole()) == (2, 2, True)


@pytest.mark.parametrize("where", ["on_sqlite", "on_postgres"])
def test_what_is_more_than_adding_is_refused(request: pytest.FixtureRequest, where: str) -> None:
    outside: Outside = request.getfixturevalue(where)
    hold = Commit(controls=[Hold(Target.QUEUE, "default", True, "ann")])
    with pytest.raises(InvalidInput, match="only new tasks, joins"):
        asyncio.run(outside.app.apply(hold, connection=object()))
