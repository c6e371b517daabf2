"""Reads the filters that several routes share, under the names of the earlier system and our own."""

from __future__ import annotations

import inspect as python
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from fastapi import Depends, Query
from pydantic import Field, create_model
from pydantic.alias_generators import to_snake

from redrive.api import models as m
from redrive.kernel.audit import AuditFilter
from redrive.kernel.failure_filter import FailureFilter
from redrive.ops.audit import AUDIT_FILTERS, make_audit
from redrive.ops.failures import parse_filter, parse_ids
from redrive.ops.filters import FAILURE_FILTERS, FILTERS, TIMES, Filter, filters_by_name, texts_of

T = TypeVar("T")
Text = Annotated[str | None, Query(max_length=1000)]
Limit = Annotated[int, Query(ge=1, le=500)]
Before = Annotated[int | None, Query(ge=0, le=2**62)]
States = Annotated[list[str] | tuple[str, ...], Query()]


def _query_of(which: Iterable[Filter], made: Callable[..., T]) -> Callable[..., T]:
    """Returns what reads these filters from a query; empty ones say nothing."""

    def read(**given: str | None) -> T:
        return made(**texts_of({name: text or None for name, text in given.items()}, which))

    parameters = [
        python.Parameter(
            name,
            python.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, Query(max_length=1000, description=one.help)],
        )
        for name, one in filters_by_name(which).items()
    ]
    read.__signature__ = python.Signature(parameters)  # type: ignore[attr-defined]
    return read


WhichTasks = Annotated[FailureFilter, Depends(_query_of(FILTERS, parse_filter))]
WhichAudit = Annotated[AuditFilter, Depends(_query_of(AUDIT_FILTERS, make_audit))]


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


def _fields_of(name: str, which: Iterable[Filter]) -> Any:
    own: dict[str, Any] = {
        to_snake(name): (str | None, Field(None, description=one.help)) for name, one in filters_by_name(which).items()
    }
    return create_model(name, __base__=m.In, **own)


if TYPE_CHECKING:
    FilterFields: TypeAlias = m.In
    AuditFields: TypeAlias = m.In
else:
    FilterFields, AuditFields = _fields_of("FilterFields", FAILURE_FILTERS), _fields_of("AuditFields", AUDIT_FILTERS)


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


WhichFailed = Annotated[FailureFilter, Depends(failures)]
