"""Finds host and port of a connection that failed, in what the exceptions of the chain carry or say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_address
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from redrive.kernel.evidence import look
from redrive.kernel.frames import walk

MAX_LOOKED_AT = 2_000
MAX_SPOKEN = 8  # peers in one message
FIRST_PASSING_PORT = 32_768  # from here on they are given to whoever asks, and name no service
_THIS_HOST = ("127.0.0.1", "::1")
_PORT = re.compile(r":\d{1,5}$")
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "redis": 6379, "postgresql": 5432, "amqp": 5672}

_CALLERS = ("socket", "asyncio.base_events")
_SPOKEN = [
    re.compile(r"\bserver at \"(?P<host>[^\"\s]{1,253})\"(?: \([^)]{1,60}\))?, port (?P<port>\d{1,5})"),  # libpq
    re.compile(r"\bhost='(?P<host>[^'\s]{1,253})', port=(?P<port>\d{1,5})"),  # urllib3
    re.compile(r"\bhost: '(?P<host>[^'\s]{1,253})', port: '?(?P<port>\d{1,5})"),  # psycopg, several addresses
    re.compile(r"\('(?P<host>[^'\s]{1,253})', (?P<port>\d{1,5})(?:, \d+, \d+)?\)"),  # asyncio, sockets
    re.compile(r"\b(?P<url>[a-z][a-z0-9+]{1,15}://[^\s'\"<>)\]]{1,1000})", re.I),
    re.compile(r"\[(?P<host>[0-9a-fA-F:.]{2,45})\]:(?P<port>\d{1,5})\b"),
    re.compile(r"(?<![\w.:/-])(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?):(?P<port>\d{2,5})\b"),
]


def peer_of(errors: Iterable[BaseException]) -> str | None:
    """Returns whom a connection was meant for, as ``host:port``: by the name that was asked for rather than its
    address."""
    errors = list(errors)
    found = (peer for find in (_carried, _spoken, _called) for error in errors for peer in _tried(find, error))
    first = next(found, None)
    if first is None or service_of(first) is None:
        return first
    port = first.rpartition(":")[2]
    # Libraries look a name up and speak of its addresses; some say both.
    named = (peer for peer in found if service_of(peer) is None and peer.rpartition(":")[2] == port)
    return next(named, first)


def service_of(peer: str) -> str | None:
    """Returns what a bare address offers, by its port, ``""`` where that says nothing; None for a peer with a name.
    Addresses come and go, and a hundred of them may be one service; this host is a name."""
    host, _, port = peer.rpartition(":") if _PORT.search(peer) else (peer, "", "")
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return None
    if host in _THIS_HOST:
        return None
    return port if port and int(port) < FIRST_PASSING_PORT else ""


def _tried(find: Callable[[BaseException], Iterable[str | None]], error: BaseException) -> list[str]:
    try:
        return [peer for peer in find(error) if peer is not None]
    except Exception:  # somebody else's attribute, or a URL that is none
        return []


def _carried(error: BaseException) -> list[str | None]:
    return [_carried_one(error)]


def _carried_one(error: BaseException) -> str | None:
    request = look(error, "request") or look(error, "_request") or look(error, "request_info")
    for url in (look(request, "url"), look(error, "url")):
        if url is not None and (found := _of_url(str(url))):
            return found
    kwargs = look(error, "kwargs")
    if isinstance(kwargs, Mapping) and (found := _of_url(str(kwargs.get("endpoint_url", "")))):  # botocore
        return found
    for holder in (error, look(error, "pool"), look(error, "conn")):  # aiohttp, urllib3
        if found := _of_pair(look(holder, "host"), look(holder, "port")):
            return found
    return None


def _spoken(error: BaseException) -> Iterator[str | None]:
    text = str(error)[:MAX_LOOKED_AT]
    for pattern in _SPOKEN:
        for said in islice(pattern.finditer(text), MAX_SPOKEN):
            groups = said.groupdict()
            yield _of_url(groups["url"]) if "url" in groups else _of_pair(groups["host"], int(groups["port"]))


def _called(error: BaseException) -> Iterator[str | None]:
    """Yields what the standard library was asked to connect to or to look up, from its own frames."""
    for frame in walk(error.__traceback__):
        if frame.f_globals.get("__name__") in _CALLERS and frame.f_code.co_name in ("create_connection", "getaddrinfo"):
            values = frame.f_locals
            address = values.get("address")
            host, port = address[:2] if isinstance(address, tuple) else (values.get("host"), values.get("port"))
            yield _of_pair(host, port if isinstance(port, int) else None)


def _of_url(url: str) -> str | None:
    parts = urlsplit(url[:MAX_LOOKED_AT])
    return _of_pair(parts.hostname, parts.port or _PORTS.get(parts.scheme.partition("+")[0]))


def _of_pair(host: Any, port: Any) -> str | None:
    if not isinstance(host, str) or not host or (port is not None and not isinstance(port, int)):
        return None
    return host.lower() if port is None else f"{host.lower()}:{port}"
