"""procrastinate: its own worker with LISTEN."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from procrastinate import App, PsycopgConnector

from bench.ledger import hit
from bench.peers import Peer, payload, worker_url


def make_app(url: str) -> App:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=20))

    @app.task(name="noop")
    async def noop(n: int, pad: str = "") -> None:
        hit(n)

    return app


class Adapter(Peer):
    name = "procrastinate"
    backend = "postgres"
    package = "procrastinate"
    settings = "concurrency 50, pool of 20, LISTEN, successful jobs deleted; bulk by batch_defer"
    usual_rate = 500

    async def open(self) -> None:
        self.app = make_app(self.url)
        await self.app.open_async()
        await self.app.schema_manager.apply_schema_async()

    async def close(self) -> None:
        await self.app.close_async()

    async def enqueue(self, n: int, pad: str = "") -> None:
        await self.app.tasks["noop"].defer_async(**payload(n, pad))

    async def enqueue_many(self, numbers: Sequence[int], pad: str = "") -> None:
        await self.app.tasks["noop"].batch_defer_async(*(payload(n, pad) for n in numbers))

    async def left(self) -> int | None:
        jobs = await self.app.job_manager.list_queues_async()
        return sum(row["todo"] + row["doing"] for row in jobs)


async def main() -> None:
    app = make_app(worker_url())
    async with app.open_async():
        await app.run_worker_async(concurrency=50, delete_jobs="successful")


if __name__ == "__main__":
    asyncio.run(main())
