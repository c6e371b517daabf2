"""Holds what a worker runs at this moment, and how many slots it has left."""

from __future__ import annotations

from uuid import UUID

from redrive.kernel.task import Claimed
from redrive.worker.run import Run, RunState


class Runs(dict[UUID, Run]):
    """The leased tasks of one worker by their id and, beside them, handlers whose task is no longer theirs."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        # Completed by their own transaction, with a handler that has not ended yet.
        self.trailing: dict[UUID, Run] = {}
        # Attempts whose task was claimed again by this same worker, with a handler that has not ended yet.
        self.superseded: set[Run] = set()
        self.slots = slots
        self.withheld = 0  # slots that are not to be used for now
        self.claimed = 0
        self.suspect = False  # a task waits to run alone, or does: nothing is claimed meanwhile

    @property
    def any_left(self) -> bool:
        """True while something is leased, or some handler still runs."""
        return bool(self or self.trailing or self.superseded)

    def everything(self) -> list[Run]:
        """Returns leased, trailing and superseded runs, in a list of their own."""
        return [*self.values(), *self.trailing.values(), *self.superseded]

    def reserve(self, count: int) -> None:
        """Takes slots for tasks that were claimed and are about to be started."""
        self.claimed += count
        self.slots -= count

    def free_slot(self, run: Run) -> None:
        if run.slot:
            run.slot = False
            self.slots += 1

    def withhold(self, run: Run) -> None:
        """Takes the slot of a run, and all free ones, out of use."""
        if run.slot:
            run.slot = False
            self.withheld += 1
        if self.slots > 0:
            self.withheld += self.slots
            self.slots = 0

    def give_back(self, most: int) -> None:
        """Puts so many of them into use again, at most."""
        count = min(most, self.withheld)
        self.withheld -= count
        self.slots += count

    def of_attempt(self, task: Claimed) -> Run | None:
        """Returns the run of this very attempt: a later one of the same task has another token."""
        run = self.get(task.id)
        return run if run is not None and run.task.token == task.token else None

    def note_progress(self, task: Claimed, progress: str) -> None:
        """Keeps what an attempt says of its progress, for the next heartbeat."""
        run = self.of_attempt(task)
        if run is not None:
            run.progress = progress

    def drop(self, run: Run) -> None:
        """Removes a run that was settled or lost. A later attempt of the same task stays."""
        found = self.pop(run.task.id, None)
        if found is not None and found is not run:
            self[run.task.id] = found

    def keep_trailing(self, run: Run) -> None:
        """Moves a run whose task is completed aside; its handler keeps its slot until it ends."""
        run.state = RunState.TRAILING
        self.trailing[run.task.id] = run

    def drop_trailing(self, run: Run) -> None:
        if run.state is RunState.TRAILING:
            run.state = RunState.SETTLED
        if self.trailing.get(run.task.id) is run:
            del self.trailing[run.task.id]
