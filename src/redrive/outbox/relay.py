"""The relay: projects many events to a sink in one call, and gives each its own outcome.

Sinks that keep versions of deleted documents are pruned between two requests by whoever writes to them: the file of a
full-text sink may be one that no other worker can reach. Those that forget deletions have tombstones in the store,
which its own upkeep prunes."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redrive.kernel.backoff import Backoff
from redrive.kernel.classify import Classification, FailureType, classify
from redrive.kernel.outcome import Completed
from redrive.kernel.payload import encode
from redrive.outbox.event import Event, Op, UnfitEvent, event_of
from redrive.outbox.lives import resolve_lives
from redrive.outbox.settings import DAY_S, OutboxSettings
from redrive.outbox.sink import Pruned, Sink
from redrive.outbox.sink_writer import SinkWriter, TurnedAway
from redrive.outbox.verdict import DETERMINISTIC, Done, Failed, Retry, Superseded, Verdict

if TYPE_CHECKING:
    from redrive.handlers.bulk import Bulk, Item
    from redrive.outbox.projection import Projection

logger = logging.getLogger("redrive.outbox")
LOOK_EVERY_S = 0.2  # whether the worker stops
PRUNE_EVERY_S = 600.0
PRUNED_AT_ONCE = 1_000  # so that no request waits for long
_TYPES: Mapping[str, FailureType] = {
    "connect": FailureType.NETWORK,
    "tls": FailureType.NETWORK,
    "http_429": FailureType.NETWORK,
    "timeout": FailureType.TIMEOUT,
    "http_408": FailureType.TIMEOUT,
    "http_5xx": FailureType.MODEL_ERROR,
    "unavailable": FailureType.MODEL_ERROR,
    "http_4xx": FailureType.PARAM_ERROR,
    DETERMINISTIC: FailureType.PARAM_ERROR,
}


@dataclass(slots=True)
class SinkBackoff:
    """Keeps a worker from asking a sink again and again that is down, however many events wait: after a request that
    failed as a whole the next one waits as an event would, longer each time."""

    backoff: Backoff
    failures: int = 0
    until: float = 0.0

    def failed(self, now: float, jitter: float, wish: float | None = None) -> None:
        """Counts a request that failed as a whole, at a time of a steady clock; ``wish``: seconds that the sink asks
        to be left alone. Those that were under way with it say nothing new."""
        if now >= self.until:
            self.failures += 1
            self.until = now + self.backoff.at_least(wish, self.failures, jitter)

    def succeeded(self) -> None:
        """Counts a request that was answered."""
        self.failures, self.until = 0, 0.0

    def wait(self, now: float) -> float:
        """Returns the seconds until the next request may be sent."""
        return max(0.0, self.until - now)


class EventRefused(Exception):
    """The sink did not take an event."""

    def __init__(self, verdict: Retry | Failed) -> None:
        super().__init__(verdict.message)
        retryable = isinstance(verdict, Retry)
        kind = _TYPES.get(verdict.reason, FailureType.UNKNOWN)
        self.classification = Classification(verdict.reason, kind, retryable)
        # The core reads here how long a server asks to be left alone.
        after = verdict.after if isinstance(verdict, Retry) else None
        self.headers: Mapping[str, str] = {} if after is None else {"Retry-After": str(after)}


class SinkFailed(Exception):
    """A write failed as a whole. That says nothing about its events, so it is tried again, whatever it was: a wrong
    password does not fail everything that waits."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        found = classify(error)
        self.classification = Classification(found.reason, found.failure_type, True)


class Relay:
    """Projects the events of one projection. The size of its requests adapts to what the sink takes."""

    def __init__(self, projection: Projection, settings: OutboxSettings) -> None:
        self._projection = projection
        self._size = projection.request_size(settings)
        self._backoff = SinkBackoff(settings.backoff)
        self._pruner = SinkPruner(projection.name, settings.tombstone_days)

    async def project(self, bulk: Bulk) -> None:
        """Sends the newest version of each entity, and answers each event. While the sink is down it waits first, with
        its leases renewed; a worker that stops meanwhile hands them back."""
        while (wait := self._backoff.wait(time.monotonic())) and not bulk.cancelled:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(min(wait, LOOK_EVERY_S))
        if bulk.cancelled:
            return
        # Before the events: what is old enough to be forgotten must not refuse what comes now.
        await self._pruner.before_request(self._projection.sink())
        events: list[Event] = []
        outcomes: dict[UUID, Any] = {}
        for item in bulk:
            try:
                events.append(self._event(item))
            except UnfitEvent as error:
                outcomes[item.id] = EventRefused(Failed(DETERMINISTIC, str(error)))
            except Exception as error:  # of the application's document=
                outcomes[item.id] = error
        if events:
            outcomes.update(await self._written(bulk, events))
        self._log_failures(outcomes)
        _answer(bulk, outcomes)

    def _event(self, item: Item) -> Event:
        event, make = event_of(item.context.task.id, item.payload), self._projection.document
        return event if make is None or event.op is Op.DELETE else replace(event, payload=make(event))

    async def _written(self, bulk: Bulk, events: Sequence[Event]) -> dict[UUID, Any]:
        """Returns what became of each event; of those that were not sent because the worker stops, nothing."""
        tasks = [(item.context.task, item.payload) for item in bulk]
        sizes = {task.id: len(task.payload or "") for task, _ in tasks}
        store = bulk[0].context.store
        writer = SinkWriter(self._projection, self._size, store, lambda: bulk.cancelled)
        failed: SinkFailed | EventRefused | None = None
        try:
            await writer.write(await resolve_lives(self._projection, store, events), sizes)
            self._backoff.succeeded()
        except TurnedAway as error:  # it answers, and is down all the same: a proxy says 503 for it
            self._backoff.failed(time.monotonic(), random.random(), error.verdict.after)  # noqa: S311 (jitter)
            failed = EventRefused(error.verdict)
        except Exception as error:  # the write as a whole: what has no verdict yet is tried again
            self._backoff.failed(time.monotonic(), random.random())  # noqa: S311 (jitter)
            failed = SinkFailed(error)
            failed.__cause__ = error
        ops = {task.id: payload["op"] for task, payload in tasks if task.id in writer.verdicts}
        made: dict[Any, Any] = {}  # one outcome for all events that end the same way
        found: dict[UUID, Any] = {}
        for event in events:
            verdict = writer.verdicts.get(event.id)
            if (raised := writer.errors.get(event.id)) is not None:
                found[event.id] = SinkFailed(raised)
                found[event.id].__cause__ = raised
                continue
            if verdict is None:
                if failed is not None:
                    found[event.id] = failed
                continue
            good = type(verdict) is Done or type(verdict) is Superseded
            end: Any = (ops[event.id], event.version, type(verdict)) if good else verdict
            if (outcome := made.get(end)) is None:
                outcome = made[end] = _completed(*end) if good else EventRefused(end)
            found[event.id] = outcome
        return found

    def _log_failures(self, outcomes: Mapping[UUID, Any]) -> None:
        """Logs how many events failed, by reason, in one line."""
        failed = [one for one in outcomes.values() if isinstance(one, Exception)]
        if failed:
            name = self._projection.name
            counts = Counter(_reason(one) for one in failed)
            extra = {"event": "outbox.bulk_failures", "projection": name, "failures": dict(counts), "of": len(outcomes)}
            logger.warning("%s: %d of %d events failed: %s", name, len(failed), len(outcomes), failed[0], extra=extra)


def _reason(error: Exception) -> str:
    return error.classification.reason if isinstance(error, EventRefused | SinkFailed) else "document"


def _completed(op: str, version: int, verdict: type[Verdict]) -> Completed:
    """Returns what is kept of a done event: its payload is not."""
    kept: dict[str, Any] = {"op": op, "version": version}
    return Completed(encode({**kept, "superseded": True} if verdict is Superseded else kept))


def _answer(bulk: Bulk, outcomes: Mapping[UUID, Any]) -> None:
    """Answers each event that has an outcome. What most of them failed of is raised instead: then it is judged once,
    not five hundred times."""
    common: Exception | None = None
    if len(outcomes) == len(bulk):  # else the rest is handed back, and nothing may be raised for it
        shared = Counter(id(one) for one in outcomes.values() if isinstance(one, Exception)).most_common(1)
        common = next((one for one in outcomes.values() if shared and id(one) == shared[0][0]), None)
    for item in bulk:
        outcome = outcomes.get(item.context.task.id)
        if outcome is not None and outcome is not common:
            item.answer(outcome)
    if common is not None:
        raise common


class SinkPruner:
    """Prunes the sink of one projection every ten minutes while it is written to, in pieces."""

    def __init__(self, name: str, keep_days: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._keep_s = keep_days * DAY_S
        self._clock = clock
        self._next = 0.0

    async def before_request(self, sink: Sink) -> None:
        """Prunes a piece if it is time. What goes wrong is tried again later: events go on all the same."""
        now = self._clock()
        if now < self._next or not isinstance(sink, Pruned):
            return
        self._next = now + PRUNE_EVERY_S
        try:
            if await sink.prune(self._keep_s, PRUNED_AT_ONCE) >= PRUNED_AT_ONCE:
                self._next = now  # there may be more: before the next request
        except Exception as error:
            text = "%s: versions of deleted documents could not be pruned: %r"
            logger.warning(text, self._name, error, extra={"event": "outbox.prune_failed", "projection": self._name})
