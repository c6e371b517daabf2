"""Sends one request to a customer's server, and returns what came of it: never to an address that was not judged, never
through a proxy, never after a redirect, and reading little more of the answer than is kept."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from redrive.kernel.retry_after import parse_retry_after
from redrive.version import __version__
from redrive.webhooks.address_guard import AddressRefused, judged
from redrive.webhooks.dns_lookups import Lookup, LookupHangs, lookups

if TYPE_CHECKING:
    import httpx

    from redrive.webhooks.settings import WebhookSettings

MOST_ADDRESSES = 3  # of one host are tried, where connecting fails
USER_AGENT = f"redrive/{__version__} (webhooks)"
GONE = 410
READ_AHEAD = 1024  # of an answer, beyond what is kept: secrets are covered before it is cut


@dataclass(slots=True, frozen=True)
class Answer:
    """What came of one request. ``outcome``: delivered, gone, ``http_503``, or why there was no answer: timeout, dns,
    connect, tls, refused, protocol."""

    outcome: str
    ms: float
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""  # with a little more than is kept
    cut: bool = False  # there was more of the body
    error: str | None = None
    retry_after: float | None = None  # seconds that the server asks for
    address: str | None = None  # that was connected to

    @property
    def delivered(self) -> bool:
        return self.outcome == "delivered"


async def post(url: str, body: bytes, headers: dict[str, str], settings: WebhookSettings, *, owner: str = "") -> Answer:
    """Sends a POST request and returns the answer, also where there is none. ``owner``: whose names are looked up."""
    import httpx

    began = time.monotonic()
    try:
        target = httpx.URL(url)
        host = target.raw_host.decode("ascii").strip("[]")
        lookup = await lookups().begin(host, owner)
        began = time.monotonic()  # having waited for a thread is not the receiver's fault
        async with asyncio.timeout(settings.timeout_ms / 1000):
            return await _post(lookup, target, body, headers, settings, began)
    except LookupHangs as error:
        return Answer("dns", _ms(began), error=f"{host} is not looked up: {error}")
    except TimeoutError:
        told = f"no answer within {settings.timeout_ms:,} ms"
        if not lookup.found.done():
            return Answer("dns", _ms(began), error=f"{host}: {told} from its name servers")
        return Answer("timeout", _ms(began), error=told)
    except AddressRefused as error:
        return Answer("refused", _ms(began), error=error.message)
    except (httpx.InvalidURL, UnicodeError) as error:
        return Answer("refused", _ms(began), error=f"nothing can be sent to such a URL: {_words(error)}")


async def _post(
    lookup: Lookup, target: httpx.URL, body: bytes, headers: dict[str, str], settings: WebhookSettings, began: float
) -> Answer:
    port = target.port or (443 if target.scheme == "https" else 80)
    try:
        found = await lookup.addresses()
    except (OSError, UnicodeError) as error:
        return Answer("dns", _ms(began), error=f"{lookup.host} is not found: {_words(error)}")
    answer = Answer("connect", 0.0)
    for address in judged(lookup.host, found, port, settings.allow_networks, settings.ports)[:MOST_ADDRESSES]:
        answer = await _to(address, target, body, headers, settings, began)
        if answer.outcome != "connect":
            break
    return answer


async def _to(
    address: str, target: httpx.URL, body: bytes, headers: dict[str, str], settings: WebhookSettings, began: float
) -> Answer:
    """Sends it to one address. The name stays in the Host header, and is the one that the certificate has to have."""
    import httpx

    sent = {
        "host": target.netloc.decode("ascii"),
        "user-agent": USER_AGENT,
        "accept": "*/*",
        "connection": "close",
        "accept-encoding": "identity",  # so that little is never unpacked into much
        **headers,
    }
    extensions = {"sni_hostname": target.raw_host.decode("ascii").strip("[]")}
    request = httpx.Request("POST", target.copy_with(host=address), content=body, headers=sent, extensions=extensions)
    # A transport of its own each time: kept connections are found again by address, and would be used for another name
    # than the one that was verified. No client around it: that would log the URL, which may hold a customer's key.
    try:
        async with (
            httpx.AsyncHTTPTransport(verify=_trust(settings.ca_file), trust_env=False) as transport,
            contextlib.aclosing(await transport.handle_async_request(request)) as response,
        ):
            return await _answer(response, settings.log_bytes, began, address)
    except httpx.ConnectError as error:
        kind = "tls" if _is_tls(error) else "connect"
        return Answer(kind, _ms(began), error=_words(error), address=address)
    except httpx.HTTPError as error:
        return Answer("protocol", _ms(began), error=_words(error), address=address)


async def _answer(response: httpx.Response, most: int, began: float, address: str) -> Answer:
    read = b""
    async for piece in response.aiter_raw():
        read += piece
        if len(read) > most + READ_AHEAD:
            break
    status = response.status_code
    outcome = "delivered" if 200 <= status < 300 else "gone" if status == GONE else f"http_{status}"
    return Answer(
        outcome,
        _ms(began),
        status,
        dict(response.headers),
        read[: most + READ_AHEAD],
        len(read) > most,
        None if outcome == "delivered" else f"it answered with HTTP {status}",
        _asked_for(response),
        address,
    )


@cache
def _trust(ca_file: str | None) -> ssl.SSLContext:
    """Returns whom to believe: the usual authorities, and those of a file. Made once, since it takes a while."""
    import httpx

    trusted = httpx.create_ssl_context(trust_env=False)
    if ca_file is not None:
        trusted.load_verify_locations(ca_file)
    return trusted


def _is_tls(error: BaseException | None) -> bool:
    """Returns whether a connection came to nothing because of the certificate or the encryption."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


def _asked_for(response: httpx.Response) -> float | None:
    wish = response.headers.get("retry-after")
    return None if wish is None else parse_retry_after(wish, datetime.now(UTC))


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _ms(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 1)
