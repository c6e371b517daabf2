"""What viewers see of payloads, and of messages that quote them."""

from __future__ import annotations

import pytest

from redrive.kernel.failure import MAX_MESSAGE
from redrive.ops.access import MASK, covered, masked, scrubbed

FIELDS = ("password", "token")


@pytest.mark.parametrize(
    ("payload", "text", "shown"),
    [
        ({"password": "hunter2"}, "login with hunter2 failed", f"login with {MASK} failed"),
        ({"user": {"accessToken": "hunter2"}}, "hunter2", MASK),
        ({"password": ["hunter2", "swordfish"]}, "hunter2 or swordfish", f"{MASK} or {MASK}"),
        ({"password": "a b&c/d"}, "GET /?q=a%20b%26c%2Fd and a+b%26c%2Fd", f"GET /?q={MASK} and {MASK}"),
        ({"password": "two\nlines"}, "ValueError('two\\nlines')", f"ValueError('{MASK}')"),
        ({"password": "ünïcode"}, '{"p": "\\u00fcn\\u00efcode"}', f'{{"p": "{MASK}"}}'),
        ({"password": " padded "}, "no padded user", f"no{MASK}user"),
        ({"password": "short-1", "token": "short-1-and-longer"}, "x short-1-and-longer", f"x {MASK}"),
        ({"password": "abcde", "token": "cdefgh"}, "<abcdefgh>", f"<{MASK}>"),
        ({"tokens": {"sk-12345": 1}}, "key sk-12345 is revoked", f"key {MASK} is revoked"),
        ({"password": "abc"}, "too short to look for: abc", "too short to look for: abc"),
        ({"name": "hunter2"}, "hunter2", "hunter2"),
        (None, "hunter2", "hunter2"),
    ],
)
def test_messages(payload: object, text: str, shown: str) -> None:
    assert covered([text], payload, FIELDS) == [shown]


def test_a_message_that_was_cut_off_inside_a_secret() -> None:
    text = "x" * (MAX_MESSAGE - 5) + "hunte"
    assert covered([text], {"password": "hunter2"}, FIELDS) == ["x" * (MAX_MESSAGE - 5) + MASK]


def test_very_many_secrets_say_nothing() -> None:
    assert covered(["a message"], {"password": [f"secret-{n}" for n in range(1000)]}, FIELDS) == [MASK]


def test_documents() -> None:
    payload = {"password": "hunter2", "to": "ann"}
    assert masked(payload, FIELDS) == {"password": MASK, "to": "ann"}
    assert scrubbed({"note": ["sent hunter2", 7]}, payload, FIELDS) == {"note": [f"sent {MASK}", 7]}
