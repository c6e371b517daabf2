"""The HTTP face on a real port, on a store of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from redrive import App
from redrive.api import make_api, middleware
from redrive.cli.support.http_server import make_server
from redrive.cli.support.sockets import LOOPBACK_NAMES, address, bind


@asynccontextmanager
async def served(app: App, worker: Any = None, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    await app.store()
    with bind("127.0.0.1", 0) as listening:
        api = make_api(app, worker, hosts=LOOPBACK_NAMES, **{"open_door": True, **options})
        server = make_server(api, headers=middleware.for_path(""))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            async with httpx.AsyncClient(base_url=address(listening), timeout=90) as client:
                yield client
        finally:
            server.should_exit = True
            await serving
            await app.close()
