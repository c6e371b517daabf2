"""The HTTP face on a store of the test's own: without a port, where a test does not say that it needs one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from redrive import App
from redrive.api import make_api, middleware
from redrive.cli.support.http_server import make_server
from redrive.cli.support.sockets import LOOPBACK_NAMES, address, bind

TIMEOUT_S = 120
_END = None


class InProcess(httpx.AsyncBaseTransport):
    """Passes requests to an application and its answers back, each part as it comes, also those of an endless stream.

    A server of its own waits 0.3 seconds when it stops, for each test.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = Answer(request)
        answer.task = asyncio.create_task(answer.run(self._app))
        start = await answer.begun
        return httpx.Response(start["status"], headers=start["headers"], stream=answer)


class Answer(httpx.AsyncByteStream):
    """One request that is under way."""

    task: asyncio.Task[None]

    def __init__(self, request: httpx.Request) -> None:
        self.begun: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._parts = asyncio.Queue[bytes | None]()
        self._sent = aiter(request.stream)  # type: ignore[arg-type]
        self._read_to_its_end = False
        self._hung_up = asyncio.Event()
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "server": (request.url.host, request.url.port or 80),
            "client": ("127.0.0.1", 50_000),
        }

    async def run(self, app: Any) -> None:
        try:
            await app(self._scope, self._receive, self._send)
        except Exception as error:  # after a response of its own the framework raises, for the log of its server
            if not self.begun.done():
                self.begun.set_exception(error)
        finally:
            self._parts.put_nowait(_END)

    async def _receive(self) -> dict[str, Any]:
        if self._read_to_its_end:
            await self._hung_up.wait()
            return {"type": "http.disconnect"}
        part = await anext(self._sent, None)
        self._read_to_its_end = part is None
        return {"type": "http.request", "body": part or b"", "more_body": part is not None}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.begun.set_result(message)
        else:
            self._parts.put_nowait(message.get("body", b""))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (part := await self._parts.get()) is not _END:
            yield part

    async def aclose(self) -> None:
        self._hung_up.set()
        await self.task


@asynccontextmanager
async def client_of(api: FastAPI, port: bool = False) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application; with ``port`` over a real one, for browsers and for what is no HTTP."""
    if not port:
        transport = InProcess(api)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=TIMEOUT_S) as client:
            yield client
        return
    with bind("127.0.0.1", 0) as listening:
        server = make_server(api, headers=middleware.for_path(""))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            async with httpx.AsyncClient(base_url=address(listening), timeout=TIMEOUT_S) as client:
                yield client
        finally:
            server.should_exit = True
            await serving


def another(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """Returns a client of the same application with cookies of its own."""
    return httpx.AsyncClient(transport=client._transport, base_url=client.base_url, timeout=TIMEOUT_S)


@asynccontextmanager
async def served(
    app: App, worker: Any = None, *, port: bool = False, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    await app.store()
    api = make_api(app, worker, hosts=LOOPBACK_NAMES, **{"open_door": True, **options})
    try:
        async with client_of(api, port) as client:
            yield client
    finally:
        await app.close()
