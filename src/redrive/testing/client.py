"""Calls the HTTP API without a network: requests go straight into the application, responses come straight back."""

from __future__ import annotations

import asyncio
import json as standard
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from redrive.api import make_api
from redrive.app import App
from redrive.console import add_console
from redrive.sync import Portal


@dataclass(slots=True, frozen=True)
class Answer:
    """A response. ``json()`` of one that is none, or of an error where none was expected, says what came instead."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return standard.loads(self.content)

    def ok(self) -> Any:
        """Returns the response's JSON, after making sure that it is no error."""
        if self.status >= 400:
            raise AssertionError(f"the API answered {self.status}: {self.text[:500]}")
        return self.json() if self.content else None


class ApiClient:
    """``kit.api``: plain calls, in ordinary and in async tests alike. ``console``: its pages, too."""

    def __init__(self, app: App, portal: Portal, *, console: bool = False) -> None:
        self._app = app
        self._api = make_api(app, open_door=True)
        if console:
            add_console(self._api)
        self._portal = portal
        self.headers: dict[str, str] = {}

    def close(self) -> None:
        """Closes a client of one's own, with what it has opened; that of a kit is closed with the kit."""
        self._portal.call(self._app.close())
        self._portal.close()

    def get(self, path: str, **params: Any) -> Answer:
        return self.request("GET", path, params=params)

    def post(self, path: str, json: Any = None, **headers: str) -> Answer:
        return self.request("POST", path, json={} if json is None else json, headers=headers)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        query = urlencode([(k, v) for k, v in (params or {}).items() if v is not None], doseq=True)
        body = b"" if json is None else standard.dumps(json).encode()
        return self._portal.call(self._send(method, path, query, body, {**self.headers, **(headers or {})}))

    async def _send(self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        sent = {"content-type": "application/json", "host": "testserver", **{k.lower(): v for k, v in headers.items()}}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 0),
            "server": ("testserver", 80),
        }
        messages: list[dict[str, Any]] = []
        unread = [body]

        async def receive() -> dict[str, Any]:
            if not unread:  # the caller stays until it has its answer
                await asyncio.Event().wait()
            return {"type": "http.request", "body": unread.pop(), "more_body": False}

        async def send(message: Any) -> None:
            messages.append(dict(message))

        await self._api(scope, receive, send)
        start = next(message for message in messages if message["type"] == "http.response.start")
        content = b"".join(message.get("body", b"") for message in messages if message["type"] == "http.response.body")
        found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], found, content)
