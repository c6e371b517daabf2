"""Leaves out cookies that are costly to read: those with escapes, which nobody here has set."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class PlainCookies:
    """The middleware that removes them. The framework reads all cookies of a request for every route, and Python takes
    quadratic time for escapes in one of them (CVE-2024-7592, mended in 3.11.10 and 3.12.6): a stranger's header would
    hold everybody up for seconds."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if any(name == b"cookie" and b"\\" in value for name, value in scope.get("headers", ())):
            headers = [(name, _plain(value) if name == b"cookie" else value) for name, value in scope["headers"]]
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)


def _plain(cookies: bytes) -> bytes:
    return b";".join(cookie for cookie in cookies.split(b";") if b"\\" not in cookie)
