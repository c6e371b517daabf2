"""Reads the filters that several routes share, under the names of the earlier system and our own."""

from __future__ import annotations

import inspect as python
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, TypeAlias

from fastapi import Depends, Query
from pydantic import Field, create_model
from pydantic.alias_generators import to_snake

from redrive.api import models as m
from redrive.kernel.audit import AuditFilter
from redrive.kernel.failure_filter import FailureFilter
from redrive.ops.audit import SINCE as DONE_SINCE
from redrive.ops.audit import UNTIL as DONE_UNTIL
from redrive.ops.audit import make_audit
from redrive.ops.failures import parse_filter, parse_ids
from redrive.ops.filters import FILTERS, TIMES, filters_by_name, one_of, texts_of

Text = Annotated[str | None, Query(max_length=1000)]
Limit = Annotated[int, Query(ge=1, le=500)]
Before = Annotated[int | None, Query(ge=0, le=2**62)]
States = Annotated[list[str] | tuple[str, ...], Query()]


def filters(**given: str | None) -> FailureFilter:
    """Returns the filter of a query; ``episodeId`` is ``scope``, ``jobKind`` is ``kind``; empty ones say nothing."""
    return make_failures(None, **texts_of({name: text or None for name, text in given.items()}))


filters.__signature__ = python.Signature(  # type: ignore[attr-defined]
    [
        python.Parameter(
            name,
            python.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, Query(max_length=1000, description=one.help)],
        )
        for name, one in filters_by_name(FILTERS).items()
    ]
)
WhichTasks = Annotated[FailureFilter, Depends(filters)]


SINCE, UNTIL = TIMES
FORGOTTEN = "Of a retry: also what was forgotten or purged, which else comes back by taskIds only."


def failures(
    which: WhichTasks,
    taskIds: Annotated[list[str] | None, Query(max_length=500)] = None,
    since: Annotated[str | None, Query(max_length=100, description=SINCE.help)] = None,
    until: Annotated[str | None, Query(max_length=100, description=UNTIL.help)] = None,
    forgotten: Annotated[bool, Query(description=FORGOTTEN)] = False,
) -> FailureFilter:
    """Returns the filter of a query, with ids and times."""
    more = make_failures(taskIds, since=since or None, until=until or None)
    return replace(which, ids=more.ids, since=more.since, until=more.until, forgotten=forgotten or None)


if TYPE_CHECKING:
    FilterFields: TypeAlias = m.In
else:
    FilterFields = create_model(
        "FilterFields",
        __base__=m.In,
        **{to_snake(name): (str | None, Field(None, description=one.help)) for name, one in filters_by_name().items()},
    )


class FilterIn(FilterFields):
    """A filter in the body of a request. There an empty text is a mistake: it must not mean "any"."""

    forgotten: bool = Field(False, description=FORGOTTEN)

    def failures(self, ids: Sequence[str] | None = None) -> FailureFilter:
        made = make_failures(ids, **texts_of(self.model_dump(by_alias=True)))
        return replace(made, forgotten=True) if self.forgotten else made


def make_failures(ids: Sequence[str] | None = None, **texts: str | None) -> FailureFilter:
    split = [part for value in ids for part in value.split(",") if part.strip()] if ids is not None else None
    named = None if split is None else parse_ids([part.strip() for part in split])
    return replace(parse_filter(**texts), ids=named)


def audits(
    auditAction: Text = None,
    auditActor: Text = None,
    batchId: Text = None,
    episodeId: Text = None,
    jobKind: Text = None,
    traceId: Text = None,
    taskId: Text = None,
    scope: Text = None,
    kind: Text = None,
    since: Annotated[str | None, Query(max_length=100, description=DONE_SINCE)] = None,
    until: Annotated[str | None, Query(max_length=100, description=DONE_UNTIL)] = None,
) -> AuditFilter:
    """Returns the filter of audit rows of a query."""
    return make_audit(
        taskId or None,
        action=auditAction or None,
        actor=auditActor or None,
        bulk_id=batchId or None,
        scope=one_of(episodeId or None, scope or None, "episodeId and scope"),
        kind=one_of(jobKind or None, kind or None, "jobKind and kind"),
        trace_id=traceId or None,
        since=since or None,
        until=until or None,
    )


WhichFailed = Annotated[FailureFilter, Depends(failures)]
WhichAudit = Annotated[AuditFilter, Depends(audits)]
