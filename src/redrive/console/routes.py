"""How the console's routes answer when something goes wrong: with a page that says what, and what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from redrive.console.addresses import HOME, asked_for
from redrive.console.refusals import error_page
from redrive.console.visitors import SignInNeeded
from redrive.errors import InvalidInput, PageFailed, RedriveError

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
    fields = {"next": asked_for(request.url)} if request.method in ("GET", "HEAD") else {}
    return RedirectResponse(f"{HOME}/sign-in" + (f"?{urlencode(fields)}" if fields else ""), 303)


def _worded(error: RequestValidationError) -> InvalidInput:
    first = error.errors()[0]
    return InvalidInput(f"{first['loc'][-1]}: {first['msg']}")
