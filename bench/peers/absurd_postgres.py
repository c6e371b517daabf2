"""absurd: durable workflows; its schema comes with its control program."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import absurdctl
import psycopg
from absurd_sdk import AsyncAbsurd

from bench.ledger import hit
from bench.peers import Peer, payload, worker_url


class Adapter(Peer):
    name = "absurd"
    backend = "postgres"
    package = "absurd-sdk"
    settings = "asynchronous worker, concurrency 100, poll 50 ms (default 250); it has no bulk call"
    usual_rate = 900
    batch = 100
    bulk = False
    concurrent = False  # one connection, one statement at a time

    async def open(self) -> None:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            await connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        self.app = AsyncAbsurd(self.url)
        await self.app.create_queue("default")

    async def close(self) -> None:
        await self.app.close()

    async def enqueue(self, n: int, pad: str = "") -> None:
        await self.app.spawn("noop", payload(n, pad), queue="default")

    async def enqueue_many(self, numbers: Sequence[int], pad: str = "") -> None:
        for n in numbers:
            await self.enqueue(n, pad)


async def main() -> None:
    app = AsyncAbsurd(worker_url())

    @app.register_task(name="noop")
    async def noop(params: Any, ctx: Any) -> None:
        hit(params["n"])

    await app.start_worker(concurrency=100, poll_interval=0.05)


if __name__ == "__main__":
    asyncio.run(main())
