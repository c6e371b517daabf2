"""Failures: classified, told apart by cause, and always storable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from redrive.errors import ErrorCode, RedriveError
from redrive.kernel.failure import (
    MAX_MESSAGE,
    MAX_STACK,
    FailureType,
    Origin,
    clean,
    failure,
    failure_of,
)
from redrive.kernel.retry_after import parse_retry_after

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def http_error(status: int, **headers: str) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "http://example.org")
    response = httpx.Response(status, headers=headers, request=request)
    return httpx.HTTPStatusError(f"status {status}", request=request, response=response)


class NotFound(RedriveError):
    code = ErrorCode.ENTITY_NOT_FOUND.value


# Those of the libraries are in failures/test_classification.py, by their real exceptions.
@pytest.mark.parametrize(
    "error, reason, kind",
    [
        (http_error(302), "unknown_exception", FailureType.UNKNOWN),
        (EOFError(), "connect", FailureType.NETWORK),
        (RuntimeError("what?"), "unknown_exception", FailureType.UNKNOWN),
        (PermissionError("no"), "unknown_exception", FailureType.UNKNOWN),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_is_no_answer_is_tried_again(error: BaseException, reason: str, kind: FailureType) -> None:
    found = failure_of(error)
    assert (found.reason, found.type, found.retryable) == (reason, kind, True)
    assert found.code == "TASK_EXECUTION_FAILED"


def test_declared_deterministic_errors_are_terminal() -> None:
    found = failure_of(ZeroDivisionError("x"), Origin(deterministic=(ArithmeticError,)))
    assert (found.reason, found.retryable, found.type) == ("deterministic_exception", False, FailureType.PARAM_ERROR)
    assert failure_of(ZeroDivisionError("x")).retryable
    assert not failure_of(http_error(500), Origin(deterministic=(httpx.HTTPError,))).retryable


@pytest.mark.parametrize("code", ErrorCode)
def test_only_one_code_is_retried(code: ErrorCode) -> None:
    assert failure(code, "r", "m").retryable == (code is ErrorCode.EXECUTION_FAILED)


class TestRetryAfter:
    def test_seconds(self) -> None:
        assert failure_of(http_error(429, **{"Retry-After": "17"})).retry_after == 17.0
        assert failure_of(http_error(503, **{"retry-after": "1.5"})).retry_after == 1.5

    def test_date(self) -> None:
        when = format_datetime(NOW + timedelta(seconds=90), usegmt=True)
        assert failure_of(http_error(503, **{"Retry-After": when}), Origin(now=NOW)).retry_after == 90.0
        # the server's own clock, if it says what it shows
        then = format_datetime(NOW + timedelta(seconds=30), usegmt=True)
        assert failure_of(http_error(503, **{"Retry-After": when, "Date": then})).retry_after == 60.0

    @pytest.mark.parametrize(
        "value, expected",
        [
            ("0", None),
            ("999999999", 86_400.0),
            ("soon", None),
            ("nan", None),
            ("", None),
            (format_datetime(NOW - timedelta(days=1), usegmt=True), None),
        ],
    )
    def test_nonsense_is_bounded_or_ignored(self, value: str, expected: float | None) -> None:
        assert parse_retry_after(value, NOW) == expected

    def test_only_for_what_is_retried(self) -> None:
        assert failure_of(http_error(404, **{"Retry-After": "17"})).retry_after is None
        assert failure_of(http_error(500)).retry_after is None


class TestStorable:
    def test_text_no_store_can_hold_is_escaped(self) -> None:
        found = failure_of(ValueError("a\x00b \ud800"))
        assert "\x00" not in found.message and found.message.encode()
        assert "\x00" not in (found.stack or "") and (found.stack or "").encode()
        assert clean("plain ünï") == "plain ünï"

    def test_long_text_is_shortened(self) -> None:
        def deep(n: int) -> None:
            if n:
                deep(n - 1)
            raise ValueError("x" * 100_000)

        try:
            deep(50)
        except ValueError as error:
            found = failure_of(error)
        assert len(found.message) == MAX_MESSAGE
        assert len(found.stack or "") <= MAX_STACK + 50 and "shortened" in (found.stack or "")

    def test_an_exception_that_cannot_be_shown(self) -> None:
        class Nasty(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no")

        assert "could not be shown" in failure_of(Nasty()).message
        assert failure_of(ValueError()).message == "ValueError"

    def test_a_message_names_its_exception_where_the_text_alone_says_little(self) -> None:
        class Declined(Exception): ...

        assert failure_of(KeyError("missing")).message == "KeyError: 'missing'"
        assert failure_of(ConnectionError("no answer")).message == "ConnectionError: no answer"
        for plain in (RuntimeError("card declined"), Exception("card declined"), Declined("card declined")):
            assert failure_of(plain).message == "card declined"
