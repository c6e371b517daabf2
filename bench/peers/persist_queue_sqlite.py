"""persist-queue on SQLite: a queue, not a worker; the loop around it is the smallest that acknowledges."""

from __future__ import annotations

import time
from pathlib import Path

from persistqueue import Empty, SQLiteAckQueue

from bench.ledger import hit
from bench.peers import Peer, payload, worker_url


def make_queue(url: str) -> SQLiteAckQueue:
    return SQLiteAckQueue(str(Path(url.removeprefix("sqlite:///")).with_suffix("")), multithreading=True)


class Adapter(Peer):
    name = "persist-queue"
    backend = "sqlite"
    package = "persist-queue"
    settings = "SQLiteAckQueue, get + ack in a loop, 1 ms sleep when empty; not made for several processes"
    usual_rate = 2_000
    bulk = False
    concurrent = False
    most_processes = 1

    async def open(self) -> None:
        self.queue = make_queue(self.url)

    async def close(self) -> None:
        self.queue.close()

    async def enqueue(self, n: int, pad: str = "") -> None:
        self.queue.put(payload(n, pad))


def main() -> None:
    queue = make_queue(worker_url())
    while True:
        try:
            item = queue.get(block=False)
        except Empty:
            time.sleep(0.001)
            continue
        hit(item["n"])
        queue.ack(item)


if __name__ == "__main__":
    main()
