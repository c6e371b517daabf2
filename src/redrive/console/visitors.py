"""Who looks at the console: by a session where there are tokens, else whoever is on this machine.

Every page carries a token of its own against forms of other sites, derived from the browser's cookie. It is checked
before anything of a form is done, beside the browser's own word about which page sent it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from urllib.parse import unquote

from fastapi import Request, Response

from redrive.api.access import Unauthorized, is_own_page, refuse_proxies
from redrive.app import App
from redrive.console.addresses import HOME
from redrive.errors import InvalidInput, NotAllowed
from redrive.ops.access import Caller, Role, refuse_reserved
from redrive.ops.operator import Operator
from redrive.ops.shell import shell_at, shell_for

SESSION, VISITOR, NAME = "redrive_session", "redrive_visitor", "redrive_name"
NOBODY = "console"  # acts where there are no tokens, and the visitor gave no name
_RANDOM = re.compile(r"[A-Za-z0-9_-]{43}")


class SignInNeeded(Unauthorized):
    """Nobody is signed in, and there are tokens."""


@dataclass(slots=True, frozen=True)
class Visitor:
    """Who looks at a page. ``key`` is the secret of the browser's cookie, from which its form token is derived;
    ``signed_in`` by a token, else on this machine without one. ``new``: the browser has no cookie yet."""

    caller: Caller
    key: str
    signed_in: bool
    new: bool = False

    @property
    def form_token(self) -> str:
        return _form_token(self.key)

    @property
    def named(self) -> bool:
        return self.caller.name != NOBODY


def _form_token(key: str) -> str:
    return hmac.new(key.encode(), b"form", hashlib.sha256).hexdigest()


async def identify(request: Request) -> Visitor:
    """Returns who asks; raises ``SignInNeeded`` when nobody is signed in and that is needed."""
    app: App = request.app.state.redrive
    if await is_open(request):
        return _stranger(request)
    secret = request.cookies.get(SESSION, "")
    caller = await app.access.signed_in(secret) if secret else None
    if caller is None:
        raise SignInNeeded("sign in to go on")
    return Visitor(caller, secret, signed_in=True)


async def is_open(request: Request) -> bool:
    """Returns whether nobody has to sign in: on this machine, as long as there are no tokens."""
    app: App = request.app.state.redrive
    if not request.app.state.open_door or await app.access.has_tokens():
        return False
    refuse_proxies(request)
    return True


def _stranger(request: Request) -> Visitor:
    name = _given_name(request)
    key = request.cookies.get(VISITOR, "")
    new = _RANDOM.fullmatch(key) is None
    return Visitor(Caller(name, Role.ADMIN), secrets.token_urlsafe(32) if new else key, signed_in=False, new=new)


def _given_name(request: Request) -> str:
    """Returns the name that a browser remembers; a cookie can say anything, also what nobody may be called."""
    try:
        return refuse_reserved(unquote(request.cookies.get(NAME, ""))) or NOBODY
    except InvalidInput:
        return NOBODY


def check_form(request: Request, visitor: Visitor, given: str) -> None:
    """Refuses a form that no page of ours has sent."""
    _check(request, [] if visitor.new else [visitor.key], given)


def check_own(request: Request, given: str) -> None:
    """Refuses the same by the browser's cookies alone, without asking whether what they say still holds."""
    _check(request, [key for name in (SESSION, VISITOR) if (key := request.cookies.get(name))], given)


def _check(request: Request, keys: list[str], given: str) -> None:
    if not is_own_page(request):
        raise NotAllowed("a page of another site may not act here", hint="open the console itself, and try there")
    if not any(hmac.compare_digest(given.encode(), _form_token(key).encode()) for key in keys):
        raise NotAllowed("this form belongs to a session that is over", hint="go back, reload the page, and try again")


def set_cookie(request: Request, response: Response, name: str, value: str, seconds: int | None = None) -> None:
    """Sets a cookie that scripts cannot read, sent over TLS only where the console is reached by it. ``Lax``: a link
    that a colleague has sent opens the page it names."""
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=HOME,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def for_pages(app: App, operator: Operator) -> Operator:
    """Returns the same operator for pages, with commands that run where its reader sits."""
    if operator.connection_label is not None:
        return operator.for_pages(shell_at(operator.connection, app.spec))
    return operator.for_pages(shell_for(app.url, app.shown_url, app.spec))
