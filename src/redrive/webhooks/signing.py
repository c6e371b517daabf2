"""Secrets and signatures by the Standard Webhooks convention: HMAC-SHA256 over id, time and body, so that customers
verify with an existing library.

The store has secrets as they are, or encrypted where ``WEBHOOKS_SECRET_KEYS`` names keys, the newest first: Fernet of
``cryptography`` (AES-128-CBC with HMAC-SHA256), which refuses what was changed. Whoever reads the store alone, or its
backups, cannot sign."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from redrive.errors import ConfigError, InvalidInput

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

SEALED = "fernet:"  # before what is encrypted; no secret begins so: see ``check_secret``
NO_KEY = "secrets of webhooks are encrypted, and this process has no key"
PREFIX = "whsec_"
SHORTEST_BYTES = 16
LONGEST = 512
SIGNATURE = "webhook-signature"


class KeyMissing(ConfigError):
    """This process has no key that opens a secret; another one may have it."""

    code = "WEBHOOK_KEY_MISSING"


def check_keys(keys: Sequence[str]) -> list[str]:
    """Returns the keys; refuses what is none, without saying it."""
    for place, key in enumerate(keys, 1):
        try:
            size = len(base64.urlsafe_b64decode(key.encode()))
        except (binascii.Error, ValueError):
            size = 0
        if size != 32:
            raise ValueError(f"key {place} is no 32 bytes in URL-safe base64: openssl rand -base64 32 | tr '+/' '-_'")
    return list(keys)


def encrypt(keys: Sequence[str], secret: str) -> str:
    """Returns a secret as it is stored: by the newest key, as it is where there is none."""
    return SEALED + _box(tuple(keys)).encrypt(secret.encode()).decode() if keys else secret


def decrypt(keys: Sequence[str], stored: str) -> str:
    """Returns the secret itself, by whichever key it was stored; also one that was stored before there were keys."""
    if not stored.startswith(SEALED):
        return stored
    if not keys:
        raise KeyMissing(NO_KEY, hint="set WEBHOOKS_SECRET_KEYS here, too")
    from cryptography.fernet import InvalidToken

    try:
        return _box(tuple(keys)).decrypt(stored.removeprefix(SEALED).encode()).decode()
    except InvalidToken:
        raise KeyMissing(
            "a secret of webhooks is encrypted by a key that WEBHOOKS_SECRET_KEYS does not name, or was changed",
            hint="put the older key back, behind the newest one; or give a new secret: redrive webhooks rotate",
        ) from None


def is_current(keys: Sequence[str], stored: str) -> bool:
    """Returns whether a secret is encrypted by the newest key."""
    if not stored.startswith(SEALED):
        return False
    try:
        decrypt(keys[:1], stored)
    except KeyMissing:
        return False
    return True


@lru_cache(maxsize=8)
def _box(keys: tuple[str, ...]) -> MultiFernet:
    try:
        from cryptography.fernet import Fernet, MultiFernet
    except ImportError:
        raise ConfigError(
            "WEBHOOKS_SECRET_KEYS is set, and the package cryptography is not installed",
            hint="pip install '/path/to/checkout[encryption]'",
        ) from None
    return MultiFernet([Fernet(key.encode()) for key in keys])


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
