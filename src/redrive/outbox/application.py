"""``app.outbox``: declaring projections, publishing events in the application's transactions, rebuilding, comparing."""

from __future__ import annotations

import asyncio
import difflib
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from redrive.errors import ConfigError, InvalidInput, WrongSetting
from redrive.kernel.circuit import Circuit
from redrive.kernel.commit import Commit
from redrive.outbox.duties import duties_of, log_reclaimed
from redrive.outbox.event import QUEUE_PREFIX, Event, check_projection, event_task, kind_of
from redrive.outbox.index_watch import note_written
from redrive.outbox.projection import Projection
from redrive.outbox.settings import OutboxSettings

if TYPE_CHECKING:
    from datetime import datetime

    from redrive.app import App
    from redrive.handlers.bulk import Bulk
    from redrive.handlers.registry import Registry
    from redrive.kernel.operation import Operation
    from redrive.kernel.ports.store import Store
    from redrive.kernel.task import NewTask
    from redrive.outbox.relay import Relay
    from redrive.outbox.sink import Sink

S = TypeVar("S")
BUILT_IN = "search_index_to_elastic"
LOOK_EVERY_S = 0.2


class ProjectionHandler:
    """The handler of a projection's kind. By it the projection is found wherever the application's kinds are known."""

    def __init__(self, projection: Projection, settings: OutboxSettings) -> None:
        self.projection = projection
        self._settings = settings
        self._relay: Relay | None = None
        self._noted = False  # which index this process writes to

    async def relay(self, bulk: Bulk) -> None:
        """Projects events."""
        if self._relay is None:
            from redrive.outbox.relay import Relay

            self._relay = Relay(self.projection, self._settings)
        await self._relay.project(bulk)
        if not self._noted and self.projection.projected_at is not None:
            self._noted = await note_written(bulk[0].context.store, self.projection, self._settings)


class Outbox:
    """Events of an application: what changed, in the transaction that changed it, and where that goes. Each projection
    is a bulk kind; the built-in one is there until another is declared."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.settings = self._settings = app.settings.of(OutboxSettings)
        self._known: dict[str, Projection] = {}
        self._built_in = False
        _known.add(self)

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
        try:
            check_projection(name)
        except ValueError as error:
            raise InvalidInput(str(error)) from None
        if self._built_in:  # it was there because there was none
            self._forget(BUILT_IN)
        if name in self._known:
            raise ConfigError(f"two projections are named {name!r}", hint="rename one, here or in [outbox.projections]")
        terms = self._circuit(circuit)
        made = Projection(name, _maker(sink), batch or self._settings.batch, terms, source, document, _shown(sink))
        if isinstance(sink, str):
            made.check = partial(_check_installed, sink)
        self._register(made, sink)
        return made

    def source(self, projection: str) -> Callable[[S], S]:
        """Declare where a projection's entities are kept, for rebuild and verify: ``@app.outbox.source("notes")`` above
        a class with ``scan(after, limit)`` and ``fetch(keys)`` (see ``redrive.outbox.source``)."""
        from redrive.outbox.source import source_of

        def declare(given: S) -> S:
            self._of(projection).source = source_of(given)
            return given

        return declare

    @property
    def projections(self) -> Mapping[str, Projection]:
        """The projections of this application, by name."""
        return self._known

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
        from redrive.outbox.operations import begin_rebuild

        return await begin_rebuild(
            await self._store(projection),
            self._of(projection),
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
        from redrive.outbox.operations import begin_verify

        store, one = await self._store(projection), self._of(projection)
        return await begin_verify(store, one, actor=actor, reason=reason, repair=repair)

    async def ended(self, operation: Operation, *, seconds: float = 3600.0) -> Operation:
        """Wait until a rebuild or comparison is over; returns it as it ended. TimeoutError after so many seconds."""
        from redrive.kernel.operation import FINAL
        from redrive.ops.operations.lifecycle import show as show_operation

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
        self._of(projection)
        return event_task(
            projection, entity_type, entity_id, op, version, payload, routing, max_attempts=self._settings.max_attempts
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

    def _of(self, name: str) -> Projection:
        return projection_in(self._app.registry, name)

    # -- what is declared ------------------------------------------------------------------------------------------

    def declare_configured(self) -> None:
        """Declares those of the configuration, or the built-in one where there are none."""
        for name, table in self._settings.projections.items():
            self.projection(name, table["sink"], batch=table.get("batch"), circuit=table.get("circuit", False))
        if not self._known:
            url = self.built_in_url()
            nobodys = self._settings.elastic_url is None  # else somebody has said where it goes
            made = Projection(BUILT_IN, self._built_in_sink, self._settings.batch, shown=_shown(url), built_in=nobodys)
            made.check = self._check_built_in
            self._register(made, url)
            self._built_in = True

    def _register(self, projection: Projection, sink: Sink | str | Callable[[], Sink]) -> None:
        from redrive.outbox.sinks import modules_of

        own = self._settings
        options = {
            "queue": projection.queue,
            "bulk": projection.batch,
            "max_attempts": own.max_attempts,
            "tries": own.given.get("max_attempts"),  # who has said nothing leaves it to who published
            "timeout": own.max_processing_seconds,
            "backoff_base": own.base_backoff_seconds,
            "backoff_max": own.max_backoff_seconds,
            "history": own.keep_seconds,
            "circuit": projection.circuit,
            "preload": modules_of(sink) if isinstance(sink, str) else [],
        }
        handler = ProjectionHandler(projection, own)
        self._app.register_for("outbox", projection.kind, handler.relay, options)
        self._known[projection.name] = projection

    def _forget(self, name: str) -> None:
        del self._known[name]
        self._built_in = False
        self._app.registry.handlers.pop(kind_of(name), None)
        self._app.registry.brought.discard(kind_of(name))

    def _circuit(self, given: Circuit | bool) -> Circuit | None:
        """Returns the circuit of a projection: True opens it with the first request that finds the sink down, so that
        an outage uses up no attempts."""
        if isinstance(given, Circuit):
            return given
        own = self._settings
        first = max(own.base_backoff_seconds, 0.1)
        return Circuit(failures=1, delay=first, max_delay=max(first, own.max_backoff_seconds)) if given else None

    def _built_in_sink(self) -> Sink:
        from redrive.outbox.sinks import sink_from_url

        if self._settings.elastic_url is not None:
            _check_address(self._settings.elastic_url)
        return sink_from_url(self.built_in_url())

    def _check_built_in(self) -> None:
        """Refuses an address of no search server, and one for which no client is installed."""
        url = self._settings.elastic_url
        if url is None:
            return
        _check_address(url)
        plain = "+" not in url.partition("://")[0]
        if plain and not any(find_spec(name) for name in ("elasticsearch", "opensearchpy")):
            raise WrongSetting(
                "ELASTIC_URL names a search server, and no client for one is installed",
                hint="pip install 'redrive[elasticsearch]', or 'redrive[opensearch]' for OpenSearch",
            )
        _check_installed(self.built_in_url())

    def prepare(self, queues: Collection[str]) -> None:
        """Refuses queues of projections whose sinks cannot be used here; from now on this process depends on the
        others."""
        mine = [one for one in self._known.values() if one.queue in queues]
        for one in mine:
            one.check()
        others = set(queues) - {one.queue for one in mine}
        for one in mine:
            one.served = True
            one.alone = not others

    def built_in_url(self) -> str:
        """Returns the sink of the built-in projection: Elasticsearch or OpenSearch where ``ELASTIC_URL`` says so, else
        full text in a file next to the store."""
        url = self._settings.elastic_url
        if url is None:
            file = self._app.connections.main.file
            return f"fts5:///{file.with_name(f'{file.stem}-search.db') if file else 'redrive-search.db'}"
        if "+" not in url.partition("://")[0]:
            client = "elasticsearch" if find_spec("elasticsearch") is not None else "opensearch"
            url = f"{client}+{url}"
        where, _, options = url.partition("?")
        return f"{where.rstrip('/')}/{self._settings.elastic_index}" + (f"?{options}" if options else "")


def _check_address(url: str) -> None:
    """Refuses what is no address of a search server. Nothing of it is quoted: it may hold a password."""
    where = urlsplit(url) if "://" in url else None
    if where is None or where.scheme.rpartition("+")[2] not in ("http", "https") or not where.hostname:
        raise WrongSetting("ELASTIC_URL is no address of a search server", hint="for example http://127.0.0.1:9200")


def _check_installed(url: str) -> None:
    from redrive.outbox.sinks import check_installed

    check_installed(url)


def _maker(sink: Any) -> Callable[[], Sink]:
    if isinstance(sink, str):
        from redrive.outbox.sinks import scheme_of, sink_from_url

        scheme_of(sink)  # what no sink has is refused where it is declared
        return lambda: sink_from_url(sink)
    if hasattr(sink, "write"):
        return lambda: sink
    if callable(sink):
        return sink  # type: ignore[no-any-return]
    raise InvalidInput(f"a sink has write(events), or is a URL; {type(sink).__name__} is neither")


def _shown(sink: Any) -> str:
    if not isinstance(sink, str):
        return type(sink).__name__
    scheme, _, rest = sink.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def projections_of(registry: Registry) -> dict[str, Projection]:
    """Returns the projections of an application, by name."""
    handlers = [getattr(one.function, "__self__", None) for one in registry.handlers.values()]
    return {one.projection.name: one.projection for one in handlers if isinstance(one, ProjectionHandler)}


def projection_in(registry: Registry, name: str | None) -> Projection:
    """Returns a projection by its name, or the only one; refused where there is none."""
    known = projections_of(registry)
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name is None:
        raise InvalidInput("which projection?", hint=f"there are: {', '.join(known) or 'none'}")
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        guess = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known) or 'none'}"
        raise InvalidInput(
            f"this application has no projection {name!r}",
            hint=f"{guess}; another application may declare it (--app, or REDRIVE_APP): "
            f"app.outbox.projection({name!r}, sink=…), or [outbox.projections.{name}]",
        )
    return known[name]


_known: weakref.WeakSet[Outbox] = weakref.WeakSet()


def declared(settings: OutboxSettings) -> list[Projection]:
    """Returns the projections of applications with these settings: those that somebody declared, and the built-in one
    where it is served."""
    mine = [one for each in _known if each.settings is settings for one in each.projections.values()]
    return [one for one in mine if one.served or not one.built_in]


def arrivals() -> dict[str, datetime]:
    """Returns when events last arrived in the sinks of projections, by this process."""
    found = [(one.name, one.projected_at) for each in _known for one in each.projections.values()]
    return {name: at for name, at in found if at is not None}


def note_arrival(name: str, at: datetime) -> None:
    """Notes when events last arrived, by another process that this one answers for."""
    for each in _known:
        one = each.projections.get(name)
        if one is not None and (one.projected_at is None or one.projected_at < at):
            one.projected_at = at


def declare(app: App) -> None:
    """Declares the projections of an application's configuration."""
    own = app.of(Outbox)
    own.declare_configured()
    app.registry.duties.append(lambda: duties_of(own.projections.values(), own.settings))
    app.registry.told_reclaimed.append(log_reclaimed)
    app.registry.before_work.append(own.prepare)
