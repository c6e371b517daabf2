"""A schedule that cannot be: the answer names the field, and what that one takes."""

from __future__ import annotations

import pytest

from redrive.errors import InvalidInput
from redrive.handlers.cron import CRON_FIELDS, NICKNAMES, check_cron

WRONG = [
    ("61 * * * *", "the minute '61' is wrong", "minute takes 0-59"),
    ("0 0 0 * *", "the day '0' is wrong", "day takes 1-31"),
    ("0 0 1 foo *", "the month 'foo' is wrong", "month takes 1-12 or jan-dec"),
    ("0 0 * * mon#6", "the weekday 'mon#6' is wrong", "weekday takes 0-7"),
    ("0 0 * * fri-mon", "the weekday 'fri-mon' is wrong", "low to high"),
    ("60 0 0 * * *", "the second '60' is wrong", "second takes 0-59"),
    ("0 0 30 2 *", "month 2 has no day 30", "five fields"),
    ("* * * *", "it has 4 fields", "five fields: minute hour day month weekday"),
    ("", "it has 0 fields", "five fields"),
    ("9" * 5000 + " * * * *", "the minute '999", "minute takes 0-59"),
    ("@daily", "'@daily' is not a cron expression", "write '0 0 * * *'"),
    (None, "None is not a cron expression", "five fields"),
]


@pytest.mark.parametrize(("expression", "says", "takes"), WRONG, ids=[str(case[0])[:20] for case in WRONG])
def test_the_wrong_field_is_named(expression: str, says: str, takes: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_cron(expression, "UTC")
    assert says in caught.value.message
    assert takes in (caught.value.hint or "")


@pytest.mark.parametrize(
    "expression", ["0 0 L * *", "0 0 LW * *", "0 9 * jan-mar 5L", "*/5 1,5 1-7 * mon#1", "0 0 * * 7", "*/10 * * * * *"]
)
def test_what_a_hint_offers_is_taken(expression: str) -> None:
    check_cron(expression, "UTC")


def test_nicknames_are_answered_with_what_works() -> None:
    for expression in NICKNAMES.values():
        check_cron(expression, "UTC")
    assert len(CRON_FIELDS) == 6


def test_a_misspelt_zone_is_guessed() -> None:
    with pytest.raises(InvalidInput) as caught:
        check_cron("* * * * *", "Europe/Berln")
    assert caught.value.hint == "did you mean Europe/Berlin?"
