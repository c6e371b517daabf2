"""A TCP forwarder of our own in front of a real server, which we cannot stop: it can be stopped, and can be slow."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from redrive_kit.labs.kit.kept_port import keep_port


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
