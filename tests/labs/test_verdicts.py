"""What a lab says: its list, its refusals, its verdict, and the record of what was not seen."""

from __future__ import annotations

import asyncio
import json
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from redrive import App
from redrive.errors import InvalidInput
from redrive.outbox.health import event_counts
from redrive_kit.labs.experiments import LABS
from redrive_kit.labs.facts import Facts
from redrive_kit.labs.lab_run import Experiment, LabOptions, LabRun
from redrive_kit.labs.network import Forwarder
from redrive_kit.labs.run_labs import prepare, run_one
from redrive_kit.labs.sinks import ForwardedSink
from redrive_kit.labs.workers import samples_of
from redrive_kit.labs.world import World

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


def test_by_itself_it_says_which_there_are(redrive) -> None:
    assert [one["lab"] for one in json.loads(redrive("lab", "--json").out)["items"]] == [1, 2, 3, 4, 5, 6]
    assert "kill -9" in redrive("lab").out


@pytest.mark.parametrize("word", ["0", "7", "first", "all 1"])
def test_a_lab_that_there_is_not_is_refused(redrive, word: str, tmp_path: Path) -> None:
    said = redrive("lab", *word.split(), "--report", str(tmp_path / "none"))
    assert said.code != 0 and "there is no lab" in said.err and not (tmp_path / "none").exists()


def test_on_one_store_they_run_one_after_the_other(redrive, tmp_path: Path) -> None:
    said = redrive("lab", "all", "-j", "2", "--url", f"sqlite:///{tmp_path}/shop.db")
    assert said.code != 0 and "one after the other" in said.err


def test_a_store_in_production_is_left_alone(redrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_ENV", "production")
    said = redrive("lab", "3", "--url", f"sqlite:///{tmp_path}/shop.db")
    assert said.code != 0 and "this is production" in said.err and not (tmp_path / "shop.db").exists()


@pytest.mark.parametrize("address", ["ftp://host:1", "nothing", "http://"])
def test_a_sink_that_is_no_search_server_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="no address of a search server"):
        ForwardedSink(address, "index")


def test_records_that_cannot_be_written_are_refused_first(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be written to"):
        prepare(tmp_path / "file")


async def test_a_record_waits_for_gauges_that_are_older_than_the_view() -> None:
    stuck = "outbox_stuck_processing_events"
    moments = [
        Facts("after", datetime.now(UTC), {}, 100, 0, [], {stuck: gauge, "outbox_lag_events": lag})
        for gauge, lag in ((100, 100), (100, 0), (0, 0))
    ]

    class Moments:
        async def facts(self, when: str) -> Facts:
            return moments.pop(0)

    lab = LabRun(1, "", {}, cast(World, Moments()), lambda _: None)
    found = await lab.until("stuck is 0 again", "after", lambda now: now.stuck == 0)
    assert (found.metrics[stuck], lab.facts, moments) == (0, [found], [])


async def test_what_is_not_seen_fails_the_lab_and_is_in_the_record(tmp_path: Path) -> None:
    async def conduct(lab: LabRun, seconds: float) -> None:
        await lab.world.publish(2)
        lab.expect("two wait", (await lab.look("before")).pending == 2)
        lab.expect("a miracle", False, "nothing of that kind")
        await lab.until("all is done", "after", lambda now: now.done == 2, patience=0.1)
        raise AssertionError("without a worker it does not come to this")

    spoken: list[str] = []
    experiment = Experiment(9, "no worker", "a miracle", conduct, quick={"OUTBOX_MAX_ATTEMPTS": "3"})
    lab = await run_one(experiment, LabOptions(None, None, True, "ann", tmp_path, spoken.append))
    assert not lab.ok and [one.holds for one in lab.expectations] == [True, False, False]
    [record] = tmp_path.glob("lab9-*.md")
    text = record.read_text()
    assert "verdict: **FAIL**" in text and "- operator: ann" in text and "OUTBOX_MAX_ATTEMPTS" in text
    assert "a miracle (seen: nothing of that kind); all is done (seen: after 0.1 s: pending 2" in text
    assert any("NOT SEEN: a miracle (nothing of that kind)" in line for line in spoken)


async def test_an_error_in_a_lab_fails_it(tmp_path: Path) -> None:
    async def conduct(lab: LabRun, seconds: float) -> None:
        lab.expect("the beginning", True)
        raise ValueError("a mistake of ours")

    lab = await run_one(
        Experiment(9, "broken", "", conduct), LabOptions(None, None, True, "ann", tmp_path, lambda _: None)
    )
    assert not lab.ok and "ValueError: a mistake of ours" in lab.conclusion


@pytest.mark.thorough
async def test_a_given_store_is_left_without_anything_that_waits_or_is_failed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    app = App(url)

    async def conduct(lab: LabRun, seconds: float) -> None:
        await lab.world.publish(2)
        await lab.world.publish(1, "not-a-real-op")
        await lab.world.worker("first")
        await lab.until("one is failed", "during", lambda now: now.failed == 1 and now.done == 2)
        await asyncio.to_thread(lab.world.workers[0].stop)
        await lab.world.publish(3)

    run = LabOptions(url, None, True, "ann", tmp_path, lambda _: None)
    lab = await run_one(Experiment(9, "left behind", "", conduct), run)
    assert lab.ok, lab.conclusion
    [found] = [one for one in await event_counts(await app.store(), app.settings) if one.projection == "lab9"]
    assert (found.lag, found.failed, found.done) == (0, 0, 2)
    await app.close()


def test_each_lab_has_the_parameters_of_its_table() -> None:
    assert LABS[1].full["OUTBOX_LEASE_SECONDS"] == "10" and LABS[1].full["OUTBOX_RECLAIM_INTERVAL_SECONDS"] == "2"
    assert 30 <= LABS[2].seconds <= 60 and not LABS[2].full
    assert LABS[4].full["OUTBOX_MAX_ATTEMPTS"] == "3" and LABS[4].full["OUTBOX_MAX_BACKOFF_SECONDS"] == "1.0"


def test_samples_are_those_of_the_projection() -> None:
    page = """
# TYPE outbox_lag_events gauge
outbox_lag_events{connection="default",projection="lab1"} 3.0
outbox_lag_events{connection="default",projection="other"} 4.0
outbox_terminal_failed_total{projection="lab1",reason="connect"} 2.0
redrive_queue_depth{queue="outbox:lab1"} 3.0
"""
    assert samples_of(page, "lab1") == {"outbox_lag_events": 3, "outbox_terminal_failed_total{connect}": 2}


async def test_a_forwarder_can_be_stopped_and_started_again() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    forwarder = Forwarder("127.0.0.1", server.sockets[0].getsockname()[1])
    await forwarder.start()
    port = forwarder.port
    await forwarder.stop()
    with pytest.raises(OSError, match="in use"), socket.socket() as other:
        other.bind(("127.0.0.1", port))  # nobody else gets it meanwhile
    await forwarder.start()
    assert await _said_by(port) == b"hello\n"
    await forwarder.stop()
    with pytest.raises(OSError):
        await _said_by(port)
    await forwarder.start()
    assert (forwarder.port, await _said_by(port)) == (port, b"hello\n")
    await forwarder.close()
    server.close()


async def _said_by(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"hello\n")
    await writer.drain()
    said = await reader.read(100)
    writer.close()
    return said
