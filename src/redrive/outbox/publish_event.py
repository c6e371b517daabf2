"""Publishes events: makes tasks of them, and puts these into the caller's transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import cache
from typing import Any
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.features import installed
from redrive.ids import new_id
from redrive.kernel.payload import encode
from redrive.kernel.task import NewTask, check_int, check_text
from redrive.outbox.event import MOST_VERSION, key_of, kind_of, queue_of
from redrive.outbox.settings import DEFAULT_MAX_ATTEMPTS, OutboxSettings, check_projection
from redrive.settings.sources import load_feature


def event_task(
    projection: str,
    entity_type: str,
    entity_id: str | int | UUID,
    op: str,
    version: int,
    payload: Any = None,
    routing: str | None = None,
    *,
    base: int = 0,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
) -> NewTask:
    """Returns the task of an event, for a Commit or the effects of a reaction. Any op can be published; the relay
    refuses those that it does not know, each by itself. ``base`` is that of its key's life, of which the store takes
    care, unless a repair knows better."""
    try:
        check_projection(projection)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    if not isinstance(entity_type, str) or not entity_type or ":" in entity_type:
        raise InvalidInput(
            f"the entity type {entity_type!r} cannot be used", hint="a word without a colon, such as 'note'"
        )
    if not isinstance(op, str) or not op or len(op) > 40:
        raise InvalidInput(f"op must be a word such as 'upsert' or 'delete', not {op!r}")
    if entity_id is None or entity_id == "":
        raise InvalidInput(
            "the entity has no id",
            hint="entity_id is the key of the row, as text; an object of an ORM has one when it was flushed or saved",
        )
    document: dict[str, Any] = {
        "entity_type": entity_type,
        "entity_id": str(entity_id),
        "op": op,
        "version": check_int(version, "version", 0, MOST_VERSION),
        "payload": payload,
    }
    if routing is not None:
        document["routing"] = check_text(routing, "routing")
    if base:
        document["base"] = base
    return NewTask(
        new_id(),
        kind_of(projection),
        queue_of(projection),
        encode(document),
        max_attempts=max_attempts,
        scope=check_text(key_of(entity_type, document["entity_id"]), "entity"),
    )


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
