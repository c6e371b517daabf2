"""redrive on PostgreSQL: the command line's worker, everything on that is on by default."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

from bench.peers import Peer, payload, redrive_app
from redrive import App
from redrive.stores import make_store


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
    metrics_port: int | None = None  # where its metrics are read, those of the fleet included

    async def open(self) -> None:
        store = make_store(self.url)
        await store.migrations.up()
        await store.close()
        self.app = App(self.url)
        self.app.registry = redrive_app.app.registry  # the producer validates payloads, as a real one does
        await self.app.store()

    async def close(self) -> None:
        await self.app.close()

    def kind(self, n: int) -> str:
        return "NOOP" if self.kinds == 1 else f"NOOP_{n % self.kinds}"

    async def enqueue(self, n: int, pad: str = "") -> None:
        await self.app.enqueue(self.kind(n), payload(n, pad))

    async def enqueue_many(self, numbers: Sequence[int], pad: str = "") -> None:
        await self.app.enqueue_many([(self.kind(n), payload(n, pad)) for n in numbers])

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
