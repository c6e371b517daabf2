"""Signatures by the Standard Webhooks convention: HMAC-SHA256 over id, time and body, so that customers verify with an
existing library."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping

from redrive.errors import InvalidInput
from redrive.webhooks.stored_secrets import SEALED

PREFIX = "whsec_"
SHORTEST_BYTES = 16
LONGEST = 512
SIGNATURE = "webhook-signature"


def new_secret() -> str:
    """Returns a secret that nobody can guess, in the form that customers' libraries take."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def key_of(secret: str) -> bytes:
    """Returns the bytes of a secret: ``whsec_…`` is base64, any other text its bytes."""
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(
            f"the secret begins with {PREFIX} and is no base64 behind that",
            hint="copy it whole, or give a text that does not begin so: its bytes are used as they are",
        ) from None


def check_secret(secret: str) -> str:
    """Returns a secret that somebody brings along; one that is too short to keep anybody out is refused."""
    if len(secret) > LONGEST or not secret.isprintable():
        raise InvalidInput(f"a secret is one line of at most {LONGEST} characters")
    if secret.startswith(SEALED):
        raise InvalidInput(f"a secret does not begin with {SEALED}", hint="what is encrypted in the store begins so")
    if len(key_of(secret)) < SHORTEST_BYTES:
        raise InvalidInput(f"the secret has fewer than {SHORTEST_BYTES} bytes", hint="leave it out, and one is made")
    return secret


def shown_secret(secret: str) -> str:
    """Returns a secret in the form that customers' libraries take, also one that was given as text."""
    return PREFIX + base64.b64encode(key_of(secret)).decode()


def sign(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    """Returns one signature."""
    signed = f"{event_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key_of(secret), signed, hashlib.sha256).digest()).decode()


def signed_headers(keys: Iterable[str], event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Returns the three headers of a request; while a secret is being replaced, with a signature by each."""
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        SIGNATURE: " ".join(sign(key, event_id, timestamp, body) for key in keys),
    }


def signatures_in(headers: Mapping[str, str]) -> list[str]:
    """Returns the signatures of a request, without the version that stands before each."""
    return [one.partition(",")[2] for one in headers[SIGNATURE].split()]


def without_signatures(headers: Mapping[str, str], cover: str) -> dict[str, str]:
    """Returns the headers of a request with ``cover`` in place of each signature; their versions stay."""
    versions = [one.partition(",")[0] for one in headers[SIGNATURE].split()]
    return {**headers, SIGNATURE: " ".join(f"{version},{cover}" for version in versions)}
