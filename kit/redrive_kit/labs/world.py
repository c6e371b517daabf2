"""What an experiment is about: a store, a projection of its own, a sink, and workers that can be killed."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redrive.app import App
from redrive.kernel.alerts.thresholds import Limits, Thresholds
from redrive.kernel.ports.store import Store
from redrive.outbox.application import Outbox
from redrive.outbox.event import OPS, queue_of
from redrive.outbox.settings import OutboxSettings
from redrive.settings import AlertSettings, load_settings
from redrive_kit.labs import LABS, facts
from redrive_kit.labs.sinks import LabSink
from redrive_kit.labs.workers import OutboxWorker, usual_port, worker_environment

GOODBYE_S = 5.0
# What is broken on purpose is nobody's alarm.
TOLD_NOBODY: dict[str, Any] = {"alert_slack": None, "alert_webhook": None, "alert_email": [], "alert_heartbeat": None}
KEEP_S = 900.0  # how long done events of an experiment are kept: workers remove them then


@dataclass(slots=True)
class World:
    """``settings`` are those of the outbox, by variable. ``fresh``: the store was made for this. ``mark``: the entity
    type of its events, by which they are told from those of other runs."""

    url: str
    directory: Path
    projection: str
    mark: str
    sink: LabSink
    settings: dict[str, str]
    fresh: bool
    several: bool = False  # others run at the same time: the usual port is not ours alone
    thresholds: Thresholds | None = None  # of alerts, for its queue
    source: dict[str, int] = field(default_factory=dict)  # what the sink has to have: versions by key
    workers: list[OutboxWorker] = field(default_factory=list)
    _app: App | None = None
    _published: int = 0

    # -- the store -------------------------------------------------------------------------------------------------

    @property
    def queue(self) -> str:
        return queue_of(self.projection)

    @property
    def app(self) -> App:
        """An application with the same projection as the workers', for publishing and looking."""
        if self._app is None:
            given = load_settings(url=self.url, log_format="off", interval_ms=1000)
            given = given.with_values(alerts=self._alerts(given.alerts), **TOLD_NOBODY)
            own = {name.removeprefix("OUTBOX_").lower(): float(value) for name, value in self.settings.items()}
            own |= {name: int(own[name]) for name in ("max_attempts", "batch") if name in own}
            held = OutboxSettings(projections={self.projection: {"sink": self.sink.url}}, **own)
            self._app = App(settings=given.holding(held), features=[LABS])
        return self._app

    def _alerts(self, configured: AlertSettings) -> AlertSettings:
        """Returns what alerts go by: thresholds of our own queue; those of others, as far as there are others."""
        mine = {} if self.thresholds is None else {self.queue: self.thresholds}
        if self.fresh:
            return AlertSettings(Limits(queues=mine))
        known = configured.limits
        return AlertSettings(Limits(known.every, {**known.queues, **mine}), configured.own)

    async def store(self) -> Store:
        return await self.app.store()

    async def publish(self, count: int, op: str = "upsert") -> None:
        """Publishes changes of new entities."""
        first, self._published = self._published, self._published + count
        events = [(self.mark, str(n), op, 1, {"text": f"note {n}"}) for n in range(first, first + count)]
        for start in range(0, count, 500):
            await self.app.of(Outbox).publish_many(None, self.projection, events[start : start + 500])
        if op in OPS:
            self.source |= {f"{self.mark}:{n}": 1 for n in range(first, first + count)}

    async def facts(self, when: str) -> facts.Facts:
        """Returns the facts of this moment, with the metrics of the last worker that is alive."""
        alive = [worker for worker in self.workers if worker.alive]
        metrics = await alive[-1].metrics() if alive else {}
        return await facts.look(await self.store(), self.mark, self.max_processing, when, metrics)

    async def events(self, status: str) -> list[dict[str, Any]]:
        return await facts.events(await self.store(), self.mark, status)

    @property
    def max_processing(self) -> float:
        return self.app.settings.of(OutboxSettings).max_processing_seconds

    # -- processes -------------------------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """Returns what processes of this world have as their environment."""
        return worker_environment(self.url, self.projection, self.sink.url, self.settings, KEEP_S, fresh=self.fresh)

    @property
    def cwd(self) -> Path | None:
        """A fresh store is looked at from a folder without a ``redrive.toml``."""
        return self.directory if self.fresh else None

    async def worker(self, name: str, *, ready: bool = True) -> OutboxWorker:
        """Starts ``redrive outbox work``; waits until it is ready."""
        made = OutboxWorker(
            name,
            self.projection,
            self.environment(),
            self.directory,
            cwd=self.cwd,
            port=0 if self.several else usual_port(),
        )
        self.workers.append(made)
        if ready:
            await made.ready()
        return made

    async def close(self) -> None:
        """Ends all processes; those that can say goodbye to the store do."""
        for worker in self.workers:
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(worker.stop, GOODBYE_S)
            await asyncio.to_thread(worker.kill)
        await self.sink.close()
        if self._app is not None:
            await self._app.close()
