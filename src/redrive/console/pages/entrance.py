"""Signing in and out, the name of whoever needs no token, and the theme."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from redrive.api.access import TooManyFailures, is_own_page, wrong_tokens
from redrive.app import App
from redrive.console import visitors
from redrive.console.addresses import HOME
from redrive.console.page import THEME, THEMES, TheForm, ThePage, own_address, read_form
from redrive.console.routes import pages_router
from redrive.console.templates_env import render
from redrive.errors import InvalidInput, NotAllowed
from redrive.ops.access import refuse_reserved

router = pages_router()
YEAR = 365 * 86_400


@router.get("/sign-in")
async def sign_in_page(request: Request, next: str = HOME) -> Response:
    if await visitors.is_open(request):
        return RedirectResponse(own_address(next), 303)
    return await _sign_in_page(request, next)


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Takes a token once and gives the browser a session for it."""
    if not is_own_page(request):
        raise NotAllowed("a page of another site may not sign anybody in here")
    form = await read_form(request)
    app: App = request.app.state.redrive
    wanted = own_address(form.text("next") or HOME)
    secret = await app.access.sign_in(form.text("token") or "")
    if secret is None:
        try:
            wrong_tokens(request).failed(request)
        except TooManyFailures as error:
            return await _sign_in_page(request, wanted, f"{error.message}; {error.hint}", 429)
        return await _sign_in_page(request, wanted, "This token is not valid; it may be revoked or expired.", 401)
    response = RedirectResponse(wanted, 303)
    visitors.set_cookie(request, response, visitors.SESSION, secret, int(app.settings.console_session_hours * 3600))
    return response


@router.post("/sign-out")
async def sign_out(page: TheForm) -> Response:
    app: App = page.request.app.state.redrive
    await app.access.sign_out(page.request.cookies.get(visitors.SESSION, ""))
    response = RedirectResponse(f"{HOME}/sign-in", 303)
    response.delete_cookie(visitors.SESSION, path=HOME)
    return response


@router.get("/who")
async def who(page: ThePage) -> Response:
    if page.visitor.signed_in:
        return page.go(HOME, f"You are {page.visitor.caller.name}: your token says so.")
    return await page.render("who.html")


@router.post("/who")
async def take_name(page: TheForm) -> Response:
    if page.visitor.signed_in:
        raise InvalidInput("your token says who you are")
    name = page.form.needed("name", "your name")
    response = page.go(HOME, f"You act as {name}.")
    visitors.set_cookie(page.request, response, visitors.NAME, quote(refuse_reserved(name)), YEAR)
    return response


@router.post("/theme")
async def choose_theme(page: TheForm) -> Response:
    chosen = page.form.text("theme")
    response = page.back()
    if chosen in THEMES:
        visitors.set_cookie(page.request, response, THEME, chosen, YEAR)
    return response


async def _sign_in_page(request: Request, wanted: str, problem: str | None = None, status: int = 200) -> Response:
    theme = request.cookies.get(THEME, "")
    text = render("sign_in.html", None, next=own_address(wanted), problem=problem, theme=theme)
    return Response(text, status, media_type="text/html")
