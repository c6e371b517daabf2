"""Runs one attempt where its handler belongs (on the loop, in a thread, in a process), and returns what came of it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from redrive.errors import ErrorCode, InvalidInput, PayloadInvalid, RedriveError
from redrive.handlers.bulk import Bulk, Item, collect_answers
from redrive.handlers.functions import HandlerNotRun, insist_it_ran
from redrive.handlers.registry import Handler, Isolation
from redrive.kernel.failure import FailureType, clean, failure
from redrive.kernel.outcome import Cancel, Completed, Done, Fail, Failed, Outcome, Released, Retry, StopReason, Verdict
from redrive.kernel.payload import encode, encode_result
from redrive.kernel.summary import Payload
from redrive.kernel.task import Claimed
from redrive.observe.current import CURRENT
from redrive.worker.failures import decided, failed, handled_by
from redrive.worker.forks import Home, confined
from redrive.worker.pools import CannotStart, ThreadPool
from redrive.worker.processes import ProcessDied, ProcessPool
from redrive.worker.run import Run, RunState

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from redrive.observe.tracing import Tracing


class HandlerPools:
    """The threads and processes of one worker. ``on_progress`` hears what a handler in a process says."""

    def __init__(self, on_progress: Callable[[Claimed, str], None]) -> None:
        self.threads = ThreadPool()
        self.processes = ProcessPool(on_progress)

    def started(self) -> int:
        """Returns how many threads and processes were started for handlers."""
        return self.threads.started + self.processes.started

    def close(self) -> None:
        self.threads.close()
        self.processes.close()


COMPLETED = Completed()
# Results that are certainly not something to be awaited; all others are looked at.
_PLAIN = frozenset({dict, list, str, int, float, bool, tuple})
_RELEASE_REASONS = {
    StopReason.SHUTDOWN: "shutdown",
    StopReason.STORE_UNREACHABLE: "lease ran out while the store was unreachable",
}
_LOOP = Isolation.LOOP  # looked at for every task: a global is found faster than a member of an enum


class Runner:
    """Runs attempts where their handler belongs: on the loop, in a thread, in a process."""

    def __init__(
        self,
        pools: HandlerPools,
        worker_id: str,
        on_start: Callable[[Run], None],
        cut_off: Callable[[], bool],
        on_cannot_start: Callable[[Run, str], None],
    ) -> None:
        self._cut_off = cut_off
        self._on_cannot_start = on_cannot_start
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
        done = run.context._done
        if done is not None:
            return outcome_of(done.value if value is None else value, handler, run.task)
        # A task that its own transaction has completed is completed; of one that was given up, this is what it said.
        if run.stop is not None and run.context._asked_to_stop and not run.settled:
            return stopped(run)
        return outcome_of(value, handler, run.task)

    def _raised(self, run: Run, error: BaseException, handler: Handler, judged: Failed | None = None) -> Outcome:
        if self.keeps_errors:
            run.error = error
        if isinstance(error, Verdict):
            return judged if judged and isinstance(error, Fail | Retry) else outcome_of(error, handler, run.task)
        if isinstance(error, CannotStart):
            self._on_cannot_start(run, str(error))
            return Released(f"not begun: {error}") if run.stop is None else stopped(run)
        if isinstance(error, asyncio.CancelledError) and self._cut_off():
            run.note_shutdown()
        # However a handler that was told to stop puts it, it stopped because it was told to: a thread has no other way
        # than an exception of its own, and a shutdown must not cost an attempt. Of what is settled, it is only told.
        asked = run.context._asked_to_stop and not run.settled
        if run.stop is not None and (asked or isinstance(error, asyncio.CancelledError)):
            done = run.context._done
            return stopped(run) if done is None else outcome_of(done, handler, run.task)
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


class TracedRunner(Runner):
    """A Runner whose handlers see the span of their attempt as the active one."""

    def __init__(self, tracing: Tracing, *args: Any) -> None:
        super().__init__(*args)
        self._tracing = tracing
        self._spans: dict[Run, Span] = {}  # of handlers that have not ended

    async def run(self, run: Run) -> Outcome:
        self._spans[run] = self._tracing.begin(run.task, self._worker_id)
        outcomes: list[Outcome] = []
        try:
            outcomes = [await super().run(run)]
            return outcomes[0]
        finally:
            self._end([run], outcomes)

    async def run_bulk(self, runs: list[Run]) -> list[Outcome]:
        span = self._tracing.begin_bulk([run.task for run in runs], self._worker_id)
        self._spans.update(dict.fromkeys(runs, span))
        outcomes: list[Outcome] = []
        try:
            outcomes = await super().run_bulk(runs)
            return outcomes
        finally:
            self._end(runs, outcomes)

    def abandoned(self, run: Run) -> None:
        """Ends the span of a handler that does not stop: it may never end."""
        self._end(run.mates or [run], [stopped(run)])

    def context(self) -> str | None:
        return self._tracing.active()

    def _end(self, runs: Sequence[Run], outcomes: Sequence[Outcome]) -> None:
        spans = {id(span): span for run in runs if (span := self._spans.pop(run, None)) is not None}
        for span in spans.values():
            self._tracing.end(span, outcomes)
