"""Defines what goes over the wire. Names are camelCase, as callers of the earlier system know them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args, get_origin
from uuid import UUID

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    create_model,
    model_validator,
)
from pydantic.alias_generators import to_camel

from redrive.kernel.task import EARLIEST
from redrive.ops import views
from redrive.ops.given import Parameter, flat, gathered
from redrive.ops.views import shown_fields


class Out(BaseModel):
    """Base of answers, made from whatever has attributes of the same names."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)


class _FailFast(FailFast):
    """One that a union can have, whose parts are looked up by their hash."""

    __hash__ = object.__hash__


FIRST_FAULT = _FailFast()  # of a list: the first thing that is wrong with it is told, and not each
MOST_FIELDS = 200  # of one object in a body; payloads are not read by models


class In(BaseModel):
    """Base of request bodies: camelCase or snake_case, nothing that is not known, and every value of its own type: 0 is
    not false, and "5" is no number."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(
            validation_alias=lambda name: AliasChoices(to_camel(name), name), serialization_alias=to_camel
        ),
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, given: Any) -> Any:
        """Refuses very many fields before each of them is refused by itself, which would take long."""
        if isinstance(given, dict) and len(given) > MOST_FIELDS:
            raise ValueError(f"has {len(given):,} fields; known are {', '.join(map(to_camel, cls.model_fields))}")
        return given


def _written_out(value: object) -> object:
    """Refuses a time that is no text: a bare number could be seconds or milliseconds."""
    if isinstance(value, str) and not value.lstrip("+-").replace(".", "", 1).isdigit():
        return value
    raise ValueError("must be a time with a zone, like 2026-01-31T09:00:00Z")


def _within_reach(value: datetime) -> datetime:
    """Refuses a time too near the ends of what a datetime can hold to be taken to any zone."""
    if value.tzinfo is None or not EARLIEST.year <= value.year <= LATEST_YEAR:
        raise ValueError(f"must be a time with a zone, from {EARLIEST.year} to {LATEST_YEAR}")
    return value


LATEST_YEAR = 9000
# What JSON has no type for: given as text.
Moment = Annotated[datetime, Field(strict=False), BeforeValidator(_written_out), AfterValidator(_within_reach)]
Id = Annotated[UUID, Field(strict=False)]


def fields_of(parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Returns the fields of a body for what people give; one that is given in pieces is an object."""
    return {one.name: (_kind_of(one), _said_of(one)) for one in parameters}


def _kind_of(one: Parameter) -> Any:
    if not one.parts:
        return one.annotation
    made = create_model(f"{one.base.__name__}In", __base__=In, __doc__=one.given.help, **fields_of(one.parts))
    return made if one.required else made | None


def _said_of(one: Parameter) -> Any:
    lax: dict[str, Any] = {"strict": False} if isinstance(one.base, type) and issubclass(one.base, Enum) else {}
    bounds: dict[str, Any] = {} if one.given.least is None else {"ge": one.given.least, "le": one.given.most}
    return Field(... if one.required else one.default, description=one.given.help or None, **lax, **bounds)


def given_by(body: BaseModel, parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Returns what a body says, by parameter."""
    listed = [one for one in parameters if not one.in_path]
    said = {name: getattr(body, name) for name in body.model_fields_set}
    for one in flat(listed, inner=False):
        if one.parts and isinstance(said.get(one.name), BaseModel):
            said[one.name] = one.base(**said[one.name].model_dump())
    return gathered(listed, said)


class Problem(BaseModel):
    """RFC 9457. ``code`` is for machines, ``detail`` and ``hint`` for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str | None = None
    errors: list[dict[str, Any]] | None = None


class EarlierNames(Out):
    """What callers of the earlier system know a task by."""

    episode_id: str | None = Field(description="The same as `scope`, by the name of the earlier system.")
    job_kind: str | None = Field(description="The same as `kind`, by the name of the earlier system.")


def model_of(shape: Any, base: type[Out] = Out) -> Any:
    """Returns the model of what a view declares, for the API's description; answers are not made by it, see
    ``redrive.api.encode``. Of a list or of one that may be null, the same of its parts; other types are as they are."""
    if is_dataclass(shape) and isinstance(shape, type):
        return _model_of(shape, EarlierNames if shape in EARLIER_NAMED else base)
    parts = [model_of(part) for part in get_args(shape)]
    if get_origin(shape) in (list, tuple):
        return list[parts[0]]  # type: ignore[valid-type]
    return parts[0] | None if type(None) in get_args(shape) else shape


@cache
def _model_of(view: type, base: type[Out]) -> type[Out]:
    defaults = {one.name: one for one in fields(view)}

    def described(name: str, words: str) -> Any:
        one = defaults.get(name)
        if one is None:  # it is computed
            return Field(description=words or None)
        if one.default_factory is not MISSING:
            return Field(default_factory=one.default_factory, description=words or None)
        return Field(... if one.default is MISSING else one.default, description=words or None)

    own: dict[str, Any] = {
        name: (model_of(kind), described(name, shown.help)) for name, (kind, shown) in shown_fields(view).items()
    }
    name = view.__name__ if view.__name__.endswith("Page") else f"{view.__name__.removesuffix('View')}Out"
    return create_model(name, __base__=base, __doc__=_docs(view), **own)


def _docs(view: type) -> str | None:
    """Returns what is written about a view; dataclasses write their own signature where nothing is."""
    text = view.__doc__
    return None if text is None or text.startswith(f"{view.__name__}(") else text


EARLIER_NAMED = (views.TaskView, views.DeadLetterView, views.AuditView)
if TYPE_CHECKING:  # to whom a model that is made is no type
    TaskOut: TypeAlias = EarlierNames
    DeadLetterOut: TypeAlias = EarlierNames
    AuditOut: TypeAlias = EarlierNames
    ObstacleOut: TypeAlias = Out
    ApprovalOut: TypeAlias = Out
    OperationOut: TypeAlias = Out
    ReasonOut: TypeAlias = Out
else:
    TaskOut, DeadLetterOut = model_of(views.TaskView), model_of(views.DeadLetterView)
    AuditOut = model_of(views.AuditView)
    OperationOut, ReasonOut = model_of(views.OperationView), model_of(views.ReasonView)
    ObstacleOut, ApprovalOut = model_of(views.ObstacleView), model_of(views.ApprovalView)


class AuditPage(Out):
    items: list[AuditOut]
    page: int
    page_size: int
    more: bool
    next_before: int | None = Field(description="Give it as `before` for the next page: stable while rows are added.")


class PruneOut(Out):
    matched: int
    removed: int
    dry_run: bool
    batch_id: str | None


class FindingOut(Out):
    connection: str = Field("default", description="Where it is; left out where there is only one.")
    level: str
    code: str
    text: str
    fix: str | None
    about: str | None
    name: str | None


class DoctorOut(Out):
    worst: str
    findings: list[FindingOut]
    triage: dict[str, dict[str, Any]]


class ReasonIn(In):
    """Why, for the audit log. ``actor`` says who acts where there are no tokens; a token's name overrides it."""

    reason: str | None = None
    actor: str | None = None
