"""Events: what happened to an entity, as a sink gets it, and how an event is kept as the payload of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.ids import new_id
from redrive.kernel.payload import encode
from redrive.kernel.task import NewTask, check_int, check_name, check_text

# Kinds and queues are made of the projection's name: pauses, circuits, causes and quotas are per projection.
KIND_PREFIX = "OUTBOX:"
QUEUE_PREFIX = "outbox:"
MOST_VERSION = 2**63 - 1
MOST_NAME = 100  # characters of a projection's
DEFAULT_MAX_ATTEMPTS = 10


class Op(StrEnum):
    """What is done with the document of an entity."""

    UPSERT = "upsert"
    DELETE = "delete"


# Words that applications have for it. Any op can be published; the relay refuses others than these.
OPS: Mapping[str, Op] = {
    "upsert": Op.UPSERT,
    "create": Op.UPSERT,
    "update": Op.UPSERT,
    "index": Op.UPSERT,
    "delete": Op.DELETE,
}


@dataclass(slots=True, frozen=True)
class Event:
    """A change of one entity. Order is by ``order``, not by arrival: the newest wins, in every sink.

    ``order`` is ``version``, unless the entity was deleted, and created anew with a version that it had before: then
    that new life of its key begins behind the delete, at ``base`` (see docs/decisions/outbox.md)."""

    id: UUID  # the task's
    entity_type: str
    entity_id: str
    op: Op
    version: int
    payload: Any = None  # the document (a JSON object) of an upsert
    routing: str | None = None
    base: int = 0  # what the versions of its key's life count from
    # It was published when its key was deleted at this version or a newer one: it is late, or nobody said "create".
    after_delete: bool = False
    # The id of the entity's document in a sink, and the scope of its events. Made once: it is asked for many times.
    key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", key_of(self.entity_type, self.entity_id))

    def fields(self) -> dict[str, Any]:
        """Returns what a receiver gets of it, who compares ``order`` himself."""
        found: dict[str, Any] = {
            "id": str(self.id),
            "entity_type": self.entity_type,
            "entity_id": self.entity_id,
            "op": self.op.value,
            "version": self.version,
            "order": self.order,
            "payload": self.payload,
        }
        return found if self.routing is None else {**found, "routing": self.routing}

    @property
    def order(self) -> int:
        """What sinks compare: of two events of a key the one with the larger number is the newer one."""
        return self.base + self.version


class UnfitEvent(ValueError):
    """What was published is no event. Another attempt would not help."""


def key_of(entity_type: str, entity_id: str) -> str:
    """Returns the key of an entity: its type has no colon, so the first one parts them."""
    return f"{entity_type}:{entity_id}"


def split_key(key: str) -> tuple[str, str]:
    """Returns the entity type and the entity id of a key."""
    entity_type, _, entity_id = key.partition(":")
    return entity_type, entity_id


def check_projection(name: Any) -> str:
    """Returns the name of a projection, if it can be one."""
    if not isinstance(name, str) or len(name) > MOST_NAME:
        raise ValueError(f"the name of a projection has at most {MOST_NAME} characters")
    return check_name(name, "projection")


def kind_of(projection: str) -> str:
    """Returns the kind of a projection's tasks."""
    return f"{KIND_PREFIX}{projection}"


def queue_of(projection: str) -> str:
    """Returns the queue of a projection's tasks."""
    return f"{QUEUE_PREFIX}{projection}"


def projection_of(kind: str) -> str | None:
    """Returns the projection whose tasks are of this kind; None if it is none of the outbox."""
    return kind.removeprefix(KIND_PREFIX) if kind.startswith(KIND_PREFIX) else None


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


def event_of(task_id: UUID, document: Any) -> Event:
    """Returns the event that a task's payload holds; raises UnfitEvent for anything else, since SQL may have put it
    there."""
    if not _is_object(document):
        raise UnfitEvent("the payload of an outbox event is a JSON object; publish it with redrive.publish(…)")
    op = document.get("op")
    if not isinstance(op, str) or op not in OPS:
        raise UnfitEvent(f"Unknown outbox op: {op!r}")
    version = document.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= MOST_VERSION:
        raise UnfitEvent(f"the version of an outbox event is a whole number from 0 on, not {version!r}")
    routing, base = document.get("routing"), document.get("base", 0)
    if isinstance(base, bool) or not isinstance(base, int) or not 0 <= base <= MOST_VERSION - version:
        raise UnfitEvent(f"the base of an outbox event is a whole number from 0 on, not {base!r}")
    body = document.get("payload")
    if OPS[op] is Op.UPSERT and not _is_object(body):
        raise UnfitEvent(f"the payload of an outbox event to {op} is a document (a JSON object)")
    return Event(
        task_id,
        _text(document, "entity_type"),
        _text(document, "entity_id"),
        OPS[op],
        version,
        body,
        None if routing is None else str(routing),
        base,
        document.get("after_delete") is True,
    )


def _is_object(value: Any) -> bool:
    """Returns whether it is a JSON object. A dict nearly always: asking an abstract class takes ten times as long."""
    return type(value) is dict or isinstance(value, Mapping)


def _text(document: Mapping[str, Any], name: str) -> str:
    found = document.get(name)
    if not isinstance(found, str) or not found:
        raise UnfitEvent(f"an outbox event has no {name}")
    return found
