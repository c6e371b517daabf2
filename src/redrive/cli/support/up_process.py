"""Runs the process of ``redrive up``: worker and HTTP side by side, and what it says about itself."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import socket
import sys
from functools import partial

from fastapi import FastAPI

from redrive.api import make_api, middleware
from redrive.app import App
from redrive.app.workers import alerts_of
from redrive.cli.support import output
from redrive.cli.support.http_server import make_server, refuse_open
from redrive.cli.support.loading import Loaded, error_text
from redrive.cli.support.session import missing_file
from redrive.cli.support.signals import stopping
from redrive.cli.support.sockets import address, bind, is_loopback, own_names
from redrive.cli.support.worker_process import ending, leave_unknown_kinds, run_worker, warn_of_unknown_queues
from redrive.console import add_console
from redrive.errors import ConfigError, RedriveError, StoreError
from redrive.features import installed
from redrive.ops.access import Caller, Role
from redrive.ops.alerts.evaluate import Standby
from redrive.ops.connections import same_stores
from redrive.settings import DEFAULT_URL, Options
from redrive.version import __version__
from redrive.worker.worker import Worker

logger = logging.getLogger("redrive.cli")
BUILT_IN = ("SYSTEM_HEALTH_CHECK", "SYSTEM_FAIL_ALWAYS")


def run(loaded: Loaded, options: Options | None, host: str, port: int, *, demo: bool, json: bool) -> None:
    """Serves HTTP until it is stopped, and runs a worker of these ``options`` beside it; None: no worker."""
    with bind(host, port) as listening:
        asyncio.run(_up(loaded, options, host, listening, demo, json))


async def _up(
    loaded: Loaded, options: Options | None, host: str, listening: socket.socket, demo: bool, json: bool
) -> None:
    app = loaded.app
    if not is_loopback(host) and missing_file(app.url):
        refuse_open(host)  # a new file has no tokens, and should not be left behind
    migrated = await app.migrate()
    await _migrate_others(app)
    try:
        await _warn_of_same(app)
        if not is_loopback(host) and not await app.access.has_tokens():
            refuse_open(host)
        worker = None if options is None else await _make_worker(loaded, options)
        api, halted = _make_api(app, worker, host), asyncio.Event()

        def halt() -> None:
            halted.set()
            api.state.triggered.halt()

        # Before it says that it is up: whoever reads that may stop it the next moment.
        with stopping(ending(worker, halt)):
            if demo:
                await _demo(loaded)
            _announce(loaded, worker, listening, migrated, json)
            await _serve(loaded, worker, api, listening, halted)
    finally:
        await app.close()


async def _make_worker(loaded: Loaded, options: Options) -> Worker:
    await leave_unknown_kinds(loaded, options.queues)
    await warn_of_unknown_queues(loaded.app, options.queues)
    return loaded.app.worker(await loaded.app.store(), options)


async def _migrate_others(app: App) -> None:
    """Brings the other connections up to date, as far as they can be reached: they are shown, and nobody waits."""
    for name in app.connections:
        if name != app.at(None).name:
            try:
                await app.migrate(name)
            except StoreError as error:
                logger.warning(
                    "the connection %s cannot be used: %s",
                    name,
                    error.message,
                    extra={"event": "up.connection_away", "connection": name},
                )


async def _warn_of_same(app: App) -> None:
    if len(app.connections) > 1:
        for one, other in await same_stores(app.connections, partial(app.operator, Caller("up", Role.VIEWER))):
            told = "the connections %s and %s are one store: whatever is there is counted twice"
            logger.warning(told, one, other, extra={"event": "up.same_store", "connection": other})


def _make_api(app: App, worker: Worker | None, host: str) -> FastAPI:
    private = is_loopback(host)
    # Where others can reach it, nobody is let in without a token, also not after the last one was revoked.
    api = make_api(app, worker, hosts=own_names(host), open_door=private)
    add_console(api)
    return api


async def _serve(
    loaded: Loaded, worker: Worker | None, api: FastAPI, listening: socket.socket, halted: asyncio.Event
) -> None:
    """Serves HTTP until the worker has ended, so that health can be read while it finishes; without one, until it is
    ``halted``."""
    settings = loaded.app.settings
    server = make_server(
        api,
        connections=settings.http_connections,
        proxies=settings.trusted_proxies,
        headers=middleware.for_path(""),
    )
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    serving.add_done_callback(lambda _: halted.set() if worker is None else worker.stop())
    standing_by = [asyncio.create_task(one.run()) for one in _standbys(loaded.app, worker)]
    try:
        await (halted.wait() if worker is None else run_worker(worker))
    finally:
        for one in standing_by:
            one.cancel()
        api.state.live.close()
        api.state.verification.close()
        await api.state.triggered.stop()
        server.should_exit = True
        await serving


def _standbys(app: App, worker: Worker | None) -> list[Standby]:
    """Returns who evaluates the alerts of connections while no worker does; that of a worker here has one."""
    served = None if worker is None else app.at(None).name
    name = f"up-{socket.gethostname()}-{os.getpid()}"
    places = [app.at(name) for name in app.connections if name != served]
    return [Standby(name, alerts_of(app, where), where.store) for where in places]


async def _demo(loaded: Loaded) -> None:
    demo = getattr(loaded.module, "demo", None)
    if demo is None:
        logger.warning(
            "--demo: %s has no coroutine demo()", loaded.spec or "no application", extra={"event": "up.demo"}
        )
        return
    try:
        await demo()
    except RedriveError:
        raise
    except Exception as error:
        raise ConfigError(
            f"demo() of {loaded.spec} failed: {error_text(error)}", hint="correct it, or start without --demo"
        ) from error


def _announce(loaded: Loaded, worker: Worker | None, listening: socket.socket, migrated: list[str], json: bool) -> None:
    app, http = loaded.app, address(listening)
    if json:
        output.emit(
            {
                "http": http,
                "env": app.settings.env,
                "store": app.shown_url,
                "app": loaded.spec,
                "worker_id": None if worker is None else worker.id,
                "queues": [] if worker is None else list(worker.options.queues),
                "concurrency": 0 if worker is None else worker.options.concurrency,
                "pid": os.getpid(),
                "migrated": migrated,
            }
        )
    else:
        kinds = sorted(kind for kind in app.registry.handlers if not kind.startswith("SYSTEM_"))
        output.say(
            f"redrive {__version__} is up ({app.settings.env})",
            f"  console {http}/ops/queue",
            f"  http    {http}/healthz, {http}/metrics, {http}/docs",
            f"  store   {app.shown_url}" + (f"  (migrated: {', '.join(migrated)})" if migrated else ""),
            *(f"  {_also(app, name)}" for name in app.connections if name != app.at(None).name),
            f"  app     {loaded.spec}: {', '.join(kinds)}"
            if loaded.spec
            else "  app     none; only the built-in kinds run",
            "  worker  none here; tasks are run by redrive work"
            if worker is None
            else f"  worker  {worker.id}: {worker.options.concurrency} slots (--concurrency N for others), from"
            f" {', '.join(worker.options.queues)}",
            "",
            "Try, in another terminal:",
            *(f"  {line}" for line in _hints(loaded, kinds)),
            f"Ctrl-C stops it. The console: {http}/ops/queue",
            "",
        )
    sys.stdout.flush()


def _also(app: App, name: str) -> str:
    """Returns that another connection is shown here, and who serves it."""
    return f"store   {app.at(name).shown_url}  (connection {name}; its worker: redrive work {name})"


def _hints(loaded: Loaded, kinds: list[str]) -> list[str]:
    """Returns commands that work as they are printed."""
    command = "./dev redrive" if os.environ.get("REDRIVE_DEV") == "1" else "redrive"
    url = loaded.app.url
    secret = loaded.app.shown_url != url
    # Where there are several connections, the file that names them is here.
    where = "" if url == DEFAULT_URL or secret or len(loaded.app.connections) > 1 else f" --url {shlex.quote(url)}"
    which = f" --app {loaded.spec}" if loaded.spec else ""
    # A task of a feature is moved only by who knows the feature.
    brings = which if any(feature not in installed() for feature in loaded.app.features) else ""
    first = ["export REDRIVE_URL=…  # as here; it has a password, so it is not shown"] if secret else []
    registry = loaded.app.registry
    ready = [kind for kind in kinds if kind not in registry.brought and not registry.handlers[kind].payload.required]
    # An example whose demo() has put everything there names what to look at instead.
    shown = getattr(loaded.module, "LOOK", None)
    if shown is not None:
        return [*first, *(one if one.startswith("curl ") else f"{command} {one}{where}" for one in shown)]
    tries = getattr(loaded.module, "TRY", None) or ready[:1] or BUILT_IN
    enqueues = [f"{command} enqueue{where}{which} {example}" for example in tries]
    looks = [f"{command} {rest}{where}" for rest in ("stats", "list", "list --state failed")]
    acts = [f"{command} show{where} ID", f"""{command} retry{where}{brings} ID --reason "fixed the cause\""""]
    return [*first, *looks, *enqueues, *acts]
