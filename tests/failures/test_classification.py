"""What kind of failure the real exceptions of the libraries are."""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from redrive import Classification, ErrorCode, Fail
from redrive.errors import (
    ConfigError,
    InvalidInput,
    NotAllowed,
    PayloadInvalid,
    StoreUnavailable,
)
from redrive.ids import new_id
from redrive.kernel.backoff import Backoff
from redrive.kernel.circuit import is_down
from redrive.kernel.classify import FailureRules, FailureType, by_words
from redrive.kernel.failure import Failure, Origin, failure, failure_of
from redrive.kernel.failure_rule import FailureRule
from redrive.kernel.machine import Event, Lease, Policy, declared, settle
from redrive.kernel.outcome import Failed
from redrive.outbox.sinks.search_server import Refused
from tests.failures.corpus.collect import Cause, happen
from tests.failures.corpus.real import REAL
from tests.failures.corpus.servers import Servers


@pytest.mark.parametrize("name", REAL)
def test_real_exceptions(name: str, servers: Servers, postgres: str) -> None:
    call, expected = REAL[name]
    error = happen(Cause(name, call), 0, servers, postgres)
    found = failure_of(error)
    assert (found.reason, found.type, found.retryable) == expected, repr(error)


@pytest.mark.parametrize("number", ["ECONNREFUSED", "EHOSTUNREACH"])
def test_by_errno(number: str) -> None:
    found = failure_of(OSError(getattr(errno, number), os.strerror(getattr(errno, number))))
    assert (found.reason, found.type) == ("connect", "network")


def test_by_status() -> None:
    found = {n: failure_of(_with_status(n)) for n in (399, 400, 401, 403, 404, 408, 429, 499, 500, 504, 599)}
    assert {n: (one.reason, one.type, one.retryable) for n, one in found.items()} == {
        399: ("unknown_exception", "unknown", True),
        **dict.fromkeys((400, 404, 499), ("http_4xx", "param_error", False)),
        **dict.fromkeys((401, 403), ("http_4xx", "model_error", False)),
        408: ("http_408", "timeout", True),
        429: ("http_429", "network", True),
        **dict.fromkeys((500, 599), ("http_5xx", "model_error", True)),
        504: ("http_5xx", "timeout", True),
    }


def test_others_of_the_standard_library(tmp_path: Path) -> None:
    assert failure_of(OSError(errno.ETIMEDOUT, "x")).reason == "timeout"
    assert failure_of(ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong")).reason == "tls"
    assert failure_of(subprocess.TimeoutExpired(["x"], 5)).type == "timeout"
    assert failure_of(socket.herror(1, "x")).reason == "connect"
    one, two = sqlite3.connect(tmp_path / "x"), sqlite3.connect(tmp_path / "x", timeout=0)
    one.execute("begin exclusive")
    with pytest.raises(sqlite3.OperationalError) as caught:
        two.execute("begin exclusive")
    assert failure_of(caught.value).reason == "timeout"
    one.close(), two.close()


class TestWrapped:
    def test_what_it_was_raised_from_tells_the_reason_but_ends_nothing(self) -> None:
        class PaymentFailed(Exception): ...

        def wrapped(cause: BaseException) -> Failure:
            error = PaymentFailed("no luck")
            error.__cause__ = cause
            return failure_of(error)

        assert wrapped(ConnectionResetError()).reason == "connect"
        not_found = failure_of(_with_status(404))
        assert (not_found.retryable, wrapped(_with_status(404)).retryable) == (False, True)

    def test_a_cycle_ends(self) -> None:
        one, two = KeyError("a"), KeyError("b")
        one.__cause__, two.__cause__ = two, one
        assert failure_of(one).reason == "unknown_exception"


def _with_status(status: int) -> Exception:
    error = Exception("x")
    error.status_code = status  # type: ignore[attr-defined]
    return error


class TestWords:
    @pytest.mark.parametrize(
        "message, kind",
        [
            ("network timeout", "timeout"),
            ("请求超时", "timeout"),
            ("连接失败", "network"),
            ("TypeError: fetch failed", "network"),
            ("got 401", "model_error"),
            ("invalid model", "model_error"),
            ("a wrong apikey", "model_error"),
            ("got 400", "param_error"),
            ("Invalid colour", "param_error"),
            ("got 14003", "unknown"),
            ("", "unknown"),
        ],
    )
    def test_in_their_order(self, message: str, kind: str) -> None:
        assert by_words(message) == kind
        assert failure_of(RuntimeError(message)).type == kind
        assert failure(ErrorCode.EXECUTION_FAILED, "r", message).type == kind


class TestOurOwn:
    """What redrive raises in a handler is no answer of another side."""

    @pytest.mark.parametrize(
        "error",
        [
            InvalidInput("Retry(after=) must be a number"),
            NotAllowed("you may not: 403"),
            StoreUnavailable("cannot connect to the store: timed out"),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_is_tried_again_and_counts_for_no_circuit(self, error: Exception) -> None:
        error.__cause__ = ConnectionRefusedError(111, "refused")
        found = failure_of(error)
        assert (found.reason, found.type, found.retryable) == ("unknown_exception", "unknown", True)
        assert found.message == str(error) and "status" not in found.summary and not is_down(found)
        wrapper = RuntimeError("no luck")
        wrapper.__cause__ = error
        assert (failure_of(wrapper).reason, failure_of(wrapper).type) == ("unknown_exception", "unknown")

    def test_codes_of_tasks_mean_what_they_mean(self) -> None:
        found = failure_of(PayloadInvalid("the api says: timeout"))
        assert (found.code, found.type, found.retryable) == ("TASK_PAYLOAD_INVALID", "param_error", False)

    def test_a_server_that_a_sink_asked_is_another_side(self) -> None:
        assert failure_of(Refused(503, "unavailable", "")).reason == "http_5xx"


class TestCodes:
    @pytest.mark.parametrize(
        "code, kind",
        [
            ("TASK_PAYLOAD_INVALID", "param_error"),
            ("INSUFFICIENT_CREDITS", "param_error"),
            ("RESULT_NOT_STORED", "unknown"),
            ("CARD_DECLINED", "model_error"),
        ],
    )
    def test_that_say_enough_leave_nothing_to_words(self, code: str, kind: str) -> None:
        assert declared(Fail(code, "the model has no api")).failure.type == kind
        assert failure(code, "reported", "the model has no api").type == kind
        assert declared(Fail(code, "x", failure_type="timeout")).failure.type == "timeout"  # whoever says it knows

    def test_an_application_decides_first(self) -> None:
        rules = FailureRules(table=[FailureRule(reason="r", failure_type="network", words="model")])
        found = declared(Fail("INSUFFICIENT_CREDITS", "the model has no api"), Origin(rules=rules))
        assert found.failure.type == "network"


class TestRetryAfter:
    @pytest.mark.parametrize(
        "call",
        [
            lambda s, wish: s.shop_web.fetch(s.url(f"/status/429?retry-after={wish}")),
            lambda s, wish: s.shop_web.download(s.url(f"/status/503?retry-after={wish}")),
            lambda s, wish: s.clinic_net.poll_lab(s.url(f"/status/503?retry-after={wish}")),
            lambda s, wish: s.shop_cloud.read_object(s.url(f"/aws-xml/503/SlowDown/retry-after={wish}/"), "b", "k"),
        ],
        ids=["httpx", "requests", "aiohttp", "botocore"],
    )
    def test_of_each_library(self, call: Any, servers: Servers, postgres: str) -> None:
        for wish, expected in (("77", 77.0), ("0", None), ("-5", None)):
            error = happen(Cause("x", lambda s, wish=wish: call(s, wish)), 0, servers, postgres)
            assert failure_of(error).retry_after == expected, repr(error)

    def test_it_raises_the_delay_and_never_lowers_it(self) -> None:
        backoff = Backoff(2, 60)
        for jitter in (0.0, 0.5, 0.99):
            usual = backoff.delay(3, jitter)
            assert backoff.at_least(None, 3, jitter) == usual
            assert backoff.at_least(0.001, 3, jitter) == usual
            assert backoff.at_least(100, 3, jitter) == 100 + 10 * jitter


class TestOfTheApplication:
    class Declined(Exception): ...

    def judged(self, error: BaseException, **rules: Any) -> tuple[Failure, list[Any]]:
        logged: list[Any] = []
        known = FailureRules(**rules, on_error=lambda *said: logged.append(said))
        return failure_of(error, Origin(rules=known)), logged

    def test_a_function_is_asked_first(self) -> None:
        card = Classification("card", "param_error", retryable=False)
        found, _ = self.judged(self.Declined(), classify=[lambda _: None, lambda e: card])
        assert (found.reason, found.type, found.retryable) == ("card", "param_error", False)

    @pytest.mark.parametrize("said", [True, False, None])
    def test_its_word_about_a_retry_wins_over_the_code(self, said: bool | None) -> None:
        """Without one, only TASK_EXECUTION_FAILED is retried."""
        for code, otherwise in (("SHOP_BUSY", False), ("TASK_EXECUTION_FAILED", True)):
            judged = Classification("busy", code=code, retryable=said)
            found, _ = self.judged(self.Declined(), classify=[lambda _, judged=judged: judged])
            expected = otherwise if said is None else said
            assert (found.code, found.retryable) == (code, expected)
            held = Lease(new_id(), new_id(), 1, 3)
            assert (settle(held, Failed(found), Policy(), 0.5).event is Event.RETRY) == expected

    def test_by_name(self) -> None:
        card = Classification("card", "param_error")
        for name in ("tests.Declined", f"{__name__}.TestOfTheApplication.Declined", "builtins.Exception"):
            assert self.judged(self.Declined(), named={name: card})[0].reason == "card"
        assert self.judged(self.Declined(), named={"other.Declined": card})[0].reason == "unknown_exception"

    def test_one_that_fails_is_told_and_passed_over(self) -> None:
        def broken(_: BaseException) -> None:
            raise ZeroDivisionError

        found, logged = self.judged(TimeoutError(), classify=[broken, lambda _: "timeout"])
        assert (found.reason, [said[0] for said in logged]) == ("timeout", ["classify", "classify"])

    def test_nonsense_is_refused_where_it_is_said(self) -> None:
        with pytest.raises(ConfigError, match="one of model_error"):
            Classification("x", "nonsense")
        with pytest.raises(InvalidInput, match="failure_type"):
            Fail("X", "m", failure_type="nonsense")
        assert Fail("X", failure_type="network").failure_type is FailureType.NETWORK
        assert Failed(failure("X", "r", "m")).after is None
