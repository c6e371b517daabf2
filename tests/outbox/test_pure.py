"""What is decided without a sink: which events are sent, in requests of which size."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from redrive.errors import ConfigError, InvalidInput
from redrive.kernel.backoff import Backoff
from redrive.outbox.coalesce import by_entity, worst
from redrive.outbox.digest import digest_of
from redrive.outbox.event import Event, Op, UnfitEvent, event_of
from redrive.outbox.pacing import Brake, Pace
from redrive.outbox.publishing import event_task
from redrive.outbox.sink import Stored
from redrive.outbox.sinks import sink_from_url
from redrive.outbox.verdict import Done, Failed, Retry, Superseded

DOCUMENT = {"entity_type": "note", "entity_id": "1", "op": "update", "version": 3, "payload": {"a": 1}}


def event(n: int, entity: str, version: int) -> Event:
    return Event(UUID(int=n), "note", entity, Op.UPSERT, version, {})


def test_the_newest_of_an_entity_comes_first() -> None:
    one, other = by_entity([event(1, "a", 5), event(2, "b", 1), event(3, "a", 7), event(4, "a", 5)])
    assert [each.id.int for each in one.events] == [3, 4, 1] and other.newest.entity_id == "b"


def test_older_ones_follow_the_newest() -> None:
    for verdict, follows in ((Done(), Superseded()), (Superseded(), Superseded()), (Retry("connect", "x"),) * 2):
        [entity] = by_entity([event(1, "a", 1), event(2, "a", 2)])
        assert entity.told(verdict) == {UUID(int=2): verdict, UUID(int=1): follows}
        assert entity.events == []


def test_one_that_never_will_be_written_leaves_its_place_to_the_next() -> None:
    [entity] = by_entity([event(1, "a", 1), event(2, "a", 2)])
    never = Failed("http_4xx", "x")
    assert entity.told(never) == {UUID(int=2): never}
    assert entity.newest.version == 1


def test_an_event_is_done_when_all_indexes_have_it() -> None:
    retry, never = Retry("connect", "x"), Failed("http_4xx", "x")
    assert worst([Done(), Superseded()]) == Done()
    assert worst([Superseded(), Superseded()]) == Superseded()
    assert worst([Done(), retry]) == retry
    assert worst([retry, never]) == never


def test_requests_shrink_and_grow_back() -> None:
    pace = Pace(500, 1000, 5.0)
    assert pace.cut([1] * 600) == 500
    assert pace.cut([400, 400, 400]) == 2 and pace.cut([5000]) == 1
    pace.was_too_large(500, 800)
    assert (pace.events, pace.bytes) == (250, 400)
    pace.took(250, 6.0)
    assert pace.events == 125
    pace.took(125, 4.0)
    assert pace.events == 125, "neither slow nor quick"
    for _ in range(20):
        pace.took(pace.events, 0.1)
    assert (pace.events, pace.bytes) == (500, 1000)
    for _ in range(20):
        pace.was_too_large(1, 1)
    assert (pace.events, pace.bytes) == (1, 1)


def test_a_sink_that_is_down_is_left_alone_for_longer_each_time() -> None:
    brake = Brake(Backoff(1.0, 60.0))
    assert brake.wait(0.0) == 0.0
    now, requests = 0.0, 0
    while now < 120.0:
        now += brake.wait(now)
        requests += 1
        brake.failed(now, 0.5)
        brake.failed(now, 0.5)  # another that was under way
    assert requests == 9, "the last one after the two minutes"
    assert 0 < brake.wait(now) <= 60.0, "it is tried again within one backoff"
    brake.succeeded()
    assert brake.wait(now) == 0.0


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


def test_a_digest_does_not_depend_on_the_order() -> None:
    one, other = Stored("note:1", 1), Stored("note:2", 2)
    assert digest_of([one, other]) == digest_of([other, one]) != digest_of([one, Stored("note:2", 3)])
    assert digest_of([]).count == 0


def test_sinks_by_url() -> None:
    for url in ("ftp://a:secret@b/c", "search.db"):
        with pytest.raises(ConfigError, match="there is no sink") as refused:
            sink_from_url(url)
        assert "secret" not in str(refused.value)
    with pytest.raises(ConfigError, match="names no file"):
        sink_from_url("fts5://search.db")
