"""Signatures: customers verify them with the standardwebhooks package, unchanged."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from redrive.errors import InvalidInput
from redrive.webhooks.signing import PREFIX, check_secret, key_of, new_secret, shown_secret, sign, signed_headers

BODY = '{"type":"invoice.paid","timestamp":"2026-01-01T00:00:00Z","data":{"name":"Zoë"}}'.encode()


def now() -> int:
    return int(datetime.now(UTC).timestamp())


@pytest.mark.parametrize("secret", [new_secret(), "any other text, as its bytes"], ids=["made", "text"])
def test_a_customers_library_verifies(secret: str) -> None:
    found = Webhook(shown_secret(secret)).verify(BODY, signed_headers([secret], "evt_1", now(), BODY))
    assert found["data"] == {"name": "Zoë"}


def test_it_refuses_another_body_secret_id_and_a_wrong_clock() -> None:
    secret = new_secret()
    customer = Webhook(secret)
    good = signed_headers([secret], "evt_1", now(), BODY)
    wrong = [
        (BODY.replace(b"paid", b"lost"), good),
        (BODY, {**good, "webhook-id": "evt_2"}),
        (BODY, signed_headers([new_secret()], "evt_1", now(), BODY)),
        (BODY, signed_headers([secret], "evt_1", now() - 3600, BODY)),
        (BODY, signed_headers([secret], "evt_1", now() + 3600, BODY)),
    ]
    for body, headers in wrong:
        with pytest.raises(WebhookVerificationError):
            customer.verify(body, headers)


def test_while_a_secret_is_replaced_both_verify() -> None:
    old, new = new_secret(), new_secret()
    headers = signed_headers([new, old], "evt_1", now(), BODY)
    for secret in (old, new):
        Webhook(secret).verify(BODY, headers)


def test_it_signs_what_the_library_signs() -> None:
    secret = new_secret()
    at = now()
    moment = datetime.fromtimestamp(at, UTC)
    assert sign(secret, "evt_1", at, BODY) == Webhook(secret).sign("evt_1", moment, BODY.decode())


def test_forms_of_a_secret() -> None:
    assert key_of("whsec_" + base64.b64encode(b"0123456789abcdef").decode()) == b"0123456789abcdef"
    assert key_of("plain") == b"plain"
    assert shown_secret("plain") == PREFIX + base64.b64encode(b"plain").decode()
    assert len(key_of(new_secret())) == 32


@pytest.mark.parametrize("secret", ["short", "whsec_not base64!", "whsec_", "x" * 513, "sixteen bytes and\na line"])
def test_a_secret_that_keeps_nobody_out_is_refused(secret: str) -> None:
    with pytest.raises(InvalidInput):
        check_secret(secret)
