"""Bad input gets a clear error and changes nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from redrive import App, Context
from redrive.errors import ConfigError, IdempotencyConflict, InvalidInput, PayloadInvalid, PayloadMissing, UnknownKind
from redrive.settings import load_settings

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app() -> Any:
    app = App("sqlite:///:memory:")

    @app.task("SEND")
    async def send(ctx: Context, to: str, copies: int = 1) -> None: ...

    yield app
    await app.close()


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"kind": "SEDN", "payload": {"to": "x"}}, UnknownKind, "did you mean SEND"),
    ({"kind": "no spaces"}, InvalidInput, "not a valid name"),
    ({"kind": "SEND", "payload": {"to": "x"}, "queue": ""}, InvalidInput, "queue '' is not a valid name"),
    ({"kind": "SEND"}, PayloadMissing, "needs a payload"),
    ({"kind": "SEND", "payload": {}}, PayloadInvalid, "to: Field required"),
    ({"kind": "SEND", "payload": {"to": "x", "copies": "many"}}, PayloadInvalid, "copies"),
    ({"kind": "SEND", "payload": {"to": "x", "cc": "y"}}, PayloadInvalid, "cc: Extra inputs"),
    ({"kind": "SEND", "payload": {"to": float("nan")}}, PayloadInvalid, "NaN and infinity are not JSON"),
    ({"kind": "SEND", "payload": {"to": "a\x00b"}}, PayloadInvalid, "NUL"),
    ({"kind": "SEND", "payload": {"to": object()}}, PayloadInvalid, "not JSON serializable"),
    ({"kind": "SEND", "payload": {"to": "x" * 1_100_000}}, PayloadInvalid, "over the limit"),
    ({"kind": "SEND", "payload": {"to": "x"}, "delay": -1}, InvalidInput, "delay must be from 0"),
    ({"kind": "SEND", "payload": {"to": "x"}, "delay": float("nan")}, InvalidInput, "delay must be"),
    ({"kind": "SEND", "payload": {"to": "x"}, "run_at": datetime(2030, 1, 1)}, InvalidInput, "time zone"),
    ({"kind": "SEND", "payload": {"to": "x"}, "priority": 99999}, InvalidInput, "priority"),
    ({"kind": "SEND", "payload": {"to": "x"}, "max_attempts": 0}, InvalidInput, "max_attempts"),
    ({"kind": "SEND", "payload": {"to": "x"}, "idempotency_key": ""}, InvalidInput, "idempotency_key"),
    ({"kind": "SEND", "payload": {"to": "x"}, "scope": "a\nb"}, InvalidInput, "not printable"),
]


@pytest.mark.parametrize(("given", "error", "says"), BAD)
async def test_bad_input_is_refused_and_changes_nothing(
    app: App, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as raised:
        await app.enqueue(**given)
    assert says in str(raised.value)
    # All or none: a good task beside a bad one is not enqueued either.
    with pytest.raises(error, match="task 1 of the list"):
        await app.enqueue_many([{"kind": "SEND", "payload": {"to": "good"}}, given])
    assert await (await app.store()).counts() == []


async def test_a_known_key_answers_the_existing_task(app: App) -> None:
    first = await app.enqueue("SEND", {"to": "x"}, idempotency_key="k")
    second = await app.enqueue("SEND", {"to": "x"}, idempotency_key="k")
    assert (second.id, second.deduplicated, first.deduplicated) == (first.id, True, False)
    with pytest.raises(IdempotencyConflict, match="another kind or payload"):
        await app.enqueue("SEND", {"to": "y"}, idempotency_key="k")


async def test_a_pure_producer_may_enqueue_any_kind() -> None:
    app = App("sqlite:///:memory:")
    task = await app.enqueue("WHATEVER", {"x": 1})
    assert task.queue == "default"
    await app.close()


def test_ordinary_code(tmp_path: Any) -> None:
    app = App(f"sqlite:///{tmp_path}/sync.db")

    @app.task("SEND")
    def send(ctx: Context, to: str) -> None: ...

    task = app.sync.enqueue("SEND", {"to": "x"}, idempotency_key="k")
    assert send.options(idempotency_key="k").enqueue_sync(to="x").id == task.id
    assert len(app.sync.enqueue_many([("SEND", {"to": "y"})] * 3)) == 3
    found = app.sync.get(task.id)
    assert found is not None and found.payload == {"to": "x"}
    app.sync.cancel(task.id)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://x", "no store is known"),
        ("", "no store is known"),
        ("redrive.db", "no store is known"),
        ("oracle://scott:tiger@host/db", "no store is known"),
    ],
)
def test_unknown_store_urls(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        App(settings=load_settings(url="sqlite:///:memory:").model_copy(update={"url": url}))
    assert "tiger" not in str(raised.value)


def test_declarations_are_checked_at_import_time() -> None:
    app = App("sqlite:///:memory:")
    with pytest.raises(ConfigError, match="takes no context"):

        @app.task("X")
        def nothing() -> None: ...

    with pytest.raises(InvalidInput, match="isolation"):

        @app.task("X", isolation="space")
        def spaced(ctx: Context) -> None: ...

    @app.task("X")
    def first(ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match="two handlers"):

        @app.task("X")
        def second(ctx: Context) -> None: ...

    for cron, zone, says in [
        ("nonsense", "UTC", "not a cron expression"),
        ("61 * * * *", "UTC", "not a cron expression"),
        ("* * * * *", "Mars/Olympus", "not a known time zone"),
        ("0 0 30 2 *", "UTC", "not a cron expression"),
    ]:
        with pytest.raises(InvalidInput, match=says):
            app.periodic("X", cron=cron, timezone=zone)
    with pytest.raises(InvalidInput, match="missed must be one of"):
        app.periodic("X", cron="* * * * *", missed="maybe")
