"""``/api/batches/remote``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError

from redrive.api.access import By
from redrive.batches.remote.lines import lines_of
from redrive.batches.remote.service import RemoteBatchService
from redrive.batches.remote.shown import item_document, items_csv, progress_document, remote_document
from redrive.batches.routes import router as batches
from redrive.errors import InvalidInput
from redrive.feature.api import PROBLEMS, In, Out, TheOperator

router = APIRouter(prefix="/api/batches/remote", tags=["remote batches"], responses=PROBLEMS)
routers = [router, batches]  # in this order: "remote" is no id of a batch
LINES = "application/x-ndjson"
Limit = Annotated[int, Query(ge=1, le=500)]


class RemoteBatchIn(In):
    """What a batch is to be; ``items`` are the payloads, any JSON values."""

    provider: str
    items: list[Any] = Field(default_factory=list)
    account: str | None = None
    price: int = 0
    key: str | None = None
    name: str | None = None
    meta: Any = None
    scope: str | None = None
    webhook_url: str | None = None

    def options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields if name != "items"}


class RemoteBatchOut(Out):
    id: str
    state: str
    name: str | None
    key: str | None
    meta: Any
    scope: str | None
    provider: str
    account: str | None
    price: int
    items: int
    webhook_url: str | None
    reason: str | None
    round: int
    frozen: int
    captured: int
    released: int
    created_at: datetime
    created_by: str
    dispatched_at: datetime | None
    settled_at: datetime | None
    cancelled_at: datetime | None
    cancelled_by: str | None


class FailedOut(Out):
    by_type: dict[str, int]
    by_code: dict[str, int]


class ProgressOut(RemoteBatchOut):
    counts: dict[str, int]
    failures: FailedOut


class RemoteBatchPage(Out):
    batches: list[RemoteBatchOut]
    next_before: str | None


class ItemOut(Out):
    n: int
    state: str
    payload: Any
    task_id: str | None
    job: str | None
    progress: float | None
    poll_count: int
    last_poll_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    result: Any
    error_code: str | None
    error_message: str | None
    failure_type: str | None
    late: bool


class ItemPage(Out):
    items: list[ItemOut]
    next_after: int | None


_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": RemoteBatchIn.model_json_schema()},
            LINES: {"schema": {"type": "string", "description": "One item a line; all else is in the query."}},
        },
    }
}


@router.post("", status_code=201, response_model=RemoteBatchOut, openapi_extra=_BODY)
async def create_remote(
    request: Request,
    operator: TheOperator,
    provider: str | None = None,
    account: str | None = None,
    price: int = 0,
    key: str | None = None,
    name: str | None = None,
    scope: str | None = None,
    webhook_url: Annotated[str | None, Query(alias="webhookUrl")] = None,
) -> dict[str, Any]:
    """Make a batch of jobs at a provider: of a JSON document, or of JSON lines, which are read as they come. Nothing is
    created unless every item is right; the same key again is the batch that is there."""
    own = operator.of(RemoteBatchService)
    if not request.headers.get("content-type", "").startswith(LINES):
        body = await _document(request)
        return remote_document(await own.create(body.items, **body.options()))
    if provider is None:
        raise InvalidInput("provider is missing", hint="with JSON lines it is said in the query: ?provider=NAME")
    made = await own.create(
        lines_of(request.stream()),
        provider=provider,
        account=account,
        price=price,
        key=key,
        name=name,
        scope=scope,
        webhook_url=webhook_url,
    )
    return remote_document(made)


async def _document(request: Request) -> RemoteBatchIn:
    try:
        return RemoteBatchIn.model_validate_json(await request.body())
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in found]) from None


@router.get("", response_model=RemoteBatchPage)
async def list_remote(
    operator: TheOperator, state: str | None = None, limit: Limit = 50, before: UUID | None = None
) -> dict[str, Any]:
    """Remote batches, the latest first. ``nextBefore`` continues."""
    found = await operator.of(RemoteBatchService).list(state=state, limit=limit, before=before)
    more = str(found[-1].id) if len(found) == limit else None
    return {"batches": [remote_document(one) for one in found], "next_before": more}


@router.get("/{batch}", response_model=ProgressOut)
async def show_remote(batch: UUID, operator: TheOperator) -> dict[str, Any]:
    """How far a remote batch is, with its money, and why items failed."""
    return progress_document(await operator.of(RemoteBatchService).progress(batch))


@router.get("/{batch}/items", response_model=ItemPage)
async def list_remote_items(
    batch: UUID,
    operator: TheOperator,
    state: str | None = None,
    failure_type: Annotated[str | None, Query(alias="failureType")] = None,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    format: str = "json",
) -> Any:
    """The items in the order in which they were given, with their results; ``format=csv`` for a table."""
    if format not in ("json", "csv"):
        raise InvalidInput(f"format is json or csv, not {format!r}")
    own = operator.of(RemoteBatchService)
    found = await own.items(batch, state=state, failure_type=failure_type, after=after, limit=limit)
    if format == "csv":
        return Response(items_csv(found), media_type="text/csv; charset=utf-8")
    return {"items": [item_document(one) for one in found], "next_after": found[-1].n if len(found) == limit else None}


@router.post("/{batch}/cancel", response_model=RemoteBatchOut)
async def cancel_remote(batch: UUID, by: By) -> dict[str, Any]:
    """Cancel what was not started and release its money; what runs is polled to its end."""
    return remote_document(await by.operator.of(RemoteBatchService).cancel(batch, by.reason))


@router.post("/{batch}/retry-failed", response_model=RemoteBatchOut)
async def retry_failed_remote(batch: UUID, by: By) -> dict[str, Any]:
    """Start the failed items of a settled batch again, as a new charge."""
    return remote_document(await by.operator.of(RemoteBatchService).retry_failed(batch, by.reason))
