"""Runs experiments: makes the world of each, ends it whatever happens, and writes the record."""

from __future__ import annotations

import asyncio
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid4

from redrive.errors import Conflict, RedriveError
from redrive.ops.access import Caller, Role
from redrive.ops.workers import Standing, standing
from redrive.outbox.event_counts import event_counts
from redrive.stores import shown_url
from redrive_kit.labs.experiments.experiment import Experiment
from redrive_kit.labs.kit.lab_run import LabRun, Unmet
from redrive_kit.labs.kit.processes import TooLate
from redrive_kit.labs.kit.sinks import ForwardedSink, LabSink, SimulatedSink
from redrive_kit.labs.kit.world import World
from redrive_kit.labs.options import LabOptions
from redrive_kit.labs.report import write_report

ACTOR, OVER = "lab", "the lab is over"
LEAVES_WITHIN_S = 60.0


async def run_all(experiments: Sequence[Experiment], options: LabOptions, at_once: int) -> list[LabRun]:
    """Runs experiments, so many at a time; returns how they went, in their order."""
    places = asyncio.Semaphore(at_once)

    async def one(experiment: Experiment) -> LabRun:
        async with places:
            return await run_one(experiment, options, several=at_once > 1)

    return list(await asyncio.gather(*map(one, experiments)))


async def run_one(experiment: Experiment, options: LabOptions, *, several: bool = False) -> LabRun:
    """Runs one; never raises for what it finds. ``several``: others speak at the same time."""
    with tempfile.TemporaryDirectory(prefix=f"redrive-{experiment.name}-", ignore_cleanup_errors=True) as folder:
        lab = _prepared(experiment, options, Path(folder), several)
        began = time.monotonic()
        try:
            await _conduct(experiment, lab, options)
        except Unmet:
            pass  # it is among what was not seen
        except Exception as error:  # whatever it is: the others are run, and the record says so
            lab.broken = f"{type(error).__name__}: {error}"
            known = isinstance(error, TooLate | RedriveError)
            lab.say(f"  BROKEN: {lab.broken if known else traceback.format_exc()}")
        finally:
            await _close(lab)
        lab.seconds = time.monotonic() - began
        path = write_report(lab, options)
        lab.say(f"lab {lab.number}: {'OK' if lab.ok else 'FAIL'} in {lab.seconds:.0f} s, {lab.conclusion}; see {path}")
        return lab


def _prepared(experiment: Experiment, options: LabOptions, folder: Path, several: bool) -> LabRun:
    mark = f"{experiment.name}_{uuid4().hex[:8]}"
    index = f"redrive-{mark.replace('_', '-')}"
    sink: LabSink = SimulatedSink(folder, index) if options.sink is None else ForwardedSink(options.sink, index)
    settings = dict(experiment.quick if options.quick else experiment.full)
    world = World(
        options.url or f"sqlite:///{folder}/redrive.db", folder, experiment.name, mark, sink, settings, not options.url
    )
    world.several = several
    world.thresholds = experiment.thresholds

    def say(text: str) -> None:
        options.say(f"[{experiment.number}] {text}" if several else text)

    return LabRun(experiment.number, experiment.title, _parameters(experiment, options, world), world, say)


def _parameters(experiment: Experiment, options: LabOptions, world: World) -> dict[str, str]:
    seconds = experiment.quick_seconds if options.quick else experiment.seconds
    found = {
        "store": shown_url(world.url) if options.url else "a fresh SQLite file",
        "sink": world.sink.shown,
        "projection": f"{world.projection}, entity type {world.mark}",
        **world.settings,
    }
    return {**found, "what is broken stays so for": f"{seconds:g} s"} if seconds else found


async def _conduct(experiment: Experiment, lab: LabRun, options: LabOptions) -> None:
    lab.say(f"lab {lab.number}: {lab.title}")
    lab.say(f"  must be seen: {experiment.about}")
    for name, value in lab.parameters.items():
        lab.say(f"  {name}: {value}")
    await lab.world.sink.start()
    await lab.world.app.migrate()
    await _refuse_busy(lab.world)
    await experiment.run(lab, experiment.quick_seconds if options.quick else experiment.seconds)


async def _refuse_busy(world: World) -> None:
    """Refuses a store in which somebody else is at the same experiment: neither could believe what it sees. A worker
    that was killed a moment ago is waited out."""
    give_up = time.monotonic() + LEAVES_WITHIN_S
    while (busy := await _busy(world)) and time.monotonic() < give_up:  # noqa: ASYNC110
        await asyncio.sleep(1)
    if busy:
        raise Conflict(
            f"somebody else uses the projection {world.projection} of this store: {busy}",
            hint=f"wait for them; or redrive list --queue {world.queue} shows what a lab left that was killed",
        )


async def _busy(world: World) -> str:
    """Returns who else is there."""
    store = await world.store()
    for one in await event_counts(store, world.app.settings):
        if one.projection == world.projection and (one.lag or one.failed):
            return f"{one.lag} events wait, {one.failed} are failed"
    figures = await store.figures()
    alive = [one for one in figures.workers if standing(one, figures.now) in (Standing.ALIVE, Standing.SILENT)]
    return ", ".join(f"worker {one.id}" for one in alive if world.queue in one.queues)


async def _close(lab: LabRun) -> None:
    """Ends what runs. In a store that is not ours nothing is left that waits or is failed; what is done goes by
    itself, after 15 minutes."""
    world = lab.world
    try:
        if not world.fresh:
            await _leave_nothing(world)
    except RedriveError as error:
        lab.say(f"  could not be cleaned: {error.message}")
    finally:
        await world.close()


async def _leave_nothing(world: World) -> None:
    for worker in world.workers:
        await asyncio.to_thread(worker.kill)
    operator = await world.app.operator(Caller(ACTOR, Role.ADMIN))
    failed, *waiting = [await world.events(status) for status in ("failed", "pending", "processing")]
    if failed:
        await operator.failures.forget([UUID(str(row["id"])) for row in failed], reason=OVER)
    if ids := [UUID(str(row["id"])) for rows in waiting for row in rows]:
        await operator.tasks.cancel(ids, reason=OVER)
