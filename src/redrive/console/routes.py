"""How the console's routes answer when something goes wrong: with a page that says what, and what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from redrive.api.problems import status_of
from redrive.console.door import HOME, SignInNeeded
from redrive.console.templates_env import render
from redrive.errors import InvalidInput, PageFailed, RedriveError, StoreUnavailable

logger = logging.getLogger("redrive.console")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


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
    wanted = str(request.url.path) + (f"?{request.url.query}" if request.url.query else "")
    fields = {"next": wanted} if request.method in ("GET", "HEAD") else {}
    return RedirectResponse(f"{HOME}/sign-in" + (f"?{urlencode(fields)}" if fields else ""), 303)


async def error_page(request: Request, error: RedriveError) -> Response:
    status = status_of(error)
    if isinstance(error, StoreUnavailable):  # who asks is not known then: where the store is, is not for everybody
        error = StoreUnavailable("its database does not answer", hint="it is tried again; the server's log says more")
    text = await render(
        "error.html",
        title=_TITLES.get(status, "That did not work"),
        status=status,
        error=error,
        back=_came_from(request),
        theme=request.cookies.get("redrive_theme", ""),
    )
    return Response(text, status.value, media_type="text/html")


def _came_from(request: Request) -> str | None:
    """Returns the page of ours that led here."""
    parts = urlsplit(request.headers.get("referer", ""))
    own = parts.netloc == request.headers.get("host") and (parts.path + "/").startswith(f"{HOME}/")
    return parts.path + (f"?{parts.query}" if parts.query else "") if own else None


def _worded(error: RequestValidationError) -> InvalidInput:
    first = error.errors()[0]
    return InvalidInput(f"{first['loc'][-1]}: {first['msg']}")


_TITLES = {
    HTTPStatus.NOT_FOUND: "There is no such thing",
    HTTPStatus.FORBIDDEN: "You may not do that",
    HTTPStatus.CONFLICT: "Not possible now",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Something is wrong with what was asked",
    HTTPStatus.SERVICE_UNAVAILABLE: "The store cannot be reached",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many tries",
}
