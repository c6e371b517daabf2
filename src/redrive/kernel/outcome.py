"""Outcomes: what came of an attempt, as values.

Those that a handler may return are exceptions too, so that they can be returned from the handler or raised from deep
inside it; both mean the same. The others are made by the worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from redrive.errors import InvalidInput
from redrive.kernel.classify import FailureType
from redrive.kernel.task import check_name, check_seconds, check_text
from redrive.kernel.wording import MAX_MESSAGE, clean

if TYPE_CHECKING:
    from redrive.kernel.failure import Failure


class StopReason(StrEnum):
    """Why a running handler is told to stop."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    SHUTDOWN = "shutdown"
    LEASE_LOST = "lease_lost"
    # The store did not answer until the lease was over: whether somebody else has the task is not known.
    STORE_UNREACHABLE = "store_unreachable"


class Verdict(Exception):
    """Base of what a handler may return or raise to decide what happens next."""


class Snooze(Verdict):
    """Run again later. Uses no attempt; ``state`` comes back as ``ctx.state``. This is how remote work is polled.

    ``down`` says that the other side is down, and why: that counts for the circuit of the kind, if it has one. It is
    shown to everybody, so name the service and the trouble, and no data. ``down_for``: since how many seconds this task
    finds it so; where others got through meanwhile, the trouble is the task's own, and does not count.
    ``evidence=False``: the other side was not asked, so nothing follows for the circuit."""

    def __init__(
        self,
        seconds: float,
        *,
        state: Any = None,
        down: str | None = None,
        down_for: float = 0.0,
        evidence: bool = True,
    ) -> None:
        self.seconds = _seconds(seconds, "Snooze(seconds)")
        self.state = state
        self.down = check_text(down, "Snooze(down=)")
        self.down_for = _seconds(down_for, "Snooze(down_for=)")
        self.evidence = evidence
        super().__init__(f"snooze for {self.seconds:g} s")


class Retry(Verdict):
    """This attempt failed; try again, after ``after`` seconds (at once where that is negative) or the usual backoff,
    while attempts remain.
    ``failure_type`` and ``cause`` are those of ``Fail``."""

    def __init__(
        self,
        message: str = "the handler asked for a retry",
        *,
        after: float | None = None,
        failure_type: FailureType | str | None = None,
        cause: str | None = None,
    ) -> None:
        self.message = str(message)
        with _keeping(self.message):
            self.after = None if after is None else _seconds(after, "Retry(after=)")
            self.failure_type = None if failure_type is None else _failure_type(failure_type, "Retry")
            self.cause = check_text(cause, "Retry(cause=)")
        super().__init__(self.message)


class Fail(Verdict):
    """End the task as failed, now, with a dead letter. ``TASK_EXECUTION_FAILED`` is the one code that is retried.

    ``failure_type`` says what it counts as. ``cause`` names the cause: failures of one name are one, wherever
    they come from; without it, code, place and message decide. ``state`` stays with the task, as that of ``Snooze``
    does, until somebody retries it."""

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        failure_type: FailureType | str | None = None,
        cause: str | None = None,
        state: Any = None,
    ) -> None:
        self.message = str(message)
        self.state = state
        with _keeping(self.message):
            self.code = check_name(str(code), "Fail(code)")
            self.failure_type = None if failure_type is None else _failure_type(failure_type, "Fail")
            self.cause = check_text(cause, "Fail(cause=)")
        super().__init__(f"{self.code}: {self.message}" if message else self.code)


class Done(Verdict):
    """The work is finished, with this result, although the handler was told to stop."""

    def __init__(self, value: Any = None) -> None:
        self.value = value
        super().__init__("done")


def _seconds(value: float, what: str) -> float:
    """Returns a wait that a handler asks for: none for a time that has passed meanwhile."""
    return 0.0 if isinstance(value, int | float) and value < 0 else check_seconds(value, what)


@contextmanager
def _keeping(message: str) -> Iterator[None]:
    """Adds what the author meant to say to what is wrong with a verdict: it is all that the task is left with."""
    try:
        yield
    except InvalidInput as error:
        said = f"{error.message}; its message: {message}" if message else error.message
        raise InvalidInput(said, hint=error.hint) from None


def _failure_type(value: object, verdict: str) -> FailureType:
    try:
        return FailureType(value)  # type: ignore[arg-type]
    except ValueError:
        known = ", ".join(kind.value for kind in FailureType)
        raise InvalidInput(f"{verdict}(failure_type=) must be one of {known}, not {str(value)[:80]!r}") from None


class Cancel(Verdict):
    """End the task as cancelled: the work is no longer wanted."""

    def __init__(self, reason: str = "the handler cancelled the task") -> None:
        self.reason = clean(str(reason)[:MAX_MESSAGE])[:MAX_MESSAGE]
        super().__init__(self.reason)


@dataclass(slots=True)
class Completed:
    """The handler returned a value (JSON text, or None)."""

    result: str | None = None


@dataclass(slots=True, frozen=True)
class Failed:
    """The handler raised, timed out or crashed; ``failure`` is the classified cause.

    ``after``: seconds after which the handler itself wants another attempt, instead of the backoff. ``state``: what it
    leaves with the task where it declared the failure itself."""

    failure: Failure
    after: float | None = None
    state: Any = None


@dataclass(slots=True, frozen=True)
class Released:
    """Handed back unfinished (shutdown): runs again at once, and the attempt is not counted."""

    reason: str = "released"


@dataclass(slots=True, frozen=True)
class HandedBack:
    """Not begun: whoever claimed it does not know the task's feature, or that kind of it. It waits ``seconds`` for
    somebody who does, and the attempt is not counted."""

    reason: str = "its feature is not known here"
    seconds: float = 10.0


@dataclass(slots=True, frozen=True)
class Expired:
    """The lease ran out: whoever held it is gone or hung. The attempt counts. ``limit``: the time limit that it had
    passed by then, if it has one."""

    limit: float | None = None


Outcome = Completed | Snooze | Retry | Fail | Cancel | Failed | Released | HandedBack | Expired
