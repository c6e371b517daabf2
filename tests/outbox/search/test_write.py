"""What becomes of events in a search server: one verdict for each, and the newest version of each document."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import pytest

from redrive.outbox.event import Event
from redrive.outbox.sink import TooLarge
from redrive.outbox.sinks.search_index import SearchIndex
from redrive.outbox.verdict import Done, Failed, Superseded
from tests.outbox.search.events import delete, stored, upsert
from tests.outbox.search.servers import MAX_BYTES, SearchServerOfRun

pytestmark = pytest.mark.anyio


async def test_the_newest_version_wins(sink: SearchIndex) -> None:
    assert await sink.write([upsert(1, 5), upsert(2, 0)]) == [Done(), Done()]
    assert await sink.write([upsert(1, 4), upsert(2, 0)]) == [Superseded(), Done()]
    assert await sink.write([upsert(1, 6), upsert(3, 2**63 - 1)]) == [Done(), Done()]
    assert await stored(sink) == {"note:1": 6, "note:2": 0, "note:3": 2**63 - 1}


async def test_deletes_have_versions_too(sink: SearchIndex) -> None:
    await sink.write([upsert(1, 5), upsert(2, 5)])
    assert await sink.write([delete(1, 4), delete(2, 6), delete(3, 7)]) == [Superseded(), Done(), Done()]
    assert await sink.write([upsert(2, 5), upsert(3, 6)]) == [Superseded(), Superseded()]
    assert await sink.write([delete(2, 6)]) == [Done()]
    assert await stored(sink) == {"note:1": 5}


async def test_a_poison_event_among_500_fails_alone(sink: SearchIndex) -> None:
    await sink.write([upsert(0, 1)])
    events = [upsert(number, 2, {"size": "none" if number == 250 else number}) for number in range(500)]
    said = await sink.write(events)
    assert [one for one in said if one != Done()] == [said[250]]
    assert isinstance(said[250], Failed) and said[250].reason == "deterministic_exception"
    assert "failed to parse field [size] of type [long]" in said[250].message
    assert len(await stored(sink)) == 499


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"a": "\ud800"}, "surrogates not allowed"),
        ({"a": float("nan")}, "JSON compliant"),
        ({"_redrive": 1}, "redrive keeps key and version"),
        (["a"], "it is no object, but list"),
        ({"": 1}, "field name cannot be an empty string"),
        ({"_id": 1}, "metadata field"),
    ],
)
async def test_a_document_that_cannot_be_sent_fails_alone(sink: SearchIndex, payload: object, said: str) -> None:
    first, second, third = await sink.write([upsert(1, 1), upsert(2, 1, payload), upsert(3, 1)])
    assert (first, third) == (Done(), Done())
    assert isinstance(second, Failed) and said in second.message


async def test_what_a_server_refuses_a_whole_request_for_fails_alone(sink: SearchIndex) -> None:
    """Too long a key is seen before; a version below zero stands for what was not thought of."""
    long, wrong = upsert("x" * 600, 1), upsert("wrong", -1)
    said = await sink.write([*(upsert(number, 1) for number in range(20)), long, wrong])
    assert said[:20] == [Done()] * 20
    assert "512 bytes" in said[20].message  # type: ignore[union-attr]
    assert isinstance(said[21], Failed) and "illegal version value" in said[21].message
    assert len(await stored(sink)) == 20


async def test_a_request_that_is_too_large_says_so(sink: SearchIndex, search_server: SearchServerOfRun) -> None:
    if not search_server.limited:
        pytest.skip("the server of this run takes larger requests")
    text = "x" * (MAX_BYTES // 4)
    with pytest.raises(TooLarge):
        await sink.write([upsert(number, 1, {"text": text}) for number in range(5)])
    assert await sink.write([upsert(number, 1, {"text": text}) for number in range(3)]) == [Done()] * 3


async def test_routing_goes_with_the_document(sink: SearchIndex) -> None:
    assert await sink.write([upsert(1, 1, routing="ann"), upsert(2, 1, routing="ann")]) == [Done(), Done()]
    assert await sink.write([upsert(1, 0, routing="ann"), delete(2, 2, routing="ann")]) == [Superseded(), Done()]
    assert await stored(sink) == {"note:1": 1}


async def test_deleted_versions_are_forgotten(make_sink: Callable[..., SearchIndex]) -> None:
    """Which is why the relay keeps tombstones for these sinks."""
    sink = make_sink(settings={"index.gc_deletes": "100ms"})
    await sink.write([upsert(1, 5)])
    await sink.write([delete(1, 7)])
    deadline = time.monotonic() + 60
    while await sink.write([upsert(1, 6)]) != [Done()]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
        await sink.refresh()
    assert not sink.remembers_deletes


async def test_any_order_and_any_number_of_times(sink: SearchIndex) -> None:
    chance = random.Random(7)
    events: dict[tuple[int, int], Event] = {}
    for number, version in ((number, version) for number in range(40) for version in range(1, 6)):
        events[number, version] = delete(number, version) if chance.random() < 0.3 else upsert(number, version)
    sent = chance.choices(list(events), k=300) + chance.sample(list(events), k=len(events))
    while sent:
        # One request has each document once, as the relay sends them.
        request = {number: (number, version) for number, version in sent[:30]}
        said = await sink.write([events[one] for one in request.values()])
        assert not [one for one in said if one not in (Done(), Superseded())]
        sent = [one for one in sent[:30] if one not in request.values()] + sent[30:]
    newest = {f"note:{number}": events[number, 5] for number in range(40)}
    assert await stored(sink) == {key: 5 for key in sorted(newest) if newest[key].payload is not None}
