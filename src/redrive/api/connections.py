"""Limits connections that wait for their client: deadlines, and room for others when there are too many.

uvicorn waits for ever for the rest of a request, and for a reader who does not read. Here every wait for a client has
an end, and whoever has waited longest makes room when the server is full: half-sent requests, however many, keep
nobody out. An HTTP server's own limits are not enough for that: uvicorn's ``limit_concurrency`` refuses everybody
alike, and only after it has read their request.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from redrive.api import middleware as headers

logger = logging.getLogger("redrive.api.connections")
# How long a connection may wait for its client; the reader is one that does not read what is written.
DEADLINES_S = {"headers": 10.0, "body": 60.0, "reader": 60.0}
LINGER_S = 5.0
# For health checks of the platform on this machine, when everybody else has to wait.
KEPT_FOR_LOOPBACK = 16


@dataclass(slots=True)
class OpenConnections:
    """Knows who is connected, and who of them waits for its client: the one that has waited longest comes first."""

    most: int
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
        self.is_local = self.client is not None and _is_loopback(self.client[0])
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
        body = (
            f'{{"type":"about:blank","title":"{phrase}","status":{status},"code":"{phrase.upper().replace(" ", "_")}",'
        )
        body += f'"detail":"{why}"}}'
        head = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
        head += "".join(f"{name.lower()}: {value}\r\n" for name, value in headers.for_path(""))
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


def make_protocol(gate: OpenConnections) -> Callable[..., GuardedProtocol]:
    """Returns what uvicorn calls for each connection."""
    return partial(GuardedProtocol, gate)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
