"""arq on Redis."""

from __future__ import annotations

import sys
from typing import Any

import arq
from arq.connections import RedisSettings

from bench.ledger import hit
from bench.peers import Peer, worker_url


async def noop(ctx: dict[str, Any], n: int, pad: str = "") -> None:
    hit(n)


class Adapter(Peer):
    name = "arq"
    backend = "redis"
    package = "arq"
    settings = "max_jobs 100, poll 50 ms (default 500), results not kept; no bulk call"
    usual_rate = 1_100
    batch = 100
    bulk = False

    async def open(self) -> None:
        self.pool = await arq.create_pool(RedisSettings.from_dsn(self.url))

    async def close(self) -> None:
        await self.pool.aclose()

    async def enqueue(self, n: int, pad: str = "") -> None:
        await self.pool.enqueue_job("noop", n, pad)

    async def left(self) -> int | None:
        return int(await self.pool.zcard("arq:queue"))

    def command(self) -> list[str]:
        return [sys.executable, "-m", "arq", f"{__name__}.WorkerSettings"]


class WorkerSettings:
    functions = (noop,)
    redis_settings = RedisSettings.from_dsn(worker_url())
    max_jobs = 100
    poll_delay = 0.05
    keep_result = 0
