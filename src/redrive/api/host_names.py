"""Serves only those who ask for a server by its own names."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send


class OwnNames(TrustedHostMiddleware):
    """The middleware that refuses other names. Addresses that are public come through a proxy, by the name that the
    world has for it, and need no such guard: they are their own proof."""

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str], public: tuple[str, ...] = ()) -> None:
        super().__init__(app, list(allowed_hosts))
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(self._public):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)
