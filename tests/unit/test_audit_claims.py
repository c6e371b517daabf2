"""Removals are found by the stretch they tell of, however many there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.ops.audit_claims import Claims
from redrive.ops.audit_rows import parse_ranges, ranges

SPANS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 30)), max_size=12)


@given(SPANS, st.integers(1, 60), st.integers(0, 20))
def test_spans_that_meet_a_stretch(spans: list[tuple[int, int]], first: int, length: int) -> None:
    claims = Claims(None)  # type: ignore[arg-type]
    claims._spans = {row: (low, low + more, "") for row, (low, more) in enumerate(spans, 1)}
    last = first + length
    wanted = [row for row, (low, more) in enumerate(spans, 1) if low <= last and low + more >= first]
    assert claims._overlapping(first, last) == wanted


@given(st.sets(st.integers(1, 500)))
def test_ranges_there_and_back(numbers: set[int]) -> None:
    ordered = sorted(numbers)
    assert (parse_ranges(ranges(ordered)) if ordered else []) == ordered
