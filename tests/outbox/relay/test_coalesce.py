"""Which events of an entity are sent, and what becomes of the others."""

from __future__ import annotations

from uuid import UUID

from redrive.outbox.event import Event, Op
from redrive.outbox.sink_writer import by_entity, worst
from redrive.outbox.verdict import Done, Failed, Retry, Superseded


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
