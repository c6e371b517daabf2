"""An application's own table of failures: what it fits, what it refuses, where it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import App, Classification, Fail, FailureRule
from redrive.errors import ConfigError
from redrive.kernel.classify import FailureRules, FailureType, classify
from redrive.kernel.failure import Origin, declared_failure, failure_of
from redrive.kernel.failure_rule import check_rules
from redrive.remote import ProviderError
from redrive.worker.failures import packed, unpacked

MEMORY = "sqlite:///:memory:"


class ShopError(Exception):
    def __init__(self, message: str = "", status_code: int | None = None, code: str | int | None = None) -> None:
        super().__init__(message)
        self.status_code, self.code = status_code, code


class SoldOut(ShopError):
    """Derives from another."""


def from_(cause: BaseException) -> BaseException:
    error = RuntimeError("the order failed")
    error.__cause__ = cause
    return error


def rule(**given: Any) -> FailureRule:
    return FailureRule(**{"reason": "ours", "failure_type": "param_error", "retry": False, **given})


@pytest.mark.parametrize(
    ("given", "error", "fits"),
    [
        ({"status": 402}, ShopError(status_code=402), True),
        ({"status": ["5xx", 402]}, ShopError(status_code=503), True),
        ({"status": "4xx"}, ShopError(status_code=503), False),
        ({"status": 402}, ShopError(), False),
        ({"exception": ShopError}, SoldOut(), True),
        ({"exception": SoldOut}, ShopError(), False),
        ({"exception": "ShopError"}, SoldOut(), True),
        ({"exception": "other.ShopError"}, SoldOut(), False),
        ({"exception": [KeyError, ShopError]}, ShopError(), True),
        ({"code": "quota"}, ShopError(code="quota"), True),
        ({"code": "1021"}, ShopError(code=1021), True),
        ({"code": "quota"}, ShopError("quota"), False),
        ({"words": "out of Credit"}, ShopError("you are OUT OF CREDIT"), True),
        ({"words": ["余额不足", "credit"]}, ShopError("余额不足"), True),
        ({"words": "credit"}, ShopError("cash"), False),
        ({"words": "credit", "status": 402}, ShopError("credit", 500), False),
        ({"status": 402}, from_(ShopError(status_code=402)), True),
        ({"status": 402}, ExceptionGroup("all", [ValueError(), ShopError(status_code=402)]), True),
        ({"code": "bad"}, ProviderError("x", status_code=400, code="bad"), True),
    ],
)
def test_a_rule_fits_where_all_of_it_does(given: dict[str, Any], error: BaseException, fits: bool) -> None:
    found = rule(**given).classify(error)
    assert found == (Classification("ours", "param_error", False) if fits else None)


def test_what_merely_happened_before_does_not_count() -> None:
    try:
        try:
            raise ShopError(status_code=402)
        except ShopError:
            raise ValueError("another mistake")  # noqa: B904
    except ValueError as error:
        assert rule(status=402).classify(error) is None


def test_the_first_rule_that_fits_wins_behind_functions_and_before_the_table() -> None:
    app = App(
        MEMORY,
        failure_rules=[
            FailureRule(status=402, words="trial", reason="trial_over", failure_type="param_error", retry=False),
            FailureRule(status=402, reason="unpaid", failure_type="network"),
            {"status": "5xx", "reason": "shop_down", "failure_type": "model_error", "retry": False},
        ],
    )
    origin = Origin(rules=app.registry.rules)
    told = [failure_of(ShopError(text, status), origin) for text, status in (("trial", 402), ("", 402), ("", 503))]
    assert [(one.reason, one.type, one.retryable) for one in told] == [
        ("trial_over", "param_error", False),
        ("unpaid", "network", True),
        ("shop_down", "model_error", False),
    ]
    assert failure_of(ShopError("", 404), origin).reason == "http_4xx", "the rest is as without rules"

    @app.classify
    def judge(error: BaseException) -> Classification | None:
        return Classification("judged") if "trial" in str(error) else None

    assert failure_of(ShopError("trial", 402), origin).reason == "judged"


def test_words_decide_the_type_of_what_is_only_said() -> None:
    rules = FailureRules(table=[*check_rules([rule(status=402, words="credit"), rule(words="credit")])])
    origin = Origin(rules=rules)
    found = declared_failure("SHOP_CLOSED", "fail", "no credit left: time-out", origin, verdict=Fail("SHOP_CLOSED"))
    assert found.type == FailureType.PARAM_ERROR, "by the rule of words alone, before our own words"
    assert declared_failure("SHOP_CLOSED", "fail", "time-out", origin).type == FailureType.TIMEOUT


def test_rules_travel_to_processes() -> None:
    rules = unpacked(packed(FailureRules(table=[rule(status=402, exception=ShopError)])))
    assert classify(SoldOut(status_code=402), (), rules).reason == "ours"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{"reason": "x", "failure_type": "network"}], r"failure_rules\[0\]: it fits everything"),
        ([rule(status=402), {"status": 99, "reason": "x", "failure_type": "network"}], r"\[1\]: status is a number"),
        ([{"status": True, "reason": "x", "failure_type": "network"}], r"\[0\]: status is a number"),
        ([{"words": "", "reason": "x", "failure_type": "network"}], r"\[0\]: words is a text"),
        ([{"exception": "a b", "reason": "x", "failure_type": "network"}], r"\[0\]: exception is a class"),
        ([{"code": 5, "reason": "x", "failure_type": "network"}], r"\[0\]: code is a text"),
        ([{"status": 402, "reason": "x", "failure_type": "cash"}], r"\[0\]: failure_type 'cash' is not one of"),
        ([{"status": 402, "reason": "", "failure_type": "network"}], r"\[0\]: "),
        ([{"status": 402, "reason": "x", "failure_type": "network", "retry": "no"}], r"\[0\]: retry is True or False"),
        ([{"stauts": 402, "reason": "x", "failure_type": "network"}], r"\[0\]: 'stauts' is not known"),
        ([{"status": 402, "failure_type": "network"}], r"\[0\]: reason is needed"),
        ([rule(status=402), rule(status=402, reason="other")], r"\[1\]: it never applies: rule 0"),
        ([("status", 402)], r"\[0\]: it is tuple, not a FailureRule"),
        ({"status": 402}, "is a list of FailureRule"),
    ],
)
def test_mistakes_are_named_with_their_place(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        App(MEMORY, failure_rules=given)
