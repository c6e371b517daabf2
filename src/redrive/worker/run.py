"""One leased task in a worker's hands, and how far its attempt has come."""

from __future__ import annotations

import asyncio
import time
from enum import IntEnum
from typing import Any

from redrive.handlers.context import Context
from redrive.handlers.registry import Handler, Isolation
from redrive.kernel.outcome import StopReason
from redrive.kernel.ports.sql import Transaction
from redrive.kernel.task import Claimed


class RunState(IntEnum):
    """How far an attempt has come; it only ever goes forward."""

    STARTING = 0  # its process is being started
    RUNNING = 1
    TRAILING = 2  # its own transaction has completed the task, and the handler goes on
    SETTLED = 3  # its outcome is known, and no other counts
    ABANDONED = 4  # settled without its handler, which did not stop


# Looked at for every task: a global is found faster than a member of an enum.
_RUNNING, _TRAILING, _LOOP = RunState.RUNNING, RunState.TRAILING, Isolation.LOOP


class Run:
    """One leased task in this worker's hands, from claim to settle."""

    __slots__ = (
        "again",
        "apart",
        "committing",
        "context",
        "deadline",
        "error",
        "future",
        "handler",
        "interruptible",
        "label",
        "mates",
        "progress",
        "renewed_at",
        "slot",
        "start_limit",
        "started",
        "state",
        "stop",
        "stopped_at",
        "task",
        "timeout",
        "transaction",
    )

    def __init__(
        self, task: Claimed, handler: Handler | None, context: Context, timeout: float | None, start_limit: float
    ) -> None:
        now = time.monotonic()
        self.task = task
        self.handler = handler
        self.context = context
        self.label = ""
        self.timeout = timeout
        self.started = now
        self.renewed_at = now
        self.state = _RUNNING
        self.start_limit = start_limit
        self.deadline = now + timeout if timeout else None
        self.interruptible = True
        if handler is not None and handler.isolation is not _LOOP:
            # A thread cannot be interrupted: it is left to notice, and abandoned if it does not.
            self.interruptible = handler.isolation is Isolation.PROCESS
            if self.interruptible:
                # A process has to start and import the application first: that is not the handler's time.
                self.state = RunState.STARTING
                self.deadline = now + start_limit
        self.future: asyncio.Future[Any] | None = None
        # All of one bulk call. None for a call of its own: a list with itself in it would keep it, and what it holds,
        # until the collector comes by.
        self.mates: list[Run] | None = None
        self.progress: str | None = None
        self.stop: StopReason | None = None
        self.stopped_at = 0.0
        self.slot = True
        self.apart = False  # the store knows that it has not been begun
        # Its transaction is at its commit, whose answer is not known yet.
        self.committing = False
        # Its outcome went out before, or may have, and no answer came.
        self.again = False
        self.transaction: Transaction | None = None
        self.error: BaseException | None = None  # what its handler raised, where somebody wants to see it

    @property
    def ms(self) -> float:
        return (time.monotonic() - self.started) * 1000

    @property
    def settled(self) -> bool:
        """True when its outcome is known, or its own transaction has completed the task."""
        return self.state >= _TRAILING

    @property
    def awaited(self) -> bool:
        """True while its handler has not ended, and was not abandoned."""
        return self.state <= _TRAILING

    def begin(self) -> None:
        """Starts the clock of a run whose process has begun the job."""
        if self.state is RunState.STARTING:
            self.state = RunState.RUNNING
            self.started = time.monotonic()
            self.deadline = self.started + self.timeout if self.timeout else None

    def break_transaction(self) -> None:
        """Rolls back what the handler has open, without it: it would hold its locks, and on SQLite everybody up, for as
        long as it hangs. What it still does with it is refused."""
        opened, self.transaction = self.transaction, None
        if opened is not None:
            opened.abort()

    def ask_to_stop(self, why: StopReason) -> None:
        """Tells the handler to stop: sets ``ctx.cancelled``, cancels what can be cancelled. The first reason stays."""
        if self.stop is not None or not self.awaited:
            return
        self.stop = self.context._stop = why
        self.stopped_at = time.monotonic()
        # A bulk call is stopped as a whole only when none of its tasks is wanted any more.
        mates = self.mates or [self]
        if (
            self.future is not None
            and self.interruptible
            and all(mate.stop is not None or mate.settled for mate in mates)
        ):
            for mate in mates:
                mate.context._asked_to_stop = True
            self.future.cancel()

    def note_shutdown(self) -> None:
        """Marks a run that was cancelled together with the whole worker: a loop that ends cancels what it finds, and a
        handler may hear of it before the worker does."""
        if self.stop is None:
            self.stop = self.context._stop = StopReason.SHUTDOWN

    def give_up(self) -> None:
        """Stops a run whose lease is somebody else's, whatever it was stopped for before; its outcome is not handed
        in."""
        self.ask_to_stop(StopReason.LEASE_LOST)
        self.stop = self.context._stop = StopReason.LEASE_LOST

    @property
    def lost(self) -> bool:
        """True when its lease is somebody else's."""
        return self.stop is StopReason.LEASE_LOST
