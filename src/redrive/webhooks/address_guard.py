"""The guard against requests into one's own network: which addresses a webhook may be sent to.

A customer chooses the URL, so it may name anything: a service of ours, the metadata of the cloud's machines, a name
that answers differently each time. Each address that a name leads to is judged, and the one that was judged is the one
connected to.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from redrive.errors import InvalidInput
from redrive.webhooks.events import FEATURE, UNSIGNED, direct_endpoint
from redrive.webhooks.settings import WebhookSettings

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
LONGEST_URL = 2000
LONGEST_NAME = 253
USUAL_PORTS = (80, 443)
LAST_SYSTEM_PORT = 1023
PATIENCE_S = 2.0  # with name servers, while somebody names a URL
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
        ip_network("3fff::/20"),
        ip_network("5f00::/16"),
    ),
    "translated locally": (ip_network("64:ff9b:1::/48"),),
}
# The last four bytes are an IPv4 address: of NAT64, of SIIT (::ffff:0:a.b.c.d), and of those of old.
_NAT64, _TRANSLATED, _COMPATIBLE = IPv6Network("64:ff9b::/96"), IPv6Network("::ffff:0:0:0/96"), IPv6Network("::/96")

_PUBLIC_IPV6 = IPv6Network("2000::/3")  # all that is handed out; the rest is kept for later
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,63}")


class AddressRefused(InvalidInput):
    """The URL leads where webhooks are not sent."""

    code = "WEBHOOK_ADDRESS_REFUSED"


def origin(url: str) -> str:
    """Returns a URL without what may be somebody's key: path and query."""
    parts = urlsplit(url)
    rest = parts.path.strip("/") or parts.query
    return f"{parts.scheme}://{parts.netloc}" + ("/…" if rest else "/")


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
    named = parts.netloc.removesuffix(f":{port}").removesuffix(":")
    if port == 0 or not _is_host(named):
        raise InvalidInput(
            f"{url!r} names no host that can be called",
            hint="write a name like hooks.example.com, or an address like 203.0.113.7 or [2001:db8::7]",
        )
    return url


def _is_host(host: str) -> bool:
    """Returns whether a host can be sent to as it is written: a name, or an address, that of IPv6 in brackets."""
    if host.startswith("["):
        return host.endswith("]") and "%" not in host and _is_address(host[1:-1])
    try:
        labels = _ascii(host).removesuffix(".").split(".")
    except UnicodeError:
        return False
    if len(".".join(labels)) > LONGEST_NAME or not all(_LABEL.fullmatch(one) for one in labels):
        return False
    return not (len(labels) == 4 and all(one.isdecimal() for one in labels)) or _is_address(host)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _ascii(host: str) -> str:
    """Returns a name as it is asked for: by the rules that the HTTP client has, where that is installed."""
    if host.isascii() and "xn--" not in host.lower():
        return host
    try:
        from idna import encode
    except ImportError:
        return host.encode("idna").decode()
    return encode(host.lower()).decode()


def embedded(address: Address) -> Address | None:
    """Returns the IPv4 address that an IPv6 address stands for (mapped, translated, NAT64, 6to4, Teredo), if it
    does."""
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    inside = address in _NAT64 or address in _TRANSLATED or (address in _COMPATIBLE and int(address) > 1)
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
    if isinstance(address, IPv6Address) and address not in _PUBLIC_IPV6:
        return f"outside {_PUBLIC_IPV6}, where public addresses are"
    return None if address.is_global else "not public"


def _within(address: Address, network: Network) -> bool:
    return address.version == network.version and address in network


def check_port(port: int, ports: Sequence[int]) -> None:
    """Refuses ports of the system other than those of the web, or all but those of the settings."""
    if port not in ports if ports else port not in USUAL_PORTS and port <= LAST_SYSTEM_PORT:
        told = ", ".join(map(str, ports)) if ports else "80, 443 and those above 1023"
        raise AddressRefused(f"port {port} is not one that webhooks are sent to", hint=f"WEBHOOKS_PORTS allows {told}")


def allowed_addresses(
    host: str, addresses: Sequence[str], port: int, allowed: Sequence[str], ports: Sequence[int]
) -> list[str]:
    """Returns those addresses of a host that may be connected to; raises AddressRefused where none is. In networks
    that are allowed expressly any port is."""
    found = [ip_address(one) for one in addresses]
    good = [one for one in found if why_refused(one, allowed) is None]
    if not good:
        where = host if host == str(found[0]) else f"{host} is at {found[0]}, which"
        raise AddressRefused(
            f"{where} is {why_refused(found[0], allowed)}",
            hint="webhooks go to public addresses; WEBHOOKS_ALLOW_NETWORKS names networks that are allowed as well",
        )
    if any(why_refused(one) is None for one in good):
        check_port(port, ports)
    return [str(one) for one in good]


async def judge_url(url: str, settings: WebhookSettings) -> None:
    """Refuses a URL whose host is where nothing is sent; one that cannot be found yet is taken. It is judged again each
    time something is sent: a name may lead elsewhere by then."""
    from redrive.webhooks.dns_lookups import lookups

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
