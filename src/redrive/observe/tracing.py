"""Makes spans of OpenTelemetry: one for what is enqueued, one for each attempt and, if asked for, one for each call of
the store.

Names are those of the semantic conventions for messaging. Imported only where ``REDRIVE_TRACING`` is on: it needs the
OpenTelemetry API. Which SDK there is, and where spans go, is the application's; without one nothing is recorded, and
nothing is written into tasks.

The span of an attempt is a child of the span that enqueued its task, and linked to it. The conventions ask for the link
and allow the parent: with it, all attempts are in the producer's trace, so that its id, wherever it was found, leads to
the task and the other way round, and a trace is sampled whole or not at all. A bulk call has many producers: it has
their links, and a trace of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as current
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from redrive.kernel.commit import Commit
from redrive.kernel.outcome import Cancel, Completed, Failed, Outcome, Snooze
from redrive.kernel.ports.store import ClaimRequest, Cycle
from redrive.kernel.task import MAX_TEXT, Claimed, NewTask
from redrive.kernel.trace import split_trace
from redrive.version import __version__

Attributes = dict[str, str | int]
SYSTEM: Attributes = {"messaging.system": "redrive"}
SEND: Attributes = SYSTEM | {"messaging.operation.type": "send", "messaging.operation.name": "enqueue"}
PROCESS: Attributes = SYSTEM | {"messaging.operation.type": "process", "messaging.operation.name": "process"}
CallCycle = Callable[..., Coroutine[Any, Any, Cycle]]


class Tracing:
    """Begins and ends spans. ``calls``: also for each call in which a worker settles and claims."""

    def __init__(self, *, calls: bool = False) -> None:
        self.calls = calls
        self._tracer = trace.get_tracer("redrive", __version__)

    # -- producers -------------------------------------------------------------------------------------------------

    @contextmanager
    def sending(
        self, tasks: Sequence[NewTask], given: str | None = None, *, root: bool = False
    ) -> Iterator[str | None]:
        """The span of an enqueue: gives the context that its tasks keep; None where nothing is traced. ``given``: the
        context that the caller named, instead of the active one; ``root``: nobody called."""
        about: Attributes = {"messaging.batch.message_count": len(tasks)} if len(tasks) != 1 else _of_new(tasks[0])
        name = "enqueue" if len(tasks) != 1 else f"enqueue {tasks[0].kind}"
        within = Context() if root else _entered(given)
        # Not with the exception: its message may hold anything.
        with self._tracer.start_as_current_span(
            name, within, SpanKind.PRODUCER, SEND | about, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield text_of(span)
            except BaseException as error:
                _broke(span, error)
                raise
            if len(tasks) != 1 and span.is_recording():
                _tell_what_they_share(span, tasks)

    # -- attempts --------------------------------------------------------------------------------------------------

    def begin(self, task: Claimed, worker_id: str) -> Span:
        """Begins the span of an attempt, and makes it the active one, for good: each attempt has a context of its
        own."""
        parent = context_of(task.trace_parent)
        about: Attributes = {
            "messaging.destination.name": task.queue,
            "messaging.message.id": str(task.id),
            "messaging.client.id": worker_id,
            "redrive.task.kind": task.kind,
            "redrive.task.attempt": task.attempt,
            "redrive.task.max_attempts": task.max_attempts,
            "redrive.task.replays": task.replay_count,
        }
        return self._begin(task.kind, about, parent, [] if parent is None else [Link(parent)])

    def begin_bulk(self, tasks: Sequence[Claimed], worker_id: str) -> Span:
        """Begins the span of a call for many tasks: of one trace with none of them, and linked to all."""
        first = tasks[0]
        about: Attributes = {
            "messaging.destination.name": first.queue,
            "messaging.batch.message_count": len(tasks),
            "messaging.client.id": worker_id,
            "redrive.task.kind": first.kind,
        }
        found = (context_of(task.trace_parent) for task in tasks)
        return self._begin(first.kind, about, None, [Link(one) for one in found if one is not None])

    def _begin(self, kind: str, about: Attributes, parent: SpanContext | None, links: Sequence[Link]) -> Span:
        # Not what is active here: that of whoever started the worker.
        within = Context() if parent is None else trace.set_span_in_context(NonRecordingSpan(parent), Context())
        span = self._tracer.start_span(f"process {kind}", within, SpanKind.CONSUMER, PROCESS | about, links)
        current.attach(trace.set_span_in_context(span, within))
        return span

    def end(self, span: Span, outcomes: Sequence[Outcome]) -> None:
        """Ends the span of a call with what came of its tasks; nothing came of a call that was torn down."""
        if span.is_recording():
            span.set_attribute(
                "redrive.task.outcome", "/".join(sorted({_outcome(one) for one in outcomes})) or "stopped"
            )
            if (failed := next((one for one in outcomes if isinstance(one, Failed)), None)) is not None:
                tell_failure(span, failed)
        span.end()

    @staticmethod
    def active() -> str | None:
        """Returns the active span's context as text; None where there is none."""
        return text_of(trace.get_current_span())

    # -- calls of the store ----------------------------------------------------------------------------------------

    def traced(self, cycle: CallCycle) -> CallCycle:
        """Returns the same call with a span, unless there was nothing to settle and nothing to claim."""

        async def call(commit: Commit, want: ClaimRequest | None, *, again: bool = False) -> Cycle:
            began = time.time_ns()
            try:
                found = await cycle(commit, want, again=again)
            except Exception as error:
                self._called(began, commit, None, error)
                raise
            if commit.transitions or found.claimed:
                self._called(began, commit, found)
            return found

        return call

    def _called(self, began: int, commit: Commit, found: Cycle | None, error: Exception | None = None) -> None:
        settled, claimed = len(commit.transitions), 0 if found is None else len(found.claimed)
        name = " and ".join([*["settle"] * bool(settled), *["claim"] * bool(claimed or not settled)])
        about: Attributes = SYSTEM | {
            "messaging.operation.name": name,
            "messaging.operation.type": "settle" if settled else "receive",
            "messaging.batch.message_count": claimed or settled,
            "redrive.settled": settled,
            "redrive.claimed": claimed,
        }
        span = self._tracer.start_span(name, Context(), SpanKind.CLIENT, about, start_time=began)
        if error is not None:
            _broke(span, error)
        span.end()


def _broke(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", str(getattr(error, "code", None) or type(error).__name__))
    span.set_status(Status(StatusCode.ERROR))


def tell_failure(span: Span, failed: Failed) -> None:
    """Says why an attempt failed: in words of code, never of data."""
    cause = failed.failure
    span.set_attribute("error.type", str(cause.summary.get("exception") or cause.reason))
    span.set_attribute("redrive.error.code", cause.code)
    span.set_attribute("redrive.error.reason", cause.reason)
    span.set_attribute("redrive.error.fingerprint", cause.fingerprint)
    span.set_status(Status(StatusCode.ERROR, str(cause.summary.get("message", ""))))


def text_of(span: Span) -> str | None:
    """Returns a span's context as a task keeps it: traceparent, and tracestate behind a space. None: it has none."""
    found = span.get_span_context()
    if not found.is_valid:
        return None
    text = f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"
    state = found.trace_state.to_header()
    # A state that is too long is left out, as one may.
    return f"{text} {state}" if state and len(text) + 1 + len(state) <= MAX_TEXT else text


def context_of(text: str | None) -> SpanContext | None:
    """Returns the context that a task kept."""
    if text is None:
        return None
    parent, _, state = text.partition(" ")
    _, trace_id, span_id, flags = parent[:55].split("-")
    known = TraceState.from_header([state]) if state else None
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)), known)


def enter(text: str) -> None:
    """Makes a span of another process the active one of this."""
    current.attach(_entered(text) or Context())


def _entered(text: str | None) -> Context | None:
    found = context_of(split_trace(text)[1])
    return None if found is None else trace.set_span_in_context(NonRecordingSpan(found))


def _of_new(task: NewTask) -> Attributes:
    return {
        "messaging.destination.name": task.queue,
        "messaging.message.id": str(task.id),
        "redrive.task.kind": task.kind,
    }


def _tell_what_they_share(span: Span, tasks: Sequence[NewTask]) -> None:
    kinds, queues = {task.kind for task in tasks}, {task.queue for task in tasks}
    if len(kinds) == 1:
        span.update_name(f"enqueue {min(kinds)}")
        span.set_attribute("redrive.task.kind", min(kinds))
    if len(queues) == 1:
        span.set_attribute("messaging.destination.name", min(queues))


def _outcome(outcome: Outcome) -> str:
    match outcome:
        case Completed():
            return "completed"
        case Failed():
            return "failed"
        case Snooze():
            return "snoozed"
        case Cancel():
            return "cancelled"
    return "released"
