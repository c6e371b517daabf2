"""Judges the address of a URL when somebody names it, so that a mistake is told at once. It is judged again each time
something is sent: a name may lead elsewhere by then."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from redrive.webhooks.address_guard import judged
from redrive.webhooks.dns_lookups import lookups
from redrive.webhooks.settings import WebhookSettings

PATIENCE_S = 2.0


async def judge_url(url: str, settings: WebhookSettings) -> None:
    """Refuses a URL whose host is where nothing is sent; one that cannot be found yet is taken."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(PATIENCE_S):
            lookup = await lookups().begin(parts.hostname or "")
            judged(lookup.host, await lookup.addresses(), port, settings.allow_networks, settings.ports)
    except (OSError, UnicodeError):  # a timeout is one, too
        return
