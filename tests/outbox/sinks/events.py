"""Events for tests of sinks."""

from __future__ import annotations

from typing import Any

from redrive.ids import new_id
from redrive.outbox.event import Event, Op


def upsert(key: Any, version: int, payload: Any = None, routing: str | None = None) -> Event:
    return Event(
        new_id(), "note", str(key), Op.UPSERT, version, {"v": version} if payload is None else payload, routing
    )


def delete(key: Any, version: int) -> Event:
    return Event(new_id(), "note", str(key), Op.DELETE, version)
