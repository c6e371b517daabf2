"""Who calls: by token, or, as long as there are none and on this machine only, whoever says so."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Header, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from redrive.app import App
from redrive.errors import NotAllowed, RedriveError
from redrive.kernel.store import Store
from redrive.ops import access
from redrive.ops.access import Caller, Role

FAILURES, WINDOW = 10, 60.0
KNOWN_CALLERS = 10_000


class Unauthorized(RedriveError):
    code = "UNAUTHORIZED"


class TooManyFailures(RedriveError):
    code = "TOO_MANY_FAILURES"


class Doorkeeper:
    """Counts wrong tokens by address: after a few, nothing is looked up for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, deque[float]] = {}

    def check(self, address: str) -> None:
        seen = self._recent(address)
        if len(seen) >= FAILURES:
            wait = WINDOW - (self._clock() - seen[0])
            raise TooManyFailures("too many wrong tokens from your address", hint=f"try again in {wait:.0f} s")

    def failed(self, address: str) -> None:
        if len(self._failures) >= KNOWN_CALLERS:
            self._failures = {name: seen for name in self._failures if (seen := self._recent(name))}
        self._failures.setdefault(address, deque(maxlen=FAILURES)).append(self._clock())

    def _recent(self, address: str) -> deque[float]:
        seen = self._failures.get(address, deque())
        while seen and seen[0] < self._clock() - WINDOW:
            seen.popleft()
        return seen


async def the_store(request: Request) -> Store:
    app: App = request.app.state.redrive
    return await app.store()


Opened = Annotated[Store, Depends(the_store)]


def the_app(request: Request) -> App:
    app: App = request.app.state.redrive
    return app


TheApp = Annotated[App, Depends(the_app)]


_bearer = HTTPBearer(auto_error=False, description="A token of `redrive tokens create`, where there are any.")


async def who(
    request: Request, store: Opened, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    x_actor: Annotated[str | None, Header(description="Who acts, where there are no tokens.")] = None,
) -> Caller:  # fmt: skip
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    address = request.client.host if request.client is not None else "?"
    if credentials is None:
        if request.app.state.open_door and not await access.any_token(store):
            return Caller(x_actor or "api", Role.ADMIN)
        raise Unauthorized("a token is needed", hint="Authorization: Bearer …; redrive tokens create makes one")
    doorkeeper.check(address)
    caller = await access.check(store, credentials.credentials)
    if caller is None:
        doorkeeper.failed(address)
        raise Unauthorized("the token is not valid", hint="it may be revoked or expired: redrive tokens")
    return caller


def at_least(role: Role) -> Callable[..., Awaitable[Caller]]:
    async def check(caller: Annotated[Caller, Depends(who)]) -> Caller:
        if caller.role < role:
            raise NotAllowed(f"{caller.name} is {caller.role.label}; this needs {role.label}")
        return caller

    return check


Viewer = Annotated[Caller, Depends(at_least(Role.VIEWER))]
Operator = Annotated[Caller, Depends(at_least(Role.OPERATOR))]
Admin = Annotated[Caller, Depends(at_least(Role.ADMIN))]


def actor(caller: Caller, said: str | None = None) -> str:
    """A token's name cannot be talked away."""
    return caller.name if caller.token_id is not None else said or caller.name
