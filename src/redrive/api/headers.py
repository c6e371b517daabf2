"""Adds security headers to every response: no frames, no guessed types, nothing cached, nothing of others run."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
# The page of routes has a style of its own, and no script.
_DOCS = "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
# The console has styles and scripts in files of its own, and forms; nothing inline, nothing of anybody else.
_CONSOLE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " frame-ancestors 'none'; base-uri 'none'"
)
ALWAYS_SENT = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def for_path(path: str) -> Iterable[tuple[str, str]]:
    """The headers of an answer. Payloads and figures are in no cache; where nothing is said, nothing is kept either."""
    if _in_console(path):
        # Without a referrer a browser does not name the origin of a form either: it says null, as any other site's may.
        yield "Referrer-Policy", "same-origin"
    yield from ALWAYS_SENT.items()
    yield "Content-Security-Policy", _policy(path)
    yield "Cache-Control", "no-store"


def _policy(path: str) -> str:
    if path == "/docs":
        return _DOCS
    return _CONSOLE if _in_console(path) else _NOTHING


def _in_console(path: str) -> bool:
    return path == "/ops/queue" or path.startswith("/ops/queue/")


class SecurityHeaders:
    """The middleware that adds them to every response that does not say otherwise itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in for_path(scope["path"]):
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)
