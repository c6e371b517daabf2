"""What a bulk operation does: one class for each action, with what it is about and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar
from uuid import UUID

from redrive.kernel.documents import from_document, to_document
from redrive.kernel.failure_filter import FailedRef
from redrive.kernel.machine import Event, Transition
from redrive.kernel.task import WAITING, State, Task

MOST_FINGERPRINTS = 200
MOST_ROUNDS = 5  # of a cancel
LAST_ID = UUID("ffffffff-ffff-ffff-ffff-ffffffffffff")  # behind every task
RESULT_CLOSED = ("error", "refused")  # of a feature's work: what errors say


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

    def joined_by(self, moved: Sequence[UUID]) -> Canary:
        """Returns it with these as its next tasks, as long as some are missing."""
        if self.full:
            return self
        ids = (*self.ids, *moved)
        return replace(self, ids=ids, full=len(ids) >= self.first)


@dataclass(slots=True, frozen=True)
class Forget:
    """Gives up tasks that failed no later than ``upto``. ``cursor``: the ``failed_seq`` of the last one that it has
    come to."""

    action: ClassVar[Action] = Action.FORGET
    upto: int = 0
    cursor: int = 0
    plan: str | None = None  # that lists its tasks

    def after(self, tasks: Sequence[FailedRef]) -> Forget:
        return replace(self, cursor=tasks[-1].failed_seq or 0)

    def move(self, task: FailedRef) -> Transition:
        return _giving_up(task, forgotten=True, seen=task.failed_seq)


@dataclass(slots=True, frozen=True)
class Retry:
    """Makes tasks run again that failed no later than ``upto``, and behind them those that were cancelled by dead
    letters up to ``letters``, no later than ``given_up_until``; ``cancelled`` is how many of the total these were.
    ``cursor``: the place of the last task that it has come to."""

    action: ClassVar[Action] = Action.RETRY
    upto: int = 0
    cursor: int = 0
    plan: str | None = None  # that lists its tasks
    letters: int = 0  # 0: cancelled tasks are not meant
    cancelled: int = 0
    given_up_until: int = 0
    canary: Canary | None = None
    stop_on_return: bool = False  # stop when a task comes back with a fingerprint that was redriven
    fingerprints: tuple[str, ...] = ()  # that were redriven, where it stops by them

    def after(self, tasks: Sequence[FailedRef]) -> Retry:
        fingerprints: tuple[str, ...] = ()
        if self.stop_on_return:
            found = dict.fromkeys([*self.fingerprints, *(task.error_fingerprint or "" for task in tasks)])
            fingerprints = tuple(found)[:MOST_FINGERPRINTS]
        return replace(self, cursor=tasks[-1].failed_seq or 0, fingerprints=fingerprints)

    def move(self, task: FailedRef) -> Transition:
        given_up = self.is_cancelled(task.failed_seq or 0)
        return Transition(
            task.id,
            Event.REDRIVE,
            State.QUEUED,
            seen=None if given_up else task.failed_seq,
            sources=(State.CANCELLED,) if given_up else None,
        )

    def is_cancelled(self, place: int) -> bool:
        """Returns whether the task at this place is meant as a cancelled one: those come behind all that are failed."""
        meant = bool(self.letters or self.cancelled)  # those that never failed have no letter
        return meant and place > self.upto


@dataclass(slots=True, frozen=True)
class Purge:
    """Gives up tasks that wait since ``until`` at the latest (microseconds since 1970), the latest first. ``last``: the
    last one that it has come to."""

    action: ClassVar[Action] = Action.PURGE
    until: int
    last: UUID = LAST_ID

    def means(self, task: Task) -> bool:
        """Returns whether a task waited when the operator decided: what ran or was retried since came back later."""
        since = [task.created_at, task.last_attempt_at, task.last_replayed_at]
        return all(moment(when) <= self.until for when in since if when is not None)

    def after(self, tasks: Sequence[FailedRef]) -> Purge:
        return replace(self, last=tasks[-1].id)

    def move(self, task: FailedRef) -> Transition:
        return _giving_up(task, forgotten=True, sources=WAITING)


@dataclass(slots=True, frozen=True)
class Cancel:
    """Cancels the members of a join, round after round: what was claimed, or came back from its worker, between the
    look and the act is met by the next round. ``last``: the last one that its ``round`` has come to."""

    action: ClassVar[Action] = Action.CANCEL
    until: int  # when it was asked for: what somebody has retried since is not meant
    round: int = 0
    last: UUID = LAST_ID

    def means(self, task: Task) -> bool:
        """Returns whether a task is meant, whenever it was added; but not what somebody has retried since."""
        return task.last_replayed_at is None or moment(task.last_replayed_at) <= self.until

    def after(self, tasks: Sequence[FailedRef]) -> Cancel:
        return replace(self, last=tasks[-1].id)

    def move(self, task: FailedRef) -> Transition:
        return _giving_up(task, sources=WAITING)

    def next_round(self) -> Cancel | None:
        """Returns it at the beginning of its next round; None when a round has met nothing, or there were enough: what
        is left cannot be cancelled here."""
        begun = self.last != LAST_ID
        return Cancel(self.until, self.round + 1) if begun and self.round < MOST_ROUNDS else None


@dataclass(slots=True, frozen=True)
class Erasure:
    """Removes what is known about a scope or a task, phase after phase (see ``ops.operations.erase``);
    ``place``: how far the phase has come, in its own words."""

    action: ClassVar[Action] = Action.ERASE
    phase: str = "traces"
    place: str = "0"
    archive: str | None = None  # where archived rows of the audit log are
    erased: Mapping[str, int] = field(default_factory=dict)  # how many went, by where they were
    traces: tuple[str, ...] = ()  # what else its subject is quoted by

    def at(self, phase: str, place: str | int = "") -> Erasure:
        """Returns it at another phase, or further on in one."""
        return replace(self, phase=phase, place=str(place))


@dataclass(slots=True, frozen=True)
class Work:
    """What a feature does piece by piece: ``verb`` and ``subject`` say it ("rebuild", "projection notes"), ``unit`` is
    what is counted. ``state`` is how far it has come, in the feature's own words; ``result`` what came of it,
    which everybody may see, but for what errors say: that may quote documents."""

    action: ClassVar[Action] = Action.WORK
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


Moving = Retry | Forget | Purge | Cancel  # actions that move tasks
What = Moving | Erasure | Work
_CLASSES: dict[Action, type[What]] = {one.action: one for one in (Retry, Forget, Purge, Cancel, Erasure, Work)}


def what_of(body: dict[str, Any]) -> What:
    """Takes what the operation does out of its document."""
    kind = _CLASSES[Action(body.pop("action"))]
    if body.keys() >= _FORMER:
        _rewrite(body, kind)
    if kind is Work:
        return from_document(Work, body.pop("work"), strict=True)
    return from_document(kind, {one.name: body.pop(one.name) for one in fields(kind) if one.name in body})


# Before its first release redrive wrote the fields of all actions side by side, and how far each was as one text.
_FORMER = {
    *("upto", "cursor", "canary", "stop_on_return", "fingerprints", "plan", "archive", "erased", "traces", "letters"),
    *("cancelled", "given_up_until"),
}


def _rewrite(body: dict[str, Any], kind: type[What]) -> None:
    """Makes a document of today of one that was written so."""
    upto, cursor = body["upto"], str(body["cursor"])
    first, _, rest = cursor.partition(" ")
    for name in _FORMER - {one.name for one in fields(kind)}:
        del body[name]
    if kind is Purge:
        body |= {"until": upto, "last": cursor}
    elif kind is Cancel:
        body |= {"until": upto, "round": int(first), "last": rest}
    elif kind is Erasure:
        body |= {"phase": first, "place": rest}


def document(what: What) -> dict[str, Any]:
    """Returns it for the document of its operation, where its fields stand beside those of the operation."""
    own = to_document(what)
    return {"action": what.action.value, **({"work": own} if isinstance(what, Work) else own)}


def moment(when: datetime) -> int:
    """Returns a time as the end of a purge: microseconds since 1970."""
    return round(when.timestamp() * 1_000_000)


def _giving_up(
    task: FailedRef, *, forgotten: bool = False, seen: int | None = None, sources: tuple[State, ...] | None = None
) -> Transition:
    return Transition(task.id, Event.CANCEL, State.CANCELLED, forgotten=forgotten, seen=seen, sources=sources)
