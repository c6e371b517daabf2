"""One attempt: resolve, validate, run, and say what came of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from redrive.errors import ErrorCode, InvalidInput, PayloadInvalid, RedriveError
from redrive.handlers.bulk import Batch, Item, answers
from redrive.handlers.context import Context
from redrive.handlers.registry import Handler, Isolation
from redrive.kernel.failure import FailureType, clean, failure, failure_of
from redrive.kernel.outcome import Cancel, Completed, Failed, Outcome, Released, Verdict
from redrive.kernel.payload import encode
from redrive.kernel.summary import Payload
from redrive.kernel.task import Claimed
from redrive.worker.processes import ProcessDied, ProcessPool
from redrive.worker.threads import ThreadPool

START_LIMIT = 60.0
COMPLETED = Completed()


class Run:
    """One leased task in this worker's hands, from claim to settle."""

    __slots__ = ("abandoned", "again", "committing", "context", "deadline", "future", "handler", "label", "mates",
                 "progress", "renewed_at", "settled", "slot", "started", "starting", "stop", "stopped_at", "task",
                 "timeout", "trailing", "transaction")  # fmt: skip

    def __init__(self, task: Claimed, handler: Handler | None, context: Context, timeout: float | None) -> None:
        now = time.monotonic()
        self.task = task
        self.handler = handler
        self.context = context
        self.label = ""
        self.timeout = timeout
        self.started = now
        self.renewed_at = now
        # A process has to start and import the application first: that is not the handler's time.
        self.starting = handler is not None and handler.isolation is Isolation.PROCESS
        self.deadline = now + timeout if timeout else None
        if self.starting:
            self.deadline = now + START_LIMIT
        self.future: asyncio.Future[Any] | None = None
        self.mates: list[Run] = [self]
        self.progress: str | None = None
        self.stop: str | None = None
        self.stopped_at = 0.0
        self.settled = False
        self.slot = True
        self.abandoned = False
        self.committing = False
        self.again = False
        # Its own transaction has completed the task, and the handler goes on.
        self.trailing = False
        self.transaction: Any = None

    @property
    def ms(self) -> float:
        return (time.monotonic() - self.started) * 1000

    def begin(self) -> None:
        """The handler's process has begun the job: its time runs from now."""
        if self.starting:
            self.starting = False
            self.deadline = time.monotonic() + self.timeout if self.timeout else None

    def break_transaction(self) -> None:
        """Roll back what the handler has open, without it: it would hold its locks, and on SQLite everybody up, for
        as long as it hangs. What it still does with it is refused."""
        opened, self.transaction = self.transaction, None
        if opened is not None:
            (getattr(opened, "abandon", None) or opened.terminate)()

    def ask_to_stop(self, why: str) -> None:
        """Tell the handler to stop: sets ``ctx.cancelled``, cancels what can be. The first reason stays."""
        if self.stop is not None or (self.settled and not self.trailing):
            return
        self.stop = why
        self.stopped_at = time.monotonic()
        self.context._cancelled = True
        # A thread cannot be interrupted: it is left to notice, and abandoned if it does not. A bulk call is
        # stopped as a whole only when none of its tasks is wanted any more.
        interruptible = self.handler is not None and self.handler.isolation is not Isolation.THREAD
        if self.future is not None and interruptible and all(m.stop is not None or m.settled for m in self.mates):
            self.future.cancel()


class Runner:
    """Runs attempts where their handler belongs."""

    def __init__(
        self, threads: ThreadPool, processes: ProcessPool, worker_id: str, on_start: Callable[[Run], None]
    ) -> None:
        self._threads = threads
        self._processes = processes
        self._worker_id = worker_id
        self._on_start = on_start

    async def run(self, run: Run) -> Outcome:
        """The whole attempt as a value. Never raises, except when the worker itself is being torn down."""
        handler = run.handler
        if handler is None:
            return _unsupported(run.task)
        try:
            arguments = handler.payload.arguments(run.task.payload)
        except RedriveError as error:
            return _bad_payload(error, run.task)
        except Exception as error:  # a validator of the application's own that raises what it should not
            return self._raised(run, error, handler)
        try:
            if handler.isolation is Isolation.LOOP:
                value = await handler.function(run.context, **arguments)
            else:
                value = await self._call_elsewhere(handler, run, arguments)
        except BaseException as error:
            return self._raised(run, error, handler)
        return COMPLETED if value is None else outcome_of(value, handler, run.task)

    async def run_bulk(self, runs: list[Run]) -> list[Outcome]:
        """One call for many tasks. A payload that does not fit fails alone."""
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
        batch = Batch([item for _, item in items])
        returned: Any = None
        raised: BaseException | None = None
        if items:
            try:
                returned = await self._call_bulk(handler, batch)
            except BaseException as error:
                raised = error
        for (index, item), answer in zip(items, answers(batch, returned, raised), strict=True):
            if raised is None or item.answered:
                outcomes[index] = outcome_of(answer, handler, runs[index].task)
            else:
                outcomes[index] = self._raised(runs[index], raised, handler)
        return [outcomes[index] for index in range(len(runs))]

    async def _call_elsewhere(self, handler: Handler, run: Run, arguments: dict[str, Any]) -> Any:
        if handler.isolation is Isolation.THREAD:
            return await self._threads.submit(lambda: handler.function(run.context, **arguments))
        return await self._processes.run(handler, run.task, arguments, self._worker_id, lambda: self._on_start(run))

    async def _call_bulk(self, handler: Handler, batch: Batch) -> Any:
        if handler.isolation is Isolation.LOOP:
            return await handler.function(batch)
        return await self._threads.submit(lambda: handler.function(batch))

    def _raised(self, run: Run, error: BaseException, handler: Handler) -> Outcome:
        # Once told to stop, however a handler puts it, it stopped because it was told to: a thread has no other way
        # than an exception of its own, and a shutdown must not cost an attempt.
        if run.stop is not None and not isinstance(error, Verdict):
            return stopped(run)
        if isinstance(error, Verdict):
            return outcome_of(error, handler, run.task)
        if isinstance(error, ProcessDied):
            died = failure(ErrorCode.EXECUTION_FAILED, "process_died", str(error), where=run.task.kind, public=True)
            return Failed(died)
        return _failed(error, handler, run.task)


def outcome_of(value: Any, handler: Handler, task: Claimed) -> Outcome:
    """What a handler returned or raised on purpose, as an outcome."""
    if isinstance(value, Verdict):
        return value  # type: ignore[return-value]
    if isinstance(value, Failed):
        return value
    if isinstance(value, BaseException):
        return _failed(value, handler, task)
    if value is None:
        return Completed()
    try:
        return Completed(encode(value, "the handler's result"))
    except PayloadInvalid as error:
        message = error.message
    except Exception as error:  # a container of the application's own that cannot be read
        message = f"reading the handler's result raised {type(error).__name__}"
    # The work is done: retrying it for a result that cannot be stored would do it twice.
    return Completed(encode({"error": "RESULT_NOT_STORED", "message": clean(message)[:500]}))


def _failed(error: BaseException, handler: Handler, task: Claimed) -> Failed:
    given = Payload(task.payload, task.memo)
    module = getattr(handler.function, "__module__", None)
    return Failed(failure_of(error, deterministic=handler.deterministic, payload=given, module=module))


def unforeseen(run: Run, error: BaseException | None) -> Outcome:
    """The attempt broke where nothing was expected to. Says no more of the error than cannot break again."""
    what = "it was cancelled" if error is None else f"{type(error).__name__} was raised"
    message = f"the attempt ended without an outcome: {what} outside the handler"
    return Failed(failure(ErrorCode.EXECUTION_FAILED, "no_outcome", message, where=run.task.kind, public=True))


def stopped(run: Run) -> Outcome:
    """What a stopped attempt becomes, by the reason it was stopped for."""
    match run.stop:
        case "timeout":
            message = f"the handler did not finish within its timeout of {run.timeout or 0:g} s"
            if run.starting:
                message = f"the handler's process did not start within {START_LIMIT:g} s"
            return Failed(
                failure(
                    ErrorCode.EXECUTION_FAILED, "timeout", message, type=FailureType.TIMEOUT, where=run.task.kind,
                    public=True,
                )
            )  # fmt: skip
        case "cancel":
            return Cancel("cancelled while it was running")
        case _:
            return Released(run.stop or "stopped")


def _unsupported(task: Claimed) -> Outcome:
    message = f"no handler is registered for kind {task.kind}"
    return Failed(
        failure(ErrorCode.PAYLOAD_UNSUPPORTED, "no_handler", message, type=FailureType.PARAM_ERROR, public=True)
    )


def _bad_payload(error: RedriveError, task: Claimed) -> Outcome:
    code = error.code if isinstance(error, InvalidInput) else ErrorCode.PAYLOAD_INVALID.value
    cause = failure(
        code, "bad_payload", error.message, type=FailureType.PARAM_ERROR, retryable=False,
        payload=Payload(task.payload, task.memo),
    )  # fmt: skip
    return Failed(cause)
