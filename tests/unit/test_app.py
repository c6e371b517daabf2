"""Bad input gets a clear error and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from redrive import App, Bulk, Context
from redrive.errors import (
    ConfigError,
    IdempotencyConflict,
    InvalidInput,
    PayloadInvalid,
    PayloadMissing,
    RedriveError,
    UnknownKind,
)
from redrive.handlers.bulk import Item
from redrive.settings import load_settings
from tests.databases import Databases

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
    ({"kind": "SEND", "payload": {"to": "x"}, "run_at": datetime(2999, 1, 1, tzinfo=UTC)}, InvalidInput, "10 years"),
    ({"kind": "SEND", "payload": {"to": "x"}, "run_at": datetime(1969, 1, 1, tzinfo=UTC)}, InvalidInput, "after 1970"),
    ({"kind": "SEND", "payload": {"to": "x"}, "priority": 99999}, InvalidInput, "priority"),
    ({"kind": "SEND", "payload": {"to": "x"}, "max_attempts": 0}, InvalidInput, "max_attempts"),
    ({"kind": "SEND", "payload": {"to": "x"}, "idempotency_key": ""}, InvalidInput, "idempotency_key"),
    ({"kind": "SEND", "payload": {"to": "x"}, "idempotency_key": "schedule:x:1"}, InvalidInput, "runs of schedules"),
    ({"kind": "SEND", "payload": {"to": "x"}, "scope": "a\nb"}, InvalidInput, "control characters"),
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
    with pytest.raises(IdempotencyConflict, match="another kind, queue or payload"):
        await app.enqueue("SEND", {"to": "y"}, idempotency_key="k")


async def test_a_key_is_compared_after_defaults(app: App) -> None:
    @app.task("RESIZE")
    async def resize(ctx: Context, name: str, width: int = 640) -> None: ...

    first = await app.enqueue("RESIZE", {"name": "a"}, idempotency_key="same")
    again = await app.enqueue("RESIZE", {"width": 640, "name": "a"}, idempotency_key="same", priority=5, delay=60)
    assert (again.id, again.deduplicated) == (first.id, True)
    for other in ({"name": "a", "width": 641}, {"name": "b"}):
        with pytest.raises(IdempotencyConflict):
            await app.enqueue("RESIZE", other, idempotency_key="same")
    with pytest.raises(IdempotencyConflict):
        await app.enqueue("RESIZE", {"name": "a", "width": 640}, idempotency_key="same", queue="elsewhere")


async def test_a_pure_producer_may_enqueue_any_kind() -> None:
    app = App("sqlite:///:memory:")
    task = await app.enqueue("WHATEVER", {"x": 1})
    assert task.queue == "default"
    await app.close()


def test_any_name_of_an_argument(tmp_path: Any) -> None:
    app = App(f"sqlite:///{tmp_path}/sync.db")

    @app.task("T")
    def t(ctx: Context, self: int, args: int = 0, kwargs: int = 0, app: int = 0, kind: int = 0) -> None: ...

    given = {"self": 1, "args": 2, "kwargs": 3, "app": 4, "kind": 5}
    made = t.enqueue_sync(**given), t.options(delay=1).enqueue_sync(**given), asyncio.run(t.enqueue(**given))
    for task in made:
        found = app.sync.get(task.id)
        assert found is not None and found.payload == given
    t(None, **given)
    app.sync.close()


def test_not_on_an_event_loop(tmp_path: Any) -> None:
    app = App(f"sqlite:///{tmp_path}/sync.db")
    handler = app.task("T")(lambda ctx: None)

    async def on_the_loop() -> None:
        for call in (
            lambda: app.sync.enqueue("T"),
            lambda: app.sync.enqueue_many([("T", None)]),
            lambda: app.sync.get(uuid4()),
            lambda: app.sync.cancel(uuid4()),
            lambda: app.sync.retry(uuid4()),
            handler.enqueue_sync,
        ):
            with pytest.raises(RedriveError, match="event loop") as caught:
                call()
            assert "await app." in str(caught.value.hint)
        assert (await asyncio.to_thread(app.sync.enqueue, "T")).kind == "T"
        await app.close()

    asyncio.run(on_the_loop())


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
        App(settings=load_settings(url="sqlite:///:memory:").with_values(url=url))
    assert "tiger" not in str(raised.value)


def test_a_task_without_its_kind_is_refused_where_it_is_written() -> None:
    app = App("sqlite:///:memory:")
    bare: Any = app.task
    with pytest.raises(ConfigError, match="the function 'add' instead") as refused:

        @bare
        def add(ctx: Context) -> None: ...

    assert refused.value.hint == 'write: @app.task("ADD")'


@pytest.mark.parametrize("function", [lambda user_id: None, lambda user_id, when=None: None])
def test_a_forgotten_context_is_refused_at_import(function: Any) -> None:
    """The context would be the user's id, and the task completed."""
    app = App("sqlite:///:memory:")
    with pytest.raises(ConfigError, match="'user_id'") as refused:
        app.task("SEND")(function)
    assert "(ctx: Context, user_id)" in str(refused.value.hint)
    for kind, fine in (("A", lambda context, a: a), ("B", lambda _, a: a), ("C", lambda _ctx: None)):
        app.task(kind)(fine)


def test_declarations_are_checked_at_import_time() -> None:
    app = App("sqlite:///:memory:")
    with pytest.raises(ConfigError, match="takes no context"):

        @app.task("X")
        def nothing() -> None: ...

    with pytest.raises(InvalidInput, match=r"timeout must be from 0\.001 to 2,000,000 seconds"):

        @app.task("X", timeout=3_000_000)
        def patient(ctx: Context) -> None: ...

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


def test_signatures_and_places_that_cannot_work_are_refused_at_decoration() -> None:
    app = App("sqlite:///:memory:")
    with pytest.raises(ConfigError, match="'n' is annotated with int") as raised:

        @app.task("X")
        def noctx(n: int) -> None: ...

    assert "def noctx(ctx: Context, n: …)" in (raised.value.hint or "")
    with pytest.raises(ConfigError, match="annotated with list"):

        @app.task("X")
        def listed(ids: list[int]) -> None: ...

    with pytest.raises(ConfigError, match="not declared as bulk"):

        @app.task("X")
        def unbulk(items: Bulk) -> None: ...

    with pytest.raises(ConfigError, match="gets a Bulk"):

        @app.task("X", bulk=5)
        def single(ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match="takes no Bulk"):

        @app.task("X", bulk=5)
        def empty() -> None: ...

    with pytest.raises(InvalidInput, match="inside a function"):

        @app.task("X", isolation="process")
        def nested(ctx: Context) -> None: ...

    with pytest.raises(InvalidInput, match="a lambda"):
        app.task("X", isolation="process")(lambda ctx: None)

    # What cannot be judged, or fits, is taken.
    app.task("UNANNOTATED")(lambda ctx, n=1: None)

    @app.task("ANY")
    def anything(ctx: Any, n: int) -> None: ...

    @app.task("OPTIONAL")
    def optional(ctx: Context | None, n: int) -> None: ...

    @app.task("ITEMS", bulk=5)
    def items(given: Sequence[Item]) -> None: ...


def test_ids_that_are_none_are_refused(tmp_path: Any) -> None:
    app = App(f"sqlite:///{tmp_path}/ids.db")
    for call in (app.sync.get, app.sync.cancel, app.sync.retry):
        with pytest.raises(InvalidInput, match="'nope' is not a task id"):
            call("nope")


async def test_a_role_that_only_enqueues_may_use_keys(databases: Databases, database: str) -> None:
    with databases.role("producer") as role, psycopg.connect(databases.url(database), autocommit=True) as owner:
        owner.execute(f"select redrive.grant_producer('{role}')")
        app = App(databases.url(database, user=role))
        first = await app.enqueue("SEND", {"to": "x"}, idempotency_key="k")
        second = await app.enqueue("SEND", {"to": "x"}, idempotency_key="k")
        assert (second.id, second.deduplicated, second.payload) == (first.id, True, {"to": "x"})
        with pytest.raises(IdempotencyConflict):
            await app.enqueue("SEND", {"to": "y"}, idempotency_key="k")
        await app.close()
        owner.execute(f"drop owned by {role}")
