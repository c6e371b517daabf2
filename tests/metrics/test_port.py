"""The worker's own port: three addresses, whoever asks and however, and all processes of a supervisor on one."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from redrive.cli.support import http_server
from redrive.cli.support.http_server import make_server, serving_in_a_thread
from redrive.cli.support.metrics_port import Answer, Pages
from redrive.cli.support.sockets import own_names
from redrive.observe.metrics import CLAIMED, SLOTS, TABLE
from redrive.worker.hand_over import HandOver, Reach, Report, Sender
from tests.cli.conftest import here, redrive, start  # noqa: F401 - fixtures
from tests.metrics.conftest import parsed, value

OPEN = b"GET /open HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
APP = """
import os
from redrive import App, Context
app = App()

@app.task("SEND")
async def send(ctx: Context) -> None: ...
"""


@asynccontextmanager
async def small(connections: int = 64, **options: Any) -> AsyncIterator[tuple[str, int]]:
    async def page(accept: str) -> Answer:
        return Answer(200, b"all is well: " + accept.encode(), "text/plain")

    async def broken(_: str) -> Answer:
        raise LookupError("a secret")

    pages = Pages({"/page": page, "/open": page, "/broken": broken}, guarded=("/page",), **options)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        serving_in_a_thread(make_server(pages, connections=connections), listening),
    ):
        yield listening.getsockname()


async def ask(where: tuple[str, int], request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*where)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


async def test_it_answers_what_it_serves_and_refuses_the_rest() -> None:
    async with small() as where, httpx.AsyncClient(base_url=f"http://{where[0]}:{where[1]}") as client:
        assert (await client.get("/page?x=1", headers={"accept": "text/x"})).text == "all is well: text/x"
        head = await client.head("/page")
        assert (head.status_code, head.content) == (200, b"") and int(head.headers["content-length"]) > 10
        assert (await client.get("/other")).status_code == 404
        assert (await client.post("/page", content=b"x" * 100_000)).status_code == 405
        broken = await client.get("/broken")
        assert broken.status_code == 500 and "secret" not in broken.text


async def test_a_token_guards_what_is_guarded() -> None:
    async with small(token="0123456789abcdef") as where, httpx.AsyncClient() as client:
        url = f"http://{where[0]}:{where[1]}"
        assert (await client.get(f"{url}/page")).status_code == 401
        assert (await client.get(f"{url}/page", headers={"authorization": "Bearer wrong"})).status_code == 401
        assert (await client.get(f"{url}/page", headers={"authorization": "bearer 0123456789abcdef"})).is_success
        assert (await client.get(f"{url}/open")).is_success


async def test_nobody_holds_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(http_server.DEADLINES_S, "headers", 0.3)
    async with small(connections=5) as where:
        assert b" 400 " in await ask(where, b"GET /page HTTP/1.1\r\n" + b"x: y\r\n" * 10_000)
        for nonsense in (b"\r\n\r\n", b"\x00\xff\r\n\r\n", b"GET\r\n\r\n"):
            assert (await ask(where, nonsense)).startswith(b"HTTP/1.1 4")
        idle = [await asyncio.open_connection(*where) for _ in range(20)]
        for reader, writer in idle:
            said = await reader.read()
            assert said == b"" or said.startswith(b"HTTP/1.1 408"), "it made room, or was too slow"
            writer.close()
        assert b"all is well" in await ask(where, b"GET /page HTTP/1.0\r\n\r\n")


async def test_it_stops_without_a_word_about_those_who_wait(caplog: pytest.LogCaptureFixture) -> None:
    async with small() as where:
        _, writer = await asyncio.open_connection(*where)
        assert b"all is well" in await ask(where, OPEN)
    assert caplog.records == []
    writer.close()


async def test_whoever_has_waited_longest_makes_room_for_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(http_server.DEADLINES_S, "headers", 600.0)
    async with small(connections=5) as where, asyncio.timeout(90):
        idle = [await asyncio.open_connection(*where) for _ in range(5)]
        for n in range(3):
            assert b"all is well" in await ask(where, OPEN)
            assert await idle[n][0].read() == b"", "whoever came first"
            idle.append(await asyncio.open_connection(*where))
        idle[3][1].write(OPEN)
        assert b"all is well" in await idle[3][0].read(), "the others are still served"
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9100", "127.0.0.1:9100", "[::1]:9100", "10.0.0.7", "[fe80::1]"]
)
async def test_it_is_asked_by_its_own_names_and_by_addresses(host: str) -> None:
    async with small(names=own_names("127.0.0.1")) as where:
        assert b" 200 " in await ask(where, OPEN.replace(b"localhost", host.encode()))
        for other in ("evil.example", "evil.example:9100", "127.0.0.1.evil.example", "localhost.evil.example:80", "["):
            assert b" 400 " in await ask(where, OPEN.replace(b"localhost", other.encode()))


async def test_where_others_reach_it_they_may_call_it_what_they_like() -> None:
    assert own_names("0.0.0.0") == ()
    async with small(names=own_names("0.0.0.0")) as where:
        assert b" 200 " in await ask(where, OPEN.replace(b"localhost", b"worker-3:9100"))


async def test_what_an_ended_process_has_counted_stays() -> None:
    hand_over = HandOver("w", 1, TABLE)
    [slot] = hand_over.slots
    for run, counted in enumerate((3.0, 5.0)):
        pipe = hand_over.pipe(0)
        sender = Sender(os.dup(pipe.passed[0]), lambda counted=counted: report(counted))
        pipe.begin()
        sender.start()
        sender.stop()  # its last words
        await pipe.end()
        assert slot.samples()["redrive_worker_restarts_total"] == {(): float(run)}
        assert SLOTS.name not in slot.samples(), "how it was is nothing any more"
    assert hand_over.processes()["w-1"][CLAIMED.name] == {("q", "A"): 8.0}
    assert hand_over.problems() == ["w-1: it has ended"]


async def test_one_that_is_relieved_and_its_successor_count_together() -> None:
    """While both are there, what adds up does, how they are is the successor's; and it is no restart."""
    hand_over = HandOver("w", 1, TABLE)
    [slot] = hand_over.slots
    old, new = hand_over.pipe(0), hand_over.pipe(0, relieves=True)
    senders = []
    for pipe, counted, reasons in ((old, 3.0, ()), (new, 5.0, ("it is full",))):
        senders.append(Sender(os.dup(pipe.passed[0]), lambda c=counted, r=reasons: report(c, *r)))
        pipe.begin()
        senders[-1].start()
    while slot.samples().get(CLAIMED.name) != {("q", "A"): 8.0}:
        await asyncio.sleep(0.01)
    assert slot.samples()[SLOTS.name] == {(): 4.0} and hand_over.problems() == ["w-1: it is full"]
    senders[0].stop()
    await old.end(for_good=True)
    assert slot.samples()[CLAIMED.name] == {("q", "A"): 8.0} and hand_over.problems() == ["w-1: it is full"]
    assert slot.samples()["redrive_worker_restarts_total"] == {(): 0.0}
    senders[1].stop()
    await new.end()
    assert slot.samples()[CLAIMED.name] == {("q", "A"): 8.0}


async def test_a_process_that_was_to_end_is_missed_by_nobody() -> None:
    """One of two is drained: the other works, and the port says so."""
    hand_over = HandOver("w", 2, TABLE)
    first, second = hand_over.pipe(0), hand_over.pipe(1)
    sender = Sender(os.dup(first.passed[0]), lambda: report(1.0))
    first.begin()
    second.begin()
    sender.start()
    while hand_over.slots[0].problems():
        await asyncio.sleep(0.01)
    await second.end(for_good=True)
    assert hand_over.problems() == []
    sender.stop()
    await first.end(for_good=True)
    assert hand_over.problems() == ["w-1: it has ended", "w-2: it has ended"]


async def test_a_process_is_as_it_said_last() -> None:
    hand_over = HandOver("w", 2, TABLE)
    first, second = hand_over.slots
    pipe = hand_over.pipe(0)
    sender = Sender(os.dup(pipe.passed[0]), lambda: report(1.0, "it is full"))
    pipe.begin()
    assert hand_over.problems() == ["w-1: it has not said anything yet", "w-2: it is not started yet"]
    sender.start()
    while first.problems() != ["it is full"]:
        await asyncio.sleep(0.01)
    assert hand_over.health() == [{"status": "ok"}] and second.samples()
    assert hand_over.reach() == Reach(101.0, False)
    assert first.samples()[SLOTS.name] == {(): 4.0}
    sender.stop()
    await pipe.end()
    assert hand_over.reach() == Reach(101.0, None), "when the store was reached is known still"


def report(counted: float, *reasons: str) -> Report:
    samples = {CLAIMED.name: {("q", "A"): counted}, SLOTS.name: {(): 4.0}}
    return Report(samples, {"status": "ok"}, list(reasons), Reach(100.0 + counted, not reasons))


@pytest.fixture
def app(here: Path) -> str:  # noqa: F811
    (here / "port_app.py").write_text(APP)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(here), *([before] if before else [])])
    yield "port_app:app"
    os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


def page_of(url: str) -> dict[str, Any]:
    return parsed(httpx.get(f"{url}/metrics").text)


def until(look: Any) -> Any:
    deadline = time.monotonic() + 90
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_worker_serves_its_port(start: Any, app: str) -> None:  # noqa: F811
    work = start("work", "--app", app, "--metrics-port", 0, "--fleet-metrics", REDRIVE_LOG="json")
    url = work.log("metrics.serving")["http"]
    until(lambda: httpx.get(f"{url}/readyz").status_code == 200)
    ready = httpx.get(f"{url}/readyz").json()
    assert [each["name"] for each in ready["dependencies"]] == ["store", "listener"]
    assert all(each["ok"] and each["lastSuccess"] for each in ready["dependencies"])
    assert httpx.get(f"{url}/healthz").json()["status"] == "ok"
    page = page_of(url)
    assert value(page, "redrive_worker_slots") == 1 and value(page, "redrive_fleet_up") == 1
    assert httpx.get(f"{url}/api/tasks").status_code == 404
    work.process.send_signal(signal.SIGTERM)
    assert work.ends() == 0


def test_one_port_for_all_processes(start: Any, app: str, here: Path) -> None:  # noqa: F811
    """Also of whether they project: what was never published is no dependency."""
    file = here / "port_app.py"
    file.write_text(file.read_text() + "app.outbox.projection('notes', sink='fts5:///search.db')\n")
    work = start("work", "--app", app, "--processes", 2, REDRIVE_METRICS_PORT="0", REDRIVE_LOG="json")
    url = work.log("metrics.serving")["http"]
    until(lambda: httpx.get(f"{url}/readyz").status_code == 200)
    until(lambda: len(page_of(url)["redrive_worker_slots"]) == 2)
    first, second = sorted(dict(labels)["worker"] for labels in page_of(url)["redrive_worker_slots"])
    workers = [each["worker_id"] for each in httpx.get(f"{url}/healthz").json()["processes"]]
    assert [first, second] == sorted(workers), "by the names that redrive workers and the log have"

    def dependencies() -> Any:
        found = {one["name"]: one for one in httpx.get(f"{url}/readyz").json()["dependencies"]}
        return found if "projection notes" in found else None

    found = until(dependencies)
    assert [*found][:2] == ["store", "listener"] and all(found[name]["lastSuccess"] for name in [*found][:2])
    assert found["projection notes"]["lastSuccess"] is None and all(one["ok"] for one in found.values())
    event = "None, 'notes', 'note', 1, 'upsert', 1, {}"
    code = f"import asyncio, port_app; asyncio.run(port_app.app.outbox.publish({event}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    last = until(lambda: (dependencies() or found)["projection notes"]["lastSuccess"])
    assert datetime.fromisoformat(last) <= datetime.now(UTC)
    assert value(page_of(url), "outbox_last_projected_timestamp_seconds", projection="notes") > 0
    assert "redrive_fleet_up" not in page_of(url)
    beats = value(page_of(url), "redrive_store_call_seconds_count", worker=first, verb="tick")
    assert beats > 0
    [victim] = [c for c in psutil.Process(work.process.pid).children() if first in c.cmdline()]
    victim.kill()
    until(lambda: value(page_of(url), "redrive_worker_restarts_total", worker=first) == 1)
    assert value(page_of(url), "redrive_store_call_seconds_count", worker=first, verb="tick") >= beats
    until(lambda: httpx.get(f"{url}/readyz").status_code == 200)
    work.process.send_signal(signal.SIGTERM)
    assert work.ends() == 0


def test_options_without_a_port_are_refused(redrive: Any, app: str) -> None:  # noqa: F811
    assert redrive("work", "--app", app, "--fleet-metrics").code == 2
