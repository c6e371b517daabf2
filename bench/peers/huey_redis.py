"""huey on Redis: its own consumer."""

from __future__ import annotations

import sys
from typing import ClassVar

from huey import RedisHuey
from huey.api import Huey, TaskWrapper

from bench.ledger import hit
from bench.peers import Peer, worker_url


def make_huey(url: str) -> Huey:
    return RedisHuey("bench", url=url, results=False)


def add_task(huey: Huey) -> TaskWrapper:
    @huey.task(name="noop")
    def noop(n: int, pad: str = "") -> None:
        hit(n)

    return noop


class Adapter(Peer):
    name: ClassVar[str] = "huey-redis"
    backend: ClassVar[str] = "redis"
    package = "huey"
    settings: ClassVar[str] = "huey_consumer with 4 threads, results off; no bulk call"
    usual_rate: ClassVar[int] = 2_800
    bulk = False
    concurrent = False
    module: ClassVar[str] = __name__

    async def open(self) -> None:
        self.huey = self.make(self.url)
        self.task = add_task(self.huey)

    def make(self, url: str) -> Huey:
        return make_huey(url)

    async def enqueue(self, n: int, pad: str = "") -> None:
        self.task(n, pad)

    async def left(self) -> int | None:
        return int(self.huey.pending_count())

    def command(self) -> list[str]:
        return [sys.executable, "-m", "huey.bin.huey_consumer", f"{self.module}.huey", "-w", "4", "-k", "thread", "-n"]


if worker_url().startswith("redis"):
    huey = make_huey(worker_url())
    add_task(huey)
