"""One attempt of a delivery: the endpoint as it is now, its secrets, the request, and the log of it.

Nothing is sent to an address that was not judged, through a proxy, or after a redirect; little more of the answer is
read than is kept, and secrets in it are covered: debug pages of frameworks show the configuration, each in its
spelling."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import encodings.utf_16_be  # noqa: F401 (found by its name below, which would import it in the middle of a delivery)
import html
import json
import logging
import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from redrive.errors import StoreError
from redrive.handlers.context import Context
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.outcome import Cancel, Fail, Snooze
from redrive.kernel.reactions import Rows
from redrive.kernel.retry_after import parse_retry_after
from redrive.kernel.wording import clean
from redrive.observe.feature_metrics import count
from redrive.version import __version__
from redrive.webhooks.address_guard import AddressRefused, allowed_addresses
from redrive.webhooks.dns_lookups import Lookup, LookupHangs, lookups
from redrive.webhooks.events import UNSIGNED
from redrive.webhooks.metrics import ATTEMPTS
from redrive.webhooks.settings import WebhookSettings
from redrive.webhooks.signing import (
    PREFIX,
    KeyMissing,
    decrypt,
    key_of,
    signatures_in,
    signed_headers,
    without_signatures,
)

if TYPE_CHECKING:
    import httpx

MOST_ADDRESSES = 3  # of one host are tried, where connecting fails
USER_AGENT = f"redrive/{__version__} (webhooks)"
GONE = 410
READ_AHEAD = 1024  # of an answer, beyond what is kept: secrets are covered before it is cut
COVERED = "•••"
SHORTEST = 6  # what is shorter stands in any text by chance
logger = logging.getLogger("redrive.webhooks")
LEFT_FOR_S = 10.0  # a delivery that this process cannot sign, for those that can: no attempt is used up
LONGEST_HEADER, MOST_HEADERS = 300, 30
# Headers of an answer that may be somebody's key.
_SECRET_HEADERS = frozenset({"set-cookie", "authorization", "proxy-authorization", "www-authenticate", "cookie"})


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
    for address in allowed_addresses(lookup.host, found, port, settings.allow_networks, settings.ports)[
        :MOST_ADDRESSES
    ]:
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


def cover_secrets(text: str, secrets: Iterable[str], signatures: Iterable[str] = ()) -> str:
    """Returns a text without the secrets, however they are spelled, and without these signatures."""
    for secret in secrets:
        text = _pattern(secret).sub(COVERED, text)
    for signature in signatures:
        text = text.replace(signature, COVERED).replace(signature.replace("/", r"\/"), COVERED)
    return text


def spellings(secret: str) -> set[str]:
    """Returns a secret as it was given, without ``whsec_``, its key as text, in hex, and as base64 of both alphabets
    without the ``=`` at its end."""
    key = key_of(secret)
    found = {secret.removeprefix(PREFIX).rstrip("="), key.hex()}
    for text in (key, secret.encode()):
        packed = base64.b64encode(text).decode().rstrip("=")
        found |= {packed, packed.translate(str.maketrans("+/", "-_"))}
    as_text = key.decode("utf-8", "replace")
    if as_text.isprintable():
        found.add(as_text)
    return {secret} | {one for one in found if len(one) >= SHORTEST}


@lru_cache(256)
def _pattern(secret: str) -> re.Pattern[str]:
    """Returns what finds a secret in any spelling, the longest first: of ``abcdef`` and ``abcdefgh`` nothing stays."""
    known = sorted(spellings(secret), key=len, reverse=True)
    anyway = [_escaped(one) if one != key_of(secret).hex() else f"(?i:{one})" for one in known]
    return re.compile(f"(?:{'|'.join(anyway)})(?:{_character('=')})*")


def _escaped(text: str) -> str:
    return "".join(_character(one) for one in text)


@lru_cache(1024)
def _character(one: str) -> str:
    """Returns what matches a character as JSON, HTML and URLs write it: ``/`` is also ``\\/``, ``\\u002f``, ``%2F``."""
    if one.isascii() and one.isalnum():
        return one
    units = one.encode("utf-16-be").hex()
    ways = {
        one,
        "\\" + one,
        "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)),
        quote(one, safe=""),
        "".join(f"%{byte:02x}" for byte in one.encode()),
        f"&#{ord(one)};",
        f"&#x{ord(one):x};",
        html.escape(one),
        *("+" if one == " " else ""),
    }
    return f"(?i:{'|'.join(re.escape(way) for way in sorted(ways, key=len, reverse=True))})"


@dataclass(slots=True, frozen=True)
class DeliveryAttempt:
    ctx: Context
    endpoint: Mapping[str, Any]
    keys: Sequence[str]
    settings: WebhookSettings

    @classmethod
    async def load(cls, ctx: Context, endpoint_id: str, forced: bool) -> DeliveryAttempt:
        """Returns the endpoint with its secrets; ends the delivery where it gets nothing any more."""
        rows = await ctx.store.sql.feature_rows("webhooks", "endpoint", endpoint_id)
        ending = ending_of(rows[0] if rows else None)
        if ending is not None and not (rows and forced):
            raise ending
        settings = ctx.settings.of(WebhookSettings)
        task = ctx.task
        own = await ctx.store.sql.feature_rows("webhooks", "delivery_keys", str(task.id), str(task.token))
        try:
            keys = [decrypt(settings.secret_keys, key) for key in keys_of(own, settings.secret)]
        except KeyMissing as missing:
            logger.error(
                "delivery %s is left to another process: %s",
                ctx.task_id,
                missing.message,
                extra={"event": "webhooks.no_key", "task_id": str(ctx.task_id), "hint": missing.hint},
            )
            raise Snooze(LEFT_FOR_S, state={"why": f"{missing.message}: {missing.hint}"}) from None
        if not keys:
            raise Fail(UNSIGNED, "no secret to sign with: redrive webhooks rotate, or ENTERPRISE_WEBHOOK_SECRET")
        return cls(ctx, rows[0], keys, settings)

    async def send(self, event_id: str, timestamp: int, body: bytes) -> Answer:
        """Sends the request, and writes down what was sent and answered."""
        headers = {
            "content-type": "application/json",
            **signed_headers(self.keys, event_id, timestamp, body),
        }
        answer = await post(self.endpoint["url"], body, headers, self.settings, owner=self.endpoint["account"])
        count(ATTEMPTS, outcome_class(answer.outcome))
        await self._write_down(headers, answer, body)
        return answer

    async def _write_down(self, headers: Mapping[str, str], answer: Answer, body: bytes) -> None:
        """Keeps the attempt. Where the store cannot be reached it is missing from the log: that is no reason to send
        the event once more."""
        row = self._row(headers, answer, body)
        try:
            await self.ctx.store.apply(Commit(rows=[Rows("webhooks", "attempted", (row,))]))
        except StoreError:
            logger.warning(
                "an attempt of delivery %s is not logged",
                self.ctx.task_id,
                extra={"event": "webhooks.not_logged", "task_id": str(self.ctx.task_id)},
                exc_info=True,
            )

    def _row(self, headers: Mapping[str, str], answer: Answer, body: bytes) -> dict[str, Any]:
        sent = without_signatures(headers, COVERED)
        request = {"url": self.endpoint["url"], "address": answer.address, "headers": sent, "bytes": len(body)}
        if answer.delivered and len(body) <= self.settings.body_bytes:
            request["body"] = body.decode()  # its task, which ends now, has it no longer

        def shown(text: str) -> str:
            return cover_secrets(clean(text), self.keys, signatures_in(headers))

        return {
            "id": str(new_id()),
            "task": str(self.ctx.task_id),
            "attempt": self.ctx.attempt,
            "replay": self.ctx.task.replay_count,
            "outcome": answer.outcome,
            "status": answer.status,
            "ms": answer.ms,
            "request": json.dumps(request),
            "response": None
            if answer.status is None
            else json.dumps(response_of(answer, shown, self.settings.log_bytes)),
            "error": None if answer.error is None else shown(answer.error)[:1000],
        }


def keys_of(rows: Sequence[Mapping[str, Any]], default: str | None) -> list[str]:
    """Returns the secrets to sign with: the endpoint's own, else its account's, else that of the settings."""
    for owner in ("endpoint:", "account:"):
        if found := [str(row["secret"]) for row in rows if row["owner"].startswith(owner)]:
            return found
    return [default] if default else []


def response_of(answer: Answer, shown: Callable[[str], str], most: int) -> dict[str, Any]:
    """Returns what is kept of an answer, with everything that could be a key covered; cut afterwards, since of a secret
    at the edge the first half would stay."""
    headers = {
        shown(name)[:LONGEST_HEADER]: COVERED if name in _SECRET_HEADERS else shown(value)[:LONGEST_HEADER]
        for name, value in list(answer.headers.items())[:MOST_HEADERS]
    }
    body = shown(answer.body.decode("utf-8", "replace")).encode()[:most].decode("utf-8", "ignore")
    return {"headers": headers, "body": body, "cut": answer.cut}


def outcome_class(outcome: str) -> str:
    """Returns an outcome as metrics have it: few, whatever servers answer with."""
    return f"http_{outcome[5]}xx" if outcome.startswith("http_") else outcome


def ending_of(endpoint: Mapping[str, Any] | None) -> Cancel | None:
    """Returns how a delivery ends whose endpoint gets nothing any more; an operator can have it sent later."""
    if endpoint is None:
        return Cancel("the endpoint was removed")
    return Cancel("the endpoint is disabled") if endpoint["state"] == "disabled" else None
