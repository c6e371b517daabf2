"""Where a claim starts to read: never again behind what was claimed, but everywhere once in a while."""

from __future__ import annotations

from redrive.stores.postgres.scan_positions import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    SWEEP_EVERY_S,
    ScanPositions,
)

EVERYTHING = [("q", "", PRIORITY_MIN, 0, PRIORITY_MAX)]


def segments(remembered: ScanPositions, *queues: str, now: float) -> list[tuple[str, str, int, int, int]]:
    return list(zip(*remembered.segments(queues or ("q",), now), strict=True))


def known(*rows: tuple[str, str, int, int], now: float = 100.0, short: bool = False) -> ScanPositions:
    """After a first sweep that found ``rows``."""
    remembered = ScanPositions()
    remembered.segments(("q",), now)
    remembered.learn(rows, short=short, cost=0.0, now=now)
    return remembered


def test_after_a_claim_reading_goes_on_behind_it() -> None:
    remembered = known(("q", "", 0, 7), ("q", "", 0, 9), ("q", "", 0, 8))
    assert segments(remembered, now=100.1) == [("q", "", PRIORITY_MIN, 0, -1), ("q", "", 0, 10, PRIORITY_MAX)]


def test_each_priority_has_its_own_mark() -> None:
    remembered = known(("q", "", 5, 50), ("q", "", -3, 20))
    assert segments(remembered, now=100.1) == [
        ("q", "", PRIORITY_MIN, 0, -4),
        ("q", "", -3, 21, 4),
        ("q", "", 5, 51, PRIORITY_MAX),
    ]


def test_the_ranges_cover_every_priority_once() -> None:
    remembered = known(*(("q", "", p, 1) for p in (PRIORITY_MIN, -1, 0, 17, PRIORITY_MAX)))
    found = segments(remembered, now=100.1)
    assert (found[0][2], found[-1][4]) == (PRIORITY_MIN, PRIORITY_MAX)
    assert [after[2] for after in found[1:]] == [before[4] + 1 for before in found[:-1]]


def test_a_sweep_reads_everything_now_and_then() -> None:
    remembered = known(("q", "", 0, 9))
    assert segments(remembered, now=100.0 + SWEEP_EVERY_S * 0.9) != EVERYTHING
    assert segments(remembered, now=100.0 + SWEEP_EVERY_S) == EVERYTHING


def test_costly_sweeps_are_rare() -> None:
    remembered = ScanPositions()
    remembered.segments(("q",), 100.0)
    remembered.learn([("q", "", 0, 9)], short=True, cost=1.0, now=101.0)
    assert segments(remembered, now=119.0) != EVERYTHING
    assert segments(remembered, now=122.0) == EVERYTHING


def test_a_late_commit_rewinds() -> None:
    remembered = known(("q", "", 0, 90), ("q", "K", 0, 80), ("other", "", 0, 70))
    remembered.rewind("q", 50)
    found = {(queue, lane): pos for queue, lane, _, pos, _ in segments(remembered, "q", "other", now=100.1) if pos}
    assert found == {("q", ""): 50, ("q", "K"): 50, ("other", ""): 71}
    remembered.rewind("q", 60)
    found = {(queue, lane): pos for queue, lane, _, pos, _ in segments(remembered, "q", now=100.1) if pos}
    assert found == {("q", ""): 50, ("q", "K"): 50}


def test_a_worker_that_never_claims_starts_behind_what_a_sweep_found_empty() -> None:
    remembered = ScanPositions()
    remembered.rewind("q", 70)  # announced, and taken by somebody else
    remembered.segments(("q",), 100.0)
    remembered.rewind("q", 80)  # announced while the sweep was under way: not part of it
    remembered.learn([], short=True, cost=0.0, now=100.0, emptied=["q"])
    assert segments(remembered, now=100.01) == [("q", "", PRIORITY_MIN, 0, -1), ("q", "", 0, 71, PRIORITY_MAX)]
    remembered.rewind("q", 60)  # a producer that commits late
    assert segments(remembered, now=100.01)[1] == ("q", "", 0, 60, PRIORITY_MAX)


def test_a_look_that_was_no_sweep_proves_nothing() -> None:
    remembered = known(("q", "", 0, 9))
    remembered.rewind("q", 70)
    remembered.segments(("q",), 100.1)
    remembered.learn([], short=True, cost=0.0, now=100.1, emptied=["q"])
    assert segments(remembered, now=100.11)[1] == ("q", "", 0, 10, PRIORITY_MAX)
