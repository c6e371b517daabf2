"""The worker's own port: /healthz, /readyz and /metrics of one worker, or of all processes of a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from redrive.app import App, Served
from redrive.cli.support.sockets import address, bind, own_names
from redrive.observe import metrics
from redrive.observe.feature_metrics import extend, metrics_of, table_of
from redrive.observe.metrics_page import MetricsPage
from redrive.observe.samples import Samples
from redrive.observe.small_http import Answer, Page, SmallServer, as_json
from redrive.ops.fleet_metrics import FleetMetrics, fleet_looks
from redrive.settings import Settings
from redrive.version import __version__
from redrive.worker.hand_over import PIPE_VARIABLE, HandOver, Report, Sender
from redrive.worker.measure import measure
from redrive.worker.readiness import LastSeen, alive, problems, reach_of, readiness
from redrive.worker.worker import Worker

logger = logging.getLogger("redrive.cli")
LOOP_ANSWERS_WITHIN_S = 5.0
NO_ANSWER = "the event loop of this process does not answer"
T = TypeVar("T")


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
        loop = asyncio.get_running_loop()
        fleet = self._fleet_of(app, served, loop)
        page = MetricsPage(
            table_of(app.features), served.name, processes, {} if fleet is None else {served.name: fleet}
        )
        pages = {"/healthz": _health(health), "/readyz": _ready(loop, ready), "/metrics": _metrics(page)}
        token = self._settings.metrics_token
        with bind(self._host, self._port, "--metrics-port", "REDRIVE_METRICS_PORT, OUTBOX_METRICS_PORT") as listening:
            server = SmallServer(listening, pages, token=token, guarded=("/metrics",), names=own_names(self._host))
            server.start()
            where = address(listening)
            logger.info("metrics at %s/metrics", where, extra={"event": "metrics.serving", "http": where})
            try:
                yield
            finally:
                server.stop()

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


def _health(look: Callable[[], dict[str, Any]]) -> Page:
    async def page(_: str) -> Answer:
        return as_json(look())

    return page


def _ready(loop: asyncio.AbstractEventLoop, ready: Callable[[], Coroutine[Any, Any, dict[str, Any]]]) -> Page:
    async def page(_: str) -> Answer:
        answer = await _on(loop, ready()) or {"ready": False, "reasons": [NO_ANSWER]}
        return as_json(answer, 200 if answer["ready"] else 503)

    return page


def _metrics(page: MetricsPage) -> Page:
    async def make(accept: str) -> Answer:
        body, content_type = await page.make(accept)
        return Answer(200, body, content_type)

    return make


def chosen_port(settings: Settings, given: int | None) -> int | None:
    """Returns the port that was given, else that of the settings; None: none is opened."""
    own = settings.metrics_port if settings.metrics_port is not None else settings.outbox_metrics_port
    return own if given is None else given


@contextlib.contextmanager
def told_to_supervisor(app: App, worker: Worker) -> Iterator[None]:
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
