"""Events for tests, and what a sink has."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from redrive.outbox.event import Event, Op
from redrive.outbox.sinks.search_index import SearchIndex


def upsert(entity_id: Any, version: int, payload: Any = None, routing: str | None = None) -> Event:
    document = {"title": f"note {entity_id}", "size": version} if payload is None else payload
    return Event(uuid4(), "note", str(entity_id), Op.UPSERT, version, document, routing)


def delete(entity_id: Any, version: int, routing: str | None = None) -> Event:
    return Event(uuid4(), "note", str(entity_id), Op.DELETE, version, None, routing)


async def stored(sink: SearchIndex, index: str | None = None, after: str = "") -> Any:
    """Returns versions by key, in the order of the scan."""
    await sink.refresh(index)
    return {one.key: one.version async for one in sink.scan(index, after)}
