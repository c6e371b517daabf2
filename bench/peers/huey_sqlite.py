"""huey on SQLite."""

from __future__ import annotations

from typing import ClassVar

from huey import SqliteHuey
from huey.api import Huey

from bench.peers import worker_url
from bench.peers.huey_redis import Adapter as OnRedis
from bench.peers.huey_redis import add_task


def make_huey(url: str) -> Huey:
    # fsync=True is what redrive does as well: a task that was accepted survives a power cut.
    return SqliteHuey("bench", filename=url.removeprefix("sqlite:///"), results=False, fsync=True)


class Adapter(OnRedis):
    name: ClassVar[str] = "huey-sqlite"
    backend: ClassVar[str] = "sqlite"
    settings: ClassVar[str] = "huey_consumer with 4 threads, results off, WAL, fsync on (FULL); no bulk call"
    module: ClassVar[str] = __name__

    def make(self, url: str) -> Huey:
        return make_huey(url)


if worker_url().startswith("sqlite"):
    huey = make_huey(worker_url())
    add_task(huey)
