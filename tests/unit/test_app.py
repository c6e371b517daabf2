"""Bad input gets a clear error and changes nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
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
    TooManyNames,
    UnknownKind,
)
from redrive.ops.access import Caller, Role
from tests.databases import Databases
from tests.worker.conftest import drain


@pytest.fixture
async def app() -> Any:
    app = App("sqlite:///:memory:")

    @app.task("SEND")
    async def send(ctx: Context, to: str, copies: int = 1) -> None: ...

    yield app
    await app.close()


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"kind": "SEDN", "payload": {"to": "x"}}, UnknownKind, "did you mean SEND"),
    ({"kind": "SEND"}, PayloadMissing, "needs a payload"),
    ({"kind": "SEND", "payload": {}}, PayloadInvalid, "to: Field required"),
    ({"kind": "SEND", "payload": {"to": "x", "copies": "many"}}, PayloadInvalid, "copies"),
    ({"kind": "SEND", "payload": {"to": "x", "cc": "y"}}, PayloadInvalid, "cc: Extra inputs"),
    ({"kind": "SEND", "payload": {"to": float("nan")}}, PayloadInvalid, "NaN and infinity are not JSON"),
    ({"kind": "SEND", "payload": {"to": "a\x00b"}}, PayloadInvalid, "NUL"),
    ({"kind": "SEND", "payload": {"to": "x" * 1_100_000}}, PayloadInvalid, "over the limit"),
    ({"kind": "SEND", "payload": {"to": "x"}, "delay": -1}, InvalidInput, "delay must be from 0"),
    ({"kind": "SEND", "payload": {"to": "x"}, "run_at": datetime(2030, 1, 1)}, InvalidInput, "time zone"),
    ({"kind": "SEND", "payload": {"to": "x"}, "run_at": datetime(2999, 1, 1, tzinfo=UTC)}, InvalidInput, "10 years"),
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
    many = [
        {"kind": "RESIZE", "payload": {"name": "a", "width": 640}, "idempotency_key": "same", "priority": 3},
        {"kind": "RESIZE", "payload": {"name": "c", "width": 640}, "idempotency_key": "new", "delay": 9},
        {"kind": "RESIZE", "payload": {"name": "c"}, "idempotency_key": "new"},
    ]
    assert [task.deduplicated for task in await app.enqueue_many(many)] == [True, False, True]
    with pytest.raises(IdempotencyConflict):
        await app.enqueue_many([*many, {**many[0], "payload": {"name": "a", "width": 1}}])
    operator = await app.operator(Caller("ann", Role.OPERATOR))
    asked = await operator.tasks.enqueue("RESIZE", {"name": "a", "width": 640}, idempotency_key="same")
    assert (asked.id, asked.deduplicated) == (first.id, True)
    await drain(app)
    done = await app.enqueue("RESIZE", {"name": "a", "width": 640}, idempotency_key="same")
    assert (done.id, done.deduplicated) == (first.id, True), "a completed task has no payload to compare any more"


async def test_what_a_producer_declares_waits_for_the_handlers_word(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    producer, worker = App(url), App(url)
    producer.declare("SEND")
    producer.declare("PRINT", max_attempts=2)
    producer.declare("PLAIN", max_attempts=4)

    async def tried(kind: str, **options: int) -> int:
        found = await worker.get((await producer.enqueue(kind, **options)).id)
        assert found is not None
        return found.max_attempts

    await producer.migrate()
    assert [await tried(kind) for kind in ("SEND", "PRINT", "PLAIN")] == [5, 2, 4]

    @worker.task("SEND", max_attempts=1)
    async def send(ctx: Context) -> None: ...

    @worker.task("PRINT", max_attempts=9)
    async def print_out(ctx: Context) -> None: ...

    @worker.task("PLAIN")
    async def plain(ctx: Context) -> None: ...

    await drain(worker)
    assert [await tried(kind) for kind in ("SEND", "PRINT", "PLAIN")] == [1, 9, 4]
    assert await tried("SEND", max_attempts=7) == 7
    await producer.close()
    await worker.close()


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


def _no_context() -> None: ...
def _annotated(n: int) -> None: ...
def _context(ctx: Context) -> None: ...
def _bulk(items: Bulk) -> None: ...


@pytest.mark.parametrize(
    ("options", "function", "error", "says"),
    [
        ({}, _no_context, ConfigError, "takes no context"),
        ({}, _annotated, ConfigError, "'n' is annotated with int"),
        ({}, _bulk, ConfigError, "not declared as bulk"),
        ({"bulk": 5}, _context, ConfigError, "gets a Bulk"),
        ({"bulk": 5}, _no_context, ConfigError, "takes no Bulk"),
        ({"timeout": 3_000_000}, _context, InvalidInput, r"timeout must be from 0\.001 to 2,000,000 seconds"),
        ({"isolation": "space"}, _context, InvalidInput, "isolation"),
        ({"isolation": "process"}, lambda ctx: None, InvalidInput, "a lambda"),
    ],
)
def test_a_handler_that_cannot_work_is_refused_where_it_is_declared(
    options: dict[str, Any], function: Any, error: type[Exception], says: str
) -> None:
    app = App("sqlite:///:memory:")
    with pytest.raises(error, match=says):
        app.task("X", **options)(function)


def test_a_handler_of_a_process_is_found_by_its_name_and_a_kind_has_one() -> None:
    app = App("sqlite:///:memory:")

    def nested(ctx: Context) -> None: ...

    with pytest.raises(InvalidInput, match="inside a function"):
        app.task("X", isolation="process")(nested)
    app.task("X")(nested)
    with pytest.raises(ConfigError, match="two handlers"):
        app.task("X")(_context)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cron": "nonsense"}, "not a cron expression"),
        ({"cron": "0 0 30 2 *"}, "not a cron expression"),
        ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, "not a known time zone"),
        ({"cron": "* * * * *", "missed": "maybe"}, "missed must be one of"),
    ],
)
def test_a_schedule_that_cannot_work_is_refused_where_it_is_declared(given: dict[str, Any], says: str) -> None:
    app = App("sqlite:///:memory:")
    app.task("X")(_context)
    with pytest.raises(InvalidInput, match=says):
        app.periodic("X", **given)


def test_ids_that_are_none_are_refused(tmp_path: Any) -> None:
    app = App(f"sqlite:///{tmp_path}/ids.db")
    for call in (app.sync.get, app.sync.cancel, app.sync.retry):
        with pytest.raises(InvalidInput, match="'nope' is not a task id"):
            call("nope")


async def test_a_role_that_only_enqueues_has_what_its_application_declares(databases: Databases, database: str) -> None:
    """Also in its own transaction, and before any worker has announced it; nothing else, where no name is left."""
    with databases.role("producer") as role, psycopg.connect(databases.url(database), autocommit=True) as owner:
        owner.execute(f"select redrive.grant_producer('{role}')")
        owner.execute("insert into redrive.name_bound (one, most) values (true, 0)")
        url = databases.url(database, user=role)
        app, other = App(url), App(url)
        for kind in ("SEND", "PRINT", "SORT"):
            app.declare(kind, queue="mail")
        first = await app.enqueue("SEND", {"to": "x"}, idempotency_key="k")
        second = await app.enqueue("SEND", {"to": "x"}, idempotency_key="k")
        assert (second.id, second.deduplicated, second.payload) == (first.id, True, {"to": "x"})
        with pytest.raises(IdempotencyConflict):
            await app.enqueue("SEND", {"to": "y"}, idempotency_key="k")
        with psycopg.connect(url) as connection:
            await app.enqueue("PRINT", connection=connection)
            await app.enqueue_many(
                [{"kind": "SORT", "idempotency_key": f"k{n}"} for n in range(3)], connection=connection
            )
        for given in ({"kind": "WHATEVER"}, {"kind": "SEND", "queue": "elsewhere"}):
            with pytest.raises(TooManyNames):
                await other.enqueue(**given)
        counts = owner.execute("select kind, queued from redrive.v_counts order by kind").fetchall()
        assert counts == [("PRINT", 1), ("SEND", 1), ("SORT", 3)]
        await app.close()
        await other.close()
        owner.execute(f"drop owned by {role}")
