"""Payloads, ids, names and other values at the border."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from redrive.errors import InvalidInput, PayloadInvalid
from redrive.kernel.payload import decode, encode
from redrive.kernel.task import MAX_DELAY_SECONDS, check_int, check_name, check_seconds, check_text


class TestPayload:
    @pytest.mark.parametrize(
        "value", [{}, [], "", 0, None, True, {"a": [1, 2.5, None]}, "ünï 雪", {"s": "a\\u0000b"}, "\\\\u0000", 2**80]
    )
    def test_what_goes_in_comes_out(self, value: object) -> None:
        assert decode(encode(value)) == value
        assert json.loads(encode(value)) == value

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), {"deep": [float("-inf")]}])
    def test_nan_and_infinity(self, value: object) -> None:
        with pytest.raises(PayloadInvalid, match="not JSON; send null"):
            encode(value)

    @pytest.mark.parametrize("value", [{"a": "x\x00"}, {"\x00": 1}, "\\\\\x00"])
    def test_nul_is_refused_also_after_backslashes(self, value: object) -> None:
        with pytest.raises(PayloadInvalid, match="NUL"):
            encode(value)

    @pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "a\\\\\\u0000"])
    def test_text_that_only_looks_like_nul_is_fine(self, text: str) -> None:
        """An escaped backslash followed by u0000 is six characters of text."""
        assert decode(encode({"t": text})) == {"t": text}

    @pytest.mark.parametrize("value", ["\ud800", {"k": "half \udfff"}, {"\ud83d": 1}])
    def test_half_a_surrogate_pair(self, value: object) -> None:
        with pytest.raises(PayloadInvalid, match="surrogate"):
            encode(value)

    @pytest.mark.parametrize("value", [object(), b"bytes", {(1, 2): 3}, uuid4()])
    def test_not_json(self, value: object) -> None:
        with pytest.raises(PayloadInvalid, match="cannot be stored as JSON"):
            encode(value)

    def test_endless_nesting(self) -> None:
        loop: list[Any] = []
        loop.append(loop)
        with pytest.raises(PayloadInvalid, match="Circular"):  # at its first turn, not when memory is full
            encode(loop)
        assert encode([[1], [1]]) == "[[1],[1]]"
        shared = {"a": 1}
        assert encode([shared, shared]) == '[{"a":1},{"a":1}]'
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]
        with pytest.raises(PayloadInvalid):
            encode(deep)

    def test_size_is_counted_in_bytes(self) -> None:
        assert encode("x" * 98, limit=100)
        for value in ("x" * 99, "雪" * 33):
            with pytest.raises(PayloadInvalid, match=r"over the limit of 100"):
                encode(value, limit=100)
        with pytest.raises(PayloadInvalid, match="result is"):
            encode("x" * 2_000_000, "result")


class TestNames:
    @pytest.mark.parametrize("name", ["send_email", "a.b:c", "_x", "9", "x" * 120])
    def test_good(self, name: str) -> None:
        assert check_name(name, "kind") == name

    @pytest.mark.parametrize("name", ["", "a b", "-a", "ä", "x" * 121, "a\n", None, b"a"])
    def test_bad(self, name: object) -> None:
        with pytest.raises(InvalidInput, match="not a valid name") as caught:
            check_name(name, "queue")
        assert caught.value.hint and "queue" in caught.value.message

    @pytest.mark.parametrize("text", ["x", "any ünïcode text", "x" * 512])
    def test_good_labels(self, text: str) -> None:
        assert check_text(text, "scope") == text
        assert check_text(None, "scope") is None

    @pytest.mark.parametrize("text", ["", "x" * 513, "a\x00b", "line\nbreak", 7, "\ud800"])
    def test_bad_labels(self, text: object) -> None:
        with pytest.raises(InvalidInput, match="scope"):
            check_text(text, "scope")

    def test_numbers(self) -> None:
        assert check_int(5, "priority", -5, 5) == 5
        assert check_seconds(0, "delay") == 0.0
        for bad in (6, -6, 1.0, "1", True, None):
            with pytest.raises(InvalidInput, match="priority"):
                check_int(bad, "priority", -5, 5)
        for worse in (-1, float("nan"), float("inf"), "1", True, None, MAX_DELAY_SECONDS + 1):
            with pytest.raises(InvalidInput, match="delay"):
                check_seconds(worse, "delay")
