"""Which addresses webhooks are sent to."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from redrive.errors import InvalidInput
from redrive.webhooks.address_guard import AddressRefused, allowed_addresses, check_port, check_url, why_refused
from redrive.webhooks.delivery_attempt import post
from redrive.webhooks.dns_lookups import lookups
from redrive.webhooks.settings import WebhookSettings

PUBLIC = [
    "8.8.8.8",
    "93.184.216.34",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "::ffff:0:8.8.8.8",
    "2002:808:808::1",
]
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
    "3fff::1": "reserved",
    "3fff:fff:ffff::1": "reserved",
    "::ffff:0:127.0.0.1": "127.0.0.1",
    "::ffff:0:169.254.169.254": "metadata",
    "::ffff:127.0.0.1": "127.0.0.1",
    "::ffff:169.254.169.254": "metadata",
    "::127.0.0.1": "127.0.0.1",
    "64:ff9b::7f00:1": "127.0.0.1",
    "64:ff9b::a9fe:a9fe": "169.254.169.254",
    "64:ff9b:1::1": "translated",
    "200::1": "outside",
    "1::": "outside",
    "4000::1": "outside",
    "e000::1": "outside",
    "2002:7f00:1::1": "127.0.0.1",
    "2002:a00:1::": "10.0.0.1",
    "2001:0:4136:e378:8000:63bf:f5ff:fffe": "10.0.0.1",  # Teredo, whose client is this
}


# That the HTTP client would choke on, or no name server knows.
UNSENDABLE = [
    "http://xn--/",
    "http://[v1.a]/",
    "http://[::1]x/",
    "http://[::1]:80:80/",
    "http://[::1%25lo]/",
    "http://[fe80::1%eth0]/",
    "http://①②⑦.⓪.⓪.①/",
    "http://２１３０７０６４３３/",
    "http://exa\u00admple.com/",
    "http://☃.net/",
    "http://%31%32%37.0.0.1/",
    "http://a..b/",
    "http://./",
    "http://" + "a" * 64 + ".com/",
    "http://999.1.1.1/",
    "http://0177.0.0.1/",
    "http://a$b.com/",
    "http://127.0.0.1\\.example.com/",
]


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
        allowed_addresses(host, await (await lookups().begin(host)).addresses(), 443, [], [])


def test_of_several_addresses_only_good_ones_are_used() -> None:
    found = ["10.0.0.1", "8.8.8.8"]
    assert allowed_addresses("rebinding.example", found, 443, [], []) == ["8.8.8.8"]
    assert allowed_addresses("rebinding.example", found, 22, ["10.0.0.0/8"], [22]) == found
    with pytest.raises(AddressRefused):
        allowed_addresses("rebinding.example", found, 22, [], [])


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
        *UNSENDABLE,
    ],
)
def test_urls_that_cannot_be_an_endpoint(url: str) -> None:
    with pytest.raises(InvalidInput):
        check_url(url)


def test_https_only() -> None:
    assert check_url("http://example.com/hook") and check_url("https://example.com:8443/hook?x=1", https_only=True)
    with pytest.raises(InvalidInput):
        check_url("http://example.com/hook", https_only=True)


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com./",
        "https://my_host.example/x?y=%2F",
        "https://faß.example/",
        "https://xn--fa-hia.example/",
        "http://127.0.0.1:8080/",
        "http://[2606:4700::1111]:8443/",
        "http://2130706433/",
        "http://hooks:/",
    ],
)
def test_urls_that_can(url: str) -> None:
    assert check_url(url) == url


@pytest.mark.parametrize("url", UNSENDABLE)
@pytest.mark.anyio
async def test_a_url_that_was_taken_all_the_same_is_answered_not_raised(url: str) -> None:
    """Endpoints of old are in the store; each attempt is a row in the log."""
    answer = await post(url, b"{}", {}, WebhookSettings(timeout_ms=2000))
    assert answer.outcome in ("refused", "dns") and answer.error
