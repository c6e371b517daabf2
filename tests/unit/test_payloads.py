"""What goes into ``enqueue`` comes out in the handler, or is refused where it goes in."""

from __future__ import annotations

import asyncio
import inspect
import json
import keyword
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, Field, SecretStr

from redrive import App, Bulk, Context
from redrive.errors import ConfigError, InvalidInput, PayloadInvalid, PayloadMissing
from redrive.handlers.signature import Call, PayloadSpec
from tests.payloads import NAMES, SCALARS, TYPES, Address, Colour, Line, Order, Size, same

Maker = Callable[..., Any]


def handler(parameters: Mapping[str, Any], keyword_only: int = 0, defaults: bool = False) -> Maker:
    """A function with these parameters, as if it had been written."""

    def function(*_: Any, **__: Any) -> None: ...

    kinds = inspect.Parameter
    first = len(parameters) - keyword_only
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            kinds("ctx", kinds.POSITIONAL_OR_KEYWORD),
            *(
                kinds(
                    name,
                    kinds.POSITIONAL_OR_KEYWORD if index < first else kinds.KEYWORD_ONLY,
                    annotation=annotation,
                    default="default" if defaults else kinds.empty,
                )
                for index, (name, annotation) in enumerate(parameters.items())
            ),
        ]
    )
    return function


def through(function: Maker, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What a handler would be called with."""
    spec = PayloadSpec("K", function)
    return spec.arguments(spec.encode_call(Call(args, kwargs)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_signature_and_any_call(data: st.DataObject) -> None:
    names = data.draw(st.lists(NAMES, unique=True, max_size=4))
    parameters = {n: data.draw(TYPES) for n in names if n != "ctx" and not keyword.iskeyword(n)}
    keyword_only = data.draw(st.integers(0, len(parameters)))
    defaults = data.draw(st.booleans())
    function = handler({name: type_ for name, (type_, _) in parameters.items()}, keyword_only, defaults)
    left_out = data.draw(st.sets(st.sampled_from(list(parameters)))) if defaults and parameters else set()
    sent = {name: data.draw(values) for name, (_, values) in parameters.items() if name not in left_out}
    places = [] if left_out else list(sent)[: data.draw(st.integers(0, len(parameters) - keyword_only))]
    by_name = {name: value for name, value in sent.items() if name not in places}
    assert same(through(function, *(sent[name] for name in places), **by_name), sent)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_unions_come_out_the_same_or_are_refused(data: st.DataObject) -> None:
    """JSON has one kind of text: a date where ``str | date`` is declared would come back as text."""
    one, other = data.draw(st.lists(st.sampled_from(list(SCALARS)), min_size=2, max_size=2))
    sent = {"x": data.draw(st.one_of(SCALARS[one], SCALARS[other]))}
    try:
        received = through(handler({"x": one | other}), **sent)
    except PayloadInvalid as error:
        assert "would not come out as it went in" in str(error) or "does not fit" in str(error)
    else:
        assert received == sent and isinstance(sent["x"], type(received["x"]))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_payload_by_kind_is_taken_the_same_way(data: st.DataObject) -> None:
    type_, values = data.draw(TYPES)
    spec = PayloadSpec("K", handler({"x": type_}))
    value = data.draw(values)
    text = spec.encode_call(Call((), {"x": value}))
    # One parameter that is a model takes the payload whole.
    model = isinstance(type_, type) and issubclass(type_, BaseModel)
    assert same(spec.arguments(spec.encode(value if model else {"x": value})), {"x": value})
    assert spec.arguments(text).keys() == {"x"}


def plain(ctx: Context, payload: dict) -> None: ...  # type: ignore[type-arg]


def anything(ctx: Context, x) -> None: ...  # type: ignore[no-untyped-def]


def order(ctx: Context, order: Order) -> None: ...


def fields(ctx: Context, a: int, b: str = "b", *, c: list[UUID] = []) -> None: ...  # noqa: B006


def perhaps(ctx: Context, payload: dict[str, int] | None = {"z": 1}) -> None: ...  # noqa: B006


def test_none_is_a_value_where_the_type_has_it() -> None:
    assert through(perhaps, payload=None) == {"payload": None}
    assert through(perhaps) == {}
    with pytest.raises(PayloadMissing):
        through(plain)
    with pytest.raises(PayloadInvalid, match="should be an object"):
        through(plain, payload=None)


def test_names_that_models_keep_for_themselves() -> None:
    names = ["model_config", "model_fields_set", "copy", "json", "_x", "self", "cls", "payload", "schema", "dict"]
    sent = dict.fromkeys(names, 1)
    assert through(handler(dict.fromkeys(names, int)), **sent) == sent


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "says"),
    [
        (fields, (1, "b", []), {}, "takes 2 positional arguments, and 3 were given"),
        (fields, (1,), {"a": 2}, "got 'a' twice"),
        (fields, (), {}, "a: Field required"),
        (plain, ({}, {}), {}, "takes one argument"),
        (plain, (), {"payload": {1: 2}}, "1: the key int would become str"),
        (plain, (), {"payload": {"a": {"b": [datetime(2026, 1, 1)]}}}, "a.b[0]: datetime would become str"),
        (anything, ((1, 2),), {}, "x: tuple would become list"),
        (anything, (Colour.RED,), {}, "x: Colour would become str"),
        (anything, (float("nan"),), {}, "NaN and infinity are not JSON"),
        (anything, (object(),), {}, "cannot be written as JSON"),
        (order, (), {"order": {"address": 1}}, "address: Input should be an object"),
    ],
)
def test_calls_that_cannot_be_kept_are_refused(
    function: Maker, args: tuple[Any, ...], kwargs: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInput) as raised:
        through(function, *args, **kwargs)
    assert says in str(raised.value)


class Renamed(BaseModel):
    one: int = Field(alias="uno")
    two: int = Field(validation_alias=AliasChoices("dos", "due"), serialization_alias="zwei")


def test_models_with_aliases() -> None:
    sent = Renamed(uno=1, due=2)
    assert through(handler({"x": Renamed}), x=sent) == {"x": sent}
    assert PayloadSpec("K", handler({"x": Renamed})).arguments('{"uno": 1, "dos": 2}') == {"x": sent}


def test_an_hour_that_comes_twice_and_an_offset_that_has_seconds() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    twice = {datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1)} | {
        datetime(2026, 10, 25, 2, 40, tzinfo=berlin, fold=1)
    }
    received = through(handler({"x": set[datetime]}), x=twice)["x"]
    assert sorted(map(str, received)) == sorted(map(str, twice))
    with pytest.raises(PayloadInvalid, match="it would be another value"):
        through(handler({"x": datetime}), x=datetime(1893, 1, 1, tzinfo=berlin))


class Animal(BaseModel):
    name: str


class Dog(Animal):
    barks: bool = True


class Locked(BaseModel):
    key: SecretStr


class Raw(BaseModel):
    blob: bytes


def test_what_a_model_would_lose_is_refused() -> None:
    with pytest.raises(PayloadInvalid, match="Dog would become Animal"):
        through(handler({"x": Animal}), x=Dog(name="a"))
    with pytest.raises(PayloadInvalid, match=r"key: it would be another value"):
        through(handler({"x": Locked}), x=Locked(key=SecretStr("a")))
    with pytest.raises(PayloadInvalid, match="base64"):
        through(handler({"x": Raw}), x=Raw(blob=b"\xff"))


def test_what_is_not_quite_the_declared_type_is_read_as_it() -> None:
    strip = Annotated[str, AfterValidator(lambda text: text + "!")]
    split = Annotated[list[str], BeforeValidator(lambda text: text.split(","))]
    assert through(handler({"x": int}), x="5") == {"x": 5}
    assert through(handler({"x": strip}), x="a") == {"x": "a!"}  # once, not twice
    assert through(handler({"x": split}), x="a,b") == {"x": ["a", "b"]}
    assert through(handler({"x": Sequence[int]}), x=(1, 2)) == {"x": [1, 2]}
    assert through(handler({"x": Line}), x={"text": "a", "total": "1.50"}) == {"x": Line("a", Decimal("1.50"))}
    assert through(handler({"x": str}), x=Size.L) == {"x": "l"}


def test_equal_sets_make_equal_payloads() -> None:
    spec = PayloadSpec("K", handler({"x": dict[str, set[str]], "line": Line}))
    words = [f"w{n}" for n in range(50)]
    forth, back = set(words), set()
    for word in reversed(words):
        back.add(word)
    texts = {spec.encode_call(Call((), {"x": {"a": s}, "line": Line("", Decimal(1), s)})) for s in (forth, back)}
    assert len(texts) == 1


def test_open_handlers() -> None:
    def rest(ctx: Context, a: int, **rest: Decimal) -> None: ...

    assert through(rest, a=1, b=Decimal("1.10")) == {"a": 1, "b": Decimal("1.10")}
    with pytest.raises(PayloadInvalid, match="b: Input should be a valid decimal"):
        through(rest, a=1, b="x")
    with pytest.raises(PayloadInvalid, match="'ctx', which is the handler's context"):
        through(rest, a=1, ctx=1)


def test_bulk_handlers_take_a_payload_or_its_fields() -> None:
    def index(items: Bulk) -> None: ...

    address = Address(street="x", id=UUID(int=1))
    spec = PayloadSpec("K", index, Address, bulk=True)
    for call in (Call((address,), {}), Call((), {"street": "x", "id": UUID(int=1)})):
        assert spec.whole(spec.encode_call(call)) == address
    with pytest.raises(PayloadInvalid, match="takes one payload"):
        spec.encode_call(Call((address,), {"street": "x"}))
    loose = PayloadSpec("K", index, bulk=True)
    assert loose.whole(loose.encode_call(Call((), {"a": 1}))) == {"a": 1}
    assert loose.encode_call(Call((), {})) is None


def test_signatures_that_cannot_be_kept_are_refused_where_they_are_declared() -> None:
    app = App("sqlite:///:memory:")

    def positional(ctx: Context, a: int, /) -> None: ...
    def many(ctx: Context, *items: int) -> None: ...
    def field(ctx: Context, a: int = Field(3)) -> None: ...
    def lazy(ctx: Context, a: Iterable[int]) -> None: ...
    def call(ctx: Context, a: Callable[[], None]) -> None: ...
    def unknown(ctx: Context, a: App) -> None: ...
    def two(ctx: Context, a: int, b: int) -> None: ...

    for function, says in (
        (positional, "cannot be given by name"),
        (many, "cannot be given by name"),
        (field, "Annotated"),
        (lazy, "only once"),
        (call, "a callable"),
        (unknown, "Unable to generate"),
    ):
        with pytest.raises(ConfigError) as raised:
            app.task("X")(function)
        assert says in str(raised.value)
    with pytest.raises(ConfigError, match="what one parameter takes, and its handler has 2"):
        app.task("X", payload=dict)(two)


def test_options_are_checked_where_they_are_given() -> None:
    app = App("sqlite:///:memory:")
    send = app.task("SEND")(plain)
    with pytest.raises(InvalidInput, match="did you mean priority"):
        send.options(prioritty=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="no enqueue option 'key'"):
        app.sync.enqueue("SEND", {}, key="x")  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="did you mean delay"):
        asyncio.run(app.enqueue("SEND", {}, dealy=1))  # type: ignore[call-arg]


PLAIN = [Any, str, int, float, dict, None, str | None, dict[str, Any] | list[Any]]
SENT = [5, 5.0, "5", "x", True, None, [1, (2,)], (1,), {"a": {1: 2}}, {"a": [{}]}, {"a": {"b": 1}}]
SENT += [math.nan, {1}, Size.S, "\ud800", 1e400, 10**400, {"ctx": 1}]


def outcome(write: Callable[[], Any]) -> str:
    try:
        return str(write())
    except PayloadInvalid as error:
        return f"refused: {error.message}"


@pytest.mark.parametrize("type_", PLAIN, ids=str)
def test_what_is_written_without_pydantic_is_what_pydantic_writes(type_: Any) -> None:
    """The quick way in takes what Pydantic would pass on unchanged, and nothing else."""
    for sent in SENT:
        fields, whole = PayloadSpec("K", handler({"x": type_})), PayloadSpec("K", handler({"payload": type_}))
        typed = outcome(lambda: fields._typed.write({"x": sent}, None, lambda value: value))  # noqa: B023
        assert outcome(lambda: fields.encode_call(Call((), {"x": sent}))) == typed, sent  # noqa: B023
        typed = outcome(lambda: whole._typed.write(sent, None, lambda value: value))  # noqa: B023
        assert outcome(lambda: whole.encode_call(Call((sent,), {}))) == typed, sent  # noqa: B023
        for payload in ({"x": sent}, {"x": sent, "y": sent}, {}):  # not read again: its handler gets what was written
            with suppress(PayloadInvalid):
                text = fields.encode(payload)
                if text is not None and fields._taken is not None and fields._taken.takes(payload):
                    assert fields.arguments(text) == json.loads(text)
