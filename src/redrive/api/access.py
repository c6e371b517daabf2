"""Identifies callers: by token, or, as long as there are none and on this machine only, by the name they give."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Header, Query, Request
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.types import ASGIApp, Receive, Scope, Send

from redrive.api import problems
from redrive.api.models import ReasonIn
from redrive.app import App
from redrive.errors import InvalidInput, NotAllowed, RedriveError
from redrive.ops.access import Caller, Role, refuse_reserved
from redrive.ops.operator import Operator
from redrive.settings import ALL

WRONG_TOKENS_ALLOWED, WRONG_TOKENS_WINDOW_S = 10, 60.0
MOST_ADDRESSES_REMEMBERED = 10_000
READING_METHODS = ("GET", "HEAD", "OPTIONS")
Guard = Callable[[Request], Awaitable[None]]


class Unauthorized(RedriveError):
    code = "UNAUTHORIZED"
    status = 401


class TooManyFailures(RedriveError):
    code = "TOO_MANY_FAILURES"
    status = 429


class WrongTokenCounter:
    """Counts wrong tokens by address: after a few, further wrong ones are refused as such for a while. A right one is
    always let in: nobody can lock others out by guessing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def failed(self, request: Request) -> None:
        """Counts a wrong token; raises TooManyFailures after a few."""
        address = request.client.host if request.client is not None else "?"
        seen = self._failures.setdefault(_network(address), deque(maxlen=WRONG_TOKENS_ALLOWED))
        self._failures.move_to_end(_network(address))
        if len(self._failures) > MOST_ADDRESSES_REMEMBERED:
            self._failures.popitem(last=False)
        now = self._clock()
        blocked = len(seen) == WRONG_TOKENS_ALLOWED and seen[0] > now - WRONG_TOKENS_WINDOW_S
        seen.append(now)
        if blocked:
            raise TooManyFailures(
                "too many wrong tokens from your address", hint=f"wait for {WRONG_TOKENS_WINDOW_S:.0f} s"
            )


def _network(address: str) -> str:
    """Returns what an address is counted by: whoever has one IPv6 address has very many."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address


def the_app(request: Request) -> App:
    """Returns the application that is served."""
    app: App = request.app.state.redrive
    return app


TheApp = Annotated[App, Depends(the_app)]


bearer = HTTPBearer(auto_error=False, description="A token of `redrive tokens create`, where there are any.")
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


def wrong_tokens(request: Request) -> WrongTokenCounter:
    """Returns the counter of wrong tokens."""
    found: WrongTokenCounter = request.app.state.wrong_tokens
    return found


def refuse_unknown_filters(request: Request) -> None:
    """Refuses query parameters that a route does not know: a misspelt filter that is ignored would widen what is asked
    for."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    known = _query_names(route.dependant)
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        listed = ", ".join(sorted(known)) or "none"
        raise InvalidInput(f"unknown parameters: {', '.join(unknown)[:200]}", hint=f"known ones: {listed}")


def _query_names(dependant: Any) -> set[str]:
    names = {field.alias for field in dependant.query_params}
    return names.union(*(_query_names(inner) for inner in dependant.dependencies))


async def identify(request: Request) -> Caller:
    """Returns whose token a request carries, or, where there are none yet, whoever it says; before its body is read."""
    app: App = request.app.state.redrive
    given = await bearer(request)
    if given is None:
        if request.app.state.open_door and not await app.access.has_tokens():
            refuse_proxies(request)
            _refuse_foreign_pages(request)
            named = request.headers.get("x-actor")
            return Caller(refuse_reserved(named) if named else "api", Role.ADMIN)
        raise Unauthorized("a token is needed", hint="Authorization: Bearer …; redrive tokens create makes one")
    caller = await app.access.caller(given.credentials)
    if caller is None:
        wrong_tokens(request).failed(request)
        raise Unauthorized("the token is not valid", hint="it may be revoked or expired: redrive tokens")
    return caller


async def the_caller(
    request: Request,
    _: Bearer,
    x_actor: Annotated[str | None, Header(description="Who acts, where there are no tokens.")] = None,
) -> Caller:
    """Returns the caller that ``redrive.api.access`` has let in; the parameters describe the API."""
    refuse_unknown_filters(request)
    caller: Caller = request.state.caller
    return caller


def refuse_proxies(request: Request) -> None:
    """The door is open for this machine only. What a proxy passes on comes from anywhere."""
    if any(name in request.headers for name in ("x-forwarded-for", "forwarded", "x-real-ip")):
        raise Unauthorized("what comes through a proxy needs a token", hint="redrive tokens create makes one")


def _refuse_foreign_pages(request: Request) -> None:
    """Refuses pages of others in the operator's browser where nobody needs a token: they must not act in his name."""
    if request.method not in READING_METHODS and not is_own_page(request):
        raise NotAllowed("a page of another site may not act here", hint="use the command line, or a token")


def is_own_page(request: Request) -> bool:
    """Returns whether a request comes from no page at all, or from one that this instance serves.

    Over TLS and on this machine a browser says so itself. Elsewhere the origin is compared with the host, which a proxy
    in between may have replaced."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    # An origin is a scheme and a host, and nothing else. It is not taken apart: it may be anything.
    return origin is None or origin.partition("://")[2] == request.headers.get("host")


OnConnection = Annotated[
    str | None, Query(description="One of several connections; else the one that has the task, or the default one.")
]


async def the_operator(
    request: Request, app: TheApp, caller: Annotated[Caller, Depends(the_caller)], connection: OnConnection = None
) -> Operator:
    """Returns the service of ops for the caller, on the connection that is named, else on the one that has the task
    whose address this is."""
    if connection == ALL:
        _refuse_several(app)
        connection = None
    if connection is None and len(app.connections) > 1:
        connection = await _connection_with(app, request.path_params.get("task_id"))
    return (await app.operator(caller, connection)).for_pages()


def _refuse_several(app: App) -> None:
    """Refuses "all" where there are several: an answer is about one, and whoever acts on two should see both."""
    if len(app.connections) > 1:
        raise InvalidInput(
            "a request is about one connection, not about all",
            hint=f"ask for each by itself: connection={', '.join(app.connections)}; /api/connections has all with "
            "their totals, /api/doctor without a connection examines all",
        )


async def _connection_with(app: App, task_id: str | None) -> str | None:
    try:
        return None if task_id is None else await app.connections.with_task(UUID(task_id))
    except ValueError:  # it is refused as any other wrong value
        return None


# Everything that a route looks at or does goes through this: it knows who asks, and refuses what he may not do.
TheOperator = Annotated[Operator, Depends(the_operator)]


@dataclass(slots=True, frozen=True)
class Acting:
    """A body that says only who acts, and why."""

    operator: Operator
    reason: str | None


async def acting(operator: TheOperator, words: ReasonIn | None = None) -> Acting:
    """Returns an operator that acts under the name in the body."""
    given = words or ReasonIn()
    return Acting(operator.named(given.actor), given.reason)


By = Annotated[Acting, Depends(acting)]


async def with_token(request: Request) -> None:
    """Lets a caller with a role in; whoever only looks sends no body that is worth reading."""
    caller = await identify(request)
    if request.method not in READING_METHODS and caller.role < Role.OPERATOR:
        raise NotAllowed(f"{caller.name} is {caller.role.label}; this needs {Role.OPERATOR.label}")
    request.state.caller = caller


async def by_address(request: Request) -> None:
    """Lets everybody who sends something in: the route knows by its address who that is."""
    if request.method != "POST":
        await with_token(request)


class AuthenticationMiddleware:
    """Calls the guard of a path: ``guards`` are by the beginning of the path, and the first that fits decides.

    It comes before anything of a request's body is read. FastAPI reads and parses a body before it looks at what a
    route depends on; here a stranger, and a viewer who may change nothing, is turned away by the headers alone."""

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
