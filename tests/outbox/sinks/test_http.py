"""The HTTP sink, against a real server that answers as it is told."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive import State
from redrive.errors import ConfigError
from redrive.outbox.sink import TooLarge
from redrive.outbox.sinks import sink_from_url
from redrive.outbox.verdict import Done, Failed, Retry, Superseded
from tests.outbox.conftest import make_app
from tests.outbox.sinks.events import delete, upsert

pytestmark = pytest.mark.anyio
Answer = tuple[int, dict[str, str], bytes]
NDJSON = {"Content-Type": "application/x-ndjson; charset=utf-8"}


class Receiver(ThreadingHTTPServer):
    """Keeps what it was sent; ``answer`` says what to answer to the events of a request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[dict[str, str], list[Any]]] = []
        self.answer: Callable[[list[Any]], Answer] = lambda events: (200, {}, b"")
        self.url = f"http://127.0.0.1:{self.server_port}/events"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        events = [json.loads(line) for line in body.splitlines()]
        self.server.requests.append((dict(self.headers), events))
        self._say(*self.server.answer(events))

    def do_HEAD(self) -> None:
        self._say(*self.server.answer([])[:2], b"")

    def _say(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def written(url: str, *events: Any) -> list[Any]:
    sink: Any = sink_from_url(url)
    try:
        return list(await sink.write(events))
    finally:
        await sink.close()


async def test_a_request_is_lines_of_events(receiver: Receiver) -> None:
    events = upsert(1, 3, {"title": "Käse"}, "ann"), delete(2, 2**63 - 1)
    assert await written(receiver.url + "?for=me", *events) == [Done(), Done()]
    [(headers, lines)] = receiver.requests
    assert headers["Content-Type"] == "application/x-ndjson"
    known = {"entity_type": "note", "id": str(events[0].id), "payload": {"title": "Käse"}, "routing": "ann"}
    assert lines[0] == {**known, "entity_id": "1", "op": "upsert", "version": 3, "order": 3}
    assert (lines[1]["op"], lines[1]["version"], lines[1]["payload"]) == ("delete", 2**63 - 1, None)


async def test_compression_and_who_sends_it(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_TOKEN", "t0ken")
    await written(f"{receiver.url}#gzip=1&token_env=SEARCH_TOKEN", upsert(1, 1))
    await written(receiver.url.replace("//", "//ann:p%40ss@"), upsert(1, 1))
    [(first, lines), (second, _)] = receiver.requests
    assert (first["Content-Encoding"], first["Authorization"], len(lines)) == ("gzip", "Bearer t0ken", 1)
    assert second["Authorization"] == "Basic " + base64.b64encode(b"ann:p@ss").decode()
    for bad in ("#timeout=x", "#nope=1", "#token_env=NOT_SET_ANYWHERE"):
        with pytest.raises(ConfigError):
            sink_from_url(receiver.url + bad)


async def test_each_event_may_have_an_answer_of_its_own(receiver: Receiver) -> None:
    def answer(events: list[Any]) -> Answer:
        said = ({"status": 409}, {"status": 422, "error": "no"}, {"status": 503, "retry_after": 9}, {"status": 403})
        lines = [{"id": event["id"], **one} for event, one in zip(events, said, strict=False)]
        return 200, NDJSON, b"\n".join(json.dumps(line).encode() for line in lines)

    receiver.answer = answer
    assert await written(receiver.url, *(upsert(n, 1) for n in range(5))) == [
        Superseded(),
        Failed("http_4xx", "no"),
        Retry("http_5xx", "HTTP 503", 9.0),
        Retry("http_4xx", "HTTP 403"),
        Done(),
    ]
    receiver.answer = lambda events: (200, NDJSON, b'{"id": 1}')
    with pytest.raises(ConnectionError, match="cannot be read"):
        await written(receiver.url, upsert(1, 1))
    receiver.answer = lambda events: (200, {"Content-Type": "text/html"}, b"<p>fine")
    assert await written(receiver.url, upsert(1, 1)) == [Done()]


@pytest.mark.parametrize(
    ("status", "reason"),
    [(429, "http_429"), (503, "http_5xx"), (401, "http_4xx"), (404, "http_4xx"), (408, "http_408")],
)
async def test_a_refusal_of_the_whole_request_waits(receiver: Receiver, status: int, reason: str) -> None:
    receiver.answer = lambda events: (status, {"Retry-After": "7"}, b"not now")
    found = await written(receiver.url, upsert(1, 1), upsert(2, 1))
    assert [(one.reason, one.after, one.whole) for one in found] == [(reason, 7.0, True)] * 2
    assert "not now" in found[0].message and len(receiver.requests) == 1


async def test_a_request_refused_for_one_event_is_halved(receiver: Receiver) -> None:
    def answer(events: list[Any]) -> Answer:
        bad = any(event["entity_id"] == "bad" for event in events)
        return (400, {}, b"a bad one") if bad else (200, {}, b"")

    receiver.answer = answer
    events = [upsert("bad" if n == 77 else n, 1) for n in range(500)]
    verdicts = await written(receiver.url, *events)
    assert [n for n, verdict in enumerate(verdicts) if verdict != Done()] == [77]
    assert verdicts[77] == Failed("http_4xx", "HTTP 400 Bad Request: a bad one")
    assert len(receiver.requests) < 25


async def test_sizes_and_conflicts_of_whole_requests(receiver: Receiver) -> None:
    receiver.answer = lambda events: (413, {}, b"")
    with pytest.raises(TooLarge):
        await written(receiver.url, upsert(1, 1))
    receiver.answer = lambda events: (409, {}, b"")
    assert await written(receiver.url, upsert(1, 1), upsert(2, 1)) == [Superseded(), Superseded()]


async def test_nobody_there(receiver: Receiver) -> None:
    sink: Any = sink_from_url(receiver.url + "#timeout=30")
    await sink.check()
    receiver.answer = lambda events: (503, {}, b"")
    with pytest.raises(ConnectionError):
        await sink.check()
    await sink.close()
    with pytest.raises(httpx.ConnectError):
        await written("http://127.0.0.1:1/", upsert(1, 1))


async def test_a_projection_over_http(receiver: Receiver, url: str, tmp_path: Path) -> None:
    """Through the relay: what is refused fails alone, what the receiver is too busy for comes again."""
    busy = ["once"]

    def answer(events: list[Any]) -> Answer:
        if busy:
            busy.clear()
            return 503, {}, b""
        bad = [event for event in events if event["entity_id"] == "bad"]
        lines = [json.dumps({"id": event["id"], "status": 400, "error": "mapping"}).encode() for event in bad]
        return 200, NDJSON, b"\n".join(lines)

    receiver.answer = answer
    app = make_app(url)
    app.outbox.projection("notes", sink=receiver.url)
    await app.migrate()
    for key in ("1", "bad", "2"):
        await app.outbox.publish(None, "notes", "note", key, "upsert", 1, {"v": 1})
    from tests.outbox.conftest import World

    world = World(app, None, None)  # type: ignore[arg-type]
    for _ in range(3):
        await world.drain()
    states = {task.scope: (task.state, task.error_reason) for task in await world.tasks()}
    await app.close()
    assert states["note:bad"] == (State.FAILED, "http_4xx")
    assert states["note:1"][0] is states["note:2"][0] is State.COMPLETED


def test_a_sink_may_be_used_by_several_event_loops(receiver: Receiver) -> None:
    sink: Any = sink_from_url(receiver.url)
    for _ in range(2):
        assert list(asyncio.run(sink.write([upsert(1, 1)]))) == [Done()]
    assert len(receiver.requests) == 2


async def test_texts_of_an_answer_may_have_any_character(receiver: Receiver) -> None:
    def answer(events: list[Any]) -> Answer:
        line = {"id": events[0]["id"], "status": 422, "error": "one\u2028two\x85three"}
        return 200, NDJSON, json.dumps(line, ensure_ascii=False).encode() + b"\r\n"

    receiver.answer = answer
    assert await written(receiver.url, upsert(1, 1), upsert(2, 1)) == [
        Failed("http_4xx", "one\u2028two\x85three"),
        Done(),
    ]


@pytest.mark.parametrize("kind", ["text/html", "application/x-ndjson"])
async def test_an_answer_without_an_end_is_not_read_to_its_end(kind: str) -> None:
    pieces, sent = 600, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"}\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode())
        try:
            for _ in range(pieces):
                writer.write(b" " * 100_000)
                await writer.drain()
                sent += 1
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        if kind == "text/html":
            assert await written(url, upsert(1, 1)) == [Done()], "it says that it has them"
        else:
            with pytest.raises(ConnectionError, match="more than"):
                await written(url, upsert(1, 1))
    assert sent < pieces
