"""Serves HTTP inside a process that has other things to do: the API of ``redrive up``, and a worker's own port.

It is uvicorn with a protocol of ours. uvicorn waits for ever for the rest of a request, and for a reader who does not
read; its ``limit_concurrency`` refuses everybody alike, probes among them, and only after it has read their request;
``timeout_keep_alive`` begins after a response. With its settings alone half-sent requests keep everybody out, and
nothing ends them: tests of tests/api/test_slow_clients.py and tests/metrics/test_port.py fail. Here every wait for
a client has an end, and whoever has waited longest makes room when the server is full. Nothing of the web framework is
imported here: for a worker that would be 29 MB.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from redrive.cli.support.sockets import BACKLOG, is_loopback
from redrive.errors import ConfigError

logger = logging.getLogger("redrive.api.connections")
GRACE_SECONDS = 2
KEEP_ALIVE_SECONDS = 5
LARGEST_HEADERS_BYTES = 32_768
MOST_CONNECTIONS = 500
# How long a connection may wait for its client; the reader is one that does not read what is written.
DEADLINES_S = {"headers": 10.0, "body": 60.0, "reader": 60.0}
LINGER_S = 5.0
# For health checks of the platform on this machine, when everybody else has to wait.
KEPT_FOR_LOOPBACK = 16
Headers = Sequence[tuple[str, str]]


class Server(uvicorn.Server):
    """A uvicorn server that is stopped by ``should_exit`` only: signals belong to the worker beside it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(
    app: Any,
    *,
    connections: int = MOST_CONNECTIONS,
    proxies: Sequence[str] = (),
    headers: Iterable[tuple[str, str]] = (),
) -> Server:
    """Returns the server of an ASGI application. ``proxies`` are believed when they say who calls
    (``X-Forwarded-For``); nobody else is. ``headers``: of what is refused before the application hears of it."""
    affordable = _affordable()
    gate = OpenConnections(min(connections, affordable), list(headers))
    config = uvicorn.Config(
        app,
        http=cast(Any, partial(GuardedProtocol, gate)),  # what uvicorn calls for each connection
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        backlog=min(BACKLOG, max(affordable // 4, 8)),
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        h11_max_incomplete_event_size=LARGEST_HEADERS_BYTES,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return Server(config)


@contextlib.contextmanager
def serving_in_a_thread(server: Server, listening: socket.socket) -> Iterator[None]:
    """Serves meanwhile, on a loop of its own: it answers while the caller's loop is busy."""

    def main() -> None:
        try:
            asyncio.run(server.serve(sockets=[listening]))
        except Exception:
            logger.exception("the HTTP server of this process has ended", extra={"event": "http.ended"})

    thread = threading.Thread(target=main, name="redrive-http", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(GRACE_SECONDS + 1)


def _affordable() -> int:
    """Returns half of the files that this process may open: the store, handlers and logs need some, too."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MOST_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS * 20 if soft == resource.RLIM_INFINITY else max(soft // 2, 16)


def refuse_open(host: str) -> None:
    """Refuses to listen to everybody as long as there are no tokens."""
    raise ConfigError(
        f"serving on {host} is refused: there are no access tokens, so anyone who reaches it could act on tasks",
        hint="make one first: redrive tokens create NAME --role admin; or serve on 127.0.0.1",
    )


@dataclass(slots=True)
class OpenConnections:
    """Knows who is connected, and who of them waits for its client: the one that has waited longest comes first."""

    most: int
    headers: Headers = ()
    waiting: dict[GuardedProtocol, None] = field(default_factory=dict)
    connected: int = 0

    def admit(self, newcomer: GuardedProtocol) -> bool:
        """Makes room for one more; False when all are busy with requests."""
        while self.connected > self.most:
            longest = next(iter(self.waiting), None)
            if longest is None:
                return newcomer.is_local and self.connected <= self.most + KEPT_FOR_LOOPBACK
            longest.drop("too many connections: this one has waited longest for its client")
        return True


class GuardedProtocol(H11Protocol):
    """One connection. At any time it waits for its client (for headers, a body, or to read) or it does not."""

    def __init__(self, gate: OpenConnections, **options: Any) -> None:
        super().__init__(**options)
        self._gate = gate
        self._phase: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._counted = False
        self.is_local = False

    # -- what happens to a connection ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.is_local = self.client is not None and is_loopback(self.client[0])
        self._counted, self._gate.connected = True, self._gate.connected + 1
        if self._gate.admit(self):
            self._wait("headers")
        else:
            self._refuse(503, "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn leaves it where there was an error

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._end_soon()

    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.is_closing():
            self._end_soon()

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Finds out what it waits for now."""
        if self.transport is None or self.transport.is_closing():
            return
        if self.flow.write_paused:
            self._wait("reader")
        elif self.conn.their_state is h11.SEND_BODY:
            self._wait("body")
        elif self.conn.their_state is h11.IDLE:
            # Between requests uvicorn's own timer runs; the first byte of the next one stops it.
            self._wait("idle" if self.timeout_keep_alive_task is not None else "headers")
        else:
            self._wait(None)

    def _wait(self, phase: str | None) -> None:
        if phase == self._phase:
            return
        self._stop_waiting()
        self._phase = phase
        if phase is None:
            return
        self._gate.waiting[self] = None
        if phase != "idle":
            self._timer = self.loop.call_later(DEADLINES_S[phase], self._late)

    def _stop_waiting(self) -> None:
        self._phase = None
        self._gate.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        """Answers that the client was too slow, if nothing else was answered yet, and closes."""
        if self._phase == "reader" or self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.drop(f"late: {self._phase}")
        else:
            self._refuse(408, f"the {self._phase} of the request did not come in time")

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    # -- endings ---------------------------------------------------------------------------------------------------

    def drop(self, why: str) -> None:
        """Closes the connection without an answer: its client does not listen, or there is no time."""
        logger.debug("%s", why, extra={"event": "http.dropped"})
        self._leave()
        self.transport.abort()

    def _refuse(self, status: int, why: str) -> None:
        logger.debug("%s: %s", status, why, extra={"event": "http.refused"})
        self._leave()
        phrase = HTTPStatus(status).phrase
        code = phrase.upper().replace(" ", "_")
        body = json.dumps({"type": "about:blank", "title": phrase, "status": status, "code": code, "detail": why})
        head = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
        head += "".join(f"{name.lower()}: {value}\r\n" for name, value in self._gate.headers)
        head += f"retry-after: 5\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write((head + body).encode())
        self.transport.close()
        self._end_soon()

    def _end_soon(self) -> None:
        """Closes the connection; what is not written by then is not waited for."""
        self._stop_waiting()
        self._timer = self.loop.call_later(LINGER_S, self.transport.abort)

    def _leave(self) -> None:
        self._stop_waiting()
        if self._counted:
            self._counted = False
            self._gate.connected -= 1
