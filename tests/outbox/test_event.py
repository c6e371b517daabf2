"""Events as they are published and read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from redrive.errors import InvalidInput
from redrive.outbox.event import Op, UnfitEvent, event_of, event_task, key_of, split_key

DOCUMENT = {"entity_type": "note", "entity_id": "1", "op": "update", "version": 3, "payload": {"a": 1}}


@pytest.mark.parametrize("entity_id", [None, ""])
def test_what_has_no_id_is_refused(entity_id: Any) -> None:
    """An object that was not flushed has none: all such would be one document."""
    with pytest.raises(InvalidInput, match="the entity has no id"):
        event_task("notes", "note", entity_id, "upsert", 1, {}, max_attempts=1)


@pytest.mark.parametrize(
    "changed",
    [
        *({"op": "not-a-real-op"}, {"op": None}, {"entity_type": 5}, {"entity_id": ""}, {"payload": None}),
        *({"version": -1}, {"version": "3"}, {"version": True}, {"version": 2**63}, {"payload": [1]}),
    ],
)
def test_what_is_no_event_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(UnfitEvent):
        event_of(UUID(int=1), {**DOCUMENT, **changed})
    with pytest.raises(UnfitEvent):
        event_of(UUID(int=1), [DOCUMENT])


def test_words_for_ops() -> None:
    assert event_of(UUID(int=1), DOCUMENT).op is Op.UPSERT
    assert event_of(UUID(int=1), {**DOCUMENT, "op": "delete", "payload": None}).op is Op.DELETE
    with pytest.raises(UnfitEvent, match=r"^Unknown outbox op: 'not-a-real-op'$"):
        event_of(UUID(int=1), {**DOCUMENT, "op": "not-a-real-op"})


def test_what_is_published_is_checked() -> None:
    task = event_task("notes", "note", 17, "anything", 3, {"a": 1})
    assert (task.kind, task.queue, task.scope, task.max_attempts) == ("OUTBOX:notes", "outbox:notes", "note:17", 10)
    for wrong in (("note:s", 1, "upsert", 1), ("note", "", "upsert", 1), ("note", 1, "", 1), ("note", 1, "upsert", -1)):
        with pytest.raises(InvalidInput):
            event_task("notes", *wrong)  # type: ignore[arg-type]
    for name in ("a b", "", "n" * 101):
        with pytest.raises(InvalidInput):
            event_task(name, "note", 1, "upsert", 1)


def test_a_key_is_parted_at_its_first_colon() -> None:
    for parts in (("note", "17"), ("note", "a:b"), ("note", ":")):
        assert split_key(key_of(*parts)) == parts
