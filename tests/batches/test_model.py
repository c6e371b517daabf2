"""Whatever happens to the items of a batch, in whatever order: it is counted right, and what follows comes once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from redrive.kernel.commit import Commit
from redrive.kernel.machine import Event, Transition
from redrive.kernel.outcome import Completed, Outcome, Retry
from redrive.kernel.task import Claimed, NewTask, State
from redrive.ops.operations.drive import drive
from redrive_kit.conformance.harness import TERMINAL
from tests.batches.conftest import make_app
from tests.batches.test_batches import service
from tests.effort import tries
from tests.machines import AppMachine, Database, play_on_sqlite

STEPS = 25  # of a history: no task is retried so often that its attempts are used up
HISTORIES: Any = {"max_examples": tries(8, 20, 25), "stateful_step_count": STEPS}
ENDED, SUCCEEDED = "after.ended", "after.succeeded"


class BatchMachine(AppMachine):
    """A batch that is filled bit by bit, while its items end, fail, come back and are cancelled."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.states: dict[Any, str] = {}  # of the items, as they ought to be
        self.running: dict[Any, Claimed] = {}
        self.filling, self.cancelled, self.ended, self.succeeded = True, False, False, False

    @initialize()
    def begin(self) -> None:
        self.run(self.open(make_app(self.url)))
        after = [{"kind": "ENDED", "queue": name, "payload": {}} for name in (ENDED, SUCCEEDED)]
        self.batch = self.app.batch(on_complete=after[0], on_success=after[1])
        self.run(self.batch.__aenter__())
        self.add(1)

    @precondition(lambda self: self.filling and not self.cancelled)
    @rule(n=st.integers(1, 3))
    def add(self, n: int) -> None:
        tasks: list[NewTask] = [self.harness.new("WORK", payload='{"n": 1}', max_attempts=STEPS) for _ in range(n)]
        self.run(self.batch.add(tasks))
        self.states |= {task.id: "waiting" for task in tasks}

    @rule(n=st.integers(1, 3))
    def claim(self, n: int) -> None:
        for claimed in self.run(self.harness.claim(n)):
            self.running[claimed.id] = claimed
            self.states[claimed.id] = "running"

    @precondition(lambda self: self.running)
    @rule(outcome=st.sampled_from(["completed", "failed", "waiting"]), data=st.data())
    def settle(self, outcome: str, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.running)))
        given: dict[str, Outcome] = {"completed": Completed(), "failed": TERMINAL, "waiting": Retry("again", after=0)}
        assert self.run(self.harness.settle(self.running.pop(task_id), given[outcome]))
        asked = self.states[task_id] == "asked" and outcome == "waiting"
        self.states[task_id] = "cancelled" if asked else outcome

    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        self._operate(Event.REDRIVE, ("failed", "cancelled"), "waiting", data)

    @rule(data=st.data())
    def cancel_one(self, data: st.DataObject) -> None:
        self._operate(Event.CANCEL, ("waiting", "failed"), "cancelled", data)

    def _operate(self, event: Event, sources: tuple[str, ...], to: str, data: st.DataObject) -> None:
        if found := sorted(task_id for task_id, state in self.states.items() if state in sources):
            task_id = data.draw(st.sampled_from(found))
            target = State.QUEUED if to == "waiting" else State.CANCELLED
            move = Transition(task_id, event, target, actor="ann")
            assert not self.run(self.harness.store.apply(Commit(transitions=[move]))).lost
            self.states[task_id] = to

    @precondition(lambda self: self.filling and not self.cancelled)
    @rule()
    def seal(self) -> None:
        self.run(self.batch.__aexit__(None, None, None))
        self.filling = False

    @precondition(lambda self: not self.cancelled and (self.filling or self._pending()))
    @rule()
    def cancel_all(self) -> None:
        self.run(self._cancel())
        self.cancelled, self.filling = True, False
        for task_id, state in self.states.items():
            self.states[task_id] = {"waiting": "cancelled", "running": "asked"}.get(state, state)

    async def _cancel(self) -> None:
        await (await service(self.app)).cancel(self.batch.id)
        await drive(self.harness.store, "w", lambda: False)

    def _pending(self) -> int:
        return sum(state in ("waiting", "running", "asked") for state in self.states.values())

    @invariant()
    def counts_are_right(self) -> None:
        if not self.states:
            return
        found = self.run(self.app.batch.get(self.batch.id))
        wanted = [sum(state == name for state in self.states.values()) for name in ("completed", "failed", "cancelled")]
        assert [found.total, found.completed, found.failed, found.cancelled] == [len(self.states), *wanted]
        over = not self.filling and not self._pending()
        self.ended |= over
        self.succeeded |= over and wanted[0] == len(self.states)
        for queue, came in ((ENDED, self.ended), (SUCCEEDED, self.succeeded)):
            counts = self.run(self.harness.store.counts())
            assert sum(one.n for one in counts if one.queue == queue) == int(came), queue


def test_sqlite(tmp_path: Path) -> None:
    play_on_sqlite(BatchMachine, make_app, tmp_path, **HISTORIES)
