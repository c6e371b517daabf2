"""Tasks go where their route says, and nowhere that would break a promise."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from pathlib import Path

import pytest

from redrive import App, Context
from redrive.errors import ConfigError, ConnectionUnknown, InvalidInput, StoreUnavailable
from redrive.handlers.new_task import make_task
from redrive.handlers.routing import Routing
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.joins import NewJoin
from redrive.kernel.ports.reads import get_task
from redrive.settings import Route, load_settings
from redrive.settings.connections import Connection
from redrive.testing import using
from redrive_kit.examples.orders import ORDERS

FILE = """
[connections.main]
url = "sqlite:///main.db"
[connections.insights]
url = "sqlite:///insights.db"
[routes]
"REPORT_*" = {connection = "insights", queue = "reports"}
"REPORT_DAILY" = {queue = "daily"}
"""


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> App:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redrive.toml").write_text(FILE)
    made = App()
    for kind in ("SEND", "REPORT_X", "REPORT_DAILY"):
        made.declare(kind)
    return made


async def where(app: App, task_id: object) -> list[str]:
    return [name for name, at in app.connections.items() if await get_task(await at.store(), task_id) is not None]


@pytest.mark.parametrize(
    ("kind", "connection", "queue"),
    [
        ("SEND", "main", None),
        ("REPORT_X", "insights", "reports"),
        ("REPORT_XY", "other", "reports"),
        ("REPORT_DAILY", "main", "daily"),
    ],
)
def test_the_most_specific_route_holds(kind: str, connection: str, queue: str | None) -> None:
    routes = {
        "REPORT_*": Route(connection="insights", queue="reports"),
        "REPORT_DAILY": Route(queue="daily"),
        "REPORT_X?": Route(connection="other", queue="reports"),
    }
    routing = Routing("main", routes)
    assert (routing.connection_of(kind), routing.queue_of(kind)) == (connection, queue)
    assert routing.unused(["SEND", "REPORT_DAILY"]) == ["REPORT_X?"]


async def test_enqueue_follows_the_route(app: App) -> None:
    async with app:
        report = await app.enqueue("REPORT_X")
        assert (report.queue, await where(app, report.id)) == ("reports", ["insights"])
        assert await app.connections.with_task(report.id) == "insights"
        await app.cancel(report.id)
        await app.retry(report.id)
        assert (await app.get(report.id)).state == "queued" and await app.get(new_id()) is None
        other = await app.enqueue("REPORT_X", queue="slow", on="main")
        assert (other.queue, await where(app, other.id)) == ("slow", ["main"])
        assert await where(app, (await app.enqueue("SEND")).id) == ["main"]
        daily = await app.enqueue("REPORT_DAILY")
        assert (daily.queue, await where(app, daily.id)) == ("daily", ["main"])
        keyed = [await app.enqueue("REPORT_X", idempotency_key="k") for _ in range(2)]
        assert keyed[0].id == keyed[1].id and keyed[1].deduplicated
        with pytest.raises(ConnectionUnknown, match="'insigths'") as refused:
            await app.enqueue("SEND", on="insigths")
        assert refused.value.hint == "did you mean insights? there are: main, insights"
        with pytest.raises(TypeError, match="named by a str, not 5; there are: main, insights"):
            await app.enqueue("SEND", on=5)  # type: ignore[arg-type]


async def test_one_that_says_nothing_keeps_nobody_from_a_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silents = f"postgresql://x@127.0.0.1:{silent.getsockname()[1]}/none"
        (tmp_path / "redrive.toml").write_text(
            f'queue_connection = "main"\n[connections.silent]\nurl = "{silents}"\n'
            '[connections.main]\nurl = "sqlite:///main.db"\n'
        )
        app = App()
        app.declare("SEND")
        async with asyncio.timeout(60), app:
            sent = await app.enqueue("SEND")
            with monkeypatch.context() as patch:
                patch.setattr("redrive.app.connections.ANSWER_S", 3600)
                assert (await app.get(sent.id)).state == "queued"
            monkeypatch.setattr("redrive.app.connections.ANSWER_S", 0.1)
            with pytest.raises(StoreUnavailable, match=r"silent: no answer within 0\.1 s"):
                await app.get(new_id())


async def test_a_list_goes_to_one_connection(app: App) -> None:
    async with app:
        made = await app.enqueue_many([("REPORT_X", None), {"kind": "REPORT_X", "queue": "slow"}])
        assert [(task.queue, await where(app, task.id)) for task in made] == [
            ("reports", ["insights"]),
            ("slow", ["insights"]),
        ]
        with pytest.raises(InvalidInput, match="REPORT_X goes to the connection insights, and SEND to main"):
            await app.enqueue_many([("SEND", None), ("REPORT_X", None)])
        assert [await where(app, task.id) for task in await app.enqueue_many([("SEND", 1), ("REPORT_X", 2)], on="main")]
        many = await app.enqueue_many([("REPORT_X", None)] * 700)
        assert await where(app, many[-1].id) == ["insights"]


async def test_a_transaction_is_of_one_store(app: App, tmp_path: Path) -> None:
    async with app:
        await app.at("insights").store()
        with sqlite3.connect(tmp_path / "insights.db") as own:
            with pytest.raises(InvalidInput, match="goes to the connection insights, and cannot be part") as refused:
                await app.enqueue("REPORT_X", connection=own)
            assert 'on="insights"' in str(refused.value.hint)
            task = await app.enqueue("REPORT_X", connection=own, on="insights")
        assert await where(app, task.id) == ["insights"]
        with sqlite3.connect(tmp_path / "main.db") as main:
            plain = await app.enqueue("SEND", connection=main)
            with pytest.raises(InvalidInput, match="cannot be part of a transaction on main"):
                await app.enqueue_many([("REPORT_X", None)], connection=main)
        assert await where(app, plain.id) == ["main"]


async def test_a_transaction_of_another_database_is_refused_whatever_is_said(tmp_path: Path) -> None:
    known = {"main": Connection(url=f"sqlite:///{tmp_path}/main.db"), "far": Connection(url="postgresql://h/d")}
    async with App(settings=load_settings(connections=known)) as app:
        with sqlite3.connect(tmp_path / "main.db") as own:
            with pytest.raises(InvalidInput, match=r"is PostgreSQL, and its tasks cannot be part of .* sqlite3"):
                await app.enqueue("SEND", connection=own, on="far")
            await app.enqueue("SEND", connection=own, on="main")


async def test_what_a_handler_commits_with_its_task_is_on_its_connection(app: App) -> None:
    seen: list[object] = []

    @app.task("REPORT_BUILD")
    async def build(ctx: Context) -> None:
        seen.append(ctx.connection)
        async with ctx.transaction() as tx:
            with pytest.raises(InvalidInput, match="goes to the connection main"):
                await app.enqueue("SEND", connection=tx)
            with pytest.raises(InvalidInput, match="goes to the connection main"):
                await app.enqueue("REPORT_X", connection=tx, on="main")
            seen.append((await app.enqueue("REPORT_X", connection=tx)).id)
        seen.append((await app.enqueue("SEND")).id)

    async with app:
        await app.enqueue("REPORT_BUILD")
        await app.worker(on="insights", queues="reports", once=True).run()
        assert seen[0] == "insights"
        assert [await where(app, one) for one in seen[1:]] == [["insights"], ["main"]]


async def test_a_commit_lands_on_one_connection(app: App) -> None:
    async with app:
        send, report = make_task(app.registry, "SEND"), make_task(app.registry, "REPORT_X")
        with pytest.raises(InvalidInput, match="cannot be all or none"):
            await app.apply(Commit(joins=[NewJoin(new_id(), on_complete=send)], enqueues=[report]))
        await app.apply(Commit(enqueues=[report]))
        assert await where(app, report.id) == ["insights"]
        await app.apply(Commit(enqueues=[send]), on="insights")
        assert await where(app, send.id) == ["insights"]


async def test_schedules_are_kept_where_their_kinds_go(app: App) -> None:
    for kind in ("SEND", "REPORT_X"):
        app.periodic(kind, cron="0 0 1 1 *")
    async with app:
        for name, kind in (("main", "SEND"), ("insights", "REPORT_X")):
            await app.worker(on=name, stop_when_empty=True).run()
            found = (await (await app.at(name).store()).overview()).schedules
            assert [one.kind for one in found] == [kind]


def test_a_routed_queue_is_served(app: App) -> None:
    @app.task("REPORT_Z", queue="elsewhere")
    async def build(ctx: Context) -> None: ...

    brought = ("webhooks", "batches-dispatch", "batches-settle", "outbox:search_index_to_elastic")
    assert app.queues() == ("default", "reports", *brought)


async def test_kinds_of_features_stay_with_the_feature(app: App, tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_text(FILE.replace('"REPORT_*"', '"*"'))
    made = App(features=[ORDERS])
    kinds = [kind for kind in made.registry.handlers if kind.startswith("ORDER")]
    assert kinds and {made.registry.routing.connection_of(kind) for kind in kinds} == {"main"}
    assert {made.registry.handlers[kind].queue for kind in kinds}.isdisjoint({"reports"})
    (tmp_path / "redrive.toml").write_text(FILE.replace('"REPORT_*"', f'"{kinds[0]}"'))
    with pytest.raises(ConfigError, match=f"routes.{kinds[0]}: the kind belongs to the feature 'orders'"):
        App(features=[ORDERS])


async def test_in_tests_all_connections_are_one_store(app: App, tmp_path: Path) -> None:
    ran = []

    @app.task("REPORT_Y")
    async def build(ctx: Context) -> None:
        ran.append(ctx.task.queue)

    app.periodic("REPORT_Y", cron="0 0 1 1 *")
    async with using(app) as kit:
        await app.enqueue("REPORT_Y")
        await app.enqueue("SEND", on="insights")
        await kit.drain()
        assert ran == ["reports"]
    assert not (tmp_path / "insights.db").exists() and app.url == "sqlite:///main.db"


async def test_what_a_handler_is_enqueued_with_is_not_forgotten(app: App) -> None:
    @app.task("PING")
    async def ping(ctx: Context) -> None: ...

    assert await where(app, (await ping.options(on="insights").enqueue()).id) == ["insights"]
    assert await where(app, (await asyncio.to_thread(ping.options(on="insights").enqueue_sync)).id) == ["insights"]
    for name, value in (("on", "insights"), ("connection", object())):
        with pytest.raises(InvalidInput, match=f"{name}= is said where a task is enqueued, and PING is only made here"):
            ping.options(**{name: value}).new()  # type: ignore[arg-type]
    await app.close()
