"""When a worker follows a hint: at once while that finds something, in a moment where others were always first."""

from __future__ import annotations

import pytest

from redrive.worker.state import EAGER_MISSES, MOST_WAIT_S, Hints, LoopSignal


@pytest.fixture
def signal() -> LoopSignal:
    made = LoopSignal()
    made.to_look = False
    return made


@pytest.fixture(autouse=True)
def at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits does so for as long as it may."""
    monkeypatch.setattr("redrive.worker.state.random.uniform", lambda _least, most: most)


async def follow(signal: LoopSignal, own: Hints, *, found: bool) -> None:
    own.hear()
    await signal.wait(30)
    assert signal.to_look
    signal.to_look = False
    own.note_look(found)


async def test_hints_that_are_worth_it_are_followed_at_once(signal: LoopSignal) -> None:
    own = Hints(signal)
    for _ in range(20):
        await follow(signal, own, found=True)
        assert own.wait() == 0


async def test_who_keeps_finding_nothing_waits_longer_and_longer(signal: LoopSignal) -> None:
    own, waits = Hints(signal), []
    for _ in range(EAGER_MISSES + 8):
        await follow(signal, own, found=False)
        waits.append(own.wait())
    assert waits[: EAGER_MISSES - 1] == [0.0] * (EAGER_MISSES - 1)
    assert waits == sorted(waits)
    assert waits[-1] == MOST_WAIT_S


async def test_many_hints_are_followed_with_one_look(signal: LoopSignal, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Hints(signal)
    looks: list[None] = []
    for _ in range(EAGER_MISSES):
        await follow(signal, own, found=False)
    monkeypatch.setattr(signal, "look", lambda: looks.append(signal.wake()))
    for _ in range(50):
        own.hear()
    assert not looks
    await signal.wait(30)
    assert len(looks) == 1


async def test_who_finds_something_again_is_eager_again_soon(signal: LoopSignal) -> None:
    own = Hints(signal)
    for _ in range(20):
        await follow(signal, own, found=False)
    assert own.wait() == MOST_WAIT_S
    for _ in range(2):
        own.note_look(True)
    assert own.wait() == 0


async def test_one_of_a_few_stays_eager_and_one_of_many_does_not(signal: LoopSignal) -> None:
    few, many = Hints(signal), Hints(signal)
    for n in range(50):
        await follow(signal, few, found=n % 3 == 0)
        await follow(signal, many, found=n % 20 == 0)
    assert few.wait() == 0
    assert many.wait() > 0


async def test_looks_without_a_hint_say_nothing_about_hints(signal: LoopSignal) -> None:
    """An idle worker looks every few seconds and finds nothing: the first task must not wait for that."""
    own = Hints(signal)
    for _ in range(100):
        own.note_look(False)
    own.hear()
    assert signal.to_look
