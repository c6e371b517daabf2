"""The search server of our own, as the process that labs start, kill and start again."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redrive.outbox.sinks.opensearch import OpenSearch
from redrive.outbox.verdict import Done, Superseded
from redrive_kit.simulators.search.mapping import learned, types_of
from redrive_kit.simulators.search.refusal import Refusal
from redrive_kit.simulators.search.server import filtered
from tests.cluster import free_port
from tests.outbox.search.events import delete, stored, upsert


@contextmanager
def simulated(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "redrive_kit.simulators.search", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def control(url: str, **given: Any) -> dict[str, Any]:
    request = urllib.request.Request(f"{url}/_simulator/control", json.dumps(given).encode(), method="POST")
    with urllib.request.urlopen(request) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


@pytest.mark.anyio
async def test_its_documents_are_there_after_a_kill(tmp_path: Path) -> None:
    keep = ("--keep", str(tmp_path / "kept.db"), "--port", str(free_port()))
    with simulated(*keep) as (_, url):
        sink = OpenSearch(f"opensearch+{url}/notes")
        assert await sink.write([upsert(1, 1), upsert(2, 5), delete(3, 7)]) == [Done()] * 3
        await sink.close()
    with simulated(*keep) as (_, again):
        assert again == url
        sink = OpenSearch(f"opensearch+{url}/notes")
        assert await sink.write([upsert(2, 4), upsert(3, 6)]) == [Superseded(), Superseded()]
        assert await stored(sink) == {"note:1": 1, "note:2": 5}
        await sink.close()


def test_it_is_told_how_to_behave() -> None:
    with simulated("--like", '{"latency": 0.001}') as (process, url):
        assert control(url)["latency"] == 0.001
        assert control(url, busy_share=0.5, down_for=600)["down_for"] > 500
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(url)
        with pytest.raises(urllib.error.HTTPError, match="400"):
            control(url, busy_share=2)
        process.terminate()
        assert process.wait(timeout=60) in (0, -15)


def test_types_are_guessed_from_the_first_value() -> None:
    first = {"n": 1, "f": 1.5, "b": True, "d": "2026-01-01", "t": "x", "o": {"deep": [1, 2]}, "nothing": None}
    types = learned({}, first, "1")
    guessed = {"n": "long", "f": "float", "b": "boolean", "d": "date", "t": "text", "o": "object", "o.deep": "long"}
    assert types == guessed
    for fits in ({"n": "7"}, {"n": 1.5}, {"f": 1}, {"b": "true"}, {"d": 5}, {"t": 1}, {"o": {"new": 1}}, {"n": None}):
        learned(types, fits, "2")
    for unfit in ({"n": "x"}, {"n": True}, {"b": 1}, {"d": "x"}, {"t": {"x": 1}}, {"o": 1}, {"o": {"deep": "x"}}):
        with pytest.raises(Refusal):
            learned(types, unfit, "2")
    assert types_of({"properties": {"o": {"properties": {"k": {"type": "keyword"}}}}}) == {
        "o": "object",
        "o.k": "keyword",
    }


def test_a_part_of_an_answer() -> None:
    answer = {"took": 1, "items": [{"index": {"status": 200, "_id": "a"}}, {"delete": {"status": 404, "_id": "b"}}]}
    assert filtered(answer, "items.*.status") == {"items": [{"index": {"status": 200}}, {"delete": {"status": 404}}]}
    assert filtered(answer, "took,nothing") == {"took": 1}
    assert filtered(answer, "") == answer
