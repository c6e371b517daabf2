"""A bulk operation: one operator's decision about many tasks, carried out piece by piece.

What it has done so far is a document that changes in the same transaction as the tasks of each piece. So whoever goes
on with it, after a crash or beside another worker, goes on exactly where it is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from redrive.kernel.applied import Applied
from redrive.kernel.audit import Audit, BulkAction
from redrive.kernel.commit import CancelRequest, Commit
from redrive.kernel.failed import FailedRef, FailureFilter, TaskStatus
from redrive.kernel.machine import Event, Transition
from redrive.kernel.records import Put, Record
from redrive.kernel.task import WAITING, State, Task

COLLECTION = "operation"
TASKS_PER_PIECE = 500
PACE = 0.5  # seconds of work in a piece, when there is a rate
MOST_CANARIES = 500
MOST_FINGERPRINTS = 200
MOST_ROUNDS = 5  # of a cancel
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"  # behind every task


class Action(StrEnum):
    RETRY = "retry"  # tasks run again that are failed, or were given up after they had failed
    FORGET = "forget"  # failed tasks are given up: they go to history, from where they can be retried for a while
    PURGE = "purge"  # waiting tasks are given up, in the same way
    CANCEL = "cancel"  # members of a join that wait are given up, and those that run are asked to stop
    ERASE = "erase"  # what is known about a scope or a task is removed for good
    WORK = "work"  # what a feature does piece by piece, by a duty of its own: see Work

    @property
    def audited(self) -> str:
        return f"TASK_{self.value.upper()}_BATCH"

    @property
    def means(self) -> str:
        """The states of the tasks that it is for."""
        return {
            "retry": "failed or cancelled",
            "forget": "failed",
            "purge": "waiting",
            "cancel": "waiting",
            "erase": "not running",
            "work": "",
        }[self.value]


class Status(StrEnum):
    WAITING = "waiting"  # for a second operator
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    STOPPED = "stopped"  # by its canary
    CANCELLED = "cancelled"


FINAL = (Status.COMPLETED, Status.STOPPED, Status.CANCELLED)
OF_WAITING = (Action.PURGE, Action.CANCEL)  # actions that are about tasks that have not ended


class Then(StrEnum):
    GO_ON = "go-on"
    WAIT = "wait"  # it is paused, until somebody resumes or cancels it


@dataclass(slots=True, frozen=True)
class Canary:
    """The first tasks of an operation; the others follow if enough of these succeed: at once, or when somebody says
    so."""

    first: int
    percent: float = 100.0
    ids: tuple[UUID, ...] = ()
    full: bool = False  # all of them are out, or there are no more
    passed: bool = False
    then: Then = Then.GO_ON


RESULT_CLOSED = ("error", "refused")  # of a feature's work: what errors say


@dataclass(slots=True, frozen=True)
class Work:
    """What a feature does piece by piece: ``verb`` and ``subject`` say it ("rebuild", "projection notes"), ``unit`` is
    what is counted. ``state`` is how far it has come, in the feature's own words; ``result`` what came of it,
    which everybody may see, but for what errors say: that may quote documents."""

    feature: str
    verb: str
    subject: str
    unit: str
    state: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def open_result(self) -> dict[str, Any]:
        """What everybody may see of its result."""
        return {name: value for name, value in self.result.items() if name not in RESULT_CLOSED}


@dataclass(slots=True, frozen=True)
class Operation:
    """A bulk operation with its progress. ``upto``: the last ``failed_seq`` that is meant, for a purge the time until
    which tasks were made. ``cursor``: how far it has come, a ``failed_seq``, for a purge the id of the last task, for
    a cancel its round and that id."""

    id: str
    action: Action
    which: FailureFilter
    actor: str
    reason: str | None
    total: int
    upto: int = 0
    status: Status = Status.RUNNING
    cursor: int | str = 0
    done: int = 0
    skipped: int = 0
    rate: float | None = None
    canary: Canary | None = None
    stop_on_return: bool = False  # stop when a task comes back with a fingerprint that was redriven
    fingerprints: tuple[str, ...] = ()
    plan: str | None = None
    approval: str | None = None
    note: str | None = None
    archive: str | None = None  # of an erasure: where archived rows of the audit log are
    erased: Mapping[str, int] = field(default_factory=dict)  # and how many went, by place
    traces: tuple[str, ...] = ()  # and what else its subject is quoted by
    letters: int = 0  # of a retry: the last dead letter by which also cancelled tasks are meant; 0: they are not
    cancelled: int = 0  # and how many of its total these were when it was begun
    given_up_until: int = 0  # and until when they were cancelled
    fixed: str | None = None  # what was mended before it was begun
    idempotent: bool | None = None  # may the handlers run twice for one task?
    last_piece: int = 0
    driver: str | None = None  # the worker that did the last piece
    work: Work | None = None  # of a feature; its total is 0 where nobody knows how much there is
    version: int = field(default=0, compare=False)

    # -- as a document ---------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, record: Record) -> Operation:
        body = dict(record.body)
        canary = body.pop("canary")
        work = body.pop("work", None)
        if canary is not None:
            ids, then = tuple(UUID(task_id) for task_id in canary["ids"]), Then(canary.get("then", Then.GO_ON))
            canary = Canary(**{**canary, "ids": ids, "then": then})
        return cls(
            **{
                **body,
                "action": Action(body["action"]),
                "which": failures(body["which"]),
                "canary": canary,
                "status": Status(record.state),
                "fingerprints": tuple(body["fingerprints"]),
                "traces": tuple(body["traces"]),
                "work": None if work is None else Work(**work),
            },
            id=record.id,
            version=record.version,
        )

    def body(self) -> dict[str, Any]:
        values = asdict(self)
        for name in ("id", "status", "version"):
            del values[name]
        values["which"] = facts(self.which)
        if self.work is None:
            del values["work"]
        if self.canary is not None:
            values["canary"] |= {"ids": [str(task_id) for task_id in self.canary.ids], "then": self.canary.then.value}
        return values

    def put(self, keep: float | None = None) -> Put:
        return Put(COLLECTION, self.id, self.body(), self.version, self.status.value, keep)

    # -- in words --------------------------------------------------------------------------------------------------

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

    def means(self, task: Task) -> bool:
        """True if a purge or cancel is about this task: it waited when the operator decided. What ran or was retried
        since came back later."""
        if self.action is Action.CANCEL:  # whenever it was added; but not what somebody has retried since
            return task.last_replayed_at is None or moment(task.last_replayed_at) <= self.upto
        since = [task.created_at, task.last_attempt_at, task.last_replayed_at]
        return all(moment(when) <= self.upto for when in since if when is not None)

    def carry_out(self, tasks: Sequence[FailedRef], driver: str | None, running: Collection[UUID] = ()) -> Commit:
        """Returns the Commit of one piece: these tasks, and how far the operation has come with them. Those that are
        ``running`` are asked to stop."""
        after = replace(
            self, cursor=self._place(tasks[-1]), last_piece=len(tasks), fingerprints=self._seen(tasks), driver=driver
        )

        def body(applied: Applied) -> Mapping[str, Any]:
            moved = [task.id for task in tasks if task.id not in applied.skipped and task.id not in applied.lost]
            skipped = len(tasks) - len(moved)
            done = replace(after, done=self.done + len(moved), skipped=self.skipped + skipped)
            return replace(done, canary=self._with_canaries(moved)).body()

        bulk = BulkAction(self.id, self.actor, self.action.audited, self.reason, means=self.action.means, summary=False)
        put = Put(COLLECTION, self.id, body, self.version, self.status.value)
        moves = [self._move(task) for task in tasks if task.id not in running]
        asks = [CancelRequest(task.id, self.actor, self.reason) for task in tasks if task.id in running]
        return Commit(transitions=moves, controls=asks, bulk=bulk, puts=[put])

    def carried_out(self, tasks: Collection[UUID], excluded: int) -> Put:
        """Returns how far an operation has come whose caller retries these tasks itself; ``excluded``: how many were
        named besides, and left alone."""

        def body(applied: Applied) -> Mapping[str, Any]:
            skipped = sum(task_id in applied.skipped for task_id in tasks)
            return self.after_piece(len(tasks) - skipped, skipped + excluded).body()

        return Put(COLLECTION, self.id, body, self.version, self.status.value)

    def after_piece(self, done: int, skipped: int) -> Operation:
        """Returns it as ``carried_out`` writes it down."""
        return replace(
            self,
            total=self.total + done + skipped,
            done=self.done + done,
            skipped=self.skipped + skipped,
            version=self.version + 1,
        )

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
            "filter": self.told,
            "status": status.value,
            "note": note,
        }

    def _over(self, status: Status, note: str | None) -> Put:
        ended = replace(self, status=status, note=note)
        if self.action is Action.ERASE and self.which.scope is not None:
            ended = replace(ended, which=FailureFilter(scope="erased"), traces=())
        return ended.put()

    @property
    def told(self) -> dict[str, Any]:
        """Its filter for the audit log: an erasure does not repeat there what it removes."""
        if self.work is not None:
            return {"subject": self.work.subject, **self.work.open_result}
        if self.action is not Action.ERASE:
            return facts(self.which)
        return {"scope": "erased"} if self.which.scope is not None else facts(self.which)

    @property
    def said(self) -> dict[str, Any]:
        """What its operator answered before it was begun, as far as there were questions."""
        answers = {"fixed": self.fixed, "idempotent": self.idempotent}
        return {name: value for name, value in answers.items() if value is not None}

    @property
    def gone(self) -> int:
        """How many tasks were dealt with by others before their turn came; known when it is over."""
        return max(self.total - self.done - self.skipped, 0) if self.work is None else 0

    def no_more_canaries(self) -> Commit:
        """Returns the Commit by which no more canaries follow: there are fewer tasks than were wanted."""
        assert self.canary is not None
        return Commit(puts=[replace(self, canary=replace(self.canary, full=True)).put()])

    def judged(self, canaries: Iterable[TaskStatus]) -> Operation | str | None:
        """Returns what follows from the canaries: the operation with its canary passed, or why to stop, or None: not
        known yet."""
        assert self.canary is not None
        found = list(canaries)
        good = sum(task.state is State.COMPLETED for task in found)
        bad = [task for task in found if task.state in (State.FAILED, State.CANCELLED)]
        if self.stop_on_return and (back := self.returned(bad)) is not None:
            return back
        number = len(found)  # those that were pruned meanwhile say nothing
        needed = math.ceil(self.canary.percent * number / 100 - 1e-9)
        if number - len(bad) < needed:
            # Not the message: it may quote a payload, and this is read by those who may not see that.
            worst = next((task for task in bad if task.error_code), None)
            told = "" if worst is None else f" with {worst.error_code}: task {worst.id}"
            return f"{len(bad)} of the first {number} failed again{told}"
        if good >= needed and good + len(bad) == number:
            return self._passed(good, number)
        return None

    def _passed(self, good: int, number: int) -> Operation:
        """Returns the operation with its canary passed; paused where somebody wanted to look before it goes on."""
        assert self.canary is not None
        after = replace(self, canary=replace(self.canary, passed=True))
        if self.canary.then is Then.GO_ON or self.done + self.skipped >= self.total:
            return after
        note = f"{good} of the first {number} succeeded: resume it for the others, or cancel it"
        return replace(after, status=Status.PAUSED, note=note)

    def returned(self, tasks: Iterable[TaskStatus | Task]) -> str | None:
        """Returns why to stop, when one of these tasks failed again by a cause that was redriven."""
        for task in tasks:
            if task.error_fingerprint in self.fingerprints:
                return f"the same failure is back, {task.error_code}: task {task.id}"
        return None

    def _place(self, task: FailedRef) -> int | str:
        if self.action is Action.CANCEL:
            return f"{self.round} {task.id}"
        return str(task.id) if self.action is Action.PURGE else task.failed_seq or 0

    @property
    def round(self) -> int:
        """How often a cancel has begun anew: what was claimed, or came back from its worker, between the look and the
        act is met by the next round."""
        return int(str(self.cursor).partition(" ")[0])

    def next_round(self) -> Operation | None:
        """Returns a cancel at the beginning of its next round; None when a round has met nothing, or there were enough:
        what is left cannot be cancelled here."""
        begun = str(self.cursor).partition(" ")[2] != LAST_ID
        return replace(self, cursor=f"{self.round + 1} {LAST_ID}") if begun and self.round < MOST_ROUNDS else None

    def _seen(self, tasks: Sequence[FailedRef]) -> tuple[str, ...]:
        if not self.stop_on_return:
            return ()
        found = dict.fromkeys([*self.fingerprints, *(task.error_fingerprint or "" for task in tasks)])
        return tuple(found)[:MOST_FINGERPRINTS]

    def _move(self, task: FailedRef) -> Transition:
        retry, given_up = self.action is Action.RETRY, self._given_up(task)
        return Transition(
            task.id,
            Event.REDRIVE if retry else Event.CANCEL,
            State.QUEUED if retry else State.CANCELLED,
            actor=self.actor,
            reason=self.reason,
            action=f"{self.action.audited}_ITEM",
            bulk_id=self.id,
            forgotten=self.action in (Action.FORGET, Action.PURGE),
            seen=None if self.action in OF_WAITING or given_up else task.failed_seq,
            sources=WAITING if self.action in OF_WAITING else (State.CANCELLED,) if given_up else None,
        )

    def _given_up(self, task: FailedRef) -> bool:
        """True if the task is meant as a cancelled one: those have their places behind all that are failed."""
        meant = bool(self.letters or self.cancelled)  # those that never failed have no letter
        return self.action is Action.RETRY and meant and (task.failed_seq or 0) > self.upto

    def _with_canaries(self, moved: Sequence[UUID]) -> Canary | None:
        if self.canary is None or self.canary.full:
            return self.canary
        ids = (*self.canary.ids, *moved)
        return replace(self.canary, ids=ids, full=len(ids) >= self.canary.first)


def moment(when: datetime) -> int:
    """Returns a time as the ``upto`` of a purge: microseconds since 1970."""
    return round(when.timestamp() * 1_000_000)


def facts(which: FailureFilter) -> dict[str, Any]:
    """Returns a filter as it is stored: only the fields that were asked for."""
    given = {name: value for name, value in asdict(which).items() if value is not None}
    if which.ids is not None:
        given["ids"] = [str(task_id) for task_id in which.ids]
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in given.items()}


def failures(given: Mapping[str, Any]) -> FailureFilter:
    ids = given.get("ids")
    times = {name: datetime.fromisoformat(given[name]) for name in ("since", "until") if name in given}
    named = None if ids is None else tuple(UUID(task_id) for task_id in ids)
    return FailureFilter(**{**given, **times, "ids": named})
