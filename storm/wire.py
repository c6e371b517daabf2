"""The tests' proxy, and one more way for a network to fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.proxy import Proxy


class Wire(Proxy):
    """``strand``: whoever is connected now never hears anything again and is never told so, as when a firewall has
    forgotten a connection. New connections are fine."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._stranded: set[Any] = set()

    def strand(self) -> int:
        return self._call(self._strand())

    async def _strand(self) -> int:
        links, self._links = self._links, set()
        self._stranded |= links
        for link in links:
            for pump in link.pumps:
                pump.cancel()
        return len(links)

    async def _close(self) -> None:
        for link in self._stranded:
            link.cut()
        await super()._close()


@contextmanager
def through_wire(url: str) -> Iterator[tuple[Wire, str]]:
    """A wire to this database, and the URL that goes through it."""
    parts = urlsplit(url)
    with Wire(parts.hostname or "127.0.0.1", parts.port or 5432) as wire:
        assert isinstance(wire, Wire)
        yield wire, parts._replace(netloc=f"{parts.username}@127.0.0.1:{wire.port}").geturl()
