"""Addresses at which a provider says that a job has ended: each for one item and one start of it, signed.

Whoever knows such an address may only make us look at that job, once: what is believed is the provider's answer to the
poll that follows. That it is used once is seen to by whoever keeps the item.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass

from redrive.errors import ConfigError, NotAllowed
from redrive.settings import Settings

LIFETIME = 7 * 86_400  # seconds; a job that takes longer is polled
_ITEM = re.compile(r"[A-Za-z0-9-]{1,64}")
_TOKEN = re.compile(r"([A-Za-z0-9-]{1,64})\.(\d{1,6})\.(\d{1,12})\.([A-Za-z0-9_-]{43})")


class CallbackRefused(NotAllowed):
    """An address that was not signed here, or is too old. Why is not said: it is asked by strangers."""

    code = "CALLBACK_REFUSED"


@dataclass(slots=True, frozen=True)
class Callback:
    """What an address is about: an item, and which start of it (``round``: the first, or that after a retry)."""

    item: str
    round: int


class Callbacks:
    """Makes and verifies such addresses with the secret of an installation."""

    def __init__(self, base_url: str, secret: str, path: str) -> None:
        """``path`` is where the feature takes such calls, below the public address of the installation."""
        if len(secret) < 16:
            raise ConfigError("the secret of callbacks has to have at least 16 characters", hint="openssl rand -hex 32")
        self._base = f"{base_url.rstrip('/')}/{path.strip('/')}"
        self._secret = secret.encode()

    @classmethod
    def of(cls, settings: Settings, path: str) -> Callbacks | None:
        """Returns those of an installation; None where it has no public address, so that everything is polled."""
        base, secret = settings.callback_base_url, settings.callback_secret
        return None if base is None or secret is None else cls(base, secret, path)

    def url(self, callback: Callback, now: float, lifetime: float = LIFETIME) -> str:
        """Returns the address for one start of an item. ``now`` is in seconds since 1970, by the store's clock."""
        return f"{self._base}/{self.token(callback, now, lifetime)}"

    def token(self, callback: Callback, now: float, lifetime: float = LIFETIME) -> str:
        """Returns the last part of such an address."""
        if not _ITEM.fullmatch(callback.item):
            raise ValueError(f"an item's id has letters, digits and -, not {callback.item[:80]!r}")
        signed = f"{callback.item}.{callback.round}.{int(now + lifetime)}"
        return f"{signed}.{self._signature(signed)}"

    def verify(self, token: str, now: float) -> Callback:
        """Returns what an address is about; one that is forged, changed or too old is refused."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            raise refused()
        signed = ".".join(found.groups()[:3])
        if not hmac.compare_digest(self._signature(signed), found[4]) or int(found[3]) < now:
            raise refused()
        return Callback(found[1], int(found[2]))

    def _signature(self, signed: str) -> str:
        digest = hmac.new(self._secret, f"redrive callback {signed}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def refused() -> CallbackRefused:
    """Returns what everybody is told whose address is not taken."""
    return CallbackRefused("this address is not valid, or no longer")
