"""Finds host and port of a connection that failed, in what the exceptions of the chain carry or say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from redrive.kernel.evidence import look
from redrive.kernel.frames import walk

MAX_LOOKED_AT = 2_000
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
    """Returns ``host:port`` from the first exception that knows; the name that was asked for rather than its
    address."""
    errors = list(errors)
    found = (_tried(find, error) for find in (_carried, _spoken, _called) for error in errors)
    return next((peer for peer in found if peer is not None), None)


def _tried(find: Callable[[BaseException], str | None], error: BaseException) -> str | None:
    try:
        return find(error)
    except Exception:  # somebody else's attribute, or a URL that is none
        return None


def _carried(error: BaseException) -> str | None:
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


def _spoken(error: BaseException) -> str | None:
    text = str(error)[:MAX_LOOKED_AT]
    for pattern in _SPOKEN:
        if said := pattern.search(text):
            groups = said.groupdict()
            return _of_url(groups["url"]) if "url" in groups else _of_pair(groups["host"], int(groups["port"]))
    return None


def _called(error: BaseException) -> str | None:
    """Returns what the standard library was asked to connect to or to look up, from its own frames."""
    for frame in walk(error.__traceback__):
        if frame.f_globals.get("__name__") in _CALLERS and frame.f_code.co_name in ("create_connection", "getaddrinfo"):
            values = frame.f_locals
            address = values.get("address")
            host, port = address[:2] if isinstance(address, tuple) else (values.get("host"), values.get("port"))
            if found := _of_pair(host, port if isinstance(port, int) else None):
                return found
    return None


def _of_url(url: str) -> str | None:
    parts = urlsplit(url[:MAX_LOOKED_AT])
    return _of_pair(parts.hostname, parts.port or _PORTS.get(parts.scheme.partition("+")[0]))


def _of_pair(host: Any, port: Any) -> str | None:
    if not isinstance(host, str) or not host or (port is not None and not isinstance(port, int)):
        return None
    return host.lower() if port is None else f"{host.lower()}:{port}"
