"""Looks names up in threads of its own, so that a customer whose name servers are silent holds up nobody else.

The system's lookup cannot be given up: its thread hangs for as long as the resolver waits, half a minute or more. In
the loop's own few threads a handful of such names would stop every other lookup of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import weakref
from dataclasses import dataclass, field
from ipaddress import ip_address

MOST_AT_ONCE = 32
# After which a lookup counts as hanging, and takes nobody's place any more. One packet that is lost costs 5 seconds.
GIVE_UP_S = 6.0
MOST_HANGING, MOST_HANGING_OF_ONE = 256, 8


class LookupHangs(OSError):
    """A name is not looked up, since name servers leave us waiting."""


@dataclass(slots=True, eq=False)
class Lookup:
    """One lookup, under way or done; all that want its host meanwhile wait for the same one."""

    host: str
    owner: str
    found: asyncio.Future[list[str]]
    hangs: bool = False

    async def addresses(self) -> list[str]:
        """Waits, and returns the addresses. Raises OSError or UnicodeError where there are none."""
        return await asyncio.shield(self.found)  # whoever gives up does so alone

    def tell(self, what: list[str] | Exception) -> None:
        """Hands those who wait what was found, or why nothing was."""
        if isinstance(what, Exception):
            self.found.set_exception(what)
            self.found.exception()  # counts as seen: perhaps nobody waits any more
        else:
            self.found.set_result(what)


@dataclass(slots=True)
class Lookups:
    """The lookups of one event loop."""

    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))
    by_host: dict[str, Lookup] = field(default_factory=dict)
    give_up_s: float = GIVE_UP_S

    async def begin(self, host: str, owner: str = "") -> Lookup:
        """Waits for a thread and returns the lookup that it has begun, or the one that is under way. Raises
        LookupHangs where that has been silent for too long, or too many of the same ``owner`` have been."""
        if (known := _literal(host)) is not None:
            return known
        while host not in self.by_host:
            if self._too_many(owner):
                raise LookupHangs("the name servers of too many other names do not answer")
            await self.room.acquire()
            if host not in self.by_host and not self._too_many(owner):
                return self._begin(host, owner)
            self.room.release()
        if self.by_host[host].hangs:
            raise self._silent()
        return self.by_host[host]

    def _too_many(self, owner: str) -> bool:
        """Returns whether no thread is left for names of an owner: each that hangs holds one."""
        hanging = [one.owner for one in self.by_host.values() if one.hangs]
        return len(hanging) >= MOST_HANGING or hanging.count(owner) >= MOST_HANGING_OF_ONE

    def _begin(self, host: str, owner: str) -> Lookup:
        loop = asyncio.get_running_loop()
        lookup = self.by_host[host] = Lookup(host, owner, loop.create_future())
        loop.call_later(self.give_up_s, self._give_up, lookup)
        # A daemon: the end of the process waits for no name server.
        thread = threading.Thread(target=self._look_up, args=(loop, lookup), name=f"lookup {host}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system gives us no more of them
            self._end(lookup, OSError(str(error)))
        return lookup

    def _look_up(self, loop: asyncio.AbstractEventLoop, lookup: Lookup) -> None:
        try:
            found: list[str] | Exception = _resolved(lookup.host)
        except Exception as error:
            found = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(self._end, lookup, found)

    def _give_up(self, lookup: Lookup) -> None:
        if not lookup.found.done():
            lookup.hangs = True
            self.room.release()
            lookup.tell(self._silent())

    def _end(self, lookup: Lookup, found: list[str] | Exception) -> None:
        del self.by_host[lookup.host]
        if not lookup.hangs:
            self.room.release()
            lookup.tell(found)

    def _silent(self) -> LookupHangs:
        return LookupHangs(f"its name servers have not answered for {self.give_up_s:g} seconds")


_OF_LOOPS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Lookups] = weakref.WeakKeyDictionary()


def lookups() -> Lookups:
    """Returns those of the running event loop."""
    return _OF_LOOPS.setdefault(asyncio.get_running_loop(), Lookups())


def _literal(host: str) -> Lookup | None:
    """Returns an address as what would be found for it, however it is written (``127.1``, ``0x7f000001``): that needs
    no name server."""
    try:
        addresses = _resolved(host, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None
    lookup = Lookup(host, "", asyncio.get_running_loop().create_future())
    lookup.tell(addresses)
    return lookup


def _resolved(host: str, flags: int = 0) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=flags)
    return list(dict.fromkeys(str(ip_address(str(info[4][0]).partition("%")[0])) for info in found))
