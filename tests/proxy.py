"""A TCP proxy that misbehaves on request: the wire between a worker and its database, with scissors.

Runs in a thread with a loop of its own, so that tests and the code under test cannot starve it, and so that it also
serves other processes. All methods may be called from anywhere and return when they have taken effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.cluster import free_port

T = TypeVar("T")


@dataclass(eq=False)
class _Link:
    """One connection through the proxy: the two ends and the tasks that copy between them."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    pumps: list[asyncio.Task[None]] = field(default_factory=list)
    statements: dict[bytes, bytes] = field(default_factory=dict)
    deaf: bool = False

    def sees(self, chunk: bytes, deaf_to: bytes | None) -> bool:
        """Note which name (of asyncpg's) stands for which statement, and watch out for the one."""
        if chunk.startswith(b"P"):
            name, _, rest = chunk[5:].partition(b"\0")
            self.statements[name] = rest.partition(b"\0")[0]
        elif chunk.startswith(b"B") and deaf_to is not None:
            name = chunk[5:].split(b"\0", 2)[1]
            self.deaf |= deaf_to in self.statements.get(name, b"")
        elif chunk.startswith(b"Q") and deaf_to is not None:
            self.deaf |= deaf_to in chunk[5:]
        return True

    def hears(self, _chunk: bytes, _deaf_to: bytes | None) -> bool:
        return not self.deaf

    def cut(self) -> None:
        for pump in self.pumps:
            pump.cancel()
        for writer in (self.client, self.server):
            _reset(writer)


class Proxy:
    """Forwards ``127.0.0.1:port`` to a server until told otherwise."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._links: set[_Link] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._delay = 0.0
        self._deaf_to: bytes | None = None
        self._refusing = False
        self._server: asyncio.Server | None = None
        self.port = 0
        self.accepted = 0

    def start(self) -> Proxy:
        self._thread.start()
        self._call(self._listen(free_port()))
        return self

    def close(self) -> None:
        if self._thread.is_alive():
            self._call(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connections(self) -> int:
        return len(self._links)

    @property
    def swallowing(self) -> bool:
        """``swallow_answers`` has met its statement."""
        return any(link.deaf for link in list(self._links))

    def cut(self) -> int:
        """Reset every connection now open; new ones are still accepted. Answers how many there were."""
        return self._call(self._cut())

    def black_hole(self) -> None:
        """Half-open: connections stay up and take bytes, but nothing arrives, in either direction."""
        self._call(self._set(flowing=False))

    def swallow_answers(self, statement: bytes) -> None:
        """The next execution of a statement with this text arrives, and nothing comes back any more on its
        connection: the commit lands and nobody hears of it. ``cut`` before ``restore``."""
        self._call(self._set(deaf_to=statement))

    def delay(self, seconds: float) -> None:
        """Hold every chunk back for a while; 0 turns it off."""
        self._call(self._set(delay=seconds))

    def refuse(self) -> None:
        """New connections are refused as if nobody listened; open ones live on."""
        self._call(self._refuse())

    def restore(self) -> None:
        """Be a good wire again. What a black hole swallowed is delivered, as after a healed network split."""
        self._call(self._restore())

    # -- on the proxy's own loop -----------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(90)

    async def _listen(self, port: int) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        await self._refuse()
        await self._cut()
        await asyncio.sleep(0)

    async def _cut(self) -> int:
        links, self._links = self._links, set()
        for link in links:
            link.cut()
        return len(links)

    async def _set(
        self, *, flowing: bool | None = None, delay: float | None = None, deaf_to: bytes | None = None
    ) -> None:
        if flowing is not None:
            (self._flowing.set if flowing else self._flowing.clear)()
        if delay is not None:
            self._delay = delay
        self._deaf_to = deaf_to

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _restore(self) -> None:
        await self._set(flowing=True, delay=0.0)
        if self._server is None:
            await self._listen(self.port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            _reset(writer)
            return
        link = _Link(writer, far_writer)
        self._links.add(link)
        link.pumps = [
            asyncio.create_task(self._pump(reader, far_writer, link.sees)),
            asyncio.create_task(self._pump(far_reader, writer, link.hears)),
        ]
        await asyncio.wait(link.pumps, return_when=asyncio.FIRST_COMPLETED)
        if link in self._links:
            self._links.discard(link)
            link.cut()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        passes: Callable[[bytes, bytes | None], bool],
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(65536):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._flowing.wait()
                if passes(chunk, self._deaf_to):
                    sink.write(chunk)
                    await sink.drain()
            await self._flowing.wait()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, as a cut wire or a killed peer would look after its time-out."""
    raw = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
