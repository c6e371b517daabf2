"""Publishes events without an application, in the caller's transaction, by the settings of the process."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import cache
from typing import Any
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.features import installed
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
    from redrive.integrations import OwnCommit, apply_on
    from redrive.kernel.commit import Commit

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
