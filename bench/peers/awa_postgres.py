"""awa: a Rust engine with Python handlers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass

import awa

from bench.ledger import hit
from bench.peers import Peer, worker_url


@dataclass
class Noop:
    n: int
    pad: str = ""


class Adapter(Peer):
    name = "awa"
    backend = "postgres"
    package = "awa-pg"
    settings = "queue storage, 500 workers on the queue, 20 connections, poll 50 ms; bulk by COPY"
    usual_rate = 4_000
    batch = 500

    async def open(self) -> None:
        self.client = awa.AsyncClient(self.url)
        await self.client.migrate()
        await self.client.install_queue_storage()

    async def close(self) -> None:
        await self.client.close()

    async def enqueue(self, n: int, pad: str = "") -> None:
        await self.client.insert(Noop(n, pad))

    async def enqueue_many(self, numbers: Sequence[int], pad: str = "") -> None:
        await self.client.enqueue_many_copy([Noop(n, pad) for n in numbers])


async def main() -> None:
    client = awa.AsyncClient(worker_url(), max_connections=20)

    @client.task(Noop, queue="default")
    async def noop(job: awa.Job) -> None:
        hit(job.args.n)

    await client.start([("default", 500)], poll_interval_ms=50)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await client.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
