"""The trouble that a simulated server makes: slowness, limits, errors, outages, answers that get lost."""

from __future__ import annotations

import asyncio
import json
import math
import random
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, Self, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.errors import InvalidInput
from redrive.settings.declare import Values, fields_of, option
from redrive.settings.values import Unfit

MAX_BODY = 2_000_000
FOR_EVER = 1e9  # seconds
MAX_DOWN = 864_000  # seconds of an outage


def finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("it has to be a number")
    return number


def serve(app: ASGIApp, listening: socket.socket) -> None:
    """Serves until a signal comes. Answers that are cut on purpose are errors to uvicorn: nobody needs to read them."""
    import uvicorn  # an application that only names a simulator does without

    config = uvicorn.Config(
        app, ws="none", log_config=None, log_level="critical", lifespan="off", timeout_graceful_shutdown=1
    )
    uvicorn.Server(config).run(sockets=[listening])


class Troublesome(Values):
    """How a server makes trouble. Shares are from 0 to 1, times in seconds; half of ``latency`` is by chance."""

    latency: float = option(0.0, "SECONDS", ge=0, le=600, check=finite, help="How long each request takes.")
    rate: float = option(0.0, "NUMBER", ge=0, check=finite, help="Requests a second; beyond that 429. 0: any number.")
    error_share: float = option(0.0, "SHARE", ge=0, le=1, check=finite, help="Share of requests that get a 500.")
    lost_share: float = option(0.0, "SHARE", ge=0, le=1, check=finite, help="Share of requests whose answer is lost.")
    down_as: Literal["503", "drop", "hang"] = option("503", help="What an outage looks like.")

    def changed(self, given: Mapping[str, Any]) -> Self:
        """Returns the same with other values; what cannot be is refused."""
        try:
            return self.from_map({**self.given, **given})
        except Unfit as error:
            raise InvalidInput(f"a simulated server cannot be like that: {error}") from None


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

    def change(self, given: Mapping[str, Any]) -> None:
        """Behaves otherwise from now on. ``down_for`` begins an outage of so many seconds, 0 ends it."""
        wanted = dict(given)
        down = wanted.pop("down_for", 0)
        if isinstance(down, bool) or not isinstance(down, int | float) or not 0 <= down <= MAX_DOWN:
            raise InvalidInput("down_for has to be a number of seconds")
        self.behaviour = self.behaviour.changed(wanted)
        if "down_for" in given:
            self.down_until = self.clock() + down

    def document(self) -> dict[str, Any]:
        """Returns how it behaves now, by name."""
        left = max(self.down_until - self.clock(), 0.0)
        return {
            **{name: getattr(self.behaviour, name) for name in fields_of(type(self.behaviour))},
            "down_for": round(left, 3),
        }

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

    async def control(self, request: Request) -> Response:
        """Returns how it behaves; POST changes that. ``down_for`` begins an outage of so many seconds, 0 ends it."""
        if request.method == "POST":
            given = await json_of(request)
            if not isinstance(given, dict):
                raise InvalidInput("the body has to be a table of what is to change")
            self.change(given)
        return JSONResponse(self.document())

    def around(self, app: ASGIApp, own: str = "/_") -> ASGIApp:
        """Returns the server with this trouble around it. Addresses that begin with ``own`` are those of whoever makes
        it."""

        async def troubled(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"].startswith(own):
                await app(scope, receive, send)
                return
            if self.behaviour.latency:
                await asyncio.sleep(self.behaviour.latency * (0.5 + self.chance.random()))
            if (refusal := self._refusal()) is not None:
                self.refused += 1
                await refusal(scope, receive, send)
            elif self.is_down():
                self.refused += 1
                await self._outage(scope, receive, send)
            elif self.chance.random() < self.behaviour.lost_share:
                await app(scope, receive, _ignored)
                await _drop(send)
            else:
                await app(scope, receive, send)

        return troubled

    def _refusal(self) -> Response | None:
        if self.is_down():
            return None
        if (wait := self.wait_for_room()) is not None:
            return _error(429, "too many requests", {"Retry-After": str(wait)})
        return _error(500, "an error by choice") if self.chance.random() < self.behaviour.error_share else None

    async def _outage(self, scope: Scope, receive: Receive, send: Send) -> None:
        match self.behaviour.down_as:
            case "drop":
                await _drop(send)
            case "hang":
                await _until_gone(receive, self.is_down)
                await _drop(send)
            case _:
                await _error(503, "down for a while", {"Retry-After": "1"})(scope, receive, send)


async def body_of(request: Request, most: int = MAX_BODY) -> bytes | None:
    """Returns the body of a request; None where it is more than so many bytes."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > most:
            return None
    return bytes(content)


async def json_of(request: Request) -> Any:
    """Returns the body of a request as JSON; None where it is empty."""
    content = await body_of(request)
    if content is None:
        raise InvalidInput(f"a body has at most {MAX_BODY:,} bytes")
    try:
        return json.loads(content) if content else None
    except (ValueError, RecursionError):
        raise InvalidInput("the body is no JSON") from None


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
