"""The console's routes: what goes wrong is a page, too, with the form again as it was filled in, or with what to do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from redrive.console import visitors
from redrive.console.addresses import HOME, NAMED, asked_for, here, split_address
from redrive.console.page import Form, Page, a_page, own_address, read_form
from redrive.console.refill import is_of_its_time, refill
from redrive.console.templates_env import render
from redrive.console.visitors import SignInNeeded
from redrive.errors import InvalidInput, MayHaveLanded, PageFailed, RedriveError, StoreUnavailable
from redrive.ops.given import flat
from redrive.ops.operations.lifecycle import HOW

logger = logging.getLogger("redrive.console")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
# What passes, or may: the same form can be sent again, as it is.
UNMENDABLE = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INTERNAL_SERVER_ERROR)
# What somebody can put right in the form; everything else is no matter of what was filled in.
MENDABLE = (HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.CONFLICT)
_LOOKED_AT = "looked_at_for_its_form"
LONGEST_LOOK_S = 5.0
_TITLES = {
    HTTPStatus.NOT_FOUND: "There is no such thing",
    HTTPStatus.FORBIDDEN: "You may not do that",
    HTTPStatus.CONFLICT: "Not possible now",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Something is wrong with what was asked",
    HTTPStatus.SERVICE_UNAVAILABLE: "The store cannot be reached",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many tries",
}
# What fields are called on the pages; those of features by their own names.
LABELS = {
    **{one.name: one.label[:1].upper() + one.label[1:] for one in flat([HOW])},
    "reason": "Why",
    "do": "What to do",
    "concurrency": "At once",
    "rate_ms": "Milliseconds apart",
    "for": "For how long",
    "olderThanDays": "Older than, in days",
}
WORDS = ("reason", "note", "fixed")  # typed in freely: they may be put better on the way
SECRETS = ("token", "password", "secret")  # asked for once more: no page repeats them
_ITS_OWN = ("plan", "all", "once")  # means nothing to whoever reads it


class PageRoute(APIRoute):
    """A route whose errors are pages, too."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                return await handle(request)
            except SignInNeeded:
                return sign_in_first(request)
            except RequestValidationError as error:
                return await error_page(request, _worded(error))
            except RedriveError as error:
                return await error_page(request, error)
            except HTTPException:  # an answer, and no mistake
                raise
            except Exception:
                logger.exception(
                    "the page %s could not be made", request.url.path, extra={"event": "console.page_failed"}
                )
                return await error_page(
                    request, PageFailed("this page could not be made", hint="the server's log says why")
                )

        return guarded


def pages_router(feature: str | None = None) -> APIRouter:
    """Returns a router for pages of the console, or for those of a feature, below an address of its name."""
    prefix = HOME if feature is None else f"{HOME}/{feature}"
    return APIRouter(prefix=prefix, include_in_schema=False, route_class=PageRoute)


def sign_in_first(request: Request) -> Response:
    """Sends a browser to sign in, and back to where it wanted to go. A form that was sent is lost: it is not repeated
    behind somebody's back."""
    fields = {"next": asked_for(request.url)} if request.method in ("GET", "HEAD") else {}
    return RedirectResponse(f"{HOME}/sign-in" + (f"?{urlencode(fields)}" if fields else ""), 303)


def _worded(error: RequestValidationError) -> InvalidInput:
    first = error.errors()[0]
    return InvalidInput(f"{first['loc'][-1]}: {first['msg']}")


async def error_page(request: Request, error: RedriveError) -> Response:
    """Returns the page on which the form was sent, with the form as it was filled in; or else a page of its own, with
    the menu as far as it is known who asks."""
    status = HTTPStatus(error.status)
    page = await _visited(request, error)
    again = await _form_again(request, page, error) if page is not None and status in MENDABLE else None
    if again is not None and request.method == "POST":
        return Response(again[0], status.value, media_type="text/html")
    kept = await submitted_form(request) if status in UNMENDABLE else None
    error = _for_everybody(error)
    values = {
        "title": _TITLES.get(status, "That did not work"),
        "status": status,
        "error": error,
        "back": _came_from(request),
        "form": None if again is None else again[1],
        "kept": kept,
        "here": asked_for(request.url)
        if request.method == "GET" and status is HTTPStatus.SERVICE_UNAVAILABLE
        else None,
    }
    if page is not None:
        return await page.render("error.html", status.value, **values)
    text = render("error_alone.html", None, theme=request.cookies.get("redrive_theme", ""), **values)
    return Response(text, status.value, media_type="text/html")


def _for_everybody(error: RedriveError) -> RedriveError:
    """Returns an error in words that say nothing of where the store is."""
    if isinstance(error, MayHaveLanded):
        return MayHaveLanded("its database went away before it had answered", hint="it was done, or not at all")
    if isinstance(error, StoreUnavailable):
        return StoreUnavailable("its database does not answer", hint="it is tried again; the server's log says more")
    return error


async def _visited(request: Request, error: RedriveError) -> Page | None:
    """Returns the page of a request, which tells who asks; None where nobody is signed in, or nothing can be asked."""
    found: Page | None = getattr(request.state, "page", None)
    if found is None and not isinstance(error, StoreUnavailable | PageFailed):
        with contextlib.suppress(RedriveError):
            found = await a_page(request)
    return found


async def _form_again(request: Request, page: Page, error: RedriveError) -> tuple[str, str] | None:
    """Returns the page of the form that was refused, filled in, and that form. Of an address it is the form of its own
    page."""
    if getattr(request.state, _LOOKED_AT, False):  # somebody looks for a form already
        return None
    wrong = ": ".join(part for part in (error.message, error.hint) if part)
    wrong, about = wrong[:1].upper() + wrong[1:] + ".", getattr(error, "field", None)
    if request.method == "GET":
        typed: Mapping[str, list[str]] = {name: [value] for name, value in page.query.items()}
        origin: str | None = page.path if typed else None
    else:
        typed, origin = page.form.typed(), _origin(request, page.form)
    shown = None if origin is None else await _look_at(request, origin)
    return None if shown is None else refill(shown, page.path, typed, wrong, about)


def _origin(request: Request, form: Form) -> str | None:
    """Returns the address of the page on which a form stood; None of one that no page has sent."""
    return form.text("here") or form.text("back") or _came_from(request)


class _NoPage(Exception):
    """What stands at an address is no page: a stream, an export."""


async def _look_at(request: Request, address: str) -> str | None:
    """Returns the text of a page of ours, as whoever asks would see it now; None where there is none.

    Only of a page: an export would be read whole, and a stream never ends."""
    parts = urlsplit(own_address(address))
    connection, path = split_address(parts.path)
    kept = [one for one in request.scope["headers"] if not one[0].startswith(b"content-")]
    scope: dict[str, Any] = {
        **{name: value for name, value in request.scope.items() if name not in ("endpoint", "path_params", "route")},
        "method": "GET",
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": parts.query.encode(),
        "headers": kept,
        "state": {_LOOKED_AT: True},
    }
    status, pieces, asked = 0, list[bytes](), False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:  # nobody goes away, and nothing follows
            await asyncio.Event().wait()
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            kind = dict(message.get("headers", ())).get(b"content-type", b"")
            if status != HTTPStatus.OK or not kind.startswith(b"text/html"):
                raise _NoPage
        pieces.append(message.get("body", b""))

    token = NAMED.set(connection)
    try:
        async with asyncio.timeout(LONGEST_LOOK_S):
            await request.app.router(scope, receive, send)
    except (_NoPage, TimeoutError):
        return None
    except BaseExceptionGroup as group:
        if group.split(_NoPage)[1] is not None:
            raise
        return None
    finally:
        NAMED.reset(token)
    return b"".join(pieces).decode()


def _came_from(request: Request) -> str | None:
    """Returns the page of ours that led here."""
    parts = urlsplit(request.headers.get("referer", ""))
    own = parts.netloc == request.headers.get("host") and (parts.path + "/").startswith(f"{HOME}/")
    return parts.path + (f"?{parts.query}" if parts.query else "") if own else None


@dataclass(slots=True)
class KeptForm:
    """What was sent to ``action``: ``carried`` goes along unseen, ``shown`` as well and can be read, ``words`` can be
    changed, ``secrets`` have to be given anew."""

    action: str
    carried: list[tuple[str, str]] = field(default_factory=list)
    shown: list[tuple[str, str]] = field(default_factory=list)
    words: list[tuple[str, str, str]] = field(default_factory=list)  # name, label, value
    secrets: list[tuple[str, str]] = field(default_factory=list)  # name, label

    def take(self, form: Form) -> None:
        for name, values in form.typed().items():
            label = LABELS.get(name, name.capitalize())
            if name in SECRETS:
                self.secrets.append((name, label))
                continue
            if name in WORDS:
                self.words.append((name, label, values[0]))
                continue
            self.carried += [(name, value) for value in values]
            if name == "id":
                self.shown.append(("Ticked", f"{len(values)} task{'s' if len(values) != 1 else ''}"))
            elif not is_of_its_time(name) and name not in _ITS_OWN and any(values):
                self.shown.append((label, ", ".join(values)))


async def submitted_form(request: Request) -> KeptForm | None:
    """Returns what a form of one of our pages has sent; None of anything else.

    Nobody can be asked who it is while the store is away. But whose browser it is, is known by its cookie, and the
    form's token is made of that: what another site has sent is not shown, with a button that sends it from here."""
    if request.method != "POST":
        return None
    try:
        form = await read_form(request)
        visitors.check_own(request, form.text("csrf") or "")
    except RedriveError:
        return None
    kept = KeptForm(here(request.url.path))
    kept.take(form)
    return kept
