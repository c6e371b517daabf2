"""A Redis stream: each event is an entry, with its version and op.

Whoever reads the stream gets events at least once and in any order, and has to compare ``order``, also with that of
what was deleted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from redis import asyncio as redis
from redis import exceptions

from redrive.errors import ConfigError
from redrive.outbox.event import Event
from redrive.outbox.sink import PerLoop
from redrive.outbox.verdict import Done, Retry, Verdict

TIMEOUT_S = 30.0


def from_url(url: str) -> RedisStream:
    """Returns the sink of ``redis://user:password@host:6379/0?stream=notes&maxlen=100000``; other options are those of
    the client."""
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    stream, most = options.pop("stream", [""])[-1], options.pop("maxlen", [None])[-1]
    if not stream:
        raise ConfigError("the URL of a Redis sink names no stream", hint="redis://host:6379/0?stream=notes")
    if most is not None and not (most.isdigit() and int(most)):
        raise ConfigError("maxlen of a Redis sink is a number of entries")
    rest = parts._replace(query=urlencode(options, doseq=True)).geturl()
    return RedisStream(rest, stream, maxlen=None if most is None else int(most))


class RedisStream:
    """A stream. ``maxlen``: about so many entries are kept, the oldest go first, read or not."""

    remembers_deletes = False
    compares_versions = False

    def __init__(self, url: str, stream: str, *, maxlen: int | None = None, **options: Any) -> None:
        self._stream, self._maxlen = stream, maxlen
        given = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S, **options}
        self._clients: PerLoop[Any] = PerLoop(lambda: redis.Redis.from_url(url, **given))

    async def write(self, events: Sequence[Event], index: str | None = None) -> Sequence[Verdict]:
        pipeline = self._clients.get().pipeline(transaction=False)
        for event in events:
            pipeline.xadd(self._stream, _entry(event), maxlen=self._maxlen, approximate=True)
        return [_verdict(one) for one in await pipeline.execute(raise_on_error=False)]

    async def check(self) -> None:
        await self._clients.get().ping()

    async def close(self) -> None:
        if (client := self._clients.take()) is not None:
            await client.aclose()


def _entry(event: Event) -> dict[str, str | int]:
    payload = json.dumps(event.payload, ensure_ascii=False, separators=(",", ":"))
    return {**event.fields(), "payload": payload}


def _verdict(answer: Any) -> Verdict:
    """Returns what the server said of one entry. It refuses none for what is in it: it is full, read-only, loading, or
    the key is something else, which an operator can fix."""
    if not isinstance(answer, Exception):
        return Done()
    if isinstance(answer, exceptions.ConnectionError | exceptions.TimeoutError):
        raise answer
    return Retry("unavailable", f"{type(answer).__name__}: {answer}")
