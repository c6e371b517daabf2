"""The state machine of circuits: when one opens, what a probe decides, and that its delays grow and are bounded."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import Circuit
from redrive.errors import InvalidInput
from redrive.kernel.circuit import (
    CircuitRow,
    SetCircuit,
    Window,
    circuit_of,
    close,
    declare,
    is_down,
    probe_now,
    probed,
    trip,
)
from redrive.kernel.failure import failure_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TERMS = Circuit("far", failures=3, delay=4.0, max_delay=60.0)
ROW = CircuitRow("far", 7, ("A",), False, NOW, opened=2)


def applied(change: SetCircuit, row: CircuitRow | None, now: datetime = NOW) -> CircuitRow:
    """Does what a store does with a change."""
    assert change.version == (0 if row is None else row.version)
    until = row.until if row is not None and change.wait is None else None
    if change.wait is not None:
        until = now + timedelta(seconds=change.wait)
    same = row is not None and row.open == change.open
    return CircuitRow(
        change.name,
        change.version + 1,
        change.kinds,
        change.open,
        row.since if row is not None and same else now,
        until if change.open else None,
        change.reason,
        change.actor,
        change.failed_probes,
        change.opened,
    )


def test_with_a_ratio_it_opens_by_the_share_of_the_last_seconds() -> None:
    terms = replace(TERMS, failures=5, ratio=0.5, window=10.0)
    window = Window()
    found = [window.note(terms, at * 0.1, at % 2 == 0) for at in range(20)]
    assert found.index(True) == 8, "the fifth that failed, of nine"
    window.clear()
    slowly = [window.note(terms, at * 3.0, at % 2 == 0) for at in range(40)]
    assert not any(slowly), "never five within ten seconds"


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 6))
def test_in_a_row_means_in_a_row(ends: list[bool], failures: int) -> None:
    window, terms = Window(), replace(TERMS, failures=failures)
    for n, down in enumerate(ends):
        last = ends[: n + 1][-failures:]
        assert window.note(terms, n, down) == (len(last) == failures and all(last))


Step = tuple[str, float]


@given(st.lists(st.tuples(st.sampled_from(["down", "up", "trip", "open", "close", "now"]), st.floats(0, 0.999))))
def test_whatever_happens_it_adds_up(steps: list[Step]) -> None:
    row: CircuitRow | None = None
    for what, jitter in steps:
        before = row
        change = _change(row, what, jitter)
        if change is None:
            continue
        row = applied(change, row)
        assert row.opened - (before.opened if before else 0) == int(row.open and not (before and before.open))
        assert row.open or (row.failed_probes, row.until) == (0, None)
        assert not row.open or row.until is not None
        if change.wait:
            assert 0 < change.wait <= TERMS.max_delay
        if what == "up":
            assert not row.open
        if what == "down" and before is not None:
            assert row.failed_probes == before.failed_probes + 1 and row.since == before.since


def _change(row: CircuitRow | None, what: str, jitter: float) -> SetCircuit | None:
    if what in ("trip", "open"):
        return trip(row, TERMS, ["A"], "connect", "w1", jitter)
    if row is None or not row.open:
        return None
    match what:
        case "down":
            return probed(row, TERMS, "timeout", "w1", jitter)
        case "up":
            return probed(row, TERMS, None, "w1", jitter)
        case "close":
            return close(row, None, "ann")
        case _:
            return probe_now(row)


@given(st.integers(0, 10_000), st.floats(0, 0.999))
def test_delays_grow_and_end(failed: int, jitter: float) -> None:
    first, later = TERMS.wait(0, jitter), TERMS.wait(failed, jitter)
    assert 2.0 <= first <= 4.0 and first <= later <= 60.0
    assert TERMS.wait(failed + 1, jitter) >= later


def test_a_trip_of_an_open_one_only_adds_kinds() -> None:
    row = replace(ROW, open=True, until=NOW)
    assert trip(row, TERMS, ["A"], "x", "w2", 0.5) is None
    change = trip(row, TERMS, ["B"], "x", "w2", 0.5)
    assert change is not None
    assert (change.kinds, change.wait, change.reason, change.opened) == (("A", "B"), None, row.reason, row.opened)


def test_declaring_says_which_kinds_have_it_and_leaves_those_of_others() -> None:
    rows = [replace(ROW, kinds=("A", "OLD", "THEIRS"))]
    assert declare([], {"A": None}) == []
    assert [(c.name, c.kinds) for c in declare([], {"A": "far", "B": "far"})] == [("far", ("A", "B"))]
    (change,) = declare(rows, {"A": "far", "OLD": None})
    assert (change.kinds, change.version) == (("A", "THEIRS"), 7)
    assert declare(rows, {"A": "far", "OLD": "far"}) == []


@pytest.mark.parametrize("error", [ConnectionRefusedError("no"), TimeoutError("slow"), EOFError("gone")])
def test_down(error: Exception) -> None:
    assert is_down(failure_of(error))


class Answered(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status_code = status


@pytest.mark.parametrize(("status", "down"), [(503, True), (429, True), (404, False)])
def test_answers(status: int, down: bool) -> None:
    assert is_down(failure_of(Answered(status))) is down


def test_what_is_the_programs_own_fault_is_no_outage() -> None:
    assert not is_down(failure_of(KeyError("x")))


def test_the_option() -> None:
    assert circuit_of("A", None) is circuit_of("A", False) is None
    assert circuit_of("A", True) == Circuit("A")
    assert circuit_of("A", Circuit("far")) == Circuit("far")
    with pytest.raises(InvalidInput, match="circuit= of A must be True or a Circuit"):
        circuit_of("A", 5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"failures": 0},
        {"ratio": 0},
        {"delay": 0},
        {"delay": 10, "max_delay": 5},
        {"window": 0},
        {"name": "no name"},
    ],
)
def test_terms_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Circuit(**wrong)
