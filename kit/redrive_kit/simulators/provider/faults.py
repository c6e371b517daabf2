"""The trouble that a simulated provider makes: slowness, limits, errors, outages, answers that get lost."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FOR_EVER = 1e9  # seconds


class Troublesome(Protocol):
    """What of a server's behaviour makes trouble: see ``behaviour.Behaviour``."""

    latency: float
    rate: float
    error_share: float
    lost_share: float

    @property
    def down_as(self) -> str: ...


B = TypeVar("B", bound=Troublesome)


class Trouble(Generic[B]):
    """When requests are let through. ``down_until`` is by the monotonic clock."""

    def __init__(self, behaviour: B, seed: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self.behaviour = behaviour
        self.down_until = -FOR_EVER
        self.refused = 0
        self.clock = clock
        self.chance = random.Random(seed)  # noqa: S311
        self._room = 0.0  # requests that are let through at once
        self._looked_at = clock()

    def is_down(self) -> bool:
        return self.clock() < self.down_until

    def wait_for_room(self) -> int | None:
        """Returns the seconds to wait for, by whole ones as Retry-After has it; None where a request is within the
        rate."""
        rate, now = self.behaviour.rate, self.clock()
        if rate <= 0:
            return None
        self._room = min(max(rate, 1.0), self._room + (now - self._looked_at) * rate)
        self._looked_at = now
        if self._room >= 1:
            self._room -= 1
            return None
        return max(1, math.ceil((1 - self._room) / rate))


class Troubled(Generic[B]):
    """The server with its trouble around it. Addresses that begin with ``own`` are those of whoever makes it."""

    def __init__(self, app: ASGIApp, trouble: Trouble[B], own: str = "/_") -> None:
        self._app = app
        self._trouble = trouble
        self._own = own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(self._own):
            await self._app(scope, receive, send)
            return
        trouble, behaviour = self._trouble, self._trouble.behaviour
        if behaviour.latency:
            await asyncio.sleep(behaviour.latency * (0.5 + trouble.chance.random()))
        if (refusal := self._refusal()) is not None:
            trouble.refused += 1
            await refusal(scope, receive, send)
        elif trouble.is_down():
            trouble.refused += 1
            await self._outage(scope, receive, send)
        elif trouble.chance.random() < behaviour.lost_share:
            await self._app(scope, receive, _ignored)
            await _drop(send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self) -> Response | None:
        trouble = self._trouble
        if trouble.is_down():
            return None
        if (wait := trouble.wait_for_room()) is not None:
            return _error(429, "too many requests", {"Retry-After": str(wait)})
        return _error(500, "an error by choice") if trouble.chance.random() < trouble.behaviour.error_share else None

    async def _outage(self, scope: Scope, receive: Receive, send: Send) -> None:
        match self._trouble.behaviour.down_as:
            case "drop":
                await _drop(send)
            case "hang":
                await _until_gone(receive, self._trouble.is_down)
                await _drop(send)
            case _:
                await _error(503, "down for a while", {"Retry-After": "1"})(scope, receive, send)


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": {"message": message}}, status, headers)


async def _ignored(_: Message) -> None:
    """Takes an answer that nobody gets."""


async def _drop(send: Send) -> None:
    """Ends the connection in the middle of an answer, which is as near as a server comes to cutting a cable."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000000")]})
    await send({"type": "http.response.body", "body": b"{", "more_body": False})


async def _until_gone(receive: Receive, down: Callable[[], bool]) -> None:
    """Waits until the client has given up, or the outage is over."""
    gone = asyncio.ensure_future(_disconnected(receive))
    while down() and not gone.done():
        await asyncio.wait([gone], timeout=0.1)
    gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
