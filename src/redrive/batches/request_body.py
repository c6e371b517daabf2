"""Reads what a batch is to be from a request: a JSON document, or JSON lines with the rest in the query."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from redrive.api.body_limit import is_lines
from redrive.batches.api_models import BatchIn, TaskIn
from redrive.batches.batch_service import BatchRequest
from redrive.batches.json_lines import lines_of
from redrive.batches.task_input import Many
from redrive.errors import InvalidInput

LINES = "application/x-ndjson"
_FORMS = "a JSON document, or JSON lines with Content-Type: application/x-ndjson and all else in the query"
Given = tuple[BatchRequest, Many | None, list[Any] | AsyncIterator[Any] | None]


@dataclass(slots=True, frozen=True)
class InQuery:
    """What the query says of a batch whose items are the lines of the body."""

    provider: str | None = None
    account: str | None = None
    price: int | None = None
    key: str | None = None
    name: str | None = None
    meta: Annotated[str | None, Query(description="A JSON value.")] = None
    scope: str | None = None
    webhook_url: Annotated[str | None, Query(alias="webhookUrl")] = None
    max_in_flight: Annotated[int | None, Query(alias="maxInFlight")] = None

    def said(self) -> dict[str, Any]:
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


Said = Annotated[InQuery, Depends()]


async def given_by(request: Request, query: InQuery) -> Given:
    """Returns what a batch is to be, its tasks, and its items."""
    if is_lines(request.headers.get("content-type", "")):
        if query.provider is None:
            raise InvalidInput(
                "JSON lines are items at a provider, and none is named",
                hint="say it in the query: ?provider=NAME; tasks are given as a JSON document",
            )
        return (
            BatchRequest(**query.said() | {"meta": _meta(query.meta)}, called=to_camel),
            None,
            lines_of(request.stream()),
        )
    if said := query.said():
        raise InvalidInput(
            f"{', '.join(map(to_camel, said))}: a JSON document says this itself", hint="put it into the document"
        )
    return _of_document(await _document(request))


def _of_document(body: BatchIn) -> Given:
    said = {name: getattr(body, name) for name in BatchIn.model_fields if name not in ("tasks", "items")}
    after = {name: said[name] and said[name].given() for name in ("on_complete", "on_success")}
    tasks = None if body.tasks is None else [one.given() for one in body.tasks]
    return BatchRequest(**said | after, called=to_camel), tasks, body.items


async def _document(request: Request) -> BatchIn:
    try:
        return BatchIn.model_validate_json(await request.body())
    except ValidationError as error:
        found = error.errors(include_url=False)
        if found[0]["type"] == "json_invalid":
            raise InvalidInput(f"the body is not JSON: {found[0]['ctx']['error']}", hint=_FORMS) from None
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in found]) from None


def _meta(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"meta is no JSON: {error}", hint="a text is written in quotes") from None


def _schema() -> dict[str, Any]:
    """Returns the schema of a document, with that of its tasks inside."""
    found = BatchIn.model_json_schema(ref_template="{model}")
    tasks = found.pop("$defs")[TaskIn.__name__]
    text = json.dumps(found).replace(json.dumps({"$ref": TaskIn.__name__}), json.dumps(tasks))
    schema: dict[str, Any] = json.loads(text)
    return schema


BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": _schema()},
            LINES: {"schema": {"type": "string", "description": "One item a line; all else is in the query."}},
        },
    }
}
