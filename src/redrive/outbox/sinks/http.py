"""HTTP: each request is a POST of JSON lines, one for each event.

The receiver gets ``id``, ``entity_type``, ``entity_id``, ``op``, ``version``, ``order``, ``payload`` and ``routing``,
at least once and in any order: it has to compare ``order``, also with that of what it deleted. It may answer for each
event, by JSON lines (``application/x-ndjson``) of ``{"id": …, "status": 409, "error": …, "retry_after": 5}``.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx

from redrive.errors import ConfigError
from redrive.kernel.classify import by_status
from redrive.kernel.retry_after import retry_after_of
from redrive.outbox.event import Event
from redrive.outbox.sink import PerLoop, TooLarge, Unfit, find_refused
from redrive.outbox.verdict import Done, Failed, Retry, Superseded, Verdict

TIMEOUT_S = 30.0
NDJSON = "application/x-ndjson"
LINES = (NDJSON, "application/ndjson", "application/jsonl")
MOST_SAID = 500  # characters of an answer that are kept
MOST_OF_ANSWER = 65_536  # bytes that are read of it
MOST_OF_LINE = 16_384  # and for each event that it has a line for
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # one, not one for each event
# Of what the request holds; all other refusals are of whoever sends it, or of where.
_OF_EVENTS = (400, 409, 422)


def from_url(url: str) -> Http:
    """Returns the sink of ``https://user:password@host/path?for=receiver#gzip=1&timeout=10&token_env=NAME``: what
    stands behind # is for this sink. ``token_env`` names an environment variable that has a bearer token."""
    parts = urlsplit(url)
    options = {name: values[-1] for name, values in parse_qs(parts.fragment).items()}
    if unknown := sorted(set(options) - {"gzip", "timeout", "token_env"}):
        raise ConfigError(
            f"an HTTP sink has no option {unknown[0]!r}", hint="behind # there are gzip, timeout and token_env"
        )
    headers = {}
    if name := options.get("token_env"):
        if not os.environ.get(name):
            raise ConfigError(f"the environment variable {name} has no token", hint="set it, or leave token_env out")
        headers["Authorization"] = f"Bearer {os.environ[name]}"
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
    try:
        timeout = float(options.get("timeout", TIMEOUT_S))
    except ValueError:
        raise ConfigError("timeout of an HTTP sink is a number of seconds") from None
    return Http(bare, headers=headers, auth=auth, timeout=timeout, compress=options.get("gzip") in ("1", "true"))


class Http:
    """A receiver of events. Redirects are not followed: they would turn a POST into something else."""

    remembers_deletes = False
    compares_versions = False

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | httpx.Auth | None = None,
        timeout: float = TIMEOUT_S,
        compress: bool = False,
        verify: Any = True,
    ) -> None:
        self._url = url
        self._compress = compress
        encoding = {"Content-Encoding": "gzip"} if compress else {}
        self._headers = {**(headers or {}), "Content-Type": NDJSON, "Accept": f"{NDJSON}, */*", **encoding}
        self._clients = PerLoop(lambda: httpx.AsyncClient(auth=auth, timeout=timeout, verify=verify))

    async def write(self, events: Sequence[Event], index: str | None = None) -> Sequence[Verdict]:
        return await find_refused(events, self._send)

    async def check(self) -> None:
        """Asks for the address without its content; only an answer of the server's own trouble is one of ours."""
        answer = await self._clients.get().head(self._url)
        if answer.status_code >= 500 and answer.status_code != 501:
            raise ConnectionError(f"{answer.status_code} {answer.reason_phrase}")

    async def close(self) -> None:
        if (client := self._clients.take()) is not None:
            await client.aclose()

    async def _send(self, events: Sequence[Event]) -> Sequence[Verdict]:
        body = "".join(f"{_encode(event.fields())}\n" for event in events).encode("utf-8", "replace")
        content = gzip.compress(body, 1) if self._compress else body
        async with self._clients.get().stream("POST", self._url, content=content, headers=self._headers) as answer:
            told = await _read(answer, len(events))
        status = answer.status_code
        if answer.is_success:
            return _verdicts(events, told) if _has_lines(answer) else [Done()] * len(events)
        if status == 413:
            raise TooLarge(_said(answer, told))
        if status == 409 and len(events) == 1:
            return [Superseded()]
        if status in _OF_EVENTS:
            raise Unfit(_said(answer, told), "http_4xx")
        # That says nothing about any event: a changed password does not fail what an operator can mend.
        waits = retry_after_of(answer.headers, datetime.now(UTC))
        return [Retry(by_status(status).reason, _said(answer, told), waits, whole=True)] * len(events)


def _has_lines(answer: httpx.Response) -> bool:
    """Returns whether the receiver answers for each event."""
    return answer.headers.get("Content-Type", "").partition(";")[0].strip().lower() in LINES


async def _read(answer: httpx.Response, events: int) -> bytes:
    """Returns the body of an answer: all of one that has lines, of others the beginning. One without an end would fill
    the memory."""
    lines = answer.is_success and _has_lines(answer)
    most = MOST_OF_ANSWER + (MOST_OF_LINE * events if lines else 0)
    found = bytearray()
    async for piece in answer.aiter_bytes():
        found += piece
        if len(found) > most and lines:
            raise ConnectionError(f"the receiver answered with more than {most:,} bytes for {events} events")
        if len(found) > most:
            break
    return bytes(found)


def _verdicts(events: Sequence[Event], told: bytes) -> list[Verdict]:
    """Returns what the receiver says of each event; those that it does not name are done."""
    try:
        # By line feeds alone: texts may have other characters that end a line.
        lines = [json.loads(line) for line in told.split(b"\n") if line.strip()]
        said = {str(line["id"]): _verdict(line) for line in lines}
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise ConnectionError(f"the receiver answered with lines that cannot be read: {error!r}") from error
    return [said.get(str(event.id), Done()) for event in events]


def _verdict(line: Mapping[str, Any]) -> Verdict:
    status, message = int(line["status"]), str(line.get("error") or f"HTTP {line['status']}")[:MOST_SAID]
    if 200 <= status < 300:
        return Done()
    if status == 409:
        return Superseded()
    # Who is not let in (401, 403) is so by the receiver: the event is not wrong.
    if 400 <= status < 500 and status not in (401, 403, 408, 425, 429):
        return Failed("http_4xx", message)
    waits = line.get("retry_after")
    return Retry(by_status(status).reason, message, float(waits) if isinstance(waits, int | float) else None)


def _said(answer: httpx.Response, told: bytes) -> str:
    words = told[: 4 * MOST_SAID].decode("utf-8", "replace")[:MOST_SAID].strip()
    return f"HTTP {answer.status_code} {answer.reason_phrase}" + (f": {words}" if words else "")
