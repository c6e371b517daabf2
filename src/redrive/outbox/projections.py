"""The projections of an application, by name: from its code, from its configuration, or the built-in one."""

from __future__ import annotations

import difflib
import logging
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from redrive.errors import ConfigError, InvalidInput, WrongSetting
from redrive.kernel.circuit import Circuit
from redrive.outbox.duties import duties_of
from redrive.outbox.event import Event, kind_of, projection_of
from redrive.outbox.index_watch import note_written
from redrive.outbox.projection import Projection
from redrive.outbox.settings import OutboxSettings, check_projection

if TYPE_CHECKING:
    from datetime import datetime

    from redrive.app import App
    from redrive.handlers.bulk import Bulk
    from redrive.handlers.registry import Registry
    from redrive.outbox.relay import Relay
    from redrive.outbox.sink import Sink

logger = logging.getLogger("redrive.outbox")
BUILT_IN = "search_index_to_elastic"


def log_reclaimed(taken: Sequence[tuple[str, bool]]) -> None:
    """Writes one line for each projection. ``taken``: kinds of tasks, and whether each had passed its time limit."""
    counts = Counter((projection_of(kind), late) for kind, late in taken)
    for name in sorted({name for name, _ in counts if name is not None}):
        lease, late = counts[name, False], counts[name, True]
        extra = {
            "event": "outbox.reclaimed",
            "projection": name,
            "reclaimed": lease + late,
            "lease": lease,
            "max_processing": late,
        }
        text = "%s: took back %d events: %d of leases that ran out, %d that took longer than the maximum"
        logger.warning(text, name, lease + late, lease, late, extra=extra)


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


class Projections:
    """Registers a bulk kind for each projection. The built-in one is there until another is declared."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.settings = self._settings = app.settings.of(OutboxSettings)
        self._known: dict[str, Projection] = {}
        self._built_in = False
        _known.add(self)

    def declare_configured(self) -> None:
        """Declares those of the configuration, or the built-in one where there are none."""
        for name, table in self._settings.projections.items():
            self.add(name, table["sink"], batch=table.get("batch"), circuit=table.get("circuit", False))
        if not self._known:
            url = self.built_in_url()
            nobodys = self._settings.elastic_url is None  # else somebody has said where it goes
            made = Projection(BUILT_IN, self._built_in_sink, self._settings.batch, shown=_shown(url), built_in=nobodys)
            made.check = self._check_built_in
            self._register(made, url)
            self._built_in = True

    def add(
        self,
        name: str,
        sink: Sink | str | Callable[[], Sink],
        *,
        source: Any = None,
        circuit: Circuit | bool = False,
        batch: int | None = None,
        document: Callable[[Event], Any] | None = None,
    ) -> Projection:
        """Declares a projection; one whose name is taken is refused."""
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

    def of(self, name: str) -> Projection:
        """Returns a projection by its name; refused where there is none."""
        return projection_in(self._app.registry, name)

    @property
    def all(self) -> Mapping[str, Projection]:
        return self._known

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


_known: weakref.WeakSet[Projections] = weakref.WeakSet()


def declared(settings: OutboxSettings) -> list[Projection]:
    """Returns the projections of applications with these settings: those that somebody declared, and the built-in one
    where it is served."""
    mine = [one for each in _known if each.settings is settings for one in each.all.values()]
    return [one for one in mine if one.served or not one.built_in]


def arrivals() -> dict[str, datetime]:
    """Returns when events last arrived in the sinks of projections, by this process."""
    found = [(one.name, one.projected_at) for each in _known for one in each.all.values()]
    return {name: at for name, at in found if at is not None}


def note_arrival(name: str, at: datetime) -> None:
    """Notes when events last arrived, by another process that this one answers for."""
    for each in _known:
        one = each.all.get(name)
        if one is not None and (one.projected_at is None or one.projected_at < at):
            one.projected_at = at


def declare(app: App) -> None:
    """Declares the projections of an application's configuration."""
    own = app.of(Projections)
    own.declare_configured()
    app.registry.duties.append(lambda: duties_of(own.all.values(), own.settings))
    app.registry.told_reclaimed.append(log_reclaimed)
    app.registry.before_work.append(own.prepare)
