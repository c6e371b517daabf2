"""Calls that a type checker accepts or refuses: read by test_calls.py, never run. Each refusal names mypy's code."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from redrive import App, Context

app = App("sqlite:///:memory:")


class Order(BaseModel):
    id: int


@app.task("SEND")
async def send(ctx: Context, to: str, copies: int = 1, *, at: datetime | None = None) -> None: ...


@app.task("WHOLE")
def whole(ctx: Context, payload: dict[str, int]) -> None: ...


@app.task("ORDER")
def order(ctx: Context, order: Order) -> None: ...


async def good(now: datetime) -> None:
    await send.enqueue(to="a@b.c")
    await send.enqueue("a@b.c", 2, at=now)
    await send.options(delay=60, priority=-5, run_at=None, queue="mail").enqueue("a@b.c", copies=2)
    await send.options(idempotency_key="k").options(scope="s").enqueue(to="a@b.c")
    send.enqueue_sync("a@b.c", at=now)
    send.options(connection=object()).enqueue_sync(to="a@b.c")
    await whole.enqueue(payload={"a": 1})
    await whole.enqueue({"a": 1})
    order.enqueue_sync(order=Order(id=1))
    app.sync.enqueue("SEND", {"to": "x"}, delay=3, connection=None)
    await app.enqueue("SEND", {"to": "x"}, delay=3, priority=1, connection=None, on=None)


async def brought_by_features(now: datetime) -> None:
    await app.ledger.credit("acme", 5, "k", reason="a gift")
    await app.ledger.credit("acme", "5", "k", reason="a gift")  # E: arg-type
    await app.ledger.balance("acme", at=now)
    found: int = (await app.ledger.show("acme")).available + (await app.ledger.balance("acme"))["frozen"]
    await app.webhooks.send("a.b", {"n": found}, account="acme")
    await app.webhooks.sent("a.b")  # E: attr-defined
    await (await app.batch([send.options(delay=1).new(to="x")], key="k")).add([])  # E: attr-defined
    (await app.remote_batches.create([1], provider="video")).nothing  # E: attr-defined  # noqa: B018
    app.sync.ledger.credit("acme", 5, "k", reason="a gift")
    app.sync.nothing  # E: attr-defined  # noqa: B018
    app.nothing  # E: attr-defined  # noqa: B018


async def wrong_name() -> None:
    await send.enqueue(too="a@b.c")  # E: call-arg
    await send.options(delay=60).enqueue(too="a@b.c")  # E: call-arg
    send.enqueue_sync(too="a@b.c")  # E: call-arg
    send.options(delay=60).enqueue_sync(too="a@b.c")  # E: call-arg


async def wrong_type(now: datetime) -> None:
    await send.enqueue(to=1)  # E: arg-type
    await send.options(delay=60).enqueue("a", "b")  # E: arg-type
    send.enqueue_sync(to="a", at="now")  # E: arg-type
    send.options(delay=60).enqueue_sync("a", "b")  # E: arg-type
    await whole.enqueue(payload={"a": "b"})  # E: dict-item
    await order.enqueue({"id": 1})  # E: arg-type


async def missing() -> None:
    await send.enqueue()  # E: call-arg
    await send.options(delay=60).enqueue(copies=2)  # E: call-arg
    send.enqueue_sync()  # E: call-arg
    send.options(delay=60).enqueue_sync()  # E: call-arg


async def too_many(now: datetime) -> None:
    await send.enqueue("a", 1, now)  # E: call-arg
    send.enqueue_sync("a", 1, now)  # E: call-arg


async def wrong_options() -> None:
    send.options(dealy=60)  # E: call-arg
    send.options(delay="60")  # E: arg-type
    app.sync.enqueue("SEND", {}, key="x")  # E: call-arg
    app.sync.enqueue("SEND", {}, priority="x")  # E: arg-type
    await app.enqueue("SEND", {}, key="x")  # E: call-arg
    await app.enqueue("SEND", {}, priority="x")  # E: arg-type
