"""The constant part of a message, and how much work it is to find it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.errors import ErrorCode
from redrive.kernel import evidence, marks, message_template, peer, raise_site
from redrive.kernel.failure import failure, failure_of
from redrive.kernel.message_template import HOLE, MAX_LOOKED_AT, template
from redrive.kernel.raise_site import words_of_answer


@pytest.mark.parametrize(
    "one, two",
    [
        ("task 0190b7a4-7c1e-7cc0-8a4e-1b0a6f6f7f00 is gone", "task 0190b7a4-7c1e-7cc0-8a4e-1b0a6f6f7f99 is gone"),
        ("cannot reach https://a.example/x?y=1", "cannot reach http://b.example/z"),
        ("no mail to ann@example.org", "no mail to bob@test.example.com"),
        ("bad value 'x' in line 3", 'bad value "yy" in line 44'),
        ("object at 0x7f00aa", "object at 0x7f11bb"),
        ("commit deadbeef is gone", "commit a1b2c3d is gone"),
        ("customer cus_9aXbQeRtZu is gone", "customer cus_QQwertzuiopA is gone"),
        ("no such file: /var/data/a.csv here", "no such file: C:\\temp\\b here"),
        ("cannot copy report.pdf", "cannot copy data/in/x.json"),
        ("no route to ::1", "no route to 2001:db8::7"),
        ("no route to [fe80::1]:443", "no route to 10.0.0.1:80"),
        ("rows [] are bad", "rows [[1], {'a': 2}] are bad"),
        ("branch `main` is gone", "branch `x/y` is gone"),
        ("due on Mon, 04 May 2026 12:00:00 GMT", "due on 2026-05-04"),
        ("value is None", "value is 5%"),
        ("failed: row 1: 'x' row 2: 'y'", "failed: row 3: 'z'"),
    ],
)
def test_variable_parts_do_not_matter(one: str, two: str) -> None:
    assert template(one) == template(two)
    assert HOLE in template(one)


@pytest.mark.parametrize(
    "text",
    [
        "can't open the user's file",
        "step-by-step guide",
        "either/or",
        "HttpClientError in getUserByName",
        "added a face",
    ],
)
def test_words_stay(text: str) -> None:
    assert template(text) == text


def test_lists_of_any_length_leave_the_same_words() -> None:
    found = {
        words_of_answer(text, None)
        for text in ("rows  are bad: ", "rows 7 are bad: 'a'", "rows 7, 8 are bad: 'a', 'b'")
    }
    assert found == {"rows are bad"}


LIMIT = "{who} has reached the limit of the plan {plan}"


class ConnectionThread:
    CLOSED = "the desk of %s is closed today"

    def closed(self, who: str) -> None:
        raise RuntimeError(self.CLOSED % who)


def _fails(message: str) -> None:
    raise RuntimeError(message)


class TestWhereItWasWritten:
    """The same words for any values, wherever the format is."""

    @pytest.mark.parametrize(
        "call",
        [
            lambda who: _fails(f"{who} has no key to the house"),
            lambda who: _fails(LIMIT.format(who=who, plan=who)),
            lambda who: ConnectionThread().closed(who),
            lambda who: _fails(_text("gone", who)),
        ],
        ids=["caller", "constant of the module", "constant of the class", "another function"],
    )
    def test_is_found(self, call: Any) -> None:
        def caught(who: str) -> str:
            try:
                call(who)
            except RuntimeError as error:
                return failure_of(error).fingerprint
            raise AssertionError

        assert caught("Acme Ltd") == caught("The Open Door") == caught("bob")


TEXTS = {"gone": "customer %s is gone"}


def _text(key: str, *values: str) -> str:
    return TEXTS[key] % values


@settings(max_examples=40)
@given(st.text(max_size=300))
def test_any_text_has_a_template(text: str) -> None:
    assert template(template(text)) is not None
    assert isinstance(words_of_answer(text, test_any_text_has_a_template.__code__), str)
    with pytest.raises(RuntimeError) as caught:
        _fails(text)
    assert len(failure_of(caught.value).fingerprint) == 16


# -- how much work ---------------------------------------------------------------------------------------------------

SIZE = 1 << 20
HOSTILE = [
    "a",
    "1",
    "a-",
    "a.",
    " 'a",
    "`a ",
    "[1,",
    "({[",
    "::1",
    "a/",
    "a@a.",
    " ",
    "<*>",
    "aA",
    "jan ",
    "%(",
    "\ud800",
]


class Counting:
    """A pattern that notes how much text it was given."""

    def __init__(self, pattern: re.Pattern[str], seen: list[int]) -> None:
        self._pattern = pattern
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._pattern, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self._seen.append(max((len(arg) for arg in args if isinstance(arg, str)), default=0))
            return found(*args, **kwargs)

        return counted if callable(found) else found


def test_a_huge_message_is_cut_before_anything_looks_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pattern sees more than the part that is looked at, so no text can hold the loop. A pattern that tries all ways
    to divide such a part would not come back within the time limit of the test."""
    seen: list[int] = []
    for module in (message_template, raise_site, evidence, marks, peer):
        for key, value in vars(module).items():
            if isinstance(value, re.Pattern):
                monkeypatch.setattr(module, key, Counting(value, seen))
    monkeypatch.setattr(
        message_template, "_PATTERNS", [Counting(pattern, seen) for pattern in message_template._PATTERNS]
    )
    monkeypatch.setattr(marks, "_IN_TEXT", [(key, Counting(one, seen)) for key, one in marks._IN_TEXT])
    monkeypatch.setattr(peer, "_SPOKEN", [Counting(pattern, seen) for pattern in peer._SPOKEN])
    for piece in HOSTILE:
        text = piece * (SIZE // len(piece))
        assert len(failure(ErrorCode.EXECUTION_FAILED, "r", text).fingerprint) == 16
        failure_of(ConnectionError(text))
        failure_of(OSError(2, text))
    # A template may be longer than its text: every character of it can become a hole.
    assert max(seen) <= len(HOLE) * MAX_LOOKED_AT
