"""Keeps a port for a server that is stopped and started again."""

from __future__ import annotations

import socket


def keep_port() -> socket.socket:
    """Returns a socket that keeps a port of this machine until it is closed: it is bound and does not listen, so that
    nobody else is given the port, and whoever connects is refused. A server that sets ``SO_REUSEADDR`` can listen there
    all the same."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    return kept
