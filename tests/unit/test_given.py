"""What people give in pieces is one thing to what they call; each face takes it as it can."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.api.models import given_by
from redrive.api.operations import BulkIn
from redrive.errors import InvalidInput
from redrive.kernel.operation import Canary, Then
from redrive.ops.given import Given, flat, gathered, typed
from redrive.ops.operations.lifecycle import AS_EVER, HOW, How


def how(**given: Any) -> How:
    made: How = gathered([HOW], given)["how"]
    return made


def test_a_dataclass_is_given_field_by_field() -> None:
    names = ["rate", "canary", "percent", "then", "stop_on_return", "fixed", "idempotent"]
    assert [one.name for one in flat([HOW])] == names
    assert [one.name for one in flat([HOW], inner=False)] == ["rate", "canary", "stop_on_return", "fixed", "idempotent"]


def test_what_was_not_given_is_as_ever() -> None:
    assert how() == how(rate=None, canary=None, stop_on_return=None) == AS_EVER


def test_the_pieces_of_a_part_make_it_whole() -> None:
    assert how(canary=3, percent=50.0, then=Then.WAIT).canary == Canary(3, 50.0, then=Then.WAIT)
    assert how(canary=Canary(2), idempotent=False) == How(canary=Canary(2), idempotent=False)
    with pytest.raises(InvalidInput, match="--percent goes with --canary"):
        how(percent=50.0)


def test_a_body_has_the_part_as_an_object() -> None:
    body = BulkIn.model_validate({"rate": 5, "canary": {"first": 3, "then": "wait"}, "stopOnReturn": True})
    assert given_by(body, [HOW])["how"] == body.how == How(5.0, Canary(3, then=Then.WAIT), True)
    for wrong in ({"first": 0}, {"first": 1, "percent": 101}, {"percent": 50}, {"first": 1, "then": "never"}):
        with pytest.raises(ValueError):
            BulkIn.model_validate({"canary": wrong})


@pytest.mark.parametrize("value", [0, 11])
def test_bounds_hold_for_whoever_calls(value: int) -> None:
    with pytest.raises(InvalidInput, match="the number is at"):
        Given("", least=1, most=10).taken(value, "the number")
    assert Given("", least=1, most=10, check=str).taken(7, "the number") == "7"


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (AS_EVER, ""),
        (How(0.5, Canary(10, 80.0, then=Then.WAIT)), "--rate 0.5 --canary 10 --percent 80 --then wait"),
        (How(5.0, Canary(1), True), "--rate 5 --canary 1 --stop-on-return"),
        (How(fixed="the bucket's key", idempotent=False), """--fixed 'the bucket'"'"'s key' --not-idempotent"""),
        (How(idempotent=True), "--idempotent"),
    ],
)
def test_what_was_given_can_be_typed_again(given: How, options: str) -> None:
    assert typed(HOW, given) == options
