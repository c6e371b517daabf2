"""Encodes answers as JSON text, in bounded pieces: a long page is written while others are served.

Models describe what comes out (``redrive.api.models``, for the OpenAPI document and the tests against it); they are not
built for it. Documents of tasks go through as the text that the store keeps. So the longest single call is the encoding
of one thing without its documents.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from starlette.responses import Response, StreamingResponse

from redrive.kernel.payload import JsonText
from redrive.ops.views import View

CHUNK_CHARS = 65_536  # characters, between two turns of the loop
_camel = cache(to_camel)


def _other(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, UUID | Enum):
        return str(value)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    if isinstance(value, BaseModel):  # a small part of a large answer
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} has no place in an answer")


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_other).encode


async def json_answer(status: int = 200, **parts: Any) -> Response:
    """Returns a response with an object of these parts; a part may be a value, a ``View``, or a list (an iterable, made
    as it is written) of views."""
    return await respond(View(parts), status)


async def respond(value: Any, status: int = 200) -> Response:
    """Returns a response: whole if it is short, streamed if it is not."""
    pieces = chunks(value)
    first = await anext(pieces, b"")
    second = await anext(pieces, None)
    if second is None:
        return Response(first, status, media_type="application/json")

    async def rest() -> AsyncIterator[bytes]:
        yield first
        yield second
        async for piece in pieces:
            yield piece

    return StreamingResponse(rest(), status, media_type="application/json")


async def chunks(value: Any) -> AsyncIterator[bytes]:
    """Yields the text of a value, at most about ``CHUNK_CHARS`` at a time, with a turn for others after each."""
    gathered, length = list[str](), 0
    for piece in pieces(value):
        gathered.append(piece)
        length += len(piece)
        if length >= CHUNK_CHARS:
            yield "".join(gathered).encode()
            gathered, length = [], 0
            await asyncio.sleep(0)
    if gathered:
        yield "".join(gathered).encode()


def pieces(value: Any) -> Iterator[str]:
    """Yields the text of a value in pieces, none longer than one thing without its documents, or a part of a
    document."""
    if isinstance(value, JsonText):
        yield from _slices(value)
    elif isinstance(value, View):
        yield from _object(value)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        yield "["
        for number, one in enumerate(value):
            if number:
                yield ","
            yield from pieces(one)
        yield "]"
    else:
        yield _encode(value)


def _object(view: View) -> Iterator[str]:
    """Yields an object: what is short in one go, documents and further views one by one."""
    plain = {_camel(name): value for name, value in view.items() if not _has_more(value)}
    yield "{" + _encode(plain)[1:-1]
    comma = "," if plain else ""
    for name, value in view.items():
        if _has_more(value):
            yield f'{comma}"{_camel(name)}":'
            yield from pieces(value)
            comma = ","
    yield "}"


def _has_more(value: Any) -> bool:
    if isinstance(value, JsonText | View):
        return True
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], JsonText | View)
    return isinstance(value, Iterator)


def _slices(text: str) -> Iterator[str]:
    for start in range(0, len(text), CHUNK_CHARS):
        yield text[start : start + CHUNK_CHARS]
