"""Routes for causes of failure, called failure groups in the address, that are not declared: list, and annotate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query, Response

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import TheOperator
from redrive.api.encode import json_answer, respond
from redrive.api.filters import Limit, failures
from redrive.api.routers import api_router
from redrive.kernel.failure_filter import FailureFilter
from redrive.ops import views
from redrive.ops.views import CauseView, Open

router = api_router("/api", "bulk")


class CauseIn(m.In):
    """What is left out stays; null takes it back."""

    note: str | None = None
    owner: str | None = None
    muted_until: m.Moment | None = None
    resolved: bool | None = None
    reason: str | None = None
    actor: str | None = None


@dataclass(slots=True, frozen=True)
class CausePage:
    groups: list[CauseView]
    next_before: Annotated[str | None, Open("Give it as `before` for the next page.")]
    total: Annotated[int | None, Open("Causes on all pages; null where they are not counted.")]
    at_least: Annotated[bool, Open("There are more causes than `total`.")]
    tasks: Annotated[int, Open("Tasks that match and are failed now, by all causes: what `share` is of.")]
    more: Annotated[int | None, Open("Causes on the pages after this one.")]


@router.get("/failure-groups", response_model=m.model_of(CausePage))
async def list_causes(
    operator: TheOperator,
    which: Annotated[FailureFilter, Depends(failures)],
    limit: Limit = 50,
    status: str | None = None,
    order: Annotated[str | None, Query(max_length=20)] = None,
    before: Annotated[str | None, Query(max_length=300)] = None,
) -> Response:
    """Causes of what is failed now and matches, those by which most is first; `order`: `failed`, `count` (failures
    ever), `first`, `last` or `trend` (failures of the last 24 hours). Causes by which nothing is failed now have the
    `status` `quiet`; `all` has every cause."""
    found = await operator.causes.list(which, limit=limit, status=status, order=order, before=before)
    return await json_answer(
        groups=serialize.causes(found.causes, operator),
        next_before=found.next_before,
        total=found.total,
        at_least=found.at_least,
        tasks=found.tasks,
        more=found.more,
    )


@router.patch("/failure-groups/{fingerprint}", response_model=m.model_of(CauseView))
async def annotate_cause(fingerprint: str, body: CauseIn, operator: TheOperator) -> Response:
    """A note, an owner, silence until some time, or "resolved": it opens again when the failure comes back."""
    said: dict[str, Any] = {
        name: getattr(body, name)
        for name in ("note", "owner", "muted_until", "resolved")
        if name in body.model_fields_set
    }
    found = await operator.named(body.actor).causes.annotate(fingerprint, body.reason, **said)
    return await respond(views.cause(found, operator.sight))
