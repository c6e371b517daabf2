"""Judges a URL when somebody names it: else a mistake is told only by a failed delivery, perhaps days later. It is
judged again each time something is sent: a name may lead elsewhere by then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from redrive.errors import InvalidInput
from redrive.webhooks.address_guard import allowed_addresses, check_url, origin
from redrive.webhooks.delivery_attempt import UNSIGNED
from redrive.webhooks.dns_lookups import lookups
from redrive.webhooks.events import FEATURE, direct_endpoint
from redrive.webhooks.settings import WebhookSettings

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store

PATIENCE_S = 2.0


async def judge_url(url: str, settings: WebhookSettings) -> None:
    """Refuses a URL whose host is where nothing is sent; one that cannot be found yet is taken."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(PATIENCE_S):
            lookup = await lookups().begin(parts.hostname or "")
            allowed_addresses(lookup.host, await lookup.addresses(), port, settings.allow_networks, settings.ports)
    except (OSError, UnicodeError):  # a timeout is one, too
        return


class NoSecret(InvalidInput):
    """There is nothing to sign a delivery with."""

    code = UNSIGNED


async def check_direct(store: Store, settings: WebhookSettings, account: str, url: str) -> None:
    """Refuses a URL that nothing would be sent to, and one of an account that has no secret to sign with."""
    check_url(url, https_only=settings.https_only)
    await judge_url(url, settings)
    await check_signed(store, settings, account, url)


async def check_signed(store: Store, settings: WebhookSettings, account: str, url: str) -> None:
    """Refuses what is no URL, and one for which there is nothing to sign with: no secret of its own, of its account,
    of the settings."""
    check_url(url, https_only=settings.https_only)
    endpoint = direct_endpoint(account, url, None)["id"]
    if settings.secret or await store.sql.feature_rows(FEATURE, "signers", endpoint, account):
        return
    raise NoSecret(
        f"there is no secret to sign for {origin(url)} with",
        hint=f"redrive webhooks rotate --account {account},"
        " or ENTERPRISE_WEBHOOK_SECRET for this process and for the workers",
    )
