"""Opens sockets to listen on, without loading what serves on them."""

from __future__ import annotations

import errno
import ipaddress
import socket

from redrive.errors import ConfigError

# How many connections the system holds until they are accepted. asyncio also accepts as many in a row before it asks
# anybody, and complains about each when files run out: few enough, and fewer where there are few files.
BACKLOG = 128
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def bind(host: str, port: int, option: str = "--port", variable: str = "REDRIVE_PORT") -> socket.socket:
    """Returns a listening socket, or raises an error that says which address and what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} on {host} is taken, perhaps by another redrive",
                hint=f"choose another: {option} {port % 65535 + 1} (or {variable}; 0 takes any free port)",
            ) from None
        raise ConfigError(f"{host} port {port} cannot be used: {error.strerror or error}") from None
    # Connections inherit it. Without it the second half of an answer waits for the client to confirm the first, and a
    # client that keeps its connection confirms after 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def free_port(host: str, first: int, tries: int = 20) -> int:
    """Returns the first port from this one on that nobody listens on; the first where there is none, which then says
    what is wrong."""
    for port in range(first, first + tries):
        try:
            socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                break
        else:
            return port
    return first


def is_loopback(host: str) -> bool:
    """Returns whether an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def own_names(host: str) -> tuple[str, ...]:
    """Returns the names by which a server on this machine's own address is asked; none where others can reach it, who
    may have any name for it."""
    return (*LOOPBACK_NAMES, f"[{host}]" if ":" in host else host) if is_loopback(host) else ()


def address(listening: socket.socket) -> str:
    """Returns the URL of a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
