"""taskiq on Redis streams, the broker that acknowledges."""

from __future__ import annotations

import sys

from taskiq_redis import RedisStreamBroker

from bench.ledger import hit
from bench.peers import Peer, worker_url


def make_broker(url: str) -> RedisStreamBroker:
    return RedisStreamBroker(url, consumer_id="0", max_connection_pool_size=120)


async def noop(n: int, pad: str = "") -> None:
    hit(n)


class Adapter(Peer):
    name = "taskiq"
    backend = "redis"
    package = "taskiq"
    settings = "RedisStreamBroker, taskiq worker --workers 1 --max-async-tasks 100, no result backend; no bulk call"
    usual_rate = 1_400
    batch = 100
    bulk = False

    async def open(self) -> None:
        self.broker = make_broker(self.url)
        self.task = self.broker.register_task(noop, task_name="noop")
        await self.broker.startup()

    async def close(self) -> None:
        await self.broker.shutdown()

    async def enqueue(self, n: int, pad: str = "") -> None:
        await self.task.kiq(n, pad)

    def command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "taskiq",
            "worker",
            f"{__name__}:broker",
            "--workers",
            "1",
            "--max-async-tasks",
            "100",
        ]


broker = make_broker(worker_url())
broker.register_task(noop, task_name="noop")
