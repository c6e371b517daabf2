"""Derives the forms of what services declare (``redrive.ops.operator.declared``): one route does what they ask for."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, get_origin

from fastapi import Response

from redrive.console.page import FieldRefused, Form, TheForm
from redrive.console.routes import pages_router
from redrive.console.templates_env import action_called
from redrive.errors import InvalidInput
from redrive.ops.given import Parameter, flat, gathered

router = pages_router()


@router.post("/act/{name}")
async def act(page: TheForm, name: str) -> Response:
    """Does what a form asks for, and says what came of it on the page whose form it was, or where it leads to."""
    service, one = action_called(name)
    given = gathered(one.parameters, given_in(page.form, one.parameters))
    done = await getattr(page.operator.of(service), one.verb)(**given)
    said = one.sentence(given, done)
    # What begins with a name stays as it is written.
    sentence = f"{said}." if one.said.startswith("{") else f"{said[:1].upper()}{said[1:]}."
    if getattr(done, "approval", None) is not None:
        return page.go(page.link("/approvals"), "It waits for a second person.")
    if getattr(done, "secret", None) is not None:  # no other page ever shows it
        return await page.render("shown_once.html", sentence=sentence, secret=done.secret, one=one, done=done)
    return page.go(page.link(one.page.format(done=done)), sentence) if one.page else page.back(sentence)


def given_in(form: Form, parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Returns what a form says, by the fields that parameters have there."""
    found: dict[str, Any] = {}
    for one in flat(parameters):
        if one.given.once:
            found[one.name] = form.text("once")
        elif one.base is bool and one.default is not None:
            found[one.name] = form.is_on(one.name)
        elif one.required and form.text(one.name) is None:
            form.needed(one.name, one.label)
        else:
            value = _typed(form, one)
            found |= {} if value is None else {one.name: value}
    return found


def _typed(form: Form, one: Parameter) -> Any:
    text = form.text(one.name)
    if text is None or one.base is str:
        return text
    if one.base is bool:
        return text == "yes"  # of a list that begins with neither
    if get_origin(one.base) is list:
        return text.replace(",", " ").split()
    if one.base is int or one.base is float:
        value = form.whole(one.name, one.label) if one.base is int else form.number(one.name, one.label)
        try:
            return one.given.taken(value, one.label)
        except InvalidInput as error:
            raise FieldRefused(one.name, error.message, hint=error.hint) from None
    return one.base(text) if issubclass(one.base, Enum) else text
