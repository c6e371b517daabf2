"""Runs one attempt: resolve the handler, validate the payload, run, and return what came of it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import time
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any

from redrive.errors import ErrorCode, InvalidInput, PayloadInvalid, RedriveError
from redrive.handlers.bulk import Bulk, Item, collect_answers
from redrive.handlers.context import Context
from redrive.handlers.functions import HandlerNotRun, insist_it_ran
from redrive.handlers.registry import Handler, Isolation
from redrive.kernel.failure import FailureType, clean, failure
from redrive.kernel.outcome import Cancel, Completed, Done, Fail, Failed, Outcome, Released, Retry, StopReason, Verdict
from redrive.kernel.payload import encode, encode_result
from redrive.kernel.ports.store import Transaction
from redrive.kernel.summary import Payload
from redrive.kernel.task import Claimed
from redrive.observe.current import CURRENT
from redrive.worker.failures import decided, failed, handled_by
from redrive.worker.forks import Home, confined
from redrive.worker.pools import HandlerPools
from redrive.worker.processes import ProcessDied
from redrive.worker.threads import NoRoom

COMPLETED = Completed()
# Results that are certainly not something to be awaited; all others are looked at.
_PLAIN = frozenset({dict, list, str, int, float, bool, tuple})
_RELEASE_REASONS = {
    StopReason.SHUTDOWN: "shutdown",
    StopReason.STORE_UNREACHABLE: "lease ran out while the store was unreachable",
}


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
                mate.context._told = True
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


class Runner:
    """Runs attempts where their handler belongs: on the loop, in a thread, in a process."""

    def __init__(
        self,
        pools: HandlerPools,
        worker_id: str,
        on_start: Callable[[Run], None],
        cut_off: Callable[[], bool],
        on_no_room: Callable[[Run, str], None],
    ) -> None:
        self._cut_off = cut_off
        self._on_no_room = on_no_room
        self._threads = pools.threads
        self._processes = pools.processes
        self.close = pools.close
        self._worker_id = worker_id
        self._on_start = on_start
        self._home = Home()
        self.keeps_errors = False  # exceptions stay with their runs: hooks are told of them

    async def run(self, run: Run) -> Outcome:
        """Runs one attempt and returns its outcome. Never raises, except when the worker itself is being torn down."""
        handler = run.handler
        if handler is None:
            return _unsupported(run.task)
        try:
            arguments = handler.payload.arguments(run.task.payload)
        except RedriveError as error:
            return _bad_payload(error, run.task)
        except Exception as error:  # a validator of the application's own that raises what it should not
            return self._raised(run, error, handler)
        CURRENT.set(run.context)
        try:
            if handler.isolation is _LOOP:
                value = await handler.function(run.context, **arguments)
            else:
                value = await self._call_elsewhere(handler, run, arguments)
            if value is not None and type(value) not in _PLAIN:
                value = await self._awaited([run], value)
        except BaseException as error:
            return self._raised(run, error, handler)
        return COMPLETED if value is None and run.stop is None else self._returned(run, value, handler)

    async def run_bulk(self, runs: list[Run]) -> list[Outcome]:
        """Runs one call for many tasks and returns their outcomes. A payload that does not fit fails alone."""
        handler = runs[0].handler
        assert handler is not None
        outcomes: dict[int, Outcome] = {}
        items: list[tuple[int, Item]] = []
        for index, run in enumerate(runs):
            try:
                items.append((index, Item(run.context, handler.payload.whole(run.task.payload))))
            except RedriveError as error:
                outcomes[index] = _bad_payload(error, runs[index].task)
            except Exception as error:
                outcomes[index] = self._raised(run, error, handler)
        bulk = Bulk([item for _, item in items])
        returned: Any = None
        raised: BaseException | None = None
        judged: Failed | None = None
        if items:
            CURRENT.set(bulk)
            try:
                returned = await self._awaited(runs, await self._call_bulk(handler, bulk))
            except BaseException as error:
                raised = error
        for (index, item), answer in zip(items, collect_answers(bulk, returned, raised), strict=True):
            if item.answered:
                outcomes[index] = outcome_of(answer, handler, runs[index].task)
            elif raised is not None:
                # Judged once: one exception for many tasks.
                judged = judged or failed(raised, handled_by(handler, *(run.task for run in runs)))
                outcomes[index] = self._raised(runs[index], raised, handler, judged)
            else:
                outcomes[index] = self._returned(runs[index], answer, handler)
        return [outcomes[index] for index in range(len(runs))]

    async def _call_elsewhere(self, handler: Handler, run: Run, arguments: dict[str, Any]) -> Any:
        if handler.isolation is Isolation.THREAD:
            return await self._threads.submit(lambda: handler.function(run.context, **arguments))
        begin, where = partial(self._on_start, run), run.context.connection
        return await self._processes.run(handler, run.task, arguments, self._worker_id, begin, where, self.context())

    def context(self) -> str | None:
        """Returns the trace that a handler in another process is part of; None: of none."""
        return None

    def abandoned(self, run: Run) -> None:
        """Hears of a handler that was given up."""

    async def _call_bulk(self, handler: Handler, bulk: Bulk) -> Any:
        if handler.isolation is Isolation.LOOP:
            return handler.function(bulk)
        return await self._threads.submit(lambda: handler.function(bulk))

    async def _awaited(self, runs: list[Run], value: Any) -> Any:
        """Returns what a handler returned, awaited where it is an awaitable: a coroutine behind a plain decorator, a
        forgotten await."""
        while True:
            if isinstance(value, concurrent.futures.Future):
                value = asyncio.wrap_future(value)
            if not inspect.isawaitable(value):
                return value
            if all(run.stop is not None for run in runs):  # asked to stop before it began
                if inspect.iscoroutine(value):
                    value.close()
                raise asyncio.CancelledError
            for run in runs:
                run.interruptible = True
            if inspect.iscoroutine(value):
                value = await confined(value.send, value.throw, self._home)
            else:
                value = await value

    def _returned(self, run: Run, value: Any, handler: Handler) -> Outcome:
        """Returns the outcome of a handler that returned. One that was told to stop has stopped, unless it says that it
        finished."""
        if isinstance(value, Verdict):
            return outcome_of(value, handler, run.task)
        said = run.context._done
        if said is not None:
            return outcome_of(said.value if value is None else value, handler, run.task)
        # A task that its own transaction has completed is completed; of one that was given up, this is what it said.
        if run.stop is not None and run.context._told and not run.settled:
            return stopped(run)
        return outcome_of(value, handler, run.task)

    def _raised(self, run: Run, error: BaseException, handler: Handler, judged: Failed | None = None) -> Outcome:
        if self.keeps_errors:
            run.error = error
        if isinstance(error, Verdict):
            return judged if judged and isinstance(error, Fail | Retry) else outcome_of(error, handler, run.task)
        if isinstance(error, NoRoom):
            self._on_no_room(run, str(error))
            return Released(f"not begun: {error}") if run.stop is None else stopped(run)
        if isinstance(error, asyncio.CancelledError) and self._cut_off():
            run.note_shutdown()
        # However a handler that was told to stop puts it, it stopped because it was told to: a thread has no other way
        # than an exception of its own, and a shutdown must not cost an attempt. Of what is settled, it is only told.
        told = run.context._told and not run.settled
        if run.stop is not None and (told or isinstance(error, asyncio.CancelledError)):
            said = run.context._done
            return stopped(run) if said is None else outcome_of(said, handler, run.task)
        if isinstance(error, ProcessDied):
            died = failure(ErrorCode.EXECUTION_FAILED, "process_died", str(error), where=run.task.kind, public=True)
            return Failed(died)
        return judged or failed(error, handled_by(handler, run.task))


def outcome_of(value: Any, handler: Handler, task: Claimed) -> Outcome:
    """Returns the outcome for what a handler returned or raised on purpose. Handlers of features may give one that is
    made already: the same for many tasks."""
    if type(value) is Completed:
        return value
    if isinstance(value, Done):
        value = value.value
    if isinstance(value, Verdict):
        return decided(value, lambda: handled_by(handler, task))
    if isinstance(value, Failed):
        return value
    if isinstance(value, HandlerNotRun):
        return Failed(value.failure(handler.kind))
    if isinstance(value, BaseException):
        return failed(value, handled_by(handler, task))
    if value is None:
        return COMPLETED
    try:
        insist_it_ran(value)
        return Completed(encode_result(value, "the handler's result"))
    except HandlerNotRun as error:
        return Failed(error.failure(handler.kind))
    except PayloadInvalid as error:
        message = error.message
    except Exception as error:  # a container of the application's own that cannot be read
        message = f"reading the handler's result raised {type(error).__name__}"
    # The work is done: retrying it for a result that cannot be stored would do it twice.
    return Completed(encode({"error": "RESULT_NOT_STORED", "message": clean(message)[:500]}))


def failed_unexpectedly(run: Run, error: BaseException | None) -> Outcome:
    """Returns the outcome of an attempt that broke where nothing was expected to, with no more of the error than cannot
    break again."""
    what = "it was cancelled" if error is None else f"{type(error).__name__} was raised"
    message = f"the attempt ended without an outcome: {what} outside the handler"
    return Failed(failure(ErrorCode.EXECUTION_FAILED, "no_outcome", message, where=run.task.kind, public=True))


def stopped(run: Run) -> Outcome:
    """Returns the outcome of a stopped attempt, by the reason it was stopped for."""
    match run.stop:
        case StopReason.TIMEOUT:
            message = f"the handler did not finish within its timeout of {run.timeout or 0:g} s"
            if run.state is RunState.STARTING:
                message = f"the handler's process did not start within {run.start_limit:g} s"
            return Failed(
                failure(
                    ErrorCode.EXECUTION_FAILED,
                    "timeout",
                    message,
                    type=FailureType.TIMEOUT,
                    where=run.task.kind,
                    public=True,
                )
            )
        case StopReason.CANCELLED:
            return Cancel("cancelled while it was running")
        case why:
            return Released("stopped" if why is None else _RELEASE_REASONS.get(why, why.value))


def _unsupported(task: Claimed) -> Outcome:
    message = f"no handler is registered for kind {task.kind}"
    return Failed(
        failure(ErrorCode.PAYLOAD_UNSUPPORTED, "no_handler", message, type=FailureType.PARAM_ERROR, public=True)
    )


def _bad_payload(error: RedriveError, task: Claimed) -> Outcome:
    code = error.code if isinstance(error, InvalidInput) else ErrorCode.PAYLOAD_INVALID.value
    cause = failure(
        code,
        "bad_payload",
        error.message,
        type=FailureType.PARAM_ERROR,
        retryable=False,
        payload=Payload(task.payload, task.memo),
        what=getattr(error, "what", None),
    )
    return Failed(cause)
