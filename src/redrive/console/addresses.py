"""Which connection a page is about. Its address says so: ``/ops/queue/@insights/…`` is about one of several.

In the address, and not in a cookie: two open pages may be about two of them, and a form acts where its page looked."""

from __future__ import annotations

import re
from contextvars import ContextVar

from starlette.datastructures import URL
from starlette.types import ASGIApp, Receive, Scope, Send

HOME = "/ops/queue"
_PLACE = re.compile(rf"{HOME}/@([^/]*)")
# The connection that the address names; None: the default one.
NAMED: ContextVar[str | None] = ContextVar("redrive_console_connection", default=None)


def home(connection: str | None = None) -> str:
    """Returns the first page of a connection; without one, of the connection that this page is about."""
    name = connection or NAMED.get()
    return HOME if name is None else f"{HOME}/@{name}"


def here(path: str) -> str:
    """Returns an address that the routes know as it is called for the connection that this page is about."""
    return home() + path.removeprefix(HOME)


def asked_for(url: URL) -> str:
    """Returns the whole address that a browser has asked for, to come back to it."""
    return here(url.path) + (f"?{url.query}" if url.query else "")


def split_address(path: str) -> tuple[str | None, str]:
    """Returns the connection that an address names, and the address as the routes know it."""
    found = _PLACE.match(path)
    return (None, path) if found is None else (found[1], HOME + path[found.end() :])


class Home:
    """``home`` in templates: what it is depends on the page."""

    def __str__(self) -> str:
        return home()


class ConnectionInAddress:
    """Takes the connection out of the address before the routes see it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name, path = split_address(scope["path"])
        token = NAMED.set(name)
        try:
            await self._app(
                scope if name is None else {**scope, "path": path, "raw_path": path.encode()}, receive, send
            )
        finally:
            NAMED.reset(token)
