"""The summary of a failure: safe to show to everybody, because it holds nothing but words of code."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.errors import ErrorCode
from redrive.kernel.error_words import ERROR_WORDS
from redrive.kernel.failure import Failure, Origin, failure, failure_of
from redrive.kernel.summary import LEFT_OUT, MAX_ASKED, MAX_PAYLOAD, MAX_SUMMARY, Payload, safe_message


def caught(call: Any, *args: Any, payload: Any = None) -> Failure:
    try:
        call(*args)
    except BaseException as error:
        return failure_of(error, Origin(__name__, payload=Payload(None if payload is None else json.dumps(payload))))
    raise AssertionError("nothing was raised")


def charge(customer: str, amount: object) -> None:
    raise RuntimeError(f"the frobnicator refused to charge {customer} with {amount} zorkmids")


class TestWords:
    def test_what_the_programmer_wrote_is_kept_and_what_was_put_in_is_not(self) -> None:
        found = caught(charge, "Penelope", 17).summary
        assert found["message"] == f"the frobnicator refused to charge {LEFT_OUT} with {LEFT_OUT} zorkmids"
        assert (found["exception"], found["chain"]) == ("RuntimeError", ["RuntimeError"])
        assert found["frames"] == [f"{__name__}:caught", f"{__name__}:charge"]

    def test_a_word_of_the_payload_is_left_out_even_if_it_is_one_of_the_source(self) -> None:
        found = caught(charge, "x", 1, payload={"deep": [{"secret": "my Frobnicators"}]}).summary
        assert found["message"].startswith(f"the {LEFT_OUT} refused to charge")
        assert "zorkmids" in found["message"]

    def test_keys_are_data_and_names_of_parameters_are_not(self) -> None:
        for payload in ({"zorkmids": 1}, {"purse": {"zorkmids": 1}}, {"purse": [{"My zorkmids": 1}]}):
            assert "zorkmids" not in caught(charge, "x", 1, payload=payload).summary["message"]
        declared = Payload('{"zorkmids": {"amount": 1}}', declared=["zorkmids", "amount"])
        assert not declared.holds("zorkmids") and declared.holds("amount")

    def test_without_source_only_words_of_errors_are_kept(self) -> None:
        assert safe_message("connection to db.example.com refused: password hunter for Penelope") == (
            f"connection to {LEFT_OUT} refused: {LEFT_OUT} for {LEFT_OUT}"
        )

    def test_names_of_exceptions_and_brackets_are_no_data(self) -> None:
        found = caught(open, "/nowhere/Penelope", payload={}).summary
        assert found["message"] == f"FileNotFoundError: Errno {LEFT_OUT} No such file or directory: {LEFT_OUT}"
        assert found["errno"] == 2

    def test_a_large_payload_may_hold_every_word(self) -> None:
        found = caught(charge, "x", 1, payload="z" * MAX_PAYLOAD).summary
        assert (found["message"], found["exception"]) == (LEFT_OUT, "RuntimeError")

    def test_a_message_asks_for_so_many_words_and_no_more(self) -> None:
        payload = Payload(json.dumps("filler"))
        asked = [payload.holds(f"word{'x' * n}") for n in range(MAX_ASKED + 5)]
        assert asked == [False] * MAX_ASKED + [True] * 5 and payload.holds("filler")

    @pytest.mark.parametrize("secret", ["Tr0ub4dor", "correct horse battery staple", "sk_live_aBcDeFgH"])
    @pytest.mark.parametrize("form", ["{}", "[{}]", "token={}", "x-{}-y", '"{}'])
    def test_no_form_of_a_secret_is_kept(self, secret: str, form: str) -> None:
        found = caught(charge, form.format(secret), 1).summary
        assert not any(word in json.dumps(found) for word in secret.split() if word not in ERROR_WORDS)

    @settings(max_examples=40)
    @given(st.text(max_size=200), st.text(max_size=40))
    def test_every_word_is_of_code(self, text: str, secret: str) -> None:
        kept = safe_message(f"{text} {secret}", {"frob"}, Payload(json.dumps(secret)))
        for word in kept.replace(LEFT_OUT, " ").lower().replace("-", " ").replace("'", " ").replace("’", " ").split():
            assert word.rstrip(".,:;") in ERROR_WORDS | {"frob"}
            assert len(word) < 4 or word.rstrip(".,:;") not in secret.lower()

    def test_the_vocabulary_is_lower_case_letters(self) -> None:
        assert all(word.isascii() and word.isalpha() and word.islower() for word in ERROR_WORDS)
        assert not ERROR_WORDS & {"password", "secret", "admin1", "hunter", "master", "dragon"}


class TestMarks:
    def test_status(self) -> None:
        request = httpx.Request("GET", "http://example.org")
        response = httpx.Response(503, request=request)
        found = caught(response.raise_for_status).summary
        assert (found["status"], found["exception"]) == (503, "httpx.HTTPStatusError")

    def test_our_own_messages_are_shown_as_they_are(self) -> None:
        message = "no handler is registered for kind zork"
        assert failure("X", "r", message, public=True).summary == {"message": message}
        assert failure(ErrorCode.EXECUTION_FAILED, "r", message).summary == {
            "message": f"no handler is registered for kind {LEFT_OUT}"
        }

    def test_it_is_small(self) -> None:
        error: BaseException = RuntimeError("word " * 100_000)
        for _ in range(50):
            cause, error = error, type("E" * 190, (Exception,), {})("expected " * 10_000)
            error.__cause__ = cause
        found = failure_of(error).summary
        assert len(json.dumps(found)) <= MAX_SUMMARY
