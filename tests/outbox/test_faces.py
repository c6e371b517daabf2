"""What people see of projections: figures, metrics, findings, alerts, commands, HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from redrive.cli.main import run
from redrive.errors import InvalidInput, NotAllowed, WrongSetting
from redrive.observe.samples import Samples
from redrive.ops.access import Caller, Role
from redrive.outbox import projection as projection_module
from redrive.outbox.duties import log_reclaimed
from redrive.outbox.event import Event
from redrive.outbox.health import dependencies, event_counts, examine, failed, oldest_age, stuck
from redrive.outbox.metrics import LAST, fleet, process
from redrive.outbox.service import OutboxService
from redrive.outbox.sinks.fts5 import Fts5
from redrive.outbox.verdict import Verdict
from tests.outbox.conftest import BOTH_STORES, World, make_app
from tests.outbox.faulty import Faulty

pytestmark = pytest.mark.anyio


@BOTH_STORES
async def test_figures_follow_events(world: World) -> None:
    app, store = world.app, await world.app.store()
    assert await event_counts(store, app.settings) == [] and await oldest_age(store, app.settings) is None
    for n in range(3):
        await world.publish(n, "upsert", 1, {})
    await world.publish(9, "nonsense", 1)
    [one] = await event_counts(store, app.settings)
    assert (one.projection, one.pending, one.lag, one.stuck) == ("notes", 4, 4, 0)
    assert one.oldest_age is not None and one.oldest_age >= 0
    during: list[Any] = []

    async def look() -> None:
        during.extend(await event_counts(store, app.settings))

    world.sink.before = look
    await world.drain()
    assert (during[0].processing, during[0].inflight, during[0].stuck, during[0].lag) == (4, 4, 0, 4)
    [one] = await event_counts(store, app.settings)
    assert (one.lag, one.done, one.failed, one.oldest_age) == (0, 3, 1, None)
    samples = await fleet(store, app.settings)
    assert samples["outbox_lag_events"] == {("notes",): 0.0}
    found = await examine(store, app.settings)
    assert [one.code for one in found] == ["outbox_failed"]
    assert (await stuck(store, app.settings), await failed(store, app.settings)) == (0.0, 1.0)


@BOTH_STORES
async def test_what_is_behind_and_stuck_is_told(url: str, world: World) -> None:
    store = await world.app.store()
    await world.publish(1, "upsert", 1, {})
    strict = make_app(url, oldest_alert_seconds=0.001, max_processing_seconds=0.001)
    await asyncio.sleep(0.02)
    assert [one.code for one in await examine(store, strict.settings)] == ["outbox_behind"]
    codes: list[str] = []

    async def look() -> None:
        await asyncio.sleep(0.02)
        codes.extend(one.code for one in await examine(store, strict.settings))

    world.sink.before = look
    await world.drain()
    assert codes == ["outbox_stuck", "outbox_behind"]
    await strict.close()


def counted(worker: Samples) -> Samples:
    """Returns what follows from what a worker counted; what arrived in this process is of other tests."""
    return {name: values for name, values in process(worker).items() if name != LAST.name}


def test_counts_of_a_worker() -> None:
    kind = ("outbox:notes", "OUTBOX:notes")
    worker: Samples = {
        "redrive_attempts_total": {
            (*kind, "completed", ""): 5.0,
            (*kind, "retried", "connect"): 3.0,
            (*kind, "expired", "lease_expired"): 2.0,
            (*kind, "failed", "http_4xx"): 1.0,
            ("default", "SEND", "completed", ""): 9.0,
        }
    }
    assert counted(worker) == {
        "outbox_processed_total": {("notes",): 5.0},
        "outbox_failed_total": {("notes",): 6.0},
        "outbox_retry_scheduled_total": {("notes",): 5.0},
        "outbox_terminal_failed_total": {("notes", "http_4xx"): 1.0},
    }


def test_counters_begin_at_zero() -> None:
    """With the first attempt of any kind: nobody sees a counter grow that was not there before."""
    worker: Samples = {"redrive_attempts_total": {("outbox:notes", "OUTBOX:notes", "completed", ""): 5.0}}
    assert counted(worker) == {
        "outbox_processed_total": {("notes",): 5.0},
        "outbox_failed_total": {("notes",): 0.0},
        "outbox_retry_scheduled_total": {("notes",): 0.0},
    }


async def test_failures_are_counted_in_one_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for n in range(3):
        await world.publish(n, "upsert", 1, {})
    await world.publish(4, "nonsense", 1)

    def down(events: Sequence[Event]) -> dict[int, Verdict]:
        raise ConnectionError("down")

    world.sink.faults = [down]
    with caplog.at_level(logging.WARNING, "redrive.outbox"):
        await world.app.worker(max_jobs=4).run()
    [line] = [one for one in caplog.records if getattr(one, "event", "") == "outbox.bulk_failures"]
    assert vars(line)["failures"] == {"connect": 3, "deterministic_exception": 1}


def test_what_was_taken_back_is_counted_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "redrive.outbox"):
        log_reclaimed([("OUTBOX:notes", False), ("OUTBOX:notes", True), ("OUTBOX:notes", False), ("SEND", False)])
    [line] = caplog.records
    said = vars(line)
    assert (said["event"], said["projection"], said["reclaimed"]) == ("outbox.reclaimed", "notes", 3)
    assert (said["lease"], said["max_processing"]) == (2, 1)


async def test_readiness_asks_the_sinks_of_a_worker_from_the_start(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection_module, "FRESH_S", 0.0)
    store, settings = await world.app.store(), world.app.settings
    assert await dependencies(store, settings) == [], "a process without a worker depends on none"
    other = Faulty(Fts5(tmp_path / "other.db"))
    world.app.outbox.projection("others", sink=other)
    assert (await fleet(store, settings))["outbox_lag_events"] == {("notes",): 0.0, ("others",): 0.0}
    await world.app.worker(queues=["outbox:notes", "outbox:others"], stop_when_empty=True).run()
    found = {one.name: one for one in await dependencies(store, settings)}
    assert [(name, one.ok) for name, one in found.items()] == [
        ("sink of notes", True),
        ("sink of others", True),
        ("projection notes", True),
        ("projection others", True),
    ]
    reached = found["sink of notes"].last_success
    world.sink.unreachable = True
    down = (await dependencies(store, settings))[0]
    assert (down.ok, down.detail, down.blocks, down.last_success) == (False, "ConnectionError", False, reached)
    other.unreachable = True
    assert all(one.blocks for one in await dependencies(store, settings)), "none of them is left"


async def test_readiness_knows_when_events_last_arrived(url: str, tmp_path: Path) -> None:
    app = make_app(url, oldest_alert_seconds=0.001)
    sink = Faulty(Fts5(tmp_path / "search.db"))
    app.outbox.projection("notes", sink=sink)
    await app.migrate()
    await app.outbox.publish(None, "notes", "note", 1, "create", 1, {"a": 1})
    await app.worker(stop_when_empty=True).run()
    store = await app.store()
    _, one = await dependencies(store, app.settings)
    assert one.ok and one.last_success is not None
    await app.outbox.publish(None, "notes", "note", 2, "create", 1, {"a": 1})
    await asyncio.sleep(0.01)
    _, late = await dependencies(store, app.settings)
    assert not late.ok and late.blocks and "the oldest event waits" in str(late.detail)
    assert late.last_success == one.last_success
    await app.close()


def test_a_client_that_is_not_installed_ends_a_worker_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from redrive.cli.root import call

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRIVE_LOG", "off")
    monkeypatch.setenv("ELASTIC_URL", "http://127.0.0.1:1")
    monkeypatch.setattr("redrive.outbox.application.find_spec", lambda name: None)
    monkeypatch.setattr("redrive.outbox.sinks.find_spec", lambda name: None)
    for setting in ("TASK_WORKER_LEASE_MS", "TASK_WORKER_RECOVERY_INTERVAL_MS"):
        monkeypatch.setenv(setting, "30000")
    assert call(["migrate", "--create"]) == 0
    for command in (["outbox", "work"], ["work", "--queue", "outbox:search_index_to_elastic"]):
        with pytest.raises(WrongSetting, match="no client for one is installed"):  # the command ends with code 2
            call([*command, "--stop-when-empty"])


async def test_who_may_look_and_search(world: World) -> None:
    await world.publish(1, "upsert", 1, {"title": "hello"})
    await world.drain()
    viewer = (await world.app.operator(Caller("vic", Role.VIEWER))).of(OutboxService)
    [row] = (await viewer.list()).items
    assert (row.projection, row.done, row.lag) == ("notes", 1, 0)
    with pytest.raises(NotAllowed):
        await viewer.search("notes", "hello")
    operator = (await world.app.operator(Caller("ann", Role.OPERATOR))).of(OutboxService)
    with pytest.raises(InvalidInput, match="cannot be searched"):
        await operator.search(operator.only(), "hello")  # the sink of these tests cannot


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from redrive.cli.root import call

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRIVE_LOG", "off")
    for setting in ("TASK_WORKER_LEASE_MS", "TASK_WORKER_RECOVERY_INTERVAL_MS"):
        monkeypatch.setenv(setting, "30000")  # outbox work says them in the environment: nothing of that stays

    def run(*arguments: str) -> Any:
        capsys.readouterr()
        assert call([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert call(["migrate", "--create"]) == 0
    event = {"entity_type": "note", "entity_id": "1", "op": "create", "version": 1, "payload": {"title": "hello"}}
    name = "search_index_to_elastic"
    run("enqueue", f"OUTBOX:{name}", json.dumps(event), "--queue", f"outbox:{name}")
    assert [row["lag"] for row in run("outbox")["items"]] == [1]
    assert run("outbox", "work", name, "--stop-when-empty", "--metrics-port", "0")["completed"] == 1
    assert [row["done"] for row in run("outbox", "list")["items"]] == [1]
    assert [row["key"] for row in run("outbox", "search", "hello")["items"]] == ["note:1"]


def test_a_worker_of_the_outbox_names_its_settings_where_they_belong(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["outbox", "work", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "(else OUTBOX_WORKER_ID, else TASK_WORKER_ID, else generated)" in said
    assert "(else REDRIVE_METRICS_PORT, else OUTBOX_METRICS_PORT, else 9108)" in said
