"""Where moves lead by what they meet in the row: every line of the machine, on every store."""

from __future__ import annotations

from uuid import UUID

import pytest

from redrive.kernel.applied import Applied
from redrive.kernel.commit import Commit
from redrive.kernel.failure import failure
from redrive.kernel.machine import TABLE, DeadReason, Event, Meets, Transition, lands
from redrive.kernel.ports.store import Cycle
from redrive.kernel.task import State
from redrive_kit.conformance.harness import LEASE, Harness

LEASED = [event for event, rule in TABLE.items() if rule.fenced]
WAITING = [Event.PAUSE, Event.RESUME, Event.CANCEL]
CASES = [
    (event, to, meets)
    for events, found in ((LEASED, Meets.CANCEL_REQUESTED), (WAITING, Meets.EARLY))
    for event in events
    for to in TABLE[event].targets
    for meets in ((), (found,))
]


class TestLandings:
    @pytest.mark.parametrize("event, to, meets", CASES)
    @pytest.mark.parametrize("verb", ["apply", "cycle"])
    async def test_a_move_lands_where_the_machine_says(
        self, harness: Harness, verb: str, event: Event, to: State, meets: tuple[Meets, ...]
    ) -> None:
        task_id, token = await (self.leased if event in LEASED else self.waiting)(harness, event, meets)
        before = await harness.state(task_id)
        move = Transition(task_id, event, to, token, delay=30.0 if to is State.DELAYED else 0.0)
        move.expired = event is Event.EXPIRE
        if to is State.FAILED or event is Event.RETRY:
            move.failure = failure("TASK_EXECUTION_FAILED", "landing", "where to?")
            move.dead = DeadReason.NON_RETRYABLE if to is State.FAILED else None
        commit = Commit(transitions=[move])
        done: Applied | Cycle = await (
            harness.store.apply(commit) if verb == "apply" else harness.store.cycle(commit, None)
        )
        expected = lands(event, to, meets)
        assert await harness.state(task_id) is expected
        assert done.lost == ({task_id} if expected is before else set())
        # Whoever asked is told: what is logged and counted is what became of the task.
        assert done.instead == ({} if expected in (to, before) else {task_id: expected})
        await harness.check_totals()

    async def leased(self, harness: Harness, event: Event, meets: tuple[Meets, ...]) -> tuple[UUID, UUID | None]:
        claimed = await harness.running()
        if Meets.CANCEL_REQUESTED in meets:
            assert await harness.ask_to_cancel(claimed.id)
        if event is Event.EXPIRE:
            await harness.advance(LEASE + 1)
        return claimed.id, claimed.token

    async def waiting(self, harness: Harness, event: Event, meets: tuple[Meets, ...]) -> tuple[UUID, UUID | None]:
        task_id = await harness.enqueue(delay=60.0 if Meets.EARLY in meets else None)
        if event is Event.RESUME:
            await harness.operate(Event.PAUSE, task_id)
        return task_id, None
