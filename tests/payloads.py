"""Types and values that a handler may declare and be sent, at the top of a module: another process imports them."""

from __future__ import annotations

import dataclasses
import string
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

T = TypeVar("T")
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
ZONES = st.one_of(
    st.none(), st.just(UTC), OFFSETS, st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Tokyo")])
)


class Colour(Enum):
    RED = "red"
    NINE = 9


class Size(StrEnum):
    S = "s"
    L = "l"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    when: date


@dataclasses.dataclass
class Line:
    text: str
    total: Decimal
    tags: set[str] = dataclasses.field(default_factory=set)


class Address(BaseModel):
    street: str
    id: UUID
    since: datetime | None = None


class Order(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    address: Address
    lines: list[Line] = []
    blob: bytes = b""
    number: Annotated[int, Field(alias="no", validation_alias="no")] = 0


class Box(BaseModel, Generic[T]):
    content: T


class Patch(TypedDict):
    name: str
    at: NotRequired[datetime]


def without_sign_of_zero(number: float) -> float:
    """PostgreSQL has no -0.0."""
    return number + 0.0


SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False).map(without_sign_of_zero),
    bool: st.booleans(),
    datetime: st.datetimes(datetime(1950, 1, 1), timezones=ZONES),
    date: st.dates(),
    time: st.times(timezones=st.one_of(st.none(), st.just(UTC), OFFSETS)),
    timedelta: st.timedeltas(timedelta(days=-300_000), timedelta(days=300_000)),
    UUID: st.uuids(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    Colour: st.sampled_from(Colour),
    Size: st.sampled_from(Size),
    Level: st.sampled_from(Level),
    Path: TEXT.filter(bool).map(Path),
    bytes: st.binary(max_size=8),
    IPv4Address: st.ip_addresses(v=4),
    Literal["a", 1]: st.sampled_from(["a", 1]),
}
ADDRESSES = st.builds(
    Address, street=TEXT, id=st.uuids(), since=st.one_of(st.none(), st.datetimes(timezones=st.just(UTC)))
)
LINES = st.builds(Line, text=TEXT, total=SCALARS[Decimal], tags=st.sets(TEXT, max_size=3))
CLASSES: dict[Any, st.SearchStrategy[Any]] = {
    Point: st.builds(Point, st.integers(), st.dates()),
    Line: LINES,
    Address: ADDRESSES,
    Order: st.builds(
        lambda address, lines, blob, no: Order(address=address, lines=lines, blob=blob, no=no),
        ADDRESSES,
        st.lists(LINES, max_size=2),
        st.binary(max_size=4),
        st.integers(),
    ),
    Box[timedelta]: st.builds(Box[timedelta], content=SCALARS[timedelta]),
    Patch: st.fixed_dictionaries({"name": TEXT}, optional={"at": st.datetimes()}),
}
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXT, st.floats(-1e15, 1e15).map(without_sign_of_zero)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)
KEYS = (str, int, UUID, date, Size)
HASHABLE = (str, int, UUID, date, datetime, Decimal, Colour, bytes, Path)

Typed = tuple[Any, st.SearchStrategy[Any]]


def _nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    keys = st.sampled_from(KEYS)
    hashable = st.sampled_from(HASHABLE)
    return st.one_of(
        inner.map(lambda t: (list[t[0]], st.lists(t[1], max_size=3))),
        inner.map(lambda t: (tuple[t[0], ...], st.lists(t[1], max_size=3).map(tuple))),
        st.tuples(inner, inner).map(lambda p: (tuple[p[0][0], p[1][0]], st.tuples(p[0][1], p[1][1]))),
        inner.map(lambda t: (t[0] | None, st.one_of(st.none(), t[1]))),
        st.tuples(keys, inner).map(
            lambda p: (dict[p[0], p[1][0]], st.dictionaries(SCALARS[p[0]], p[1][1], max_size=3))
        ),
        hashable.map(lambda key: (set[key], st.sets(SCALARS[key], max_size=3))),
        hashable.map(lambda key: (frozenset[key], st.frozensets(SCALARS[key], max_size=3))),
    )


# A type, and what makes values of it.
TYPES: st.SearchStrategy[Typed] = st.recursive(
    st.one_of(
        st.sampled_from([*SCALARS.items(), *CLASSES.items()]),
        st.just((Any, PLAIN)),
        st.just((dict, st.dictionaries(TEXT, PLAIN, max_size=3))),
    ),
    _nested,
    max_leaves=3,
)


def same(one: Any, other: Any) -> bool:
    """Equal and of the same types, all the way down."""
    if type(one) is not type(other):
        return False
    match one:
        case dict():
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        case list() | tuple():
            return len(one) == len(other) and all(map(same, one, other))
        case set() | frozenset():
            # By turns: times that a change of the clock left out are equal to none of another zone.
            return len(one) == len(other) and all(any(same(each, found) for found in other) for each in one)
        case BaseModel():
            return same(vars(one), vars(other))
        case datetime() | time():
            return one.isoformat() == other.isoformat()
        case _ if dataclasses.is_dataclass(one):
            return same(vars(one), vars(other))
    return bool(one == other)


NAMES = st.text(string.ascii_lowercase + "_", min_size=1, max_size=6)
