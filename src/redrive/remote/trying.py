"""Tries a provider out: starts one job and looks at it until it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from redrive.ids import new_id
from redrive.remote.checked import RemoteProvider
from redrive.remote.errors import NONSENSE, ProviderError
from redrive.remote.provider import RemoteItem, Status

BETWEEN_SECONDS = 1.0


async def tried(
    provider: RemoteProvider, payload: Any, key: str, between: float = BETWEEN_SECONDS
) -> AsyncIterator[tuple[str, Status | None]]:
    """Starts a job and yields its id, with nothing at first, then with each status that differs from the last one. What
    goes wrong on the way is raised, as it came."""
    job = await provider.start(RemoteItem(str(new_id()), payload), key)
    yield job, None
    last: Status | None = None
    while last is None or not last.state.ended:
        found = (await provider.poll([job])).get(job)
        if found is None:
            told = f"{provider.name}: poll knows nothing of {job}, which start has named"
            raise ProviderError(told, provider=provider.name, classification=NONSENSE)
        if isinstance(found, ProviderError):
            raise found
        if found != last:
            yield job, found
        last = found
        if not found.state.ended:
            await asyncio.sleep(between)
