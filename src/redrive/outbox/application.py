"""``app.outbox``: publishing events in the application's transactions, and declaring where they go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from redrive.app import App
from redrive.errors import InvalidInput
from redrive.kernel.circuit import Circuit
from redrive.kernel.commit import Commit
from redrive.kernel.operation import FINAL, Operation
from redrive.kernel.task import NewTask
from redrive.ops.operations.lifecycle import show as show_operation
from redrive.outbox.event import QUEUE_PREFIX, Event, kind_of
from redrive.outbox.operations import begin_rebuild, begin_verify
from redrive.outbox.projection import Projection
from redrive.outbox.projections import Projections
from redrive.outbox.publish_event import event_task
from redrive.outbox.settings import OutboxSettings
from redrive.outbox.source import source_of

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.outbox.sink import Sink

S = TypeVar("S")
LOOK_EVERY_S = 0.2


class Outbox:
    """Events of an application: what changed, in the transaction that changed it."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._projections = app.of(Projections)
        self._max_attempts = app.settings.of(OutboxSettings).max_attempts

    def projection(
        self,
        name: str,
        sink: Sink | str | Callable[[], Sink],
        *,
        source: Any = None,
        circuit: Circuit | bool = False,
        batch: int | None = None,
        document: Callable[[Event], Any] | None = None,
    ) -> Projection:
        """Declare a projection: ``app.outbox.projection("notes", sink="fts5:///search.db")``.

        ``sink`` is a URL, a sink, or a function that returns one. ``circuit=True``: while the sink is down, events wait
        and use no attempts. ``batch``: the most events of one request. ``document``: a function of an event that
        returns its document, where the payload is not it.
        """
        return self._projections.add(name, sink, source=source, circuit=circuit, batch=batch, document=document)

    def source(self, projection: str) -> Callable[[S], S]:
        """Declare where a projection's entities are kept, for rebuild and verify: ``@app.outbox.source("notes")`` above
        a class with ``scan(after, limit)`` and ``fetch(keys)`` (see ``redrive.outbox.source``)."""

        def declare(given: S) -> S:
            self._projections.of(projection).source = source_of(given)
            return given

        return declare

    @property
    def projections(self) -> Mapping[str, Projection]:
        """The projections of this application, by name."""
        return self._projections.all

    async def publish(
        self,
        connection: Any,
        projection: str,
        entity_type: str,
        entity_id: str | int | UUID,
        op: str,
        version: int,
        payload: Any = None,
        routing: str | None = None,
    ) -> UUID:
        """Publish an event in the transaction of ``connection`` (any that ``enqueue`` takes), or, with None, in one of
        its own. Returns the event's id. The sink keeps the newest ``version`` of an entity, whatever arrives when."""
        task = self.event(projection, entity_type, entity_id, op, version, payload, routing)
        await self._app.apply(Commit(enqueues=[task]), connection=connection)
        return task.id

    async def publish_many(
        self, connection: Any, projection: str, events: Sequence[Sequence[Any] | Mapping[str, Any]]
    ) -> list[UUID]:
        """Publish many at once, all or none. Each is ``(entity_type, entity_id, op, version, payload)``, or a dict of
        these."""
        tasks = [self._given(projection, index, event) for index, event in enumerate(events)]
        if tasks:
            await self._app.apply(Commit(enqueues=tasks), connection=connection)
        return [task.id for task in tasks]

    async def rebuild(
        self,
        projection: str,
        *,
        actor: str = "app",
        reason: str | None = None,
        allow_refused: int = 0,
        allow_empty: bool = False,
    ) -> Operation:
        """Begin to rebuild a projection from its source into a new index, which becomes the live one at the end.
        Workers carry it out; ``await app.outbox.ended(operation)`` waits for it. ``allow_refused``: so many documents
        may be refused by the new index; ``allow_empty``: an empty source is no mistake."""
        return await begin_rebuild(
            await self._store(projection),
            self._projections.of(projection),
            actor=actor,
            reason=reason,
            allow_refused=allow_refused,
            allow_empty=allow_empty,
        )

    async def verify(
        self, projection: str, *, actor: str = "app", reason: str | None = None, repair: bool = False
    ) -> Operation:
        """Begin to compare the index of a projection with its source, by ids and versions. Workers carry it out; at its
        end ``operation.work.result`` says what is ``missing``, ``stale`` or ``extra``. ``repair``: what differs is
        published anew."""
        store, one = await self._store(projection), self._projections.of(projection)
        return await begin_verify(store, one, actor=actor, reason=reason, repair=repair)

    async def ended(self, operation: Operation, *, seconds: float = 3600.0) -> Operation:
        """Wait until a rebuild or comparison is over; returns it as it ended. TimeoutError after so many seconds."""
        store = await self._app.at(None).store()
        if operation.which.queue is not None:
            store = await self._store(operation.which.queue.removeprefix(QUEUE_PREFIX))
        async with asyncio.timeout(seconds):
            while (found := await show_operation(store, operation.id)).status not in FINAL:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_EVERY_S)
        return found

    async def _store(self, projection: str) -> Store:
        return await self._app.at(self._app.connection_of(kind_of(projection))).store()

    def event(
        self,
        projection: str,
        entity_type: str,
        entity_id: str | int | UUID,
        op: str,
        version: int,
        payload: Any = None,
        routing: str | None = None,
    ) -> NewTask:
        """Returns the task of an event, for a Commit or the effects of a reaction."""
        self._projections.of(projection)
        return event_task(
            projection, entity_type, entity_id, op, version, payload, routing, max_attempts=self._max_attempts
        )

    def _given(self, projection: str, index: int, event: Sequence[Any] | Mapping[str, Any]) -> NewTask:
        try:
            if isinstance(event, Mapping):
                return self.event(projection, **event)
            return self.event(projection, *event)
        except InvalidInput as error:
            raise InvalidInput(f"event {index} of the list: {error.message}", hint=error.hint) from None
        except TypeError as error:
            raise InvalidInput(
                f"event {index} of the list cannot be used: {error}",
                hint="give (entity_type, entity_id, op, version, payload)",
            ) from None
