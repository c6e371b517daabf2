"""Answers are written in bounded pieces."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from redrive.api import encode
from redrive.kernel.payload import JsonText
from redrive.ops.views import View


async def text(value: Any) -> Any:
    return json.loads(b"".join([piece async for piece in encode.chunks(value)]))


async def test_values() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    view = View(
        task_id=UUID(int=1),
        created_at=at,
        none=None,
        totals={"not_ours": 1},
        items=[View(a_b=1), View(a_b=2)],
        empty=[],
        payload=JsonText('{"stays_as": "it is"}'),
        made=iter([View(x=1)]),
    )
    assert await text(view) == {
        "taskId": str(UUID(int=1)),
        "createdAt": "2026-01-02T03:04:05Z",
        "none": None,
        "totals": {"not_ours": 1},
        "items": [{"aB": 1}, {"aB": 2}],
        "empty": [],
        "payload": {"stays_as": "it is"},
        "made": [{"x": 1}],
    }
    assert await text(View()) == {} and await text(iter([])) == [] and await text(None) is None
    assert await text(View(only=JsonText("1"))) == {"only": 1}


async def test_no_piece_is_long_and_no_call_gets_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 tasks of a mebibyte: the encoder gets what is not a document, and the text is never put together."""
    given: list[int] = []
    whole = encode._encode

    def counted(value: Any) -> str:
        found = whole(value)
        given.append(len(found))
        return found

    monkeypatch.setattr(encode, "_encode", counted)
    document = JsonText(json.dumps("é" * 2**20, ensure_ascii=False))
    longest = total = 0
    async for piece in encode.chunks(View(tasks=(View(id=n, payload=document) for n in range(300)))):
        longest, total = max(longest, len(piece)), total + len(piece)
    assert total > 300 * 2 * 2**20
    assert longest <= 4 * encode.CHUNK_CHARS * math.ceil(2)
    assert max(given) < 1000 and len(given) == 301


async def test_short_answers_are_not_streamed() -> None:
    short = await encode.json_answer(tasks=[View(id=1)])
    assert short.body == b'{"tasks":[{"id":1}]}' and short.headers["content-length"] == "20"
    long = await encode.json_answer(status=201, payload=JsonText(json.dumps("x" * 200_000)))
    assert long.status_code == 201 and "content-length" not in long.headers
