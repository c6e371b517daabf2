"""Runs a soak: load and faults in stretches, each followed by a quiet point at which the books have to balance."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from redrive.app import App
from redrive.errors import Conflict
from redrive.ops.access import Caller, Role
from redrive.outbox.settings import OutboxSettings
from redrive.settings import load_settings
from redrive_kit.labs.database import Database
from redrive_kit.labs.processes import TooLate, poll
from redrive_kit.labs.sinks import SimulatedSink
from redrive_kit.labs.soak.books import PROJECTION, Books
from redrive_kit.labs.soak.faults import Faults
from redrive_kit.labs.soak.fleet import SHORT, Fleet
from redrive_kit.labs.soak.invariants import Broken, Invariants
from redrive_kit.labs.soak.load import Load
from redrive_kit.labs.soak.rows import Rows

WORKERS = ("tasks-1", "tasks-2", "outbox-1", "outbox-2")
STRETCH_S = 45.0  # of load and faults, then it is quiet
CHECK_EVERY_S = 2.0
DRAINS_WITHIN_S = 240.0
AGREES_WITHIN_S = 120.0
KEPT_LONGER_S = 3600.0  # than the soak lasts: what is done has to be there at the end
ACTOR, AT_ONCE = "soak", 500


@dataclass(slots=True)
class Plan:
    """What the command line says. ``url``: a store that is there; None makes a fresh one in ``directory``."""

    minutes: float
    url: str | None
    rate: float
    seed: int
    cuts: bool
    directory: Path
    say: Callable[[str], None]  # a line that stays
    show: Callable[[str], None]  # how it stands: the next one may take its place


@dataclass(slots=True)
class Outcome:
    """How it went. ``broken``: which invariant, and where; ``None``: all of them held."""

    broken: str | None = None
    invariant: str | None = None
    seconds: float = 0.0
    tasks: int = 0
    events: int = 0
    refused: int = 0
    faults: int = 0
    checks: int = 0
    quiet_points: int = 0
    last_faults: list[str] = field(default_factory=list)


class Soak:
    """One soak from its beginning to its end."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._url = plan.url or f"sqlite:///{plan.directory}/redrive.db"
        chance = random.Random(plan.seed)  # noqa: S311
        self._run_id = f"soak-{uuid4().hex[:8]}"
        sink = SimulatedSink(plan.directory, "redrive-soak")
        keep = plan.minutes * 60 + KEPT_LONGER_S
        self._fleet = Fleet(self._url, plan.directory, sink, keep, fresh=plan.url is None)
        self._books = Books()
        database = Database(self._url)
        self._rows = Rows(database)
        self._invariants = Invariants(self._rows, self._books, self._fleet)
        self._faults = Faults(self._fleet, database, random.Random(chance.random()), cuts=plan.cuts)  # noqa: S311
        self._load_chance = random.Random(chance.random())  # noqa: S311
        self._quiet_points = 0
        self._ends = 0.0

    async def run(self) -> Outcome:
        """Runs it; returns how it went."""
        began = time.monotonic()
        outcome = Outcome()
        app: App | None = None
        try:
            await self._fleet.sink.start()
            app = self._app()
            await app.migrate()
            await self._refuse_leftovers()
            await self._rows.prepare()
            load = Load(app, self._books, self._plan.rate, self._load_chance, self._run_id)
            for name in WORKERS:
                self._fleet.start(name)
            self._ends = time.monotonic() + self._plan.minutes * 60
            await self._guarded(load)
        except Broken as error:
            outcome.broken, outcome.invariant = str(error), error.invariant
        except TooLate as error:
            outcome.broken, outcome.invariant = str(error), "does not come to rest"
        finally:
            await self._fleet.close()
            if app is not None:
                await self._close(app, keep=outcome.broken is not None)
        outcome.seconds = time.monotonic() - began
        outcome.tasks, outcome.events = len(self._books.tasks), len(self._books.events)
        outcome.refused, outcome.faults = self._books.refused, self._faults.count
        outcome.checks, outcome.quiet_points = self._invariants.checked, self._quiet_points
        outcome.last_faults = list(self._faults.last)
        return outcome

    def _app(self) -> App:
        own = {name.removeprefix("OUTBOX_").lower(): value for name, value in SHORT.items() if "OUTBOX" in name}
        values = {name: int(value) if name == "max_attempts" else float(value) for name, value in own.items()}
        projections = {PROJECTION: {"sink": self._fleet.sink.url}}
        given = load_settings(url=self._url, log_format="off")
        return App(settings=given.holding(OutboxSettings(projections=projections, **values)))

    async def _refuse_leftovers(self) -> None:
        if found := await self._rows.live():
            raise Conflict(
                f"this store has {len(found)} tasks of a soak that wait or are failed",
                hint="another soak is at it, or was killed: redrive list --queue soak",
            )

    # -- what goes on ----------------------------------------------------------------------------------------------

    async def _guarded(self, load: Load) -> None:
        """Runs load, stretches and checks beside each other: the first that fails ends all."""
        offering = asyncio.create_task(load.run())
        checking = asyncio.create_task(self._check())
        stretches = asyncio.create_task(self._stretches(load))
        running = {offering, checking, stretches}
        try:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            await self._invariants.always()
            left = max(self._ends - time.monotonic(), 0)
            last = self._faults.last[-1] if self._faults.last else "none yet"
            self._plan.show(
                f"{left / 60:.1f} min left · {len(self._books.tasks):,} tasks, {len(self._books.events):,} events"
                f" · {self._faults.count} faults, last: {last} · {self._invariants.checked} checks hold"
            )

    async def _stretches(self, load: Load) -> None:
        while time.monotonic() < self._ends:
            load.go()
            await self._faults.run(min(self._ends, time.monotonic() + STRETCH_S))
            await load.pause()
            began = time.monotonic()
            await _until(self._invariants.drained, "everything has ended", DRAINS_WITHIN_S)
            looked_at = await self._invariants.quiet()
            await _until(self._invariants.metrics_agree, "metrics say that nothing waits", AGREES_WITHIN_S)
            self._quiet_points += 1
            took, documents = time.monotonic() - began, len(self._books.documents)
            self._plan.say(
                f"quiet point {self._quiet_points}: {looked_at:,} tasks and events, {documents:,} in the sink:"
                f" all balances ({took:.1f} s after the last fault)"
            )

    # -- the end ---------------------------------------------------------------------------------------------------

    async def _close(self, app: App, *, keep: bool) -> None:
        """Leaves nothing in a store that is not ours; after a broken invariant all stays as it was found."""
        with suppress(Exception):  # the verdict matters more
            if self._plan.url is not None and not keep:
                await self._leave_nothing(app)
        await app.close()

    async def _leave_nothing(self, app: App) -> None:
        operator = await app.operator(Caller(ACTOR, Role.ADMIN))
        live = await self._rows.live()
        failed = [row.id for row in live if row.state == "failed"]
        waiting = [row.id for row in live if row.state != "failed"]  # of one that was interrupted
        for ids, act in ((failed, operator.failures.forget), (waiting, operator.tasks.cancel)):
            for start in range(0, len(ids), AT_ONCE):
                await act(ids[start : start + AT_ONCE], reason="the soak is over")
        await self._rows.clear()


async def _until(condition: Callable[[], Awaitable[bool]], what: str, patience: float) -> None:
    if not await poll(condition, patience, 0.25):
        raise TooLate(f"still not so after {patience:g} s: {what}")
