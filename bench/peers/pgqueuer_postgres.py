"""pgqueuer: what its command line runs, on uvloop. (The command itself breaks with the newest typer.)"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.adapters.cli import supervisor
from pgqueuer.core.logconfig import LogLevel, setup_fancy_logger
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.ledger import hit
from bench.peers import Peer, payload, worker_url

BATCH = 500


class Adapter(Peer):
    name = "pgqueuer"
    backend = "postgres"
    package = "pgqueuer"
    settings = (
        "batch size 500, no cap on concurrent tasks, asyncpg, uvloop; producer on one connection, concurrent producers "
        "on one or on a pool of 10 without resets, whichever was faster"
    )
    usual_rate = 9_000
    batch = BATCH
    pools = (1, 10)

    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.url)
        self.queries = Queries(AsyncpgDriver(self.connection))
        await self.queries.install()
        # Without a reset after each use, which would cost four more statements a task.
        self.pool = await asyncpg.create_pool(self.url, min_size=0, max_size=max(self.pool_size, 1), reset=_no_reset)
        self.pooled = Queries(AsyncpgPoolDriver(self.pool)) if self.pool_size > 1 else self.queries

    async def close(self) -> None:
        await self.connection.close()
        await self.pool.close()

    async def enqueue_concurrently(self, n: int) -> None:
        await self.pooled.enqueue("noop", json.dumps(payload(n, "")).encode())

    async def enqueue(self, n: int, pad: str = "") -> None:
        await self.queries.enqueue("noop", json.dumps(payload(n, pad)).encode())

    async def enqueue_many(self, numbers: Sequence[int], pad: str = "") -> None:
        bodies = [json.dumps(payload(n, pad)).encode() for n in numbers]
        await self.queries.enqueue(["noop"] * len(bodies), bodies, [0] * len(bodies))

    async def left(self) -> int | None:
        return sum(row.count for row in await self.queries.queue_size())


async def _no_reset(connection: asyncpg.Connection) -> None: ...


@asynccontextmanager
async def make() -> AsyncIterator[PgQueuer]:
    pgq = PgQueuer.from_asyncpg_connection(await asyncpg.connect(worker_url()))

    @pgq.entrypoint("noop")
    async def noop(job: Job) -> None:
        hit(json.loads(job.payload or b"{}")["n"])

    yield pgq


if __name__ == "__main__":
    setup_fancy_logger(LogLevel.INFO)  # its default
    uvloop.run(supervisor.run(make, dequeue_timeout=timedelta(seconds=30), batch_size=BATCH))
