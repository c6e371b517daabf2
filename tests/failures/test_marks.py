"""Marks of failures: what names a cause, and what everybody may see of it."""

from __future__ import annotations

import enum
import json
import sqlite3
import ssl
from typing import Any

import pydantic
import pytest
from pydantic_core import PydanticCustomError

from redrive import Context
from redrive.errors import InvalidInput
from redrive.handlers.signature import PayloadSpec
from redrive.kernel.failure import Failure, Origin, failure_of
from redrive.kernel.summary import Payload
from redrive.worker.runner import _bad_payload
from tests.failures.test_summary import caught

SECRETS = ["alice_liddell", "hunter", "declined", "Tr0ub4dor"]


class Line(pydantic.BaseModel):
    count: int = pydantic.Field(validation_alias=pydantic.AliasChoices("count", "how_many"))


class Ledger(pydantic.BaseModel):
    balances: dict[str, int] = {}
    lines: dict[str, list[Line]] = {}
    odd: Any = None

    @pydantic.field_validator("odd")
    @classmethod
    def _odd(cls, value: Any) -> Any:
        if value is not None:
            raise PydanticCustomError(f"no_{value}", "it is not right")  # type: ignore[arg-type]
        return value


@pydantic.dataclasses.dataclass
class Entry:
    balances: dict[str, int]


class Refused(Exception):
    def __init__(self, code: object) -> None:
        super().__init__("this is not valid")
        self.code = code


class Empty(Exception):
    code = "stock_is_out"


class Why(enum.StrEnum):
    LATE = "came_late"


class OldWhy(str, enum.Enum):  # noqa: UP042 - it is written otherwise
    LATE = "came_late"


def refuse(code: object) -> None:
    raise Refused(code)


def refuse_by_name() -> None:
    raise Refused("seats_taken")


def make(name: str) -> None:
    raise type(f"No_{name}", (Refused,), {})("x")


CALLS: list[tuple[Any, str]] = [
    (lambda key: Ledger.model_validate({"balances": {key: "x"}}), "Ledger:balances.*:int_parsing"),
    (lambda key: Ledger(balances={key: "x"}), "Ledger:balances.*:int_parsing"),  # type: ignore[dict-item]
    (lambda key: Ledger.model_validate_json(json.dumps({"balances": {key: "x"}})), "Ledger:balances.*:int_parsing"),
    (lambda key: Ledger(lines={key: [{"how_many": "x"}]}), "Ledger:lines.*.*.how_many:int_parsing"),  # type: ignore[list-item]
    (lambda key: pydantic.TypeAdapter(dict[str, Line]).validate_python({key: {}}), "TypeAdapter:*.count:missing"),
    (lambda key: Entry(balances={key: "x"}), "Entry:balances.*:int_parsing"),  # type: ignore[dict-item]
    (lambda key: Ledger(odd=key), "Ledger:odd:*"),
    (lambda key: pydantic.create_model(key, n=(int, ...))(), "*:n:missing"),
]


class TestModels:
    @pytest.mark.parametrize("number", range(len(CALLS)))
    def test_fields_are_named_and_keys_are_not(self, number: int) -> None:
        call, shown = CALLS[number]
        found = [caught(call, key, payload={"data": key}) for key in SECRETS]
        assert {one.summary["field"] for one in found} == {shown}
        assert len({one.fingerprint for one in found}) == 1

    def test_two_fields_are_two_causes(self) -> None:
        one, other = caught(Ledger.model_validate, {"balances": 1}), caught(Ledger.model_validate, {"lines": 1})
        assert one.fingerprint != other.fingerprint

    def test_payloads_that_do_not_fit_are_one_cause_whatever_their_keys(self) -> None:
        def handler(ctx: Context, ledger: Ledger) -> None: ...

        spec = PayloadSpec("LEDGER", handler)
        found = [_unfit(spec, {"balances": dict.fromkeys(SECRETS[n:], "x")}) for n in range(len(SECRETS))]
        assert len({one.fingerprint for one in found}) == 1
        assert _unfit(spec, {"lines": 1}).fingerprint != found[0].fingerprint
        assert not any(secret in json.dumps(one.summary) for one in found for secret in SECRETS)


def _unfit(spec: PayloadSpec, payload: Any) -> Failure:
    class Task:
        memo = None

    task: Any = Task()
    task.payload = json.dumps(payload)
    with pytest.raises(InvalidInput) as refused:
        spec.check(task.payload)
    outcome: Any = _bad_payload(refused.value, task)
    found: Failure = outcome.failure
    return found


class TestCodes:
    @pytest.mark.parametrize("secret", SECRETS)
    def test_what_a_code_holds_is_not_shown(self, secret: str) -> None:
        found = caught(refuse, secret)
        assert "code" not in found.summary and secret not in json.dumps(found.summary)

    def test_values_make_no_groups(self) -> None:
        assert len({caught(refuse, code).fingerprint for code in ("alice_liddell", "hunter", "sk_live_aBcDeFgH")}) == 1
        # What a provider says, whoever it is.
        assert len({caught(refuse, code).fingerprint for code in ("user_not_found", "order_expired")}) == 2

    @pytest.mark.parametrize("code", [Why.LATE, OldWhy.LATE, "NOT_FOUND", "rate_limit_exceeded", "NoSuchKey"])
    def test_known_ones_are_shown(self, code: str) -> None:
        assert caught(refuse, code).summary["code"] == code

    def test_written_ones_are_shown(self) -> None:
        def empty() -> None:
            raise Empty("none left")

        assert caught(empty).summary["code"] == "stock_is_out"
        assert caught(refuse_by_name).summary["code"] == "seats_taken"

    def test_a_code_that_the_task_was_given_is_not(self) -> None:
        for given in ("seats", "taken", "my seats_taken"):
            assert "code" not in caught(refuse_by_name, payload={"x": given}).summary
            assert "code" not in caught(refuse_by_name, payload={"x": {given: 1}}).summary
        assert "code" not in caught(refuse, "NOT_FOUND", payload=["not_found"]).summary

    def test_of_sqlite(self) -> None:
        found = caught(sqlite3.connect(":memory:").execute, "select * from alice_liddell").summary
        assert found["code"] == "SQLITE_ERROR.no_such_table"


class TestOthers:
    @pytest.mark.parametrize(
        "message",
        ["exit code 4711", "[Errno 4711] x", "[SSL: ALICE_LIDDELL] x", "SQLSTATE 99999"],
    )
    def test_numbers_and_names_that_nobody_knows_are_not_shown(self, message: str) -> None:
        def say() -> None:
            raise RuntimeError(message)

        assert not {"sqlstate", "exit", "errno", "ssl"} & set(caught(say).summary)

    @pytest.mark.parametrize(
        "message, mark",
        [
            ("SQLSTATE 22P02", ("sqlstate", "22P02")),
            ("exit code 3", ("exit", "3")),
            ("[Errno 2] x", ("errno", "2")),
            ("[SSL: CERTIFICATE_VERIFY_FAILED] x", ("ssl", "CERTIFICATE_VERIFY_FAILED")),
        ],
    )
    def test_known_ones_are(self, message: str, mark: tuple[str, str]) -> None:
        def say() -> None:
            raise ssl.SSLError(message) if "SSL" in message else RuntimeError(message)

        found = caught(say)
        assert found.summary.get(mark[0], mark[1]) == mark[1]


class TestClasses:
    def test_a_class_made_at_run_time_goes_by_the_one_it_comes_from(self) -> None:
        found = [caught(make, name) for name in SECRETS]
        assert {one.summary["exception"] for one in found} == {f"{__name__}.Refused"}
        assert len({one.fingerprint for one in found}) == 1
        assert not any(name in json.dumps(one.summary) for name, one in zip(SECRETS, found, strict=True))

    def test_a_class_in_a_function_has_its_name(self) -> None:
        class Local(Exception):
            class Inner(Exception): ...

        def fail() -> None:
            raise Local.Inner("x")

        assert caught(fail).summary["exception"].endswith("has_its_name.<locals>.Local.Inner")

    def test_a_module_that_is_none_is_not_shown(self) -> None:
        error = type("E", (ValueError,), {"__module__": "alice_liddell"})("x")
        assert failure_of(error, Origin(payload=Payload())).summary["exception"] == "ValueError"
