"""Starts of which nobody knows whether they have reached the provider: an answer that was lost, a worker that died.

Of a cancelled batch such an item is not given back at once, since its job may run. It is started once more with the
same key, by which the provider returns the job that there is, and then ended like all others."""

from __future__ import annotations

import socket

from redrive.remote import ProviderError

REFUSED_FOR_NOW = (429, 503)  # the provider answers that it did not take the request
# What clients raise when there was no connection over which a request could have gone; by name, so that none of them
# has to be installed.
UNCONNECTED = frozenset(
    {
        "ConnectError",
        "ConnectTimeout",
        "PoolTimeout",
        "ClientConnectorError",
        "NewConnectionError",
        "ConnectTimeoutError",
    }
)
MOST_CAUSES = 10


def may_have_started(error: ProviderError) -> bool:
    """Returns whether a start that failed so may have reached the provider all the same."""
    if error.status_code in REFUSED_FOR_NOW:
        return False
    found: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if found is None:
            break
        if isinstance(found, ConnectionRefusedError | socket.gaierror) or type(found).__name__ in UNCONNECTED:
            return False
        found = found.__cause__ or found.__context__
    return True
