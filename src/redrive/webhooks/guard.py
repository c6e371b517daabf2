"""The guard against requests into one's own network: which addresses a webhook may be sent to.

A customer chooses the URL, so it may name anything: a service of ours, the metadata of the cloud's machines, a name
that answers differently each time. Names are resolved here, each address is judged, and the one that was judged is the
one connected to.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from redrive.errors import InvalidInput

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
LONGEST_URL = 2000
LONGEST_NAME = 253
USUAL_PORTS = (80, 443)
LAST_SYSTEM_PORT = 1023
# What is not meant for the public, or not for one receiver; written out, since what Python counts as global changes.
_REFUSED: dict[str, tuple[Network, ...]] = {
    "of no host": (ip_network("0.0.0.0/8"), ip_network("::/128")),
    "private": (
        ip_network("10.0.0.0/8"),
        ip_network("172.16.0.0/12"),
        ip_network("192.168.0.0/16"),
        ip_network("fc00::/7"),
        ip_network("fec0::/10"),
    ),
    "shared by a provider's customers": (ip_network("100.64.0.0/10"),),
    "of this machine": (ip_network("127.0.0.0/8"), ip_network("::1/128")),
    "link-local, where clouds have their metadata": (ip_network("169.254.0.0/16"), ip_network("fe80::/10")),
    "of a cloud's own services": (ip_network("168.63.129.16/32"), ip_network("fd00:ec2::/32")),
    "multicast": (ip_network("224.0.0.0/4"), ip_network("ff00::/8")),
    "reserved": (
        ip_network("192.0.0.0/24"),
        ip_network("192.0.2.0/24"),
        ip_network("192.88.99.0/24"),
        ip_network("198.18.0.0/15"),
        ip_network("198.51.100.0/24"),
        ip_network("203.0.113.0/24"),
        ip_network("240.0.0.0/4"),
        ip_network("100::/64"),
        ip_network("2001:db8::/32"),
        ip_network("5f00::/16"),
    ),
    "translated locally": (ip_network("64:ff9b:1::/48"),),
}
_NAT64, _COMPATIBLE = IPv6Network("64:ff9b::/96"), IPv6Network("::/96")


class AddressRefused(InvalidInput):
    """The URL leads where webhooks are not sent."""

    code = "WEBHOOK_ADDRESS_REFUSED"


def check_url(url: str, *, https_only: bool = False) -> str:
    """Returns a URL that can be one of an endpoint; its name is not resolved yet."""
    if not isinstance(url, str) or len(url) > LONGEST_URL or not url.isprintable() or " " in url:
        raise InvalidInput(f"the URL of an endpoint is one line of at most {LONGEST_URL} characters without spaces")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"{url!r} is no URL: {error}") from None
    if parts.scheme not in (("https",) if https_only else ("http", "https")) or not parts.hostname:
        told = "https" if https_only else "https or http"
        raise InvalidInput(
            f"{url!r} cannot be called", hint=f"an endpoint is a whole URL of {told}: {told[:5]}://host/path"
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("the URL holds a user or password", hint="receivers know us by the signature: leave it out")
    if parts.fragment:
        raise InvalidInput("the URL has a part behind #, which is never sent", hint="leave it out")
    if len(parts.hostname) > LONGEST_NAME or port == 0:
        raise InvalidInput(f"{url!r} names no host that can be called")
    return url


def embedded(address: Address) -> Address | None:
    """Returns the IPv4 address that an IPv6 address stands for (mapped, NAT64, 6to4, Teredo), if it does."""
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    inside = address in _NAT64 or (address in _COMPATIBLE and int(address) > 1)
    return IPv4Address(int(address) & 0xFFFFFFFF) if inside else None


def why_refused(address: Address, allowed: Sequence[str] = ()) -> str | None:
    """Returns why nothing is sent to an address; None when it may be."""
    inner = embedded(address)
    if any(_within(one, ip_network(network)) for one in (address, inner) if one for network in allowed):
        return None
    if inner is not None:
        why = why_refused(inner)
        return None if why is None else f"{inner} in IPv6 clothes, {why}"
    for why, networks in _REFUSED.items():
        if any(_within(address, network) for network in networks):
            return why
    return None if address.is_global else "not public"


def _within(address: Address, network: Network) -> bool:
    return address.version == network.version and address in network


def check_port(port: int, ports: Sequence[int]) -> None:
    """Refuses ports of the system other than those of the web, or all but those of the settings."""
    if port not in ports if ports else port not in USUAL_PORTS and port <= LAST_SYSTEM_PORT:
        told = ", ".join(map(str, ports)) if ports else "80, 443 and those above 1023"
        raise AddressRefused(f"port {port} is not one that webhooks are sent to", hint=f"WEBHOOKS_PORTS allows {told}")


async def checked_addresses(host: str, port: int, allowed: Sequence[str], ports: Sequence[int]) -> list[str]:
    """Returns the addresses of a host that may be connected to; raises OSError where it has none, AddressRefused where
    none is allowed. In networks that are allowed expressly any port is."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    addresses = [ip_address(str(info[4][0]).partition("%")[0]) for info in found]
    good = [one for one in dict.fromkeys(addresses) if why_refused(one, allowed) is None]
    if not good:
        where = host if host == str(addresses[0]) else f"{host} is at {addresses[0]}, which"
        raise AddressRefused(
            f"{where} is {why_refused(addresses[0], allowed)}",
            hint="webhooks go to public addresses; WEBHOOKS_ALLOW_NETWORKS names networks that are allowed as well",
        )
    if any(why_refused(one) is None for one in good):
        check_port(port, ports)
    return [str(one) for one in good]
