"""The Redis sink, against a real server."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from redrive.errors import ConfigError
from redrive.outbox.sinks import sink_from_url
from redrive.outbox.verdict import Done, Retry
from tests.cluster import free_port
from tests.outbox.sinks.events import delete, upsert

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("THE REDIS SINK WAS NOT TESTED: there is no redis-server on this machine")
    found = free_port()
    arguments = [program, "--port", str(found), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    server = subprocess.Popen(arguments, cwd=tmp_path_factory.mktemp("redis"), stdout=subprocess.DEVNULL)
    try:
        _wait(found)
        yield found
    finally:
        server.terminate()
        server.wait()


def _wait(port: int) -> None:
    for _ in range(1200):
        try:
            with redis.Redis(port=port) as client:
                client.ping()
                return
        except redis.ConnectionError:
            time.sleep(0.05)
    raise AssertionError("redis-server did not start")


@pytest.fixture
def client(port: int) -> Iterator[Any]:
    with redis.Redis(port=port, decode_responses=True) as found:
        found.flushall()
        yield found


async def written(url: str, *events: Any) -> list[Any]:
    sink: Any = sink_from_url(url)
    try:
        await sink.check()
        return list(await sink.write(events))
    finally:
        await sink.close()


async def test_events_are_entries(port: int, client: Any) -> None:
    events = upsert(1, 3, {"title": "Käse"}, "ann"), delete(2, 2**63 - 1)
    assert await written(f"redis://127.0.0.1:{port}/0?stream=notes", *events) == [Done(), Done()]
    [(_, first), (_, second)] = client.xrange("notes")
    assert json.loads(first.pop("payload")) == {"title": "Käse"}
    known = {"id": str(events[0].id), "entity_type": "note", "entity_id": "1", "op": "upsert"}
    assert first == {**known, "version": "3", "order": "3", "routing": "ann"}
    assert (second["op"], second["version"], second["payload"]) == ("delete", str(2**63 - 1), "null")
    assert "routing" not in second


async def test_old_entries_go_where_a_length_is_given(port: int, client: Any) -> None:
    url = f"redis://127.0.0.1:{port}/0?stream=notes&maxlen=100"
    assert await written(url, *(upsert(n, 1) for n in range(1000))) == [Done()] * 1000
    assert 100 <= client.xlen("notes") < 400


async def test_a_server_that_takes_nothing_is_waited_for(port: int, client: Any) -> None:
    url = f"redis://127.0.0.1:{port}/0?stream=notes"
    client.set("notes", "something else")
    [verdict] = await written(url, upsert(1, 1))
    assert isinstance(verdict, Retry) and verdict.reason == "unavailable" and "WRONGTYPE" in verdict.message
    client.delete("notes")
    client.config_set("maxmemory", "1")
    try:
        [verdict] = await written(url, upsert(1, 1))
        assert (isinstance(verdict, Retry) and "OOM" in verdict.message.upper()) or "memory" in verdict.message
    finally:
        client.config_set("maxmemory", "0")
    assert client.exists("notes") == 0


async def test_nobody_there() -> None:
    with pytest.raises(redis.ConnectionError):
        await written("redis://127.0.0.1:1/0?stream=notes", upsert(1, 1))


@pytest.mark.parametrize("query", ["", "?stream=", "?stream=a&maxlen=x", "?stream=a&maxlen=0"])
def test_what_names_no_stream_is_refused(query: str) -> None:
    with pytest.raises(ConfigError):
        sink_from_url(f"redis://127.0.0.1/0{query}")
