"""What every request and answer passes: our own host names, security headers, cookies that are cheap to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from starlette.datastructures import MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
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
    """Adds security headers to every response that does not say otherwise itself: no frames, no guessed types, nothing
    cached, nothing of others run."""

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


class PlainCookies:
    """Leaves out cookies with escapes, which nobody here has set. The framework reads all cookies of a request for
    every route, and Python takes quadratic time for escapes in one of them (CVE-2024-7592, fixed in 3.11.10 and
    3.12.6): a stranger's header would hold everybody up for seconds."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if any(name == b"cookie" and b"\\" in value for name, value in scope.get("headers", ())):
            headers = [(name, _plain(value) if name == b"cookie" else value) for name, value in scope["headers"]]
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)


def _plain(cookies: bytes) -> bytes:
    return b";".join(cookie for cookie in cookies.split(b";") if b"\\" not in cookie)


class OwnNames(TrustedHostMiddleware):
    """Refuses whoever asks for a server by a name that is not its own. Addresses that are public come through a proxy,
    by the name that the world has for it, and need no such guard: they are their own proof."""

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str], public: tuple[str, ...] = ()) -> None:
        super().__init__(app, list(allowed_hosts))
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(self._public):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)
