"""Derives the routes of what services declare (``redrive.ops.operator.declared``): path, query, body and answer."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from typing import Annotated, Any, get_args, get_origin

from fastapi import APIRouter, Body, Path, Query, Response
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
from redrive.ops.operator.declared import Declared, Parameter, declared_by, document, shown_fields
from redrive.ops.operator.session import Service

ACTOR = Field(None, description="Who acts, where there are no tokens; a token's name overrides it.")
KNOWN = {Task: m.TaskOut, Record: m.ApprovalOut}
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def router_of(service: type[Service], tag: str) -> APIRouter:
    """Returns a router with a route for each thing that a service declares."""
    router = api_router("", tag)
    # Names before ids: /workers/drain is not the worker "drain".
    for one in sorted(declared_by(service).values(), key=lambda one: "{" in one.path):
        router.add_api_route(
            one.path,
            _endpoint(service, one),
            methods=[one.method],
            name=f"{one.verb}_{service.__name__.removesuffix('Service').lower()}",
            description=one.help,
            response_model=None if one.status == HTTPStatus.NO_CONTENT else answer_model(one.result),
            status_code=one.status,
        )
    return router


def _endpoint(service: type[Service], one: Declared) -> Any:
    inside = [given for given in one.parameters if not given.in_path]
    body = None if not one.has_body else _body_model(f"{service.__name__}{one.verb.title()}In".replace("_", ""), inside)

    async def endpoint(operator: Operator, body: BaseModel | None = None, **given: Any) -> Response:
        said = dict(given) if one.has_body else gathered(one.parameters, given)
        if body is not None:
            said |= m.given_by(body, one.parameters)
        acting = operator.named(getattr(body, "actor", None))
        found = await getattr(acting.of(service), one.verb)(**said)
        if one.status == HTTPStatus.NO_CONTENT:
            return Response(status_code=one.status)
        waits = getattr(found, "approval", None) is not None
        return await respond(_shown(found, acting), HTTPStatus.ACCEPTED if waits else one.status)

    taken = [inspect.Parameter("operator", _KEYWORD, annotation=TheOperator), *map(_outside, flat(one.parameters))]
    if body is not None:
        needed = any(given.required for given in inside)
        taken.append(
            inspect.Parameter("body", _KEYWORD, annotation=Annotated[body, Body()])
            if needed
            else inspect.Parameter("body", _KEYWORD, annotation=Annotated[body | None, Body()], default=None)
        )
    shape = [given for given in taken if body is None or given.name in ("operator", "body", *_in_path(one))]
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


@cache
def answer_model(result: Any) -> Any:
    """Returns the model that describes an answer."""
    if result in KNOWN:
        return KNOWN[result]
    origin: Any = get_origin(result)
    if isinstance(origin, type) and hasattr(origin, "__dataclass_fields__"):  # a page of views
        [inner] = get_args(result)
        of_page: dict[str, Any] = {
            name: (answer_model(kind[inner] if get_args(kind) and name == "items" else kind), ...)
            for name, (kind, _) in shown_fields(origin).items()
        }
        return create_model(f"{inner.__name__.removesuffix('View')}{origin.__name__}", __base__=m.Out, **of_page)
    return m.model_of(result)
