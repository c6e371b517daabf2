"""redrive on PostgreSQL: the command line's worker, everything on that is on by default."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

from bench.peers import Peer, payload, redrive_app
from redrive import App
from redrive.batches import Batches, NewBatch


class Adapter(Peer):
    name: ClassVar[str] = "redrive-postgres"
    backend: ClassVar[str] = "postgres"
    package = "redrive"
    settings: ClassVar[str] = "redrive work --concurrency 1000; JSON log lines to a file; all else by default"
    usual_rate: ClassVar[int] = 25_000
    batch: ClassVar[int] = 1000
    concurrency = 1000
    kinds = 1  # tasks are spread over so many kinds
    saturated = False
    batched = False  # tasks of bulk calls are items of one batch
    metrics_port: int | None = None  # where its metrics are read, those of the fleet included

    async def open(self) -> None:
        self.app = App(self.url)
        await self.app.migrate()
        self.app.registry = redrive_app.app.registry  # the producer validates payloads, as a real one does
        self.filled: NewBatch | None = None
        await self.app.store()

    async def close(self) -> None:
        if self.filled is not None:
            await self.filled.__aexit__(None, None, None)
        await self.app.close()

    def kind(self, n: int) -> str:
        return "NOOP" if self.kinds == 1 else f"NOOP_{n % self.kinds}"

    async def enqueue(self, n: int, pad: str = "") -> None:
        await self.app.enqueue(self.kind(n), payload(n, pad))

    async def enqueue_many(self, numbers: Sequence[int], pad: str = "") -> None:
        tasks = [(self.kind(n), payload(n, pad)) for n in numbers]
        if not self.batched:
            await self.app.enqueue_many(tasks)
            return
        if self.filled is None:
            self.filled = self.app.of(Batches)()
            await self.filled.__aenter__()
        await self.filled.add(tasks)

    async def left(self) -> int | None:
        counts = await (await self.app.store()).counts()
        waiting = ("queued", "delayed", "running")
        return sum(count.n for count in counts if count.state.value in waiting and count.kind.startswith("NOOP"))

    def command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "redrive.cli",
            "work",
            "--app",
            "bench.peers.redrive_app:app",
            "--concurrency",
            str(self.concurrency),
            *(() if self.metrics_port is None else ("--metrics-port", str(self.metrics_port), "--fleet-metrics")),
        ]

    def environment(self) -> dict[str, str]:
        chosen = {"BENCH_SATURATED": "1"} if self.saturated else {}
        return {"REDRIVE_URL": self.url, **chosen}
