"""oban for Python: needs Python 3.12."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Any

from oban import Oban, worker
from oban.schema import install

from bench.ledger import hit
from bench.peers import Peer, payload, worker_url


@worker(queue="default")
class Noop:
    async def process(self, job: Any) -> None:
        hit(job.args["n"])


class Adapter(Peer):
    name = "oban"
    backend = "postgres"
    package = "oban"
    settings = "one queue with limit 100, pool of 20; bulk by enqueue_many"
    usual_rate = 1_400
    batch = 100

    async def open(self) -> None:
        self.pool = await Oban.create_pool(dsn=self.url, max_size=10)
        await install(self.pool)
        self.oban = Oban(pool=self.pool)
        await self.oban.start()

    async def close(self) -> None:
        await self.oban.stop()
        await self.pool.close()

    async def enqueue(self, n: int, pad: str = "") -> None:
        await self.oban.enqueue(Noop.new(payload(n, pad)))

    async def enqueue_many(self, numbers: Sequence[int], pad: str = "") -> None:
        await self.oban.enqueue_many([Noop.new(payload(n, pad)) for n in numbers])


async def main() -> None:
    pool = await Oban.create_pool(dsn=worker_url(), max_size=20)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with Oban(pool=pool, queues={"default": 100}):
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main())
