"""The book: pending, firing, resolved; told once, also when the evaluator changes or somebody was silenced."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta

from redrive.kernel.alerts.book import (
    ENDED_AFTER,
    MOST_ALERTS,
    MOST_NAMED,
    UNOBSERVED,
    Book,
    Message,
    Silence,
    mark_notified,
    read_book,
    silence_over,
    step,
    to_tell,
)
from redrive.kernel.alerts.facts import Answer
from redrive.kernel.alerts.rules import Condition
from redrive.kernel.alerts.slo import Objective, ServiceLevel
from redrive.kernel.diagnosis import Level
from redrive.kernel.documents import to_document
from tests.alerts.cases import NOW

BROKEN = Condition("failed", "q", 3, "queue q has failed tasks: 3", Level.WARNING, 300.0)
ROUND = timedelta(seconds=15)


def rounds(book: Book, until: datetime, *broken: Condition) -> Book:
    """The book after rounds up to this time, in each of which the same is broken."""
    now = book.at or NOW - ROUND
    while now < until:
        now += ROUND
        book = step(read_book(json.loads(json.dumps(to_document(book)))), broken, now)
    return book


def test_it_fires_when_it_was_broken_for_long_enough() -> None:
    book = rounds(Book(), NOW + timedelta(seconds=285), BROKEN)
    assert [alert.state for alert in book.alerts.values()] == ["pending"]
    book = rounds(book, NOW + timedelta(seconds=300), BROKEN)
    [alert] = book.firing
    assert (alert.state, alert.since, alert.fired) == ("firing", NOW, NOW + timedelta(seconds=300))


def test_what_was_not_broken_for_long_enough_leaves_without_a_word() -> None:
    book = rounds(rounds(Book(), NOW + timedelta(minutes=4), BROKEN), NOW + timedelta(minutes=5))
    assert not book.alerts and not book.ended


def test_it_ends_when_it_is_not_broken_any_more_for_a_while() -> None:
    fired = rounds(Book(), NOW + timedelta(minutes=6), BROKEN)
    at = fired.at
    assert at is not None
    moment = rounds(fired, at + ROUND)
    assert [alert.state for alert in moment.alerts.values()] == ["firing"]
    assert rounds(moment, at + 2 * ROUND, BROKEN).firing[0].gone is None, "a moment is no end"
    ended = rounds(fired, at + ROUND + ENDED_AFTER)
    assert not ended.alerts and [alert.state for alert in ended.ended] == ["resolved"]


def test_time_in_which_nobody_looked_is_not_counted() -> None:
    pending = rounds(Book(), NOW + timedelta(minutes=4), BROKEN)
    late = step(pending, [BROKEN], NOW + timedelta(minutes=4) + UNOBSERVED + ROUND)
    assert [alert.state for alert in late.alerts.values()] == ["pending"]
    firing = rounds(Book(), NOW + timedelta(minutes=6), BROKEN)
    later = step(firing, [BROKEN], NOW + timedelta(hours=6))
    assert later.firing[0].fired == firing.firing[0].fired, "what fired goes on"


def test_each_is_told_once_and_its_end_once() -> None:
    before = rounds(Book(), NOW + timedelta(minutes=5), BROKEN)
    assert before.at is not None
    told = to_tell(Book(), before, [], before.at)
    assert [alert.key for alert in told] == ["failed:q"]
    marked = mark_notified(before, told)
    again = rounds(marked, before.at + ROUND, BROKEN)
    assert to_tell(marked, again, [], before.at + ROUND) == []
    gone = rounds(again, before.at + 2 * ROUND)
    over = step(gone, [], before.at + 2 * ROUND + ENDED_AFTER)
    assert [alert.state for alert in to_tell(gone, over, [], over.at or NOW)] == ["resolved"]
    assert to_tell(over, step(over, [], NOW + timedelta(hours=1)), [], NOW) == []


def test_the_end_says_what_it_was_and_how_long() -> None:
    fired = rounds(Book(), NOW + timedelta(minutes=12), BROKEN)
    over = rounds(fired, NOW + timedelta(minutes=14))
    assert [one.sentence for one in over.ended] == ["ended after 12 min; it was: queue q has failed tasks: 3"]
    assert fired.firing[0].sentence == "queue q has failed tasks: 3"


def test_of_two_silences_the_one_that_holds_longest_counts() -> None:
    [alert] = rounds(Book(), NOW + timedelta(minutes=5), BROKEN).firing
    short, long, other = (
        Silence("failed", queue, NOW + timedelta(hours=hours), "ann", "known", NOW)
        for queue, hours in (("", 1), ("q", 8), ("x", 9))
    )
    assert silence_over(alert, [short, long, other], NOW) == long
    assert silence_over(alert, [short, other], NOW + timedelta(hours=2)) is None


def test_the_end_of_what_nobody_was_told_is_not_told() -> None:
    fired = rounds(Book(), NOW + timedelta(minutes=5), BROKEN)
    assert fired.at is not None
    gone = rounds(fired, fired.at + ROUND)
    over = step(gone, [], fired.at + ROUND + ENDED_AFTER)
    assert over.ended and to_tell(gone, over, [], NOW) == []


def test_a_silence_keeps_quiet_until_it_ends() -> None:
    book = rounds(Book(), NOW + timedelta(minutes=5), BROKEN)
    now = NOW + timedelta(minutes=5)
    for queue, quiet in (("q", True), ("", True), ("other", False)):
        silence = Silence("failed", queue, now + timedelta(hours=1), "ann", "known", now)
        assert (to_tell(book, book, [silence], now) == []) is quiet
        assert to_tell(book, book, [silence], now + timedelta(hours=2)), "told when it is over"
    other = Silence("depth", "", now + timedelta(hours=1), "ann", "known", now)
    assert to_tell(book, book, [other], now)


def test_the_worst_come_first() -> None:
    worse = replace(BROKEN, rule="depth", level=Level.CRITICAL, hold=0.0)
    book = rounds(Book(), NOW + timedelta(minutes=6), BROKEN, worse)
    assert [alert.rule for alert in book.firing] == ["depth", "failed"]


def test_many_queues_of_one_rule_push_out_neither_what_is_known_nor_other_rules() -> None:
    own = replace(BROKEN, queue="z", value=1, hold=0.0)
    book = rounds(Book(), NOW, own)
    many = [replace(BROKEN, queue=f"a{n:03}", value=n, hold=0.0) for n in range(600)]
    at_risk = replace(BROKEN, rule="ledger_at_risk", queue="", hold=0.0)
    book = rounds(book, NOW + ROUND, *many, own, at_risk)
    assert len(book.alerts) == MOST_NAMED + 2 and book.dropped == 0
    assert book.alerts["failed:z"].gone is None and book.alerts["ledger_at_risk"].fired is not None
    assert "failed:a599" in book.alerts, "the worst are named"
    assert book.alerts["failed"].text == "20 queues are named, and 581 more have the same: a580, a579, a578, …"
    assert (book.alerts["failed"].value, book.alerts["failed"].queue) == (581, "")
    later = rounds(book, NOW + 2 * ROUND, *many[:21], own, at_risk)
    assert later.alerts["failed:a599"].gone is not None and "failed:a020" in later.alerts


def test_those_that_are_named_stay_named() -> None:
    """Else each change of a number would end some and begin others, and tell of both."""
    many = [replace(BROKEN, queue=f"a{n:03}", value=n, hold=0.0) for n in range(100)]
    book = rounds(Book(), NOW, *many)
    turned = [replace(one, value=100 - one.value) for one in many]
    assert rounds(book, NOW + ROUND, *turned).alerts.keys() == book.alerts.keys()


def test_too_many_rules_are_counted() -> None:
    rules = [replace(BROKEN, rule=f"own{n}", queue="q", hold=0.0) for n in range(MOST_ALERTS)]
    book = rounds(Book(), NOW, *rules, replace(BROKEN, rule="stuck", queue="", hold=0.0))
    assert "stuck" in book.alerts and book.dropped == 1
    more = [replace(BROKEN, rule=rule, queue="", hold=0.0) for rule in ("stuck", "horizon")]
    after = rounds(book, NOW + ROUND, *rules, *more)
    assert after.alerts.keys() == book.alerts.keys(), "none that is known is taken for ended"
    assert read_book(json.loads(json.dumps(to_document(book)))).dropped == 1


def test_it_is_read_as_it_was_written_and_what_somebody_has_rewritten_is_empty() -> None:
    book = rounds(Book(by="w1"), NOW + timedelta(minutes=6), BROKEN)
    message = Message("1", NOW, NOW, ("webhook",), tuple(book.firing))
    full = replace(book, messages=[message], depths={"q": [(NOW, 7)]}, counted={"q": (3, 1)}, chain="x", chain_at=NOW)
    assert read_book(json.loads(json.dumps(to_document(full)))) == full
    assert read_book({"alerts": 5}) == read_book({"alerts": [{}]}) == read_book(None) == Book()


def test_a_book_from_before_the_first_release_is_read() -> None:
    book = rounds(Book(), NOW + timedelta(minutes=6), BROKEN)
    objective = Objective(10.0, 0.9, 7)
    book = replace(book, answers={"own": Answer(2.0, None, NOW)}, services={"q": ServiceLevel(objective, good=5)})
    former = to_document(book)
    former["alerts"] = list(former["alerts"].values())
    former["answers"] = {"own": [2.0, None, NOW.isoformat()]}
    former["services"]["q"]["objective"] = [10.0, 0.9, 7]
    assert book.alerts and read_book(json.loads(json.dumps(former))) == read_book(to_document(book))
