"""Sinks that keep documents, held to one behaviour: full text on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import random
import unicodedata
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive.errors import ConfigError
from redrive.outbox.sink import Rebuildable, Searchable
from redrive.outbox.sinks import sink_from_url
from redrive.outbox.verdict import Done, Failed, Superseded
from tests.outbox.sinks.events import delete, upsert

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["fts5", "postgresql"])
async def sink(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    if request.param == "fts5":
        found: Any = sink_from_url(f"fts5:///{tmp_path}/search.db")
    else:
        found = sink_from_url(f"{request.getfixturevalue('empty_postgres_url')}?table=documents&language=simple")
    yield found
    await found.close()


async def kept(sink: Any, index: str | None = None, **bounds: Any) -> dict[str, int]:
    return {one.key: one.version async for one in sink.scan(index, **bounds)}


async def test_the_newest_version_wins(sink: Any) -> None:
    assert isinstance(sink, Rebuildable) and isinstance(sink, Searchable)
    assert sink.remembers_deletes and sink.compares_versions
    assert list(await sink.write([upsert(1, 5), upsert(2, 2**63 - 1), delete(3, 7)])) == [Done()] * 3
    late = [upsert(1, 4), delete(2, 1), upsert(3, 6)]
    assert list(await sink.write(late)) == [Superseded()] * 3
    assert await kept(sink) == {"note:1": 5, "note:2": 2**63 - 1}
    again = await sink.write([upsert(1, 5), upsert(3, 8), delete(1, 6)][:2])
    assert list(again) == [Superseded(), Done()]
    assert await sink.get("note:3") == {"v": 8} and await sink.get("note:9") is None
    await sink.write([delete(1, 6)])
    assert await kept(sink) == {"note:2": 2**63 - 1, "note:3": 8}
    await sink.check()


async def test_words_are_found_and_forgotten(sink: Any) -> None:
    await sink.write([upsert(1, 1, {"title": "brown fox", "n": 42}), upsert(2, 1, {"tags": ["fox", {"x": "lazy"}]})])
    assert {hit.key for hit in await sink.search("fox")} == {"note:1", "note:2"}
    assert [hit.key for hit in await sink.search("fox lazy")] == ["note:2"]
    assert [hit.document for hit in await sink.search("42")] == [{"title": "brown fox", "n": 42}]
    await sink.write([upsert(1, 2, {"title": "red hen"}), delete(2, 2)])
    assert await sink.search("fox") == [] and len(await sink.search("hen")) == 1
    assert len(await sink.search("hen", limit=1)) == 1 and await sink.search("';--") == []


LANGUAGES = {
    "zh": "失败管理：任务重试和失败任务。FTS5索引",
    "ja": "東京タワーの検索、ﾃﾞｰﾀベース々",
    "ja2": "東京と京都へ行く",
    "ko": "실패한 작업을 다시 시도",
    "ko2": unicodedata.normalize("NFD", "데이터베이스"),
    "de": "„Größere Bücher“ über Straßen",
    "de2": unicodedata.normalize("NFD", "Äpfel und Öl"),
    "rare": "𠮷野家",
    "hi": "हिन्दी में",
    "ru": "«Поиск» по тексту: www.example.org",
}

ASKED = """
失败=zh|失败管理=zh|败管=zh|管理 重试=zh|失=zh|理=zh|引=zh|务重试和=zh|失管=|管理失败=|败管败=
FTS5=zh|fts5索引=zh|ＦＴＳ５=zh
東京=ja ja2|タワー=ja|京都=ja2|東京都=|データ=ja|ﾃﾞｰﾀ=ja|々=ja|検索、=ja
실패=ko|작업=ko|도=ko|시도 실패=ko|이터=ko2|데이터베이스=ko2
𠮷=rare|𠮷野=rare|野家=rare|家=rare
bücher=de|BÜCHER größere=de|Äpfel öl=de2|Büch=
हिन्दी=hi|ПОИСК=ru|www.example.org=ru
"""


async def test_chinese_japanese_and_korean_are_found_by_any_part_of_a_run(sink: Any) -> None:
    await sink.write([upsert(key, 1, {"title": text}) for key, text in LANGUAGES.items()])
    asked = dict(one.split("=") for one in ASKED.replace("\n", "|").strip("|").split("|"))
    asked |= {unicodedata.normalize("NFD", text): keys for text, keys in asked.items()}
    found = {text: {hit.document["title"] for hit in await sink.search(text)} for text in asked}
    assert found == {text: {LANGUAGES[key] for key in keys.split()} for text, keys in asked.items()}
    await sink.write([upsert("zh", 2, {"title": "重试"}), delete("ko", 2)])
    assert await sink.search("失败") == [] and await sink.search("작업") == [] and len(await sink.search("重试")) == 1


async def test_a_run_is_found_behind_the_last_position_that_an_index_counts(sink: Any) -> None:
    """A tsvector counts 16,383 positions, and 256 of one word."""
    await sink.write([upsert("long", 1, {"text": "管理" * 9_000 + "失败记录表"}), upsert("short", 1, {"text": "记录"})])
    assert [hit.key for hit in await sink.search("失败记录")] == ["note:long"]


async def test_keys_are_in_byte_order(sink: Any) -> None:
    keys = ["10", "2", "B", "a", "é", "Z:1", "😀", "ab"]
    await sink.write([upsert(key, n) for n, key in enumerate(keys)])
    found = [one async for one in sink.scan()]
    assert [one.key for one in found] == sorted((f"note:{key}" for key in keys), key=str.encode)
    for after in ("note:2", "note:a", "x"):
        assert [one async for one in sink.scan(None, after)] == [one for one in found if one.key > after]


async def test_versions_of_some_keys(sink: Any) -> None:
    await sink.write([upsert(1, 1), upsert(2, 5), upsert("é'", 7)])
    await sink.write([delete(2, 6)])
    found = await sink.find(["note:1", "note:2", "note:é'", "note:no"])
    assert {one.key: one.version for one in found} == {"note:1": 1, "note:é'": 7}
    assert await sink.find([]) == []
    [gone] = await sink.deletions(["note:1", "note:2", "note:no"])
    assert (gone.key, gone.order) == ("note:2", 6)


async def test_a_new_life_is_newer_than_the_delete_before_it(sink: Any) -> None:
    await sink.write([upsert(1, 2)])
    await sink.write([delete(1, 3)])
    assert await sink.write([upsert(1, 1)]) == [Superseded()]
    assert await sink.write([replace(upsert(1, 1), base=4)]) == [Done()]
    [found] = [one async for one in sink.scan()]
    assert (found.version, found.base) == (1, 4)
    assert await sink.write([upsert(1, 4)]) == [Superseded()], "of the life before"
    assert await sink.write([replace(delete(1, 2), base=4)]) == [Done()]
    [gone] = await sink.deletions(["note:1"])
    assert gone.order == 6


async def test_a_rebuild_fills_another_index_and_switches(sink: Any) -> None:
    await sink.write([upsert(1, 1), upsert(2, 1)])
    await sink.create("next")
    await sink.create("next")
    await sink.write([upsert(1, 3)], "next")
    assert await kept(sink) == {"note:1": 1, "note:2": 1} and await kept(sink, "next") == {"note:1": 3}
    await sink.refresh("next")
    await sink.swap("next")
    await sink.swap("next")
    assert await kept(sink) == {"note:1": 3}
    # Whoever has not heard of the switch yet writes by the name.
    assert list(await sink.write([upsert(4, 1)], "next")) == [Done()]
    await sink.drop("next")  # the live one stays
    assert await kept(sink) == {"note:1": 3, "note:4": 1} and len(await sink.search("3")) == 1
    await sink.create("given_up")
    await sink.drop("given_up")
    await sink.drop("given_up")
    await sink.create("third")
    await sink.swap("third")
    assert await kept(sink) == {}


async def test_any_order_and_any_number_of_deliveries_end_the_same(sink: Any) -> None:
    chance = random.Random(7)
    events = [chance.choice([upsert, delete])(key, version) for key in range(20) for version in range(1, 6)]
    newest = {event.key: event for event in events}
    delivered = events * 2
    chance.shuffle(delivered)
    for event in delivered:
        await sink.write([event])
    assert await kept(sink) == {key: e.version for key, e in newest.items() if e.payload is not None}


async def test_more_than_a_page(sink: Any) -> None:
    await sink.write([upsert(f"{n:05d}", n) for n in range(2500)])
    assert len(await kept(sink)) == 2500


async def test_a_poison_document_fails_alone_on_postgresql(empty_postgres_url: str) -> None:
    sink: Any = sink_from_url(f"{empty_postgres_url}?table=documents")
    try:
        words = " ".join(f"w{n:07d}" for n in range(150_000))
        events = [upsert(n, 1) for n in range(50)]
        events[17], events[30] = upsert("nul", 1, {"a": "\0"}), upsert("long", 1, {"a": words})
        verdicts = list(await sink.write(events))
        assert [n for n, verdict in enumerate(verdicts) if verdict != Done()] == [17, 30]
        assert all(isinstance(verdicts[n], Failed) for n in (17, 30))
        assert len(await kept(sink)) == 48
    finally:
        await sink.close()


async def test_people_search_the_view_by_its_index(empty_postgres_url: str) -> None:
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        connection.execute("create schema search")
        sink: Any = sink_from_url(f"{empty_postgres_url}?table=search.notes&language=english")
        await sink.write([upsert(n, 1, {"title": f"Foxes {n}"}) for n in range(3000)])
        assert len(await sink.search("fox", limit=5)) == 5
        connection.execute("analyze")
        question = "select key from search.notes where words @@ plainto_tsquery('english', '2999') and not deleted"
        plan = "\n".join(row[0] for row in connection.execute(f"explain {question}".encode()))
        assert "notes_live_words" in plan, plan
        await sink.close()


@pytest.mark.parametrize("query", ["table=Robert'); drop", "table=a.b.c", "language=no;pe", f"table={'x' * 40}"])
def test_names_that_are_no_names_are_refused(query: str) -> None:
    with pytest.raises(ConfigError):
        sink_from_url(f"postgresql://localhost/x?{query}")


def test_several_event_loops(empty_postgres_url: str) -> None:
    sink: Any = sink_from_url(f"{empty_postgres_url}?table=documents")

    async def write(version: int) -> Any:
        try:
            return list(await sink.write([upsert(1, version)]))
        finally:
            await sink.close()

    assert [asyncio.run(write(version)) for version in (1, 2)] == [[Done()], [Done()]]
