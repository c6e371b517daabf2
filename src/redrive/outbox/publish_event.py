"""Publishes events without an application, in the caller's transaction, by the settings of the process; and what the
helpers for ORMs share."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.features import installed
from redrive.integrations import OwnCommit, apply_on
from redrive.kernel.commit import Commit
from redrive.kernel.task import NewTask
from redrive.outbox.event import event_task
from redrive.outbox.settings import OutboxSettings
from redrive.settings.sources import load_feature


def publish(
    connection: Any,
    projection: str,
    entity_type: str,
    entity_id: str | int | UUID,
    op: str,
    version: int,
    payload: Any = None,
    routing: str | None = None,
) -> UUID | Awaitable[UUID]:
    """Publishes an event in the caller's transaction, without an application: ``outbox.publish(connection, "notes",
    "note", 17, "upsert", 3, {"title": …})``. A blocking connection is answered at once with the event's id, an
    asynchronous one with an awaitable of it."""
    if connection is None:
        raise InvalidInput("outbox.publish needs the connection of your transaction", hint="or: app.outbox.publish(…)")
    tries = configured().max_attempts
    task = event_task(projection, entity_type, entity_id, op, version, payload, routing, max_attempts=tries)
    answers = apply_on(connection, OwnCommit(Commit(enqueues=[task])))
    return _later(answers, task.id) if isinstance(answers, Awaitable) else task.id


async def _later(answers: Awaitable[Sequence[Any]], event_id: UUID) -> UUID:
    await answers
    return event_id


@cache
def configured() -> OutboxSettings:
    """Returns the outbox's settings of this process, as the environment and the file say; they are read once."""
    [outbox] = [feature for feature in installed() if feature.settings is OutboxSettings]
    found = load_feature(outbox)
    assert isinstance(found, OutboxSettings)
    return found


def as_json(value: Any) -> Any:
    """Returns a column's value as JSON has it: times as ISO 8601, numbers that floats cannot hold as text, bytes as
    base64."""
    match value:
        case None | bool() | int() | float() | str():
            return value.value if isinstance(value, Enum) else value
        case Enum():
            return as_json(value.value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal() | UUID():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(bytes(value)).decode()
        case Mapping():
            return {str(key): as_json(one) for key, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [as_json(one) for one in value]
    return str(value)


def check_version(version: Any, what: str) -> int:
    """Returns the version of an entity, if it is one."""
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise InvalidInput(
            f"the version of {what} is {version!r}, not a whole number from 0 on",
            hint="it has to be set before the row is written, and to grow with each change",
        )
    return version


def put(connection: Any, tasks: Sequence[NewTask]) -> None:
    """Puts events into the transaction of a blocking connection."""
    if tasks:
        apply_on(connection, OwnCommit(Commit(enqueues=tasks)))
