"""Sends a provider's requests: bounded in time and size, redirects not followed, secrets in no message."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import weakref
import zlib
from datetime import UTC, datetime
from typing import Any

import httpx

from redrive.errors import ConfigError
from redrive.kernel.classify import TIMEOUT
from redrive.kernel.placeholders import Missing, find
from redrive.kernel.retry_after import retry_after_of
from redrive.kernel.wording import clean
from redrive.remote.provider import NONSENSE, JobFailure, JobState, ProviderError, Status
from redrive.settings.providers import HttpProviderSettings, PollCall
from redrive.version import __version__

_PLAIN = ("", "identity")
_GZIP = ("gzip", "x-gzip")
_WITH_GZIP_HEADER = 16 + zlib.MAX_WBITS
SHOWN = 200  # characters of what came that a message quotes
MAX_ERROR = 2_000
_ERROR_PATHS = ("error", "message", "detail", "errors")
_CODE_PATHS = ("error.code", "code", "error_code")


class PackedAnswer(ValueError):
    """What came cannot be unpacked, or not within the bound."""


def unpacked(content: bytes, encoding: str, most: int) -> bytes:
    """Returns the content of an answer whose Content-Encoding is ``encoding``; raises PackedAnswer."""
    named = encoding.strip().lower()
    if named in _PLAIN or not content:
        return content
    if named not in _GZIP:
        raise PackedAnswer(f"answered packed as {encoding[:60]!r}, which was not asked for")
    unpacking = zlib.decompressobj(_WITH_GZIP_HEADER)
    try:
        found = unpacking.decompress(content, most + 1)
    except zlib.error as error:
        raise PackedAnswer(f"answered what is called gzip and is none: {error}") from None
    if len(found) > most:
        raise PackedAnswer(f"answered with more than {most:,} bytes, packed into {len(content):,}")
    if not unpacking.eof:
        raise PackedAnswer("answered with gzip that is cut short")
    return found


def needed(document: Any, path: str, where: str) -> Any:
    """Returns what stands at a path; what is not there is said with what came instead."""
    try:
        return find(document, path)
    except Missing as error:
        below = f"at {error.at!r} there is" if error.at else "it is"
        raise nonsense(f"{where} has no {path!r}: {below} {excerpt(find(document, error.at))}") from None


def optional(document: Any, path: str) -> Any:
    """Returns what stands at a path, or None."""
    try:
        return find(document, path) if path else None
    except Missing:
        return None


def job_id(document: Any, path: str, where: str) -> str:
    """Returns a job's id. Numbers are ids, too."""
    found = needed(document, path, where)
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    if isinstance(found, str) and found:
        return found
    raise nonsense(f"{where} has no id at {path!r}, but {excerpt(found)}")


def status_of(job: Any, call: PollCall, where: str) -> Status:
    """Returns what an answer says about one job."""
    word = needed(job, call.status, where)
    state = call.word(word) if isinstance(word, str) else None
    if state is None:
        raise nonsense(
            f"{where} says {excerpt(word)} at {call.status!r}, which is not known; "
            "the table statuses of its poll says what words mean"
        )
    if state == JobState.SUCCEEDED:
        return Status.succeeded(optional(job, call.result))
    if state == JobState.FAILED:
        return Status(JobState.FAILED, failure=_failure(job, call, str(word)))
    return Status(JobState(state), _progress(optional(job, call.progress), call.progress_of))


def error_text(found: Any) -> str:
    """Returns an error as text: its message where it is a table of several things."""
    if isinstance(found, dict):
        found = next((found[name] for name in ("message", "detail", "title", "error") if found.get(name)), found)
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=str)
    return clean(text[:MAX_ERROR])


def _failure(job: Any, call: PollCall, word: str) -> JobFailure:
    said, code, status = (optional(job, path) for path in (call.error, call.error_code, call.error_status))
    if isinstance(said, dict):  # as many have it: the error is a table of its own
        code = said.get("code") if code is None else code
        status = said.get("status") if status is None else status
    return JobFailure(
        f"the provider says {word}" if said is None or said == "" else error_text(said),
        _http_status(status),
        code,
    )


def _http_status(found: Any) -> int | None:
    if isinstance(found, str) and found.isdecimal():
        found = int(found[:4])
    return found if isinstance(found, int) and not isinstance(found, bool) and 400 <= found <= 599 else None


def _progress(found: Any, whole: float) -> float | None:
    """Returns the progress from 0 to 100. What is no number is unknown: a job is not held up for it."""
    if isinstance(found, str):
        try:
            found = float(found.strip().removesuffix("%"))
        except ValueError:
            return None
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found:
        return None
    # Bounded first: a number of hundreds of digits is no float.
    return min(max(found, 0), whole) * 100 / whole


def excerpt(found: Any) -> str:
    """Returns a little of what came, for a message."""
    text = repr(found)
    return clean(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def nonsense(text: str) -> ProviderError:
    return ProviderError(text, classification=NONSENSE)


class Client:
    """The connections to one provider, those of each event loop apart: they belong to it."""

    def __init__(self, settings: HttpProviderSettings) -> None:
        self._settings = settings
        self._headers = {
            "User-Agent": f"redrive/{__version__}",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            **settings.headers,
        }
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            weakref.WeakKeyDictionary()
        )
        if settings.auth_env is not None:
            self._headers[settings.auth_header] = _secret(settings)

    async def send(self, method: str, url: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """Sends a request and returns its answer, JSON. ``url`` is below the base, or a whole one of the same host."""
        where = f"{method} {url.partition('?')[0]}"
        try:
            async with asyncio.timeout(self._settings.timeout):
                response, content = await self._exchange(method, url, body, headers)
        except TimeoutError as error:
            told = f"{where} took longer than {self._settings.timeout:g} seconds"
            raise ProviderError(told, classification=TIMEOUT) from error
        encoding = response.headers.get("Content-Encoding", "")
        if not response.is_success:
            with contextlib.suppress(PackedAnswer):  # the status says enough
                content = unpacked(content, encoding, self._settings.max_answer_bytes)
            raise _refused(where, response, content)
        try:
            return _parsed(where, response, unpacked(content, encoding, self._settings.max_answer_bytes))
        except PackedAnswer as error:
            raise nonsense(f"{where} {error}") from None

    async def close(self) -> None:
        """Closes the connections of the running event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def _exchange(
        self, method: str, url: str, body: Any, headers: dict[str, str] | None
    ) -> tuple[httpx.Response, bytes]:
        # Encoded here: what is no JSON (NaN) is a mistake of the item, and has to be told apart from the network.
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        typed = {} if content is None else {"Content-Type": "application/json"}
        most, found = self._settings.max_answer_bytes, bytearray()
        client = self._client()
        async with client.stream(method, url, content=content, headers={**typed, **(headers or {})}) as response:
            # As it came: httpx would unpack a whole piece, however large, before anybody could count.
            async for part in response.aiter_raw():
                found += part
                if len(found) > most:
                    raise nonsense(f"{method} {url.partition('?')[0]} answered with more than {most:,} bytes")
        return response, bytes(found)

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            settings = self._settings
            self._clients[loop] = httpx.AsyncClient(
                base_url=settings.base_url,
                headers=self._headers,
                timeout=httpx.Timeout(settings.timeout, connect=settings.connect_timeout),
                limits=httpx.Limits(max_connections=settings.connections),
                follow_redirects=False,
            )
        return self._clients[loop]


def _secret(settings: HttpProviderSettings) -> str:
    found = os.environ.get(settings.auth_env or "")
    if not found:
        raise ConfigError(
            f"the environment has no {settings.auth_env}, which auth_env of the provider names",
            hint=f"set it: export {settings.auth_env}=…",
        )
    if not found.isprintable() or not found.isascii():
        raise ConfigError(f"{settings.auth_env} cannot be sent as a header", hint="is there a line break at its end?")
    return f"{settings.auth_scheme} {found}" if settings.auth_scheme else found


def _refused(where: str, response: httpx.Response, content: bytes) -> ProviderError:
    status = response.status_code
    document = _document(content)
    said = next((found for path in _ERROR_PATHS if (found := optional(document, path))), None)
    code = next((found for path in _CODE_PATHS if isinstance(found := optional(document, path), str)), None)
    text = f": {error_text(said)}" if said else ""
    if response.is_redirect:
        text = f" and leads elsewhere ({excerpt(response.headers.get('Location', ''))}); redirects are not followed"
    return ProviderError(
        f"{where} answered {status}{text}",
        status_code=status,
        code=code,
        retry_after=_wish(response),
    )


def _wish(response: httpx.Response) -> str | None:
    """Returns the seconds for which a provider wants to be left alone; a date is seen from its own clock."""
    wait = retry_after_of(response.headers, datetime.now(UTC))
    return None if wait is None else f"{wait:g}"


def _parsed(where: str, response: httpx.Response, content: bytes) -> Any:
    if not content.strip():
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        what = response.headers.get("Content-Type", "nothing that says what it is")
        raise nonsense(f"{where} answered no JSON, but {what}: {excerpt(content[:300])}") from None


def _document(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
