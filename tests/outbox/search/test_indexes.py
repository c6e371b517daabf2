"""Indexes behind the live name: made, filled, scanned, switched and dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from redrive.errors import ConfigError, RedriveError
from redrive.outbox.sink import Rebuildable, Searchable
from redrive.outbox.sinks import search_index
from redrive.outbox.sinks.search_index import SearchIndex
from redrive.outbox.verdict import Done, Retry, Superseded
from tests.outbox.search.events import delete, stored, upsert

# What is common to both servers, by one of the clients; ``test_write.py`` and ``test_trouble.py`` are about both.
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("search_server", ["opensearch"], indirect=True, scope="module"),
]


async def ask(sink: SearchIndex, method: str, path: str, body: Any = None) -> Any:
    return await sink._server.ask(method, path, body)


async def test_the_first_write_makes_the_index(sink: SearchIndex) -> None:
    await sink.check()
    assert await sink._live() == []
    await sink.write([upsert(1, 1)])
    assert await sink._live() == [f"{sink._alias}-first"]
    assert isinstance(sink, Rebuildable) and isinstance(sink, Searchable)


async def test_several_first_writes_make_one_index(make_sink: Callable[..., SearchIndex]) -> None:
    sinks = [make_sink() for _ in range(5)]
    said = await asyncio.gather(*(sink.write([upsert(number, 1)]) for number, sink in enumerate(sinks)))
    assert said == [[Done()]] * 5
    assert len(await stored(sinks[0])) == 5


async def test_a_scan_is_in_the_order_of_bytes(sink: SearchIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "PAGE", 7)
    names = [*map(str, range(20)), "é", "z", "Z", "ü", "\U0001f600", "￿", "a b", "a:b", "a/b", 'a"b', "a\\b"]
    await sink.write([upsert(name, number) for number, name in enumerate(names)])
    keys = sorted((f"note:{name}" for name in names), key=str.encode)
    assert list(await stored(sink)) == keys
    assert list(await stored(sink, after=keys[4])) == keys[5:]
    assert list(await stored(sink, after=keys[-1])) == []
    wanted = [*keys[::2], "note:nobody"]
    found = {one.key: one.version async for one in sink.scan()}
    assert {one.key: one.version for one in await sink.find(wanted)} == {key: found[key] for key in keys[::2]}


async def test_a_new_index_is_filled_and_switched_to(sink: SearchIndex) -> None:
    await sink.write([upsert(1, 1), upsert(2, 1)])
    await sink.create("b")
    await sink.create("b")
    assert await sink.write([upsert(1, 2), upsert(3, 1)], "b") == [Done(), Done()]
    assert await sink.write([upsert(1, 1), delete(3, 0)], "b") == [Superseded(), Superseded()]
    assert await stored(sink) == {"note:1": 1, "note:2": 1}
    assert await stored(sink, "b") == {"note:1": 2, "note:3": 1}
    await sink.swap("b")
    await sink.swap("b")
    assert await stored(sink) == await stored(sink, "b") == {"note:1": 2, "note:3": 1}
    assert not await sink._exists(f"{sink._alias}-first")
    assert await sink.write([upsert(4, 1)]) == [Done()]


async def test_what_comes_late_does_not_bring_a_dropped_index_back(sink: SearchIndex) -> None:
    await sink.create("c")
    await sink.drop("c")
    await sink.drop("c")
    [said] = await sink.write([upsert(1, 1)], "c")
    assert isinstance(said, Retry) and said.reason == "unavailable"
    assert not await sink._exists(f"{sink._alias}-c")


async def test_the_live_index_is_not_dropped(sink: SearchIndex) -> None:
    await sink.create("b")
    await sink.swap("b")
    with pytest.raises(RedriveError, match="is the live one"):
        await sink.drop("b")
    with pytest.raises(ConfigError, match="is no name of an index"):
        await sink.drop("*")


async def test_an_index_from_before_is_written_to_and_replaced(sink: SearchIndex) -> None:
    await ask(sink, "PUT", f"/{sink._alias}", {})
    assert await sink.write([upsert(1, 1)]) == [Done()]
    assert await sink._live() == [sink._alias]
    await sink.create("b")
    await sink.write([upsert(1, 1)], "b")
    await sink.swap("b")
    assert await sink._live() == [f"{sink._alias}-b"]
    assert await stored(sink) == {"note:1": 1}


async def test_an_index_that_somebody_removed_is_made_again(sink: SearchIndex) -> None:
    await sink.write([upsert(1, 1)])
    await ask(sink, "DELETE", f"/{sink._alias}-first")
    [said] = await sink.write([upsert(1, 1)])
    assert isinstance(said, Retry) and said.reason == "unavailable"
    assert await sink.write([upsert(1, 1)]) == [Done()]
    assert await sink._live() == [f"{sink._alias}-first"]


async def test_an_alias_that_somebody_removed_is_made_again(sink: SearchIndex) -> None:
    await sink.write([upsert(1, 1)])
    gone = {"remove": {"index": f"{sink._alias}-first", "alias": sink._alias}}
    await ask(sink, "POST", "/_aliases", {"actions": [gone]})
    [said] = await sink.write([upsert(2, 1)])
    assert isinstance(said, Retry) and said.reason == "unavailable"
    assert await sink.write([upsert(2, 1)]) == [Done()]
    assert await stored(sink) == {"note:1": 1, "note:2": 1}


async def test_events_wait_while_the_alias_is_ambiguous(sink: SearchIndex) -> None:
    await sink.write([upsert(1, 1)])
    await sink.create("b")
    await ask(sink, "POST", "/_aliases", {"actions": [{"add": {"index": f"{sink._alias}-b", "alias": sink._alias}}]})
    [said] = await sink.write([upsert(1, 2)])
    assert isinstance(said, Retry) and "no write index" in said.message


async def test_events_wait_while_the_index_cannot_be_made(make_sink: Callable[..., SearchIndex]) -> None:
    sink = make_sink(settings={"index.gc_deletes": "soon"})
    said = await sink.write([upsert(1, 1), upsert(2, 1)])
    assert [type(one) for one in said] == [Retry, Retry]


async def test_types_of_fields_are_as_declared(make_sink: Callable[..., SearchIndex]) -> None:
    sink = make_sink(mappings={"dynamic": "strict", "properties": {"title": {"type": "text"}}})
    said = await sink.write([upsert(1, 1, {"title": "a"}), upsert(2, 1, {"name": "a"})])
    assert said[0] == Done()
    assert "strict_dynamic_mapping_exception" in said[1].message  # type: ignore[union-attr]
    assert await stored(sink) == {"note:1": 1}


async def test_documents_are_found_by_their_words(sink: SearchIndex) -> None:
    with pytest.raises(RedriveError, match="has no index"):
        await sink.search("hello")  # the first write makes it
    await sink.write([upsert(1, 1, {"title": "Hello world", "size": 3}), upsert(2, 1, {"title": "Hello moon"})])
    await sink.refresh()
    [hit] = await sink.search("hello WORLD")
    assert (hit.key, hit.document) == ("note:1", {"title": "Hello world", "size": 3})
    assert len(await sink.search("hello")) == 2
    assert await sink.search("mars") == []
