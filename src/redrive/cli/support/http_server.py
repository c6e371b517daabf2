"""Serves HTTP inside a process that has other things to do: no signal handlers, no access log of its own."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Iterator, Sequence
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from redrive.api.connections import OpenConnections, make_protocol
from redrive.errors import ConfigError

GRACE_SECONDS = 2
KEEP_ALIVE_SECONDS = 5
# How many connections the system holds until they are accepted. asyncio also accepts as many in a row before it asks
# anybody, and complains about each when files run out: few enough, and fewer where there are few files.
BACKLOG = 128
LARGEST_HEADERS_BYTES = 32_768
MOST_CONNECTIONS = 500
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Server(uvicorn.Server):
    """A uvicorn server that is stopped by ``should_exit`` only: signals belong to the worker beside it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(api: FastAPI, *, connections: int = MOST_CONNECTIONS, proxies: Sequence[str] = ()) -> Server:
    """Returns the server. ``proxies`` are believed when they say who calls (``X-Forwarded-For``); nobody else is."""
    affordable = _affordable()
    gate = OpenConnections(most=min(connections, affordable))
    config = uvicorn.Config(
        api,
        http=cast(Any, make_protocol(gate)),
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


def _affordable() -> int:
    """Returns half of the files that this process may open: the store, handlers and logs need some, too."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MOST_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS * 20 if soft == resource.RLIM_INFINITY else max(soft // 2, 16)


def bind(host: str, port: int) -> socket.socket:
    """Returns a listening socket, or raises an error that says which address and what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} on {host} is taken, perhaps by another redrive up",
                hint=f"choose another: --port {port % 65535 + 1} (or REDRIVE_PORT; 0 takes any free port)",
            ) from None
        raise ConfigError(f"{host} port {port} cannot be used: {error.strerror or error}") from None
    # Connections inherit it. Without it the second half of an answer waits for the client to confirm the first, and a
    # client that keeps its connection confirms after 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def is_loopback(host: str) -> bool:
    """Returns whether an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_open(host: str) -> None:
    """Refuses to listen to everybody as long as there are no tokens."""
    raise ConfigError(
        f"serving on {host} is refused: there are no access tokens, so anyone who reaches it could act on tasks",
        hint="make one first: redrive tokens create NAME --role admin; or serve on 127.0.0.1",
    )


def address(listening: socket.socket) -> str:
    """Returns the URL of a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
