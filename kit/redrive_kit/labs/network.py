"""What labs do on the network: ask servers over HTTP, keep a port for one that is stopped and started again, forward to
a real one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 10.0


@dataclass(slots=True, frozen=True)
class Answer:
    """What was answered; the status is 0 where nobody did."""

    status: int
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


async def ask(
    url: str, body: Mapping[str, Any] | None = None, *, method: str | None = None, login: str | None = None
) -> Answer:
    """GETs an address, or POSTs a document to it. ``login``: ``user:password``."""
    return await asyncio.to_thread(_ask, url, body, method, login)


def _ask(url: str, body: Mapping[str, Any] | None, method: str | None, login: str | None) -> Answer:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if data else {}
    headers |= {"Authorization": f"Basic {b64encode(login.encode()).decode()}"} if login else {}
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 (an address that was given)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # what is asked is on this machine
    try:
        with opener.open(request, timeout=PATIENCE_S) as answer:
            return Answer(answer.status, answer.read().decode(errors="replace"))
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read().decode(errors="replace"))
    except (OSError, ValueError) as error:
        return Answer(0, f"{type(error).__name__}: {error}")


def keep_port() -> socket.socket:
    """Returns a socket that keeps a port of this machine until it is closed: it is bound and does not listen, so that
    nobody else is given the port, and whoever connects is refused. A server that sets ``SO_REUSEADDR`` can listen there
    all the same."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    return kept


class Forwarder:
    """Forwards connections to ``host:port``, from a port of its own that stays the same."""

    def __init__(self, host: str, port: int, *, tls: bool = False) -> None:
        self._to = (host, port)
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._kept: socket.socket | None = None
        self.port = 0
        self.delay = 0.0  # seconds that whatever is sent to the server waits

    async def start(self) -> None:
        """Listens; on the same port as before."""
        if self._kept is None:
            self._kept = keep_port()
            self.port = self._kept.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """Refuses connections from now on, and cuts those that are open."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._open):
                writer.transport.abort()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._server.wait_closed(), 5)
            self._server = None

    async def close(self) -> None:
        """Stops, and gives its port away."""
        await self.stop()
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward_reader, onward_writer = await asyncio.open_connection(*self._to, ssl=self._tls or None)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, onward_writer}
        self._open |= ends
        try:
            await asyncio.gather(self._pump(reader, onward_writer, True), self._pump(onward_reader, writer, False))
        finally:
            self._open -= ends
            for end in ends:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delayed: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if delayed and self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
