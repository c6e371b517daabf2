"""Projections after a busy day: one into full text that refuses some events, one whose sink is down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redrive import App
from redrive.feature import Settings
from redrive.observe.logs import TaskLog
from redrive.ops.access import Caller, Role
from redrive.outbox.event import Event
from redrive.outbox.service import OutboxService
from redrive.outbox.settings import OutboxSettings
from redrive.outbox.sinks.fts5 import Fts5
from redrive.outbox.source import Record
from redrive.outbox.verdict import Failed, Verdict
from redrive.settings import Options

DOWN = "http://127.0.0.1:9/events"  # nobody listens there
REFUSED = Failed("http_4xx", "mapper_parsing_exception: failed to parse field [duration] of type [integer]")


class Shots:
    """Where the shots are kept: three more than the index has, and one that was cut since."""

    async def scan(self, after: str, limit: int) -> Sequence[Record]:
        kept = [Record("shot", f"s-{n:03}", 1, {"title": f"Shot at dawn {n}", "duration": n}) for n in (0, 1, 2, 3)]
        lost = [Record("shot", f"t-{n:03}", 1, {"title": f"Night shot {n}", "duration": n}) for n in (1, 2, 3)]
        return [one for one in (*kept, *lost) if one.key > after][:limit]

    async def fetch(self, keys: Sequence[str]) -> Sequence[Record]:
        return [one for one in await self.scan("", 100) if one.key in keys]


class Picky(Fts5):
    """Full text that refuses a document whose duration is no number."""

    async def write(self, events: Sequence[Event], index: str | None = None) -> Sequence[Verdict]:
        fit = [one for one in events if not isinstance((one.payload or {}).get("duration"), str)]
        real = dict(zip((one.id for one in fit), await super().write(fit, index), strict=True))
        return [real.get(one.id, REFUSED) for one in events]


def with_catalogue(settings: Settings) -> Settings:
    """Returns settings for an application that has projections: what is tried again waits for an hour."""
    return settings.holding(OutboxSettings(base_backoff_seconds=3600, max_backoff_seconds=3600))


def add_catalogue(made: App, folder: Path, name: str = "catalogue") -> None:
    made.outbox.projection(name, sink=Picky(folder / "catalogue-search.db")).shown = "fts5:///catalogue-search.db"
    made.outbox.source(name)(Shots)
    made.outbox.projection("partners", sink=DOWN)


async def furnish_catalogue(made: App, size: int = 2, name: str = "catalogue", title: str = "Shot at dawn") -> None:
    """Fills a store with events that are done, failed, retried and pending; ``title`` is what somebody called
    things."""
    await _publish(made, name, 30 * size, title)
    for n in range(size):
        await made.outbox.publish(None, name, "shot", f"x-{n}", "reindex", 1)
    await _publish(made, "partners", 8 * size, title)
    queues = (f"outbox:{name}", "outbox:partners")
    options = Options(concurrency=500, queues=queues, stop_when_empty=True)
    await made.worker(await made.store(), options, log=TaskLog(style="off")).run()
    await (await made.operator(Caller("ann", Role.ADMIN))).of(OutboxService).verify(name, reason="after the outage")
    await made.worker(await made.store(), options, log=TaskLog(style="off")).run()
    await _publish(made, name, 5 * size, title, version=2)


async def _publish(made: App, projection: str, count: int, title: str, version: int = 1) -> None:
    events: list[Any] = [
        ("shot", f"s-{n:03}", "upsert", version, {"title": f"{title} {n}", "duration": "long" if n % 6 == 5 else n})
        for n in range(count)
    ]
    await made.outbox.publish_many(None, projection, events)
