"""The worker's own port: /healthz, /readyz and /metrics of one worker, or of all processes of a supervisor.

Served by uvicorn and a small ASGI application, in a thread with a loop of its own, so that it answers while a handler
holds the worker's loop. Only a worker with a port imports them: 1 MB more, and 0.1 % of a core while nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import logging
import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from redrive.app import App, Served
from redrive.cli.support.sockets import address, bind, own_names
from redrive.observe import metrics
from redrive.observe.feature_metrics import extend, metrics_of, table_of
from redrive.observe.samples import Samples
from redrive.ops.fleet_metrics import FleetMetrics, fleet_looks
from redrive.settings import Settings
from redrive.version import __version__
from redrive.worker.hand_over import PIPE_VARIABLE, HandOver, Report, Sender
from redrive.worker.measure import measure
from redrive.worker.readiness import LastSeen, alive, problems, reach_of, readiness
from redrive.worker.worker import Worker

logger = logging.getLogger("redrive.cli")
LOOP_ANSWERS_WITHIN_S = 5.0
PAGE_WITHIN_S = 20.0
MOST_CONNECTIONS = 64
NO_ANSWER = "the event loop of this process does not answer"
T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Answer:
    status: int
    body: bytes
    content_type: str = "application/json"


Page = Callable[[str], Awaitable[Answer]]  # gets what the client accepts


class Port:
    """Where it listens, and whether it tells the figures of the fleet."""

    def __init__(self, settings: Settings, port: int, host: str | None, *, fleet: bool) -> None:
        self._settings = settings
        self._port = port
        self._host = host or settings.metrics_host
        self._fleet = fleet

    @contextlib.contextmanager
    def of_worker(self, app: App, worker: Worker, served: Served) -> Iterator[None]:
        """Serves one worker, whose loop this is."""
        brought = [own for _, own in metrics_of(app.features)]

        def processes() -> dict[str, Samples]:
            return {worker.id: extend(measure(worker), brought)}

        seen = LastSeen()

        async def ready() -> dict[str, Any]:
            return await readiness(app, worker, seen, store=served.store)

        with self._serving(app, served, processes, lambda: alive(worker, app.settings), ready):
            yield

    @contextlib.contextmanager
    def of_supervisor(self, app: App, hand_over: HandOver, served: Served) -> Iterator[None]:
        """Serves all processes of a supervisor, whose loop this is. It asks the store itself whether that is there; how
        each process is, they have said."""
        seen = LastSeen()

        def health() -> dict[str, Any]:
            return {"status": "ok", "version": __version__, "env": app.settings.env, "processes": hand_over.health()}

        hearing = [own.hear for _, own in metrics_of(app.features) if own.hear is not None]

        async def ready() -> dict[str, Any]:
            for samples in hand_over.processes().values():
                for hear in hearing:
                    hear(samples)
            answer = await readiness(app, None, seen, store=served.store, reach=hand_over.reach())
            reasons = [*answer["reasons"], *hand_over.problems()]
            return answer | {"ready": not reasons, "reasons": reasons}

        with self._serving(app, served, hand_over.processes, health, ready):
            yield

    @contextlib.contextmanager
    def _serving(
        self,
        app: App,
        served: Served,
        processes: Callable[[], Mapping[str, Samples]],
        health: Callable[[], dict[str, Any]],
        ready: Callable[[], Coroutine[Any, Any, dict[str, Any]]],
    ) -> Iterator[None]:
        from redrive.cli.support.http_server import make_server, serving_in_a_thread
        from redrive.observe.exposition import MetricsPage

        loop = asyncio.get_running_loop()
        fleet = self._fleet_of(app, served, loop)
        page = MetricsPage(
            table_of(app.features), served.name, processes, {} if fleet is None else {served.name: fleet}
        )

        async def healthz(_: str) -> Answer:
            return as_json(health())

        async def readyz(_: str) -> Answer:
            answer = await _on(loop, ready()) or {"ready": False, "reasons": [NO_ANSWER]}
            return as_json(answer, 200 if answer["ready"] else 503)

        async def shown(accept: str) -> Answer:
            return Answer(200, *await page.make(accept))

        pages = Pages(
            {"/healthz": healthz, "/readyz": readyz, "/metrics": shown},
            token=self._settings.metrics_token,
            guarded=("/metrics",),
            names=own_names(self._host),
        )
        with bind(self._host, self._port, "--metrics-port", "REDRIVE_METRICS_PORT, OUTBOX_METRICS_PORT") as listening:
            where = address(listening)
            with serving_in_a_thread(make_server(pages, connections=MOST_CONNECTIONS), listening):
                logger.info("metrics at %s/metrics", where, extra={"event": "metrics.serving", "http": where})
                yield

    def _fleet_of(
        self, app: App, served: Served, loop: asyncio.AbstractEventLoop
    ) -> Callable[[], Awaitable[Samples]] | None:
        if not self._fleet:
            return None
        # Features live on the default connection.
        looks = fleet_looks(metrics_of(app.features), app.settings) if served is app.at(None) else {}
        fleet = FleetMetrics(served.store, looks)

        async def look() -> Samples:
            found = await _on(loop, fleet.samples())
            return {metrics.FLEET_UP.name: {(): 0.0}} if found is None else found

        return look


class Pages:
    """An ASGI application that serves pages by their paths, to GET and HEAD. Those of ``guarded`` ask for the
    ``token``, if there is one. ``names``: the host names that it is asked by, beside addresses; none: by any. They keep
    web pages from reading a port of this machine by a name of their own that resolves to it."""

    def __init__(
        self,
        pages: Mapping[str, Page],
        *,
        token: str | None = None,
        guarded: tuple[str, ...] = (),
        names: tuple[str, ...] = (),
    ) -> None:
        self._pages = pages
        self._token = token
        self._guarded = guarded
        self._names = names

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        answer = await self._answer(scope["method"], scope["path"], _headers(scope))
        headers = {
            "content-type": answer.content_type,
            "content-length": str(len(answer.body)),
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
        }
        if answer.status == HTTPStatus.UNAUTHORIZED:
            headers["www-authenticate"] = "Bearer"
        listed = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": listed})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        page = self._pages.get(path)
        if not self._is_named(headers.get("host", "")):
            return _refusal(HTTPStatus.BAD_REQUEST)
        if method not in ("GET", "HEAD"):
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        if page is None:
            return _refusal(HTTPStatus.NOT_FOUND, serves=sorted(self._pages))
        if path in self._guarded and not self._lets_in(headers.get("authorization", "")):
            return _refusal(HTTPStatus.UNAUTHORIZED)
        try:
            async with asyncio.timeout(PAGE_WITHIN_S):
                return await page(headers.get("accept", ""))
        except TimeoutError:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE)
        except Exception:
            logger.exception("%s", path, extra={"event": "metrics.failed"})
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _is_named(self, host: str) -> bool:
        """Returns whether it is asked by a name of its own. An address is nobody's name; only old clients give none."""
        name = re.sub(r":\d*$", "", host.lower())
        return not (self._names and name) or name in self._names or _is_address(name)

    def _lets_in(self, authorization: str) -> bool:
        if self._token is None:
            return True
        scheme, _, given = authorization.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token.encode())


def _headers(scope: Mapping[str, Any]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def as_json(document: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(document).encode())


def _refusal(status: HTTPStatus, **more: Any) -> Answer:
    return as_json({"error": status.phrase, **more}, status)


async def _on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T | None:
    """Returns what a coroutine returns on the worker's loop, where its store is; None when that loop does not get to
    it."""
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        async with asyncio.timeout(LOOP_ANSWERS_WITHIN_S):
            return await asyncio.wrap_future(future)
    except TimeoutError:
        future.cancel()
        return None


def chosen_port(settings: Settings, given: int | None) -> int | None:
    """Returns the port that was given, else that of the settings; None: none is opened."""
    own = settings.metrics_port if settings.metrics_port is not None else settings.outbox_metrics_port
    return own if given is None else given


@contextlib.contextmanager
def report_to_supervisor(app: App, worker: Worker) -> Iterator[None]:
    """Tells a supervisor what this process counts, where there is one that serves it."""
    pipe = os.environ.pop(PIPE_VARIABLE, None)
    if pipe is None:
        yield
        return
    brought = [own for _, own in metrics_of(app.features)]

    def look() -> Report:
        samples = extend(measure(worker), brought)
        return Report(samples, alive(worker, app.settings), problems(worker), reach_of(worker))

    sender = Sender(int(pipe), look)
    sender.start()
    try:
        yield
    finally:
        sender.stop()
