"""One request for a page: who asks, what they may do, and how the answer is rendered."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from secrets import token_urlsafe
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl, urlencode

from fastapi import Depends, Request, Response
from fastapi.responses import RedirectResponse

from redrive.app import App
from redrive.console import visitors
from redrive.console.addresses import HOME, NAMED, asked_for, here, home
from redrive.console.feature_pages import Extensions
from redrive.console.navigation import Section, visible_sections
from redrive.console.templates_env import render
from redrive.console.visitors import Visitor, for_pages
from redrive.errors import InvalidInput, PageUnknown, RedriveError
from redrive.ops.access import Role
from redrive.ops.operator import Operator
from redrive.ops.shell import Shell

NOTICE, THEME = "redrive_notice", "redrive_theme"
THEMES = ("light", "dark")
MOST_FIELDS = 2000
N = TypeVar("N", int, float)
_PATH_END = re.compile(r"[?#]")
_DOTS = re.compile(r"(?:\.|%2e){1,2}", re.I)
_UNFIT = re.compile(r"[\x00-\x20\x7f\\]")


class Page:
    """What a page function gets: the visitor, the service, the form, and ways to answer."""

    def __init__(self, request: Request, visitor: Visitor, operator: Operator, now: datetime) -> None:
        self.request = request
        self.visitor = visitor
        self.operator = operator
        self.now = now
        self.form: Form = Form([])
        self.unused: frozenset[str] = frozenset()  # features

    @property
    def path(self) -> str:
        return here(self.request.url.path)

    @property
    def query(self) -> Mapping[str, str]:
        """What the address asks for; empty fields of a form are not asked for."""
        return {name: value for name, value in self.request.query_params.items() if value != ""}

    @property
    def may_act(self) -> bool:
        return self.visitor.caller.role >= Role.OPERATOR

    @property
    def is_admin(self) -> bool:
        return self.visitor.caller.role >= Role.ADMIN

    @property
    def extensions(self) -> Extensions:
        """What the application's features add to the console."""
        found: Extensions = self.request.app.state.extensions
        return found

    @property
    def sections(self) -> list[Section]:
        """The menu, as far as the visitor may see it."""
        return visible_sections(self.visitor.caller.role, self.extensions.sections, self.unused)

    @property
    def shell(self) -> Shell:
        """How commands that are shown here find the store; where that is, is for those who may see the settings."""
        return self.operator.shell

    @property
    def connections(self) -> dict[str, str]:
        """The first page of each connection, where there are several."""
        app: App = self.request.app.state.redrive
        several = app.connections if len(app.connections) > 1 else ()
        return {name: HOME if name == app.at(None).name else home(name) for name in several}

    @property
    def env(self) -> str:
        """Where this is: dev, test or production."""
        app: App = self.request.app.state.redrive
        return app.settings.env

    @cached_property
    def theme(self) -> str | None:
        """The theme that was chosen; None follows the system."""
        chosen = self.request.cookies.get(THEME, "")
        return chosen if chosen in THEMES else None

    @cached_property
    def once(self) -> str:
        """What tells a form of this page from all others, however often it is sent."""
        return token_urlsafe(16)

    @property
    def here(self) -> str:
        """The address of this page, to come back to it."""
        return asked_for(self.request.url)

    def link(self, path: str | None = None, /, **changes: Any) -> str:
        """Returns an address: that of this page with some of its fields changed, or another one with these. None
        removes a field."""
        kept = dict(self.query) if path is None else {}
        fields = {name: value for name, value in {**kept, **changes}.items() if value is not None}
        target = self.path if path is None else home() + path
        return target + (f"?{urlencode(fields)}" if fields else "")

    async def render(self, template: str, status: int = 200, /, **values: Any) -> Response:
        """Returns a page made of a template."""
        notice = _read_notice(self.request)
        try:
            loud = (await self.operator.alerts.at(self.now)).loud
        except RedriveError:  # nobody can say: then the page is needed all the more
            loud = []
        text = render(template, self.operator, page=self, now=self.now, notice=notice, loud=loud, **values)
        response = Response(text, status, media_type="text/html")
        if notice is not None:
            response.delete_cookie(NOTICE, path=HOME)
        if self.visitor.new:
            visitors.set_cookie(self.request, response, visitors.VISITOR, self.visitor.key)
        return response

    def go(self, target: str, said: str | None = None, level: str = "ok") -> Response:
        """Sends the browser to another page after a form was done; ``said`` is shown there once."""
        response = RedirectResponse(own_address(target), 303)
        if said is not None:
            text = base64.urlsafe_b64encode(json.dumps([level, said[:1000]]).encode()).decode()
            visitors.set_cookie(self.request, response, NOTICE, text, 60)
        return response

    def back(self, said: str | None = None, level: str = "ok") -> Response:
        """Sends the browser back to the page whose form this was."""
        return self.go(self.form.text("back") or home(), said, level)


class FieldRefused(InvalidInput):
    """What stands in a field of a form cannot be taken; ``field`` is its name."""

    def __init__(self, field: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


class Form:
    """The fields of a form that was sent."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields

    def text(self, name: str) -> str | None:
        """Returns one field without blanks around it; None when it is empty or not there."""
        return next((value.strip() for key, value in self._fields if key == name and value.strip()), None)

    def needed(self, name: str, what: str) -> str:
        found = self.text(name)
        if found is None:
            raise FieldRefused(name, f"{what} is missing", hint="fill it in")
        return found

    def names(self) -> list[str]:
        return list(dict.fromkeys(key for key, _ in self._fields))

    def typed(self) -> dict[str, list[str]]:
        """Returns all fields as they were sent."""
        found: dict[str, list[str]] = {}
        for name, value in self._fields:
            found.setdefault(name, []).append(value)
        return found

    def all(self, name: str) -> list[str]:
        return [value for key, value in self._fields if key == name and value]

    def is_on(self, name: str) -> bool:
        return self.text(name) is not None

    def whole(self, name: str, what: str) -> int | None:
        """Returns a field as a whole number; None when it is empty."""
        return self._read(int, name, f"{what} must be a whole number")

    def number(self, name: str, what: str) -> float | None:
        return self._read(float, name, f"{what} must be a number")

    def _read(self, kind: Callable[[str], N], name: str, rule: str) -> N | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return kind(text)
        except ValueError:
            raise FieldRefused(name, f"{rule}, not {text[:50]!r}") from None


def own_address(target: str) -> str:
    """Returns an address of the console; anything else becomes its first page, so that no link leads elsewhere. Judged
    by how it is written, because browsers read some addresses otherwise than we do: of ``///ops/x`` they take ``ops``
    for a host, they go up where a path has dots, and leave out tabs and line breaks."""
    path = _PATH_END.split(target, maxsplit=1)[0]
    inside = path == HOME or path.startswith(f"{HOME}/")
    up = any(_DOTS.fullmatch(part) for part in path.split("/"))
    return target if inside and not up and not _UNFIT.search(target) else HOME


async def a_page(request: Request) -> Page:
    """Returns the page of a request for looking."""
    visitor = await visitors.identify(request)
    app: App = request.app.state.redrive
    if (named := NAMED.get()) is not None and named not in app.connections:
        raise PageUnknown(f"there is no connection {named!r}", hint=f"there are: {', '.join(app.connections)}")
    operator = for_pages(app, await app.operator(visitor.caller, named))
    page = Page(request, visitor, operator, await operator.health.now())
    page.unused = await page.extensions.usage.unused(operator)
    request.state.page = page  # for what goes wrong later: its menu is shown with it
    return page


async def a_form(request: Request) -> Page:
    """Returns the page of a request that does something; refused unless one of our pages sent it."""
    page = await a_page(request)
    form = await read_form(request)
    visitors.check_form(request, page.visitor, form.text("csrf") or "")
    page.form = form
    return page


async def read_form(request: Request) -> Form:
    """Returns the fields of a form; several thousand are nobody's who ticked rows of a page."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise InvalidInput("this is no form", hint="the console takes forms; programs use /api")
    try:
        return Form(parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise InvalidInput(f"the form cannot be read, or has more than {MOST_FIELDS} fields") from None


def _read_notice(request: Request) -> tuple[str, str] | None:
    given = request.cookies.get(NOTICE, "")
    if not given:
        return None
    try:
        level, said = json.loads(base64.urlsafe_b64decode(given))
        return str(level), str(said)
    except ValueError:
        return None


ThePage = Annotated[Page, Depends(a_page)]
TheForm = Annotated[Page, Depends(a_form)]
