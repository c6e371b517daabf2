"""What is given to ``enqueue`` is what a handler gets, wherever it runs, through either store."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import wraps
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive import App, Context
from tests.effort import tries
from tests.payloads import CLASSES, PLAIN, SCALARS, TEXT, Order
from tests.worker import echo_handlers as echo

from .conftest import drain

VALUES = SCALARS | CLASSES
FIELDS = st.fixed_dictionaries(
    {}, optional={**{name: VALUES[kind] for name, kind in echo.FIELDS.items()}, "untyped": PLAIN}
)
ORDERS = CLASSES[Order]
# Each is a dozen of tasks, some of them in processes.
EXAMPLES = tries(2, 3, 8)


@pytest.fixture
def handlers(app: App) -> dict[str, Any]:
    @wraps(echo.echo)
    async def on_loop(ctx: Context, **fields: Any) -> str:
        return echo.echo(ctx, **fields)

    return {
        "LOOP": app.task("LOOP")(on_loop),
        "THREAD": app.task("THREAD")(echo.echo),
        "PROCESS": app.task("PROCESS", isolation="process")(echo.echo),
        "WHOLE": app.task("WHOLE")(echo.echo_on_loop),
        "MODEL": app.task("MODEL")(echo.echo_model),
        "MODEL_PROCESS": app.task("MODEL_PROCESS", isolation="process")(echo.echo_model),
        "BULK": app.task("BULK", bulk=3, payload=Order)(echo.echo_bulk),
    }


async def test_on_every_isolation(app: App, handlers: dict[str, Any]) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(
        fields=st.lists(FIELDS, min_size=1, max_size=4),
        orders=st.lists(ORDERS, min_size=1, max_size=3),
        plain=st.dictionaries(TEXT, PLAIN, max_size=3),
    )
    def each(fields: list[dict[str, Any]], orders: list[Any], plain: dict[str, Any]) -> None:
        examples.append((fields, orders, plain))

    examples: list[tuple[list[dict[str, Any]], list[Any], dict[str, Any]]] = []
    each()  # examples first: a worker is not run from inside of Hypothesis
    expected: dict[UUID, str] = {}
    for fields, orders, plain in examples:
        for sent in fields:
            for kind in ("LOOP", "THREAD", "PROCESS"):
                task = await handlers[kind].enqueue(**sent)
                expected[task.id] = echo.echo(None, **sent)  # type: ignore[arg-type]
        for order in orders:
            for kind in ("MODEL", "MODEL_PROCESS", "BULK"):
                task = await handlers[kind].enqueue(order)
                expected[task.id] = echo.said(order)
        task = await handlers["WHOLE"].enqueue(payload=plain)
        expected[task.id] = echo.said(plain)
    await drain(app)
    for task_id, wanted in expected.items():
        found = await app.get(task_id)
        assert found is not None and (found.error_message, found.result) == (None, wanted)


async def test_every_way_in_takes_the_same(app: App, handlers: dict[str, Any]) -> None:
    when = datetime(2026, 5, 17, 12, tzinfo=UTC)
    sent = {"when": when, "blob": b"\xff", "id": UUID(int=7)}
    app.periodic("THREAD", cron="0 0 1 1 *", payload=sent)
    tasks = [
        await handlers["THREAD"].enqueue(**sent),
        await handlers["THREAD"].options(priority=3).enqueue(**sent),
        await app.enqueue("THREAD", sent),
        await app.enqueue("THREAD", {"when": "2026-05-17T12:00:00Z", "blob": "_w==", "id": str(UUID(int=7))}),
        *await app.enqueue_many([("THREAD", sent), {"kind": "THREAD", "payload": sent}]),
    ]
    assert app.schedules["THREAD"].payload is not None and '"_w=="' in app.schedules["THREAD"].payload
    await drain(app)
    results = {found.result for found in [await app.get(task.id) for task in tasks] if found is not None}
    assert results == {echo.echo(None, **sent)}  # type: ignore[arg-type]


async def test_null_and_nothing_are_told_apart(app: App) -> None:
    got: list[Any] = []

    @app.task("P")
    async def p(ctx: Context, payload: dict[str, int] | None = {"default": 1}) -> None:  # noqa: B006
        got.append(payload)

    await p.enqueue(payload=None)
    await drain(app)
    await p.enqueue()
    await drain(app)
    await app.enqueue("P", None)
    await drain(app)
    assert got == [None, {"default": 1}, {"default": 1}]
