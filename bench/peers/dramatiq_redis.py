"""dramatiq on Redis: its own command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.ledger import hit
from bench.peers import Peer, worker_url

broker = RedisBroker(url=worker_url())
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=3)
def noop(n: int, pad: str = "") -> None:
    hit(n)


class Adapter(Peer):
    name = "dramatiq"
    backend = "redis"
    package = "dramatiq"
    settings = "dramatiq --processes 1 --threads 8 (its default); no bulk call"
    usual_rate = 2_000
    bulk = False
    concurrent = False

    async def open(self) -> None:
        self.broker = RedisBroker(url=self.url)
        noop.broker = self.broker
        self.broker.declare_actor(noop)

    async def close(self) -> None:
        self.broker.close()

    async def enqueue(self, n: int, pad: str = "") -> None:
        noop.send(n, pad)

    async def enqueue_many(self, numbers: Sequence[int], pad: str = "") -> None:
        for n in numbers:
            noop.send(n, pad)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "dramatiq", __name__, "--processes", "1", "--threads", "8"]
