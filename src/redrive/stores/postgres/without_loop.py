"""Closes connections whose event loop does not run any more."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any


def close_without_loop(connection: Any, *, inherited: bool = False) -> None:
    """Closes an asyncpg connection's socket by itself: everything else of it would ask its event loop.

    ``inherited``: it is another process's. Only the descriptor is closed; a word on the wire would be heard by the
    server, and a word to the selector by the parent, which shares it.
    """
    connection._aborted = True  # the driver takes it for closed from here on
    transport = getattr(connection, "_transport", None)
    if transport is None:
        return
    # With TLS there is a transport below the transport. Other loops than asyncio's have none of this; uvloop closes its
    # sockets when it is closed.
    below: Any = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    for layer in (transport, below):
        wire = getattr(layer, "_sock", None)
        if isinstance(wire, socket.socket):
            if not inherited:
                with suppress(OSError):
                    wire.shutdown(socket.SHUT_RDWR)  # closing says nothing as long as another process has it, too
            wire.close()
            layer._sock = None
