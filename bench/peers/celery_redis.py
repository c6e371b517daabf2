"""celery on Redis."""

from __future__ import annotations

import sys

from celery import Celery

from bench.ledger import hit
from bench.peers import Peer, worker_url


def make_app(url: str) -> Celery:
    app = Celery("bench", broker=url)
    app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=100, broker_connection_retry_on_startup=True)
    return app


app = make_app(worker_url())


@app.task(name="noop")
def noop(n: int, pad: str = "") -> None:
    hit(n)


class Adapter(Peer):
    name = "celery"
    backend = "redis"
    package = "celery"
    settings = (
        "prefork pool with 1 child, prefetch 100, results ignored, early acknowledgement (its default), "
        "no gossip, mingle, heartbeat; no bulk call"
    )
    usual_rate = 700
    batch = 100
    bulk = False
    concurrent = False

    async def open(self) -> None:
        self.app = make_app(self.url)

    async def close(self) -> None:
        self.app.close()

    async def enqueue(self, n: int, pad: str = "") -> None:
        self.app.send_task("noop", (n, pad))

    def command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "celery",
            "-A",
            __name__,
            "worker",
            "--concurrency",
            "1",
            "--pool",
            "prefork",
            "--loglevel",
            "WARNING",
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
            "--hostname",
            "bench-%i@%h",
        ]
