"""Which addresses webhooks are sent to."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from redrive.errors import InvalidInput
from redrive.webhooks.guard import AddressRefused, check_port, check_url, checked_addresses, why_refused

PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
REFUSED = {
    "0.0.0.0": "of no host",
    "0.1.2.3": "of no host",
    "10.1.2.3": "private",
    "172.31.255.1": "private",
    "192.168.0.1": "private",
    "100.64.0.1": "shared",
    "100.100.100.200": "shared",
    "127.0.0.1": "this machine",
    "127.9.9.9": "this machine",
    "169.254.169.254": "metadata",
    "168.63.129.16": "cloud",
    "192.0.0.192": "reserved",
    "198.18.0.1": "reserved",
    "203.0.113.7": "reserved",
    "224.0.0.1": "multicast",
    "239.1.1.1": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "::": "of no host",
    "::1": "this machine",
    "fe80::1": "link-local",
    "fd00:ec2::254": "private",
    "fc00::1": "private",
    "ff02::1": "multicast",
    "2001:db8::1": "reserved",
    "::ffff:127.0.0.1": "127.0.0.1",
    "::ffff:169.254.169.254": "metadata",
    "::127.0.0.1": "127.0.0.1",
    "64:ff9b::7f00:1": "127.0.0.1",
    "64:ff9b::a9fe:a9fe": "169.254.169.254",
    "64:ff9b:1::1": "translated",
    "2002:7f00:1::1": "127.0.0.1",
    "2002:a00:1::": "10.0.0.1",
    "2001:0:4136:e378:8000:63bf:f5ff:fffe": "10.0.0.1",  # Teredo, whose client is this
}


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_sent_to(address: str) -> None:
    assert why_refused(ip_address(address)) is None


@pytest.mark.parametrize(("address", "why"), REFUSED.items())
def test_others_may_not(address: str, why: str) -> None:
    assert why in (why_refused(ip_address(address)) or "nothing is said")


def test_networks_that_are_allowed_expressly() -> None:
    allowed = ["10.1.0.0/16", "::1/128"]
    assert why_refused(ip_address("10.1.2.3"), allowed) is None
    assert why_refused(ip_address("::ffff:10.1.2.3"), allowed) is None
    assert why_refused(ip_address("::1"), allowed) is None
    assert why_refused(ip_address("10.2.0.1"), allowed) is not None
    assert why_refused(ip_address("169.254.169.254"), allowed) is not None


@pytest.mark.parametrize("port", [80, 443, 1024, 8443, 65535])
def test_ports_of_the_web_and_those_above_the_systems(port: int) -> None:
    check_port(port, [])


@pytest.mark.parametrize(("port", "ports"), [(22, []), (25, []), (8443, [443]), (80, [443])])
def test_other_ports_are_refused(port: int, ports: list[int]) -> None:
    with pytest.raises(AddressRefused):
        check_port(port, ports)


@pytest.mark.parametrize(
    "host",
    ["localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "127.0.0.1", "::1", "::ffff:127.0.0.1"],
)
@pytest.mark.anyio
async def test_whatever_a_host_is_written_like_its_address_is_judged(host: str) -> None:
    """Also one that cannot be resolved here leads nowhere."""
    with pytest.raises((AddressRefused, OSError)):
        await checked_addresses(host, 443, [], [])


@pytest.mark.anyio
async def test_of_several_addresses_only_good_ones_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    async def resolved(*_: object, **__: object) -> list[object]:
        return [(2, 1, 6, "", (one, 443)) for one in ("10.0.0.1", "8.8.8.8", "8.8.8.8")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved)
    assert await checked_addresses("rebinding.example", 443, [], []) == ["8.8.8.8"]
    assert await checked_addresses("rebinding.example", 22, ["10.0.0.0/8"], [22]) == ["10.0.0.1", "8.8.8.8"]
    with pytest.raises(AddressRefused):
        await checked_addresses("rebinding.example", 22, [], [])


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "example.com/hook",
        "https://",
        "https:///path",
        "https://user:pw@example.com/",
        "https://example.com/#part",
        "https://example.com:99999/",
        "https://example.com:0/",
        "https://exa mple.com/",
        "https://example.com/\r\nHost: evil",
        "https://[::1/",
        "https://" + "a" * 300 + ".com/",
        "https://example.com/" + "a" * 2000,
        "gopher://127.0.0.1:25/",
        "javascript:alert(1)",
        "",
    ],
)
def test_urls_that_cannot_be_an_endpoint(url: str) -> None:
    with pytest.raises(InvalidInput):
        check_url(url)


def test_https_only() -> None:
    assert check_url("http://example.com/hook") and check_url("https://example.com:8443/hook?x=1", https_only=True)
    with pytest.raises(InvalidInput):
        check_url("http://example.com/hook", https_only=True)
