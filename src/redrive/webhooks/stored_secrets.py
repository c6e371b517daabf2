"""Secrets as the store has them: as they are, or encrypted where ``WEBHOOKS_SECRET_KEYS`` names keys, the newest first.

Fernet of ``cryptography`` (AES-128-CBC with HMAC-SHA256): what was changed is refused. Whoever reads the store alone,
or its backups, cannot sign."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from redrive.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

SEALED = "fernet:"  # before what is encrypted; no secret begins so: see ``check_secret``
NO_KEY = "secrets of webhooks are encrypted, and this process has no key"


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
