"""A bulk operation: one operator's decision about many tasks, carried out piece by piece.

What it has done so far is a document that changes in the same transaction as the tasks of each piece. So whoever goes
on with it, after a crash or beside another worker, goes on exactly where it is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

from redrive.kernel.applied import Applied
from redrive.kernel.audit import Audit, BulkAction
from redrive.kernel.commit import CancelRequest, Commit
from redrive.kernel.documents import from_document, to_document
from redrive.kernel.failure_filter import FailedRef, FailureFilter, TaskStatus
from redrive.kernel.machine import Transition
from redrive.kernel.operation_actions import (
    OF_WAITING,
    Action,
    Canary,
    Cancel,
    Erasure,
    Forget,
    Moving,
    Purge,
    Retry,
    Then,
    What,
    Work,
    document,
    moment,
    what_of,
)
from redrive.kernel.records import Put, Record
from redrive.kernel.task import State, Task

__all__ = [
    "COLLECTION",
    "FINAL",
    "MOST_CANARIES",
    "OF_WAITING",
    "TASKS_PER_PIECE",
    "Action",
    "Canary",
    "Cancel",
    "Erasure",
    "Forget",
    "Operation",
    "Purge",
    "Retry",
    "Status",
    "Then",
    "Work",
    "facts",
    "failures",
    "moment",
]

COLLECTION = "operation"
TASKS_PER_PIECE = 500
PACE = 0.5  # seconds of work in a piece, when there is a rate
MOST_CANARIES = 500


class Status(StrEnum):
    WAITING = "waiting"  # for a second operator
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    STOPPED = "stopped"  # by its canary
    CANCELLED = "cancelled"


FINAL = (Status.COMPLETED, Status.STOPPED, Status.CANCELLED)


@dataclass(slots=True, frozen=True)
class Operation:
    """A bulk operation with its progress: ``what`` it does, to ``which`` tasks. ``total`` is how many they are; 0 of a
    feature's work of which nobody knows how much there is."""

    id: str
    what: What
    which: FailureFilter
    actor: str
    reason: str | None
    total: int
    status: Status = Status.RUNNING
    done: int = 0
    skipped: int = 0
    rate: float | None = None
    approval: str | None = None
    note: str | None = None
    fixed: str | None = None  # what was fixed before it was begun
    idempotent: bool | None = None  # may the handlers run twice for one task?
    last_piece: int = 0
    driver: str | None = None  # the worker that did the last piece
    version: int = field(default=0, compare=False)

    # -- as a document ---------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, record: Record) -> Operation:
        body = dict(record.body)
        what = what_of(body)
        which = failures(body.pop("which"))
        status = Status(record.state)
        return cls(**body, id=record.id, what=what, which=which, status=status, version=record.version)

    def body(self) -> dict[str, Any]:
        head = ("actor", "reason", "total", "done", "skipped", "rate", "approval", "note", "fixed", "idempotent")
        values = {name: getattr(self, name) for name in (*head, "last_piece", "driver")}
        return {**document(self.what), "which": facts(self.which), **values}

    def put(self, keep: float | None = None) -> Put:
        return Put(COLLECTION, self.id, self.body(), self.version, self.status.value, keep)

    # -- in words --------------------------------------------------------------------------------------------------

    @property
    def action(self) -> Action:
        return self.what.action

    @property
    def retry(self) -> Retry | None:
        """What it does, if it retries."""
        return self.what if isinstance(self.what, Retry) else None

    @property
    def canary(self) -> Canary | None:
        return self.what.canary if isinstance(self.what, Retry) else None

    @property
    def work(self) -> Work | None:
        """What it does, if that is work of a feature."""
        return self.what if isinstance(self.what, Work) else None

    @property
    def plan(self) -> str | None:
        return self.what.plan if isinstance(self.what, Retry | Forget) else None

    @property
    def erased(self) -> Mapping[str, int]:
        """How many went, by where they were, of an erasure."""
        return self.what.erased if isinstance(self.what, Erasure) else {}

    @property
    def verb(self) -> str:
        """What it does, in a word."""
        return self.action.value if self.work is None else self.work.verb

    @property
    def unit(self) -> str:
        """What is counted."""
        return "task" if self.work is None else self.work.unit

    @property
    def audited(self) -> str:
        """What its rows in the audit log begin with."""
        return self.action.audited if self.work is None else f"{self.work.feature}_{self.work.verb}".upper()

    # -- what comes next -------------------------------------------------------------------------------------------

    @property
    def filling(self) -> bool:
        """True while the next tasks are canaries."""
        return self.canary is not None and not self.canary.full

    @property
    def testing(self) -> bool:
        """True while the canaries are out and the others wait for what becomes of them."""
        return self.canary is not None and self.canary.full and not self.canary.passed

    @property
    def piece(self) -> int:
        """How many tasks to take next."""
        most = TASKS_PER_PIECE if self.rate is None else max(1, min(TASKS_PER_PIECE, math.ceil(self.rate * PACE)))
        return min(most, self.canary.first - len(self.canary.ids)) if self.canary is not None and self.filling else most

    @property
    def pause_after_piece(self) -> float:
        """Seconds from the last piece to the next one."""
        return 0.0 if self.rate is None else self.last_piece / self.rate

    def carry_out(self, tasks: Sequence[FailedRef], driver: str | None, running: Collection[UUID] = ()) -> Commit:
        """Returns the Commit of one piece: these tasks, and how far the operation has come with them. Those that are
        ``running`` are asked to stop."""
        what = self._moving()
        after = replace(self, what=what.after(tasks), last_piece=len(tasks), driver=driver)

        def body(applied: Applied) -> Mapping[str, Any]:
            moved = [task.id for task in tasks if task.id not in applied.skipped and task.id not in applied.lost]
            skipped = len(tasks) - len(moved)
            return after._with_canaries(moved, done=self.done + len(moved), skipped=self.skipped + skipped).body()

        bulk = BulkAction(self.id, self.actor, self.action.audited, self.reason, means=self.action.means, summary=False)
        put = Put(COLLECTION, self.id, body, self.version, self.status.value)
        moves = [self._move(what, task) for task in tasks if task.id not in running]
        asks = [CancelRequest(task.id, self.actor, self.reason) for task in tasks if task.id in running]
        return Commit(transitions=moves, controls=asks, bulk=bulk, puts=[put])

    def carry_out_here(self, tasks: Sequence[FailedRef], excluded: Mapping[UUID, str]) -> Commit:
        """Returns the Commit of one piece that its caller carries out, summed up at once: the operation is over as far
        as it has come, and its total grows with it. ``excluded``: what was named besides, and is left alone."""
        what = self._moving()

        def body(applied: Applied) -> Mapping[str, Any]:
            skipped = sum(task.id in applied.skipped for task in tasks)
            return self.after_piece_here(len(tasks) - skipped, skipped + len(excluded)).body()

        said = facts(self.which) if self.plan is None else {"plan": self.plan}
        bulk = BulkAction(self.id, self.actor, self.audited, self.reason, said, excluded=excluded)
        put = Put(COLLECTION, self.id, body, self.version, self.status.value)
        return Commit(transitions=[self._move(what, task) for task in tasks], bulk=bulk, puts=[put])

    def after_piece_here(self, done: int, skipped: int) -> Operation:
        """Returns it as ``carry_out_here`` writes it down."""
        return replace(
            self,
            total=self.total + done + skipped,
            done=self.done + done,
            skipped=self.skipped + skipped,
            version=self.version + 1,
        )

    def _moving(self) -> Moving:
        assert isinstance(self.what, Moving), f"{self.action} moves no tasks"
        return self.what

    def _move(self, what: Moving, task: FailedRef) -> Transition:
        name = f"{self.action.audited}_ITEM"
        return replace(what.move(task), actor=self.actor, reason=self.reason, action=name, bulk_id=self.id)

    def _with_canaries(self, moved: Sequence[UUID], **counts: int) -> Operation:
        what = self.what
        if isinstance(what, Retry) and what.canary is not None:
            what = replace(what, canary=what.canary.joined_by(moved))
        return replace(self, what=what, **counts)  # type: ignore[arg-type]

    # -- its end ---------------------------------------------------------------------------------------------------

    def ended(self, status: Status, note: str | None = None) -> Commit:
        """Returns the Commit that ends it, with the row that sums it up."""
        after = self._sums(status, note)
        row = Audit(self.actor, f"{self.audited}_SUMMARY", self.reason, None, self.id, None, after)
        return Commit(puts=[self._over(status, note)], audits=[row])

    def called_off(self, actor: str, action: str, reason: str | None, note: str) -> Commit:
        """Returns the Commit by which somebody ends it before it is through. Where it has done nothing yet there is
        only their row: a summary would read as if whoever asked for it had done it."""
        before = {"status": self.status.value}
        after = self._sums(Status.CANCELLED, note)
        row = Audit(actor, action, reason, None, self.id, before, after, target=f"operation:{self.id}")
        if not (self.done or self.skipped or self.erased):
            return Commit(puts=[self._over(Status.CANCELLED, note)], audits=[row])
        ended = self.ended(Status.CANCELLED, note)
        return replace(ended, audits=[*ended.audits, row])

    def _sums(self, status: Status, note: str | None) -> dict[str, Any]:
        return {
            "matched": self.total,
            "done": self.done,
            "skipped": self.skipped,
            "gone": self.gone if status is Status.COMPLETED else 0,
            "filter": self.subject,
            "status": status.value,
            "note": note,
        }

    def _over(self, status: Status, note: str | None) -> Put:
        ended = replace(self, status=status, note=note)
        if isinstance(self.what, Erasure) and self.which.scope is not None:
            ended = replace(ended, which=FailureFilter(scope="erased"), what=replace(self.what, traces=()))
        return ended.put()

    @property
    def subject(self) -> dict[str, Any]:
        """Its filter for the audit log: an erasure does not repeat there what it removes."""
        if self.work is not None:
            return {"subject": self.work.subject, **self.work.open_result}
        if isinstance(self.what, Erasure) and self.which.scope is not None:
            return {"scope": "erased"}
        return facts(self.which)

    @property
    def answers(self) -> dict[str, Any]:
        """What its operator answered before it was begun, as far as there were questions."""
        answers = {"fixed": self.fixed, "idempotent": self.idempotent}
        return {name: value for name, value in answers.items() if value is not None}

    @property
    def gone(self) -> int:
        """How many tasks were dealt with by others before their turn came; known when it is over."""
        return max(self.total - self.done - self.skipped, 0) if self.work is None else 0

    # -- canaries --------------------------------------------------------------------------------------------------

    def no_more_canaries(self) -> Commit:
        """Returns the Commit by which no more canaries follow: there are fewer tasks than were wanted."""
        return Commit(puts=[self._with_canary(full=True).put()])

    def judged(self, canaries: Iterable[TaskStatus]) -> Operation | str | None:
        """Returns what follows from the canaries: the operation with its canary passed, or why to stop, or None: not
        known yet."""
        assert self.canary is not None
        found = list(canaries)
        good = sum(task.state is State.COMPLETED for task in found)
        bad = [task for task in found if task.state in (State.FAILED, State.CANCELLED)]
        if (back := self.returned(bad)) is not None:
            return back
        number = len(found)  # those that were pruned meanwhile say nothing
        needed = math.ceil(self.canary.percent * number / 100 - 1e-9)
        if number - len(bad) < needed:
            # Not the message: it may quote a payload, and this is read by those who may not see that.
            worst = next((task for task in bad if task.error_code), None)
            example = "" if worst is None else f" with {worst.error_code}: task {worst.id}"
            return f"{len(bad)} of the first {number} failed again{example}"
        if good >= needed and good + len(bad) == number:
            return self._passed(good, number)
        return None

    def _passed(self, good: int, number: int) -> Operation:
        """Returns the operation with its canary passed; paused where somebody wanted to look before it goes on."""
        after = self._with_canary(passed=True)
        assert self.canary is not None
        if self.canary.then is Then.GO_ON or self.done + self.skipped >= self.total:
            return after
        note = f"{good} of the first {number} succeeded: resume it for the others, or cancel it"
        return replace(after, status=Status.PAUSED, note=note)

    def _with_canary(self, **changes: bool) -> Operation:
        assert self.retry is not None
        assert self.retry.canary is not None
        return replace(self, what=replace(self.retry, canary=replace(self.retry.canary, **changes)))  # type: ignore[arg-type]

    def returned(self, tasks: Iterable[TaskStatus | Task]) -> str | None:
        """Returns why to stop, when one of these tasks failed again by a cause that was redriven, and whoever began it
        wanted it to stop by that."""
        fingerprints = () if self.retry is None else self.retry.fingerprints
        for task in tasks:
            if task.error_fingerprint in fingerprints:
                return f"the same failure is back, {task.error_code}: task {task.id}"
        return None


def facts(which: FailureFilter) -> dict[str, Any]:
    """Returns a filter as it is stored: only the fields that were asked for."""
    return {name: value for name, value in to_document(which).items() if value is not None}


def failures(given: Mapping[str, Any]) -> FailureFilter:
    return from_document(FailureFilter, given, strict=True)
