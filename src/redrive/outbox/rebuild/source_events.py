"""Makes the events that a rebuild writes: of a source's records, and of deletes that the live index remembers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redrive.ids import new_id
from redrive.outbox.event import Event, Op, split_key
from redrive.outbox.relay.lives import event_of_record
from redrive.outbox.source import Record

if TYPE_CHECKING:
    from redrive.outbox.projection import Projection


def events_of_records(projection: Projection, records: Sequence[tuple[Record, int]]) -> tuple[list[Event], list[str]]:
    """Returns the events of records with the bases of their lives, and those of their keys of which the application's
    document= makes none, with why."""
    events, unfit = list[Event](), list[str]()
    for record, base in records:
        try:
            events.append(event_of_record(projection, record, base))
        except Exception as error:
            unfit.append(f"{record.key}: {type(error).__name__}: {error}"[:300])
    return events, unfit


def delete_of(key: str, version: int, base: int = 0) -> Event:
    """Returns the event that deletes a document by its key."""
    return Event(new_id(), *split_key(key), Op.DELETE, version, base=base)
