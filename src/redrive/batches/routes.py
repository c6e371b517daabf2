"""``/api/batches``: batches of both sorts; what a batch is to be is read from a JSON document, or from JSON lines with
the rest in the query. Besides: the calls of providers, whose address is the proof, and one bounded pass over the remote
batches for whoever has only a scheduler."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import Field, ValidationError
from pydantic.alias_generators import to_camel

from redrive.api.access import TheApp, wrong_tokens
from redrive.api.body_limit import is_lines
from redrive.api.declared import answer_model
from redrive.api.encode import respond
from redrive.api.models import FIRST_FAULT
from redrive.api.worker_run import TriggeredWorker, described
from redrive.batches.batch import ShownBatch
from redrive.batches.batch_input import BatchRequest, Many, lines_of
from redrive.batches.batch_service import BatchService
from redrive.batches.items import FORMS, ItemPage, WantedItems, check_form, item_document, items_csv, results
from redrive.batches.names import CALLBACK_PATH
from redrive.batches.remote.callbacks import ProviderCallbacks
from redrive.batches.remote.passes import Passes
from redrive.errors import InvalidInput
from redrive.feature.api import PROBLEMS, In, Out, TheOperator, router_of
from redrive.ops.operator.declared import document
from redrive.ops.views import View
from redrive.remote.callbacks import CallbackRefused


class TaskIn(In):
    """The arguments of ``App.enqueue``."""

    kind: str
    payload: Any = None
    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    group: str | None = None
    scope: str | None = None
    idempotency_key: str | None = None

    def given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in TaskIn.model_fields}


class BatchIn(In):
    """What a batch is to be: of ``tasks``, or of ``items`` (any JSON values) that are jobs at a ``provider``."""

    tasks: Annotated[list[TaskIn], FIRST_FAULT] | None = None
    on_complete: TaskIn | None = None
    on_success: TaskIn | None = None
    items: list[Any] | None = None
    provider: str | None = None
    account: str | None = None
    price: int | None = None
    webhook_url: str | None = None
    max_in_flight: int | None = None
    name: str | None = None
    key: str | None = None
    meta: Any = None
    scope: str | None = None


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


router = APIRouter(prefix="/api/batches", tags=["batches"], responses=PROBLEMS)


@router.post("", status_code=201, response_model=answer_model(ShownBatch), openapi_extra=BODY)
async def create_batch(request: Request, operator: TheOperator, said: Said) -> Response:
    """Make a batch of tasks, or of items that are jobs at a provider: of a JSON document, or, at a provider, of JSON
    lines, which are read as they come. Nothing is there unless every item is right; the same key again is the batch
    that is there."""
    wanted, tasks, items = await given_by(request, said)
    made = await operator.of(BatchService).create(wanted, tasks=tasks, items=items)
    return await respond(document(made, operator.sight), 201)


@router.get("/{batch}/items", response_model=answer_model(ItemPage))
async def list_items(
    batch: UUID,
    operator: TheOperator,
    state: Annotated[list[str], Query()] = [],  # noqa: B006
    kind: str | None = None,
    failure_type: Annotated[str | None, Query(alias="failureType")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    after: str | None = None,
    format: str = "json",
) -> Response:
    """The items, with their results: tasks the latest first, jobs in the order in which they were given. ``nextAfter``
    continues; ``format=csv`` for a table, which has it as the header ``X-Next-After``."""
    if format not in ("json", "csv"):
        raise InvalidInput(f"format is json or csv, not {format!r}")
    found = await operator.of(BatchService).items(
        batch, states=state, kind=kind, failure_type=failure_type, limit=limit, after=after
    )
    if format == "csv":
        more = {} if found.next_after is None else {"X-Next-After": found.next_after}
        return StreamingResponse(items_csv(found.items), media_type="text/csv; charset=utf-8", headers=more)
    items: Iterator[View] = (item_document(one) for one in found.items)
    return await respond(View(items=items, next_after=found.next_after))


@router.get("/{batch}/results", response_class=StreamingResponse)
async def all_results(
    batch: UUID,
    operator: TheOperator,
    state: Annotated[list[str], Query()] = [],  # noqa: B006
    kind: str | None = None,
    failure_type: Annotated[str | None, Query(alias="failureType")] = None,
    format: str = "csv",
) -> Response:
    """All items as a file, CSV or JSON, sent while it is read: the same as in the console and by ``batch items
    --csv``."""
    form, own = check_form(format), operator.of(BatchService)
    wanted = WantedItems(state, kind, failure_type)
    await own.items(batch, states=state, kind=kind, failure_type=failure_type, limit=1)  # refused before it begins
    headers = {"Content-Disposition": f'attachment; filename="batch-{batch}.{form}"'}
    return StreamingResponse(results(own.items, str(batch), form, wanted), media_type=FORMS[form], headers=headers)


callback = APIRouter(prefix=f"/{CALLBACK_PATH}", tags=["remote batches"], responses=PROBLEMS)


@callback.post("/{token}", status_code=204)
async def call_back(
    token: str, request: Request, app: TheApp, connection: Annotated[str | None, Query()] = None
) -> Response:
    """Have the job of an item looked at now. What the body says is not read; a repeated call changes nothing."""
    try:
        await app.of(ProviderCallbacks).take(token, connection)
    except CallbackRefused:
        wrong_tokens(request).failed(request)
        raise
    return Response(status_code=204)


internal = APIRouter(prefix="/api/internal/batch-worker", tags=["remote batches"], responses=PROBLEMS)


class PassIn(In):
    """When it is enough, and on which of several connections."""

    max_seconds: Annotated[float, Field(gt=0, le=3600)] = 25.0
    connection: str | None = None


class PassOut(Out):
    """What a pass has done: ``dispatched``, ``settled`` and ``released`` are batches, all else are items."""

    dispatched: int = Field(description="Batches that were begun, or failed for want of money.")
    started: int
    polled: int
    completed: int
    failed: int
    settled: int
    released: int = Field(description="Cancelled batches whose unstarted items were given back.")
    put_off: int = Field(description="Items that were due, and beyond what one pass does.")
    seconds: float
    more: bool = Field(description="Something is due now: the next call need not wait for its minute.")


@internal.post("", dependencies=[Depends(described)])
async def batch_worker(request: Request, app: TheApp, body: PassIn | None = None) -> PassOut:
    """Dispatch, start, poll and settle remote batches once, within the bounds of ``BATCH_WORKER_MAX_…``. One call at a
    time in each process; in several processes each does its own part."""
    wanted = body or PassIn()
    triggered: TriggeredWorker = request.app.state.triggered
    done = await app.of(Passes).make(triggered.run, wanted.max_seconds, wanted.connection)
    counts = {name: getattr(done, name) for name in PassOut.model_fields if name != "seconds"}
    return PassOut(seconds=round(done.seconds, 3), **counts)


routers = [internal, callback, router, router_of(BatchService, "batches")]
