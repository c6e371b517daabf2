"""Serves HTTP inside a process that has other things to do: no signal handlers, no access log of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from redrive.api.connections import OpenConnections, make_protocol
from redrive.cli.support.sockets import BACKLOG
from redrive.errors import ConfigError

GRACE_SECONDS = 2
KEEP_ALIVE_SECONDS = 5
LARGEST_HEADERS_BYTES = 32_768
MOST_CONNECTIONS = 500


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


def refuse_open(host: str) -> None:
    """Refuses to listen to everybody as long as there are no tokens."""
    raise ConfigError(
        f"serving on {host} is refused: there are no access tokens, so anyone who reaches it could act on tasks",
        hint="make one first: redrive tokens create NAME --role admin; or serve on 127.0.0.1",
    )
