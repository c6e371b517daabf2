"""Sends a provider's requests: bounded in time and size, redirects not followed, secrets in no message."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import weakref
from datetime import UTC, datetime
from typing import Any

import httpx

from redrive.errors import ConfigError
from redrive.kernel.classify import TIMEOUT
from redrive.kernel.retry_after import retry_after_of
from redrive.remote.errors import ProviderError
from redrive.remote.http.fields import error_text, nonsense, optional, shown
from redrive.remote.http.packed import PackedAnswer, unpacked
from redrive.settings.providers import HttpProviderSettings
from redrive.version import __version__

_ERROR_PATHS = ("error", "message", "detail", "errors")
_CODE_PATHS = ("error.code", "code", "error_code")


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
        text = f" and leads elsewhere ({shown(response.headers.get('Location', ''))}); redirects are not followed"
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
        raise nonsense(f"{where} answered no JSON, but {what}: {shown(content[:300])}") from None


def _document(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
