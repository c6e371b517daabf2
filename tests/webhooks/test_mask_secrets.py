"""Secrets that a receiver echoes are not kept, however it spells them."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest

from redrive.webhooks.delivery_attempt import COVERED, cover_secrets
from redrive.webhooks.signing import SIGNATURE, key_of, shown_secret, signatures_in, signed_headers, without_signatures
from tests.webhooks.conftest import added, make_app, only, run_all
from tests.webhooks.receiver import Receiver, Reply

pytestmark = pytest.mark.anyio
MADE = "whsec_" + base64.b64encode(bytes(range(240, 256)) + b"\xfb\xef\xbe>>>???binary").decode()
TEXT = 'a "text" that/Zoë chose & more'


def ways(secret: str) -> dict[str, str]:
    key = key_of(secret)
    bare = base64.b64encode(key).decode()
    return {
        "given": secret,
        "shown": shown_secret(secret),
        "bare": bare,
        "unpadded": bare.rstrip("="),
        "urlsafe": base64.urlsafe_b64encode(key).decode(),
        "hex": key.hex(),
        "HEX": key.hex().upper(),
        "key as text": key.decode("utf-8", "replace"),
        "packed once more": base64.b64encode(secret.encode()).decode(),
        "json": json.dumps(secret),
        "php": json.dumps(bare).replace("/", "\\/"),
        "gson": json.dumps(bare).replace("/", "\\u002f").replace("+", "\\u002B").replace("=", "\\u003d"),
        "url": quote(shown_secret(secret), safe=""),
        "url in small letters": quote(bare, safe="").replace("%2B", "%2b").replace("%2F", "%2f"),
        "form": quote_plus(secret),
        "html": html.escape(secret),
        "html in numbers": "".join(one if one.isalnum() and one.isascii() else f"&#{ord(one)};" for one in secret),
    }


@pytest.mark.parametrize("secret", [MADE, TEXT])
@pytest.mark.parametrize("way", ways(TEXT))
def test_every_spelling_is_covered(secret: str, way: str) -> None:
    if way == "key as text" and secret == MADE:
        pytest.skip("its key is no text")
    spelled = ways(secret)[way]
    told = cover_secrets(f"[{spelled}] and [{spelled}]", [secret])
    assert told.count(COVERED) == 2
    assert told.replace(COVERED, "").replace("whsec_", "").replace('"', "") == "[] and []"


def test_a_text_without_secrets_stays_as_it_is() -> None:
    plain = '{"error": "whsec_ of nobody == wrong", "n": [1, 2]}'
    assert cover_secrets(plain, [MADE, TEXT], ["c2lnbmF0dXJl"]) == plain


async def test_what_a_receiver_echoes_is_not_kept(receiver: Receiver) -> None:
    app = make_app("sqlite:///:memory:", retries=0, log_bytes=600)
    await app.migrate()
    endpoint = await added(app, receiver, secret=TEXT)
    echoed = list(ways(TEXT).values())
    receiver.answers = [Reply(500, {"X-Secret": endpoint.secret[6:]}, "\n".join(echoed).encode())]
    await app.webhooks.send("a.b", {"x": 1}, account="acme")
    await run_all(app)
    [attempt] = (await only(app)).attempts
    assert attempt.response["headers"]["x-secret"] == COVERED
    assert set(attempt.response["body"].replace('"', "").split()) <= {COVERED, "whsec_" + COVERED}
    await app.close()


@pytest.mark.parametrize("before", range(40, 100, 7))
async def test_a_secret_at_the_edge_of_what_is_kept_is_covered(receiver: Receiver, before: int) -> None:
    """Cut first, half of it would stay."""
    app = make_app("sqlite:///:memory:", retries=0, log_bytes=100)
    await app.migrate()
    endpoint = await added(app, receiver)
    receiver.answers = [Reply(500, {}, b"x" * before + endpoint.secret.encode() + b"y" * 5000)]
    await app.webhooks.send("a.b", {"x": 1}, account="acme")
    await run_all(app)
    [attempt] = (await only(app)).attempts
    body = attempt.response["body"]
    assert attempt.response["cut"] and len(body.encode()) <= 100
    assert set(body) <= set("xy•whsec_")
    await app.close()


def test_the_format_of_signatures_is_known_in_one_place() -> None:
    headers = signed_headers([MADE, TEXT], "evt_1", 1, b"{}")
    headers[SIGNATURE] += " v1a,b2Y6YW5vdGhlcg=="
    assert without_signatures(headers, COVERED)[SIGNATURE] == "v1,••• v1,••• v1a,•••"
    echoed = " | ".join(signatures_in(headers)) + headers[SIGNATURE].replace("/", "\\/")
    told = cover_secrets(echoed, [], signatures_in(headers))
    assert not any(one in told.replace("\\/", "/") for one in signatures_in(headers))
