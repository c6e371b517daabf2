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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redrive.kernel.outcome import Completed
from redrive.kernel.payload import encode
from redrive.outbox.event import Event, Op, UnfitEvent, event_of
from redrive.outbox.projection import RequestSize
from redrive.outbox.relay.policy import EventRefused, SinkBackoff, SinkFailed
from redrive.outbox.relay.sink_writer import SinkWriter, Target, TurnedAway
from redrive.outbox.settings import DAY_S
from redrive.outbox.sink import Pruned, Sink
from redrive.outbox.verdict import DETERMINISTIC, Done, Failed, Superseded, Verdict

if TYPE_CHECKING:
    from redrive.handlers.bulk import Bulk, Item
    from redrive.kernel.ports.store import Store

logger = logging.getLogger("redrive.outbox")
LOOK_EVERY_S = 0.2  # whether the worker stops
Resolve = Callable[["Store", Sequence[Event]], Awaitable[Sequence[Event]]]
EVERY_S = 600.0
AT_ONCE = 1_000  # so that no request waits for long


class Relay:
    """Projects the events of one projection. The size of its requests adapts to what the sink takes."""

    def __init__(
        self, projection: Target, size: RequestSize, backoff: SinkBackoff, resolve: Resolve | None = None
    ) -> None:
        """``resolve`` replaces events of which only the source knows whether their entity is there."""
        self._projection = projection
        self._resolve = resolve
        self._size = size
        self._backoff = backoff

    async def project(self, bulk: Bulk) -> None:
        """Sends the newest version of each entity, and answers each event. While the sink is down it waits first, with
        its leases renewed; a worker that stops meanwhile hands them back."""
        while (wait := self._backoff.wait(time.monotonic())) and not bulk.cancelled:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(min(wait, LOOK_EVERY_S))
        if bulk.cancelled:
            return
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
        writer = SinkWriter(self._projection, self._size, bulk[0].context.store, lambda: bulk.cancelled)
        failed: SinkFailed | EventRefused | None = None
        try:
            store = bulk[0].context.store
            await writer.write(events if self._resolve is None else await self._resolve(store, events), sizes)
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
        self._next = now + EVERY_S
        try:
            if await sink.prune(self._keep_s, AT_ONCE) >= AT_ONCE:
                self._next = now  # there may be more: before the next request
        except Exception as error:
            text = "%s: versions of deleted documents could not be pruned: %r"
            logger.warning(text, self._name, error, extra={"event": "outbox.prune_failed", "projection": self._name})
