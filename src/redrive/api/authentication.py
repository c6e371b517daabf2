"""Authenticates callers of ``/api`` before anything of a request's body is read.

FastAPI reads and parses a body before it looks at what a route depends on. Here a stranger, and a viewer who may change
nothing, is turned away by the headers alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from redrive.api import access, problems
from redrive.errors import NotAllowed, RedriveError
from redrive.ops.access import Role

READING_METHODS = ("GET", "HEAD", "OPTIONS")
Guard = Callable[[Request], Awaitable[None]]


async def with_token(request: Request) -> None:
    """Lets a caller with a role in; whoever only looks sends no body that is worth reading."""
    caller = await access.identify(request)
    if request.method not in READING_METHODS and caller.role < Role.OPERATOR:
        raise NotAllowed(f"{caller.name} is {caller.role.label}; this needs {Role.OPERATOR.label}")
    request.state.caller = caller


async def by_address(request: Request) -> None:
    """Lets everybody who sends something in: the route knows by its address who that is."""
    if request.method != "POST":
        await with_token(request)


class AuthenticationMiddleware:
    """Calls the guard of a path: ``guards`` are by the beginning of the path, and the first that fits decides."""

    def __init__(self, app: ASGIApp, guards: dict[str, Guard]) -> None:
        self._app = app
        self._guards = guards

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guard = self._guard(scope["path"]) if scope["type"] == "http" else None
        if guard is not None:
            request = Request(scope)
            try:
                await guard(request)
            except RedriveError as error:
                answer = await problems.on_error(request, error)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _guard(self, path: str) -> Guard | None:
        return next((guard for prefix, guard in self._guards.items() if path.startswith(prefix)), None)
