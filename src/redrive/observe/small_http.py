"""Serves a few addresses over HTTP from a thread with a loop of its own: it answers while the worker's loop is busy.

For probes and Prometheus, where the web framework would cost a worker more than everything else that it has loaded.
One request for each connection, GET and HEAD only, nothing of a body is read, and everything has an end.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import logging
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

logger = logging.getLogger("redrive.metrics")
MOST_CONNECTIONS = 64
LARGEST_HEAD_BYTES = 16_384
READ_WITHIN_S, ANSWER_WITHIN_S = 5.0, 20.0


@dataclass(slots=True, frozen=True)
class Answer:
    status: int
    body: bytes
    content_type: str = "application/json"


def as_json(document: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(document).encode())


Page = Callable[[str], Awaitable[Answer]]  # gets what the client accepts


class SmallServer:
    """Serves ``pages`` by their paths. Those of ``guarded`` ask for the ``token``, if there is one. ``names``: the host
    names that it is asked by, beside addresses; none: by any. They keep web pages from reading a port of this machine
    by a name of their own that resolves to it."""

    def __init__(
        self,
        listening: socket.socket,
        pages: Mapping[str, Page],
        *,
        token: str | None = None,
        guarded: tuple[str, ...] = (),
        names: tuple[str, ...] = (),
    ) -> None:
        self._listening = listening
        self._pages = pages
        self._token = token
        self._guarded = guarded
        self._names = names
        self._waiting: dict[asyncio.StreamWriter, None] = {}  # for their client; the longest comes first
        self._busy = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="redrive-metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait(5.0)

    def stop(self) -> None:
        """Serves no more; a page that is being made has a moment to go out."""
        loop, over = self._loop, self._over
        if loop is not None and over is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(over.set)
        self._thread.join(2.0)

    # -- in the thread ---------------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            logger.exception("the port of the metrics has closed", extra={"event": "metrics.closed"})
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._listening.setblocking(False)
        server = await asyncio.start_server(self._connected, sock=self._listening, limit=LARGEST_HEAD_BYTES)
        self._ready.set()
        async with server:
            await self._over.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # whoever it was is gone, or too slow, or had to make room
        except asyncio.CancelledError:
            pass  # it stops; asyncio would log each connection that is left as an error
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with self._waits(writer):
                async with asyncio.timeout(READ_WITHIN_S):
                    head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            method, answer = "GET", _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            with self._is_busy():
                method, answer = await self._answer(head.decode("latin-1").split("\r\n"))
        with self._waits(writer):
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await self._write(writer, answer, method)

    @contextlib.contextmanager
    def _waits(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        """Counts a connection that waits for its client. Whoever has waited longest makes room when there are too many:
        connections that say nothing, however many, keep no probe out."""
        self._waiting[writer] = None
        while self._waiting and len(self._waiting) + self._busy > MOST_CONNECTIONS:
            longest = next(iter(self._waiting))
            del self._waiting[longest]
            longest.transport.abort()
        try:
            yield
        finally:
            self._waiting.pop(writer, None)

    @contextlib.contextmanager
    def _is_busy(self) -> Iterator[None]:
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    async def _answer(self, lines: list[str]) -> tuple[str, Answer]:
        method, _, rest = lines[0].partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        page = self._pages.get(path)
        if not self._is_named(headers.get("host", "")):
            return method, _refusal(HTTPStatus.BAD_REQUEST)
        if method not in ("GET", "HEAD"):
            return method, _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        if page is None:
            return method, _refusal(HTTPStatus.NOT_FOUND, serves=sorted(self._pages))
        if path in self._guarded and not self._lets_in(headers.get("authorization", "")):
            return method, _refusal(HTTPStatus.UNAUTHORIZED)
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return method, await page(headers.get("accept", ""))
        except TimeoutError:
            return method, _refusal(HTTPStatus.SERVICE_UNAVAILABLE)
        except Exception:
            logger.exception("%s", path, extra={"event": "metrics.failed"})
            return method, _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _is_named(self, host: str) -> bool:
        """Returns whether it is asked by a name of its own. An address is nobody's name; only old clients give none."""
        name = re.sub(r":\d*$", "", host.lower())
        return not (self._names and name) or name in self._names or _is_address(name)

    def _lets_in(self, authorization: str) -> bool:
        if self._token is None:
            return True
        scheme, _, given = authorization.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token.encode())

    async def _write(self, writer: asyncio.StreamWriter, answer: Answer, method: str) -> None:
        more = "WWW-Authenticate: Bearer\r\n" if answer.status == HTTPStatus.UNAUTHORIZED else ""
        head = (
            f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\nContent-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            f"{more}Connection: close\r\n\r\n"
        )
        writer.write(head.encode("latin-1") + (b"" if method == "HEAD" else answer.body))
        await writer.drain()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _refusal(status: HTTPStatus, **more: Any) -> Answer:
    return as_json({"error": status.phrase, **more}, status)
