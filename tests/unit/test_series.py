"""The product's own time series: counts add up, percentiles stay within their buckets, and there are only so many."""

from __future__ import annotations

import copy
import json
from bisect import bisect_left
from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.kernel.series import (
    ALL,
    BOUNDS,
    BUCKETS,
    OTHER,
    Cell,
    Document,
    Resolution,
    SeriesQuery,
    Sums,
    Tally,
    add,
    admit,
    from_document,
    quantile,
    read,
    write,
)

NOW = datetime(2026, 3, 1, 23, 59, 59, 900_000, tzinfo=UTC)
numbers = st.integers(0, 10**9)
buckets = st.lists(st.integers(0, 10**6), min_size=BUCKETS, max_size=BUCKETS)
names = st.dictionaries(st.sampled_from(["network", "timeout", "data"]), st.integers(1, 10**6))
tallies = st.builds(
    Tally,
    *[numbers] * 5,
    failures=names,
    wait=buckets,
    wait_ms=numbers,
    run=buckets,
    run_ms=numbers,
    samples=numbers,
    depth=names,
    oldest=st.none() | st.integers(0, 10**6).map(float),
)
seconds = st.floats(0, 10**6)


def total(*parts: Document) -> Document:
    found: Document = {}
    for part in parts:
        add(found, part)
    return found


documents = tallies.map(Tally.document)


@settings(max_examples=30, deadline=None)
@given(documents, documents, documents)
def test_the_order_of_adding_does_not_matter(a: Document, b: Document, c: Document) -> None:
    before = copy.deepcopy((a, b, c))
    assert total(total(a, b), c) == total(a, total(b, c)) == total(c, b, a)
    assert (a, b, c) == before, "what is added stays as it is"


@settings(max_examples=30, deadline=None)
@given(tallies, tallies)
def test_adding_documents_adds_what_was_counted(a: Tally, b: Tally) -> None:
    found = from_document(total(a.document(), b.document()))
    assert (found.completed, found.run_ms) == (a.completed + b.completed, a.run_ms + b.run_ms)
    assert found.wait == [x + y for x, y in zip(a.wait, b.wait, strict=True)]
    assert found.failures == dict(Counter(a.failures) + Counter(b.failures))
    assert found.oldest == max((x for x in (a.oldest, b.oldest) if x is not None), default=None)


@settings(max_examples=30, deadline=None)
@given(tallies)
def test_a_tally_is_read_as_it_was_written(tally: Tally) -> None:
    [(at, key, document)] = read(write({("q", "k"): tally}), NOW)
    assert (at, key, from_document(document)) == (NOW, ("q", "k"), tally)


def test_a_document_says_nothing_of_zeros_and_is_read_by_other_versions() -> None:
    tally = Tally(completed=2)
    tally.ran(3.0)
    assert json.loads(json.dumps(tally.document())) == {"completed": 2, "run": {"2": 1}, "run_ms": 3}
    assert from_document({"completed": 2, "shiny": 1, "run": {"99": 1}}).run[-1] == 1


@settings(max_examples=30, deadline=None)
@given(st.lists(seconds, min_size=1), st.integers(0, 100))
def test_a_percentile_is_bounded_by_the_edges_of_its_bucket(values: list[float], percent: int) -> None:
    tally = Tally()
    for value in values:
        tally.waited(value)
        tally.ran(value * 1000)
    found = quantile(tally.wait, percent / 100)
    assert found is not None and sum(tally.wait) == sum(tally.run) == len(values)
    place = bisect_left(BOUNDS, found)
    rank = percent / 100 * len(values)
    assert sum(value <= BOUNDS[place] for value in values) >= rank or found == BOUNDS[-1]
    assert sum(value <= ([0.0, *BOUNDS][place]) for value in values if place) <= rank


def test_a_percentile_is_linear_in_its_bucket_and_honest_about_the_last() -> None:
    tally = Tally()
    for _ in range(4):
        tally.waited(0.7)
    assert quantile(tally.wait, 0.5) == pytest.approx(0.75)  # half of the way from 0.5 to 1 second
    assert quantile([0] * len(BOUNDS) + [5], 0.5) == BOUNDS[-1]
    assert quantile([0] * BUCKETS, 0.5) is None


def test_steps_begin_where_the_clock_says() -> None:
    starts = [resolution.start(NOW) for resolution in Resolution]
    assert [start.isoformat()[:16] for start in starts] == ["2026-03-01T23:59", "2026-03-01T23:00", "2026-03-01T00:00"]
    assert Resolution.MINUTE.start(NOW + timedelta(milliseconds=100)) == datetime(2026, 3, 2, tzinfo=UTC)
    east = NOW.astimezone(ZoneInfo("Asia/Kolkata"))
    assert Resolution.DAY.start(east) == Resolution.DAY.start(NOW)


def test_one_thing_counts_for_its_kind_its_queue_and_everything() -> None:
    found = Sums([(NOW, ("q", "a"), {"completed": 2}), (NOW, ("q", "b"), {"completed": 3})]).cells()
    minute = Resolution.MINUTE.start(NOW)
    counts = {(c.queue, c.kind): d["completed"] for c, d in found.items() if c.resolution is Resolution.MINUTE}
    assert counts == {("q", "a"): 2, ("q", "b"): 3, ("q", ALL): 5, (ALL, ALL): 5}
    assert len(found) == 3 * len(counts)
    assert {c.at for c in found if c.resolution is Resolution.MINUTE} == {minute}


def test_there_are_only_so_many_series() -> None:
    known = {("q", "a"), ("q", "b")}
    found = admit([("q", "a"), ("q", "c"), ("q", "d"), ("r", "c")], known, most=3)
    assert found == {
        ("q", "a"): ("q", "a"),
        ("q", "c"): ("q", "c"),
        ("q", "d"): ("q", OTHER),
        ("r", "c"): (OTHER, OTHER),
    }


@settings(max_examples=30, deadline=None)
@given(st.sets(st.tuples(st.sampled_from("pqrs"), st.text("abc", min_size=1, max_size=3))), st.integers(0, 20))
def test_however_many_there_are(keys: set[tuple[str, str]], most: int) -> None:
    found = admit(sorted(keys), most=most)
    own = {key for key in found.values() if key[1] != OTHER}
    assert set(found) == keys and len(own) <= most
    assert len(set(found.values())) <= 2 * most + 1


@pytest.mark.parametrize(
    ("queue", "kind", "wanted"),
    [
        (None, None, {(ALL, ALL)}),
        ("q", None, {(ALL, ALL), ("q", ALL)}),
        (None, "a", {(ALL, ALL), ("q", "a"), ("r", "a")}),
        ("q", "a", {(ALL, ALL), ("q", "a")}),
    ],
)
def test_a_query_fits_its_rows(queue: str | None, kind: str | None, wanted: set[tuple[str, str]]) -> None:
    minute = Resolution.MINUTE.start(NOW)
    keys = [(ALL, ALL), ("q", ALL), ("r", ALL), ("q", "a"), ("r", "a"), ("q", "b")]
    query = SeriesQuery(Resolution.MINUTE, minute, queue, kind)
    assert {key for key in keys if query.fits(Cell(Resolution.MINUTE, minute, *key))} == wanted
    assert not query.fits(Cell(Resolution.HOUR, minute, ALL, ALL))
    assert not query.fits(Cell(Resolution.MINUTE, minute - timedelta(minutes=1), ALL, ALL))
