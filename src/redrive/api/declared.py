"""Derives the routes of what services declare (``redrive.ops.operator.declared``): path, query, body and answer."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from typing import Annotated, Any, get_origin

from fastapi import APIRouter, Body, Path, Query, Request, Response
from pydantic import BaseModel, Field, create_model

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import TheOperator
from redrive.api.encode import respond
from redrive.api.routers import api_router
from redrive.kernel.records import Record
from redrive.kernel.task import Task
from redrive.ops.given import flat, gathered
from redrive.ops.operator import Operator
from redrive.ops.operator.declared import Declared, Page, Parameter, declared_by, document, shown_fields
from redrive.ops.operator.session import Service
from redrive.ops.views import View

ACTOR = Field(None, description="Who acts, where there are no tokens; a token's name overrides it.")
FOLLOWING = Field(description="What `after` or `before` continues with; null at the end.")
KNOWN = {Task: m.TaskOut, Record: m.ApprovalOut}
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def router_of(service: type[Service], tag: str) -> APIRouter:
    """Returns a router with a route for each thing that a service declares."""
    router = api_router("", tag)
    # Names before ids: /workers/drain is not the worker "drain".
    for one in sorted(declared_by(service).values(), key=lambda one: "{" in one.path):
        for path, fixed in one.routes:
            about = "_".join(fixed.values()) or service.__name__.removesuffix("Service").lower()
            router.add_api_route(
                path,
                _endpoint(service, one, fixed),
                methods=[one.method],
                name=f"{one.verb}_{about}",
                description=one.help,
                response_model=_response_model(one),
                status_code=one.status,
            )
    return router


def _response_model(one: Declared) -> Any:
    if one.status == HTTPStatus.NO_CONTENT:
        return None
    return _page_model(one) if issubclass(get_origin(one.result) or object, Page) else answer_model(one.result)


def _endpoint(service: type[Service], one: Declared, fixed: Mapping[str, str]) -> Any:
    """Returns what serves a route, whose words stand for the ``fixed`` values."""
    inside = [given for given in one.parameters if not given.in_path]
    body = None if not one.has_body else _body_model(f"{service.__name__}{one.verb.title()}In".replace("_", ""), inside)

    async def endpoint(request: Request, operator: Operator, body: BaseModel | None = None, **given: Any) -> Response:
        said = {**fixed, **given} if one.has_body else gathered(one.parameters, given)
        if body is not None:
            said |= m.given_by(body, one.parameters)
        acting = operator.named(getattr(body, "actor", None))
        found = await getattr(acting.of(service), one.verb)(**said)
        if one.status == HTTPStatus.NO_CONTENT:
            return Response(status_code=one.status)
        if isinstance(found, Page):
            return await _respond_page(one, found, acting, request)
        waits = getattr(found, "approval", None) is not None
        return await respond(_shown(found, acting), HTTPStatus.ACCEPTED if waits else one.status)

    taken = [
        inspect.Parameter("request", _KEYWORD, annotation=Request),
        inspect.Parameter("operator", _KEYWORD, annotation=TheOperator),
        *(_outside(given) for given in flat(one.parameters) if given.name not in fixed),
    ]
    if body is not None:
        # A PUT says how all of it is to be: an empty one would take away what it leaves out.
        needed = one.method == "PUT" or any(given.required for given in inside)
        taken.append(
            inspect.Parameter("body", _KEYWORD, annotation=Annotated[body, Body()])
            if needed
            else inspect.Parameter("body", _KEYWORD, annotation=Annotated[body | None, Body()], default=None)
        )
    shape = [given for given in taken if body is None or given.name in ("request", "operator", "body", *_in_path(one))]
    endpoint.__signature__ = inspect.Signature(shape)  # type: ignore[attr-defined]
    return endpoint


def _in_path(one: Declared) -> Iterator[str]:
    return (given.name for given in one.parameters if given.in_path)


def _outside(one: Parameter) -> inspect.Parameter:
    place: Any = Path if one.in_path else Query
    said = place(description=one.given.help, ge=one.given.least, le=one.given.most)
    annotation: Any = Annotated[one.annotation, said]
    return inspect.Parameter(one.name, _KEYWORD, annotation=annotation, default=one.default)


def _body_model(name: str, inside: list[Parameter]) -> type[m.In]:
    if [one.name for one in inside] == ["reason"]:
        return m.ReasonIn
    own = m.fields_of(flat(inside, inner=False))
    return create_model(name, __base__=m.In, **own, actor=(str | None, ACTOR))


def _shown(found: Any, operator: Operator) -> Any:
    return serialize.task(found, operator) if isinstance(found, Task) else document(found, operator.sight)


async def _respond_page(one: Declared, found: Page[Any], operator: Operator, request: Request) -> Response:
    seen = document(found, operator.sight)
    if one.items:
        names = {"items": one.items, "next": one.following}
        return await respond(View({names.get(name, name): value for name, value in seen.items()}), one.status)
    response = await respond(seen["items"], one.status)
    if found.next is not None:
        address = request.url.include_query_params(**{str(one.continued_by): found.next})
        response.headers["Link"] = f'<{address.path}?{address.query}>; rel="next"'
    return response


def _page_model(one: Declared) -> Any:
    inner: Any = answer_model(one.view)
    kind: Any = get_origin(one.result)
    if not one.items:
        return list[inner]
    own: dict[str, Any] = {name: (answer_model(type_), ...) for name, (type_, _) in shown_fields(kind).items()}
    own |= {"items": (list[inner], ...), "next": (str | int | None, FOLLOWING)}
    names = {"items": one.items, "next": one.following}
    fields = {names.get(name, name): field for name, field in own.items()}
    return create_model(f"{inner.__name__.removesuffix('Out')}{kind.__name__}", __base__=m.Out, **fields)


@cache
def answer_model(result: Any) -> Any:
    """Returns the model that describes an answer."""
    if result in KNOWN:
        return KNOWN[result]
    return m.model_of(result)
