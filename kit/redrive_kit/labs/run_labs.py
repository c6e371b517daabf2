"""Runs experiments: makes the world of each, ends it whatever happens, and writes the record."""

from __future__ import annotations

import asyncio
import platform
import tempfile
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from uuid import UUID, uuid4

from redrive.errors import Conflict, InvalidInput, RedriveError
from redrive.files import PRIVATE_FOLDER, write_private
from redrive.ops.access import Caller, Role
from redrive.ops.workers import Standing, standing
from redrive.outbox.health import event_counts
from redrive.stores import shown_url
from redrive.version import __version__
from redrive_kit.labs.facts import oldest_words
from redrive_kit.labs.lab_run import Experiment, LabOptions, LabRun, Unmet
from redrive_kit.labs.processes import TooLate
from redrive_kit.labs.sinks import ForwardedSink, LabSink, SimulatedSink
from redrive_kit.labs.world import World

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


COLUMNS = ("when", "time", "pending", "processing", "done", "failed", "stuck", "oldest pending")


def prepare(folder: Path) -> None:
    """Makes the folder of records, before an experiment takes its time."""
    try:
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be written to: {error.strerror}", hint="--report DIR") from None


def write_report(lab: LabRun, options: LabOptions) -> Path:
    """Writes the record of one; returns where it is."""
    path = options.report / f"lab{lab.number}-{lab.began:%Y%m%dT%H%M%SZ}.md"
    with write_private(path) as out:
        out.write("\n".join(text_of(lab, options)) + "\n")
    return path


def text_of(lab: LabRun, options: LabOptions) -> list[str]:
    """Returns the record, line by line."""
    metrics = sorted({name for facts in lab.facts for name in facts.metrics})
    taken = [facts for facts in lab.facts if facts.metrics]
    return [
        f"# Lab {lab.number}: {lab.title}",
        "",
        f"- verdict: **{'OK' if lab.ok else 'FAIL'}**",
        f"- conclusion: {lab.conclusion}",
        f"- when: {lab.began.isoformat(timespec='seconds')}, {lab.seconds:.0f} s",
        f"- operator: {options.by}",
        f"- redrive {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        "",
        *_section("Parameters", _table(("parameter", "value"), lab.parameters.items())),
        *_section("What was done", [f"- {note}" for note in lab.notes]),
        *_section("What must be seen", _table(("expectation", "seen", ""), _expectations(lab))),
        *_section("Facts, by the view search_outbox_events", _table(COLUMNS, _facts(lab))),
        *_section(
            "Metrics of the worker",
            _table(
                ("metric", *(one.when for one in taken)),
                ((name, *(_number(one.metrics.get(name)) for one in taken)) for name in metrics),
            ),
        ),
        *_section("Log lines", [f"    {line}" for line in lab.lines]),
    ]


def _expectations(lab: LabRun) -> Iterable[tuple[str, str, str]]:
    for one in lab.expectations:
        yield one.what, one.seen or ("yes" if one.holds else "no"), "OK" if one.holds else "**FAIL**"


def _facts(lab: LabRun) -> Iterable[tuple[str, ...]]:
    for one in lab.facts:
        numbers = (one.pending, one.processing, one.done, one.failed, one.stuck)
        oldest = "-" if one.oldest is None else oldest_words(one.oldest)
        yield one.when, f"{one.at:%H:%M:%S}", *map(str, numbers), oldest


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _section(title: str, lines: list[str]) -> list[str]:
    return [f"## {title}", "", *lines, ""] if lines else []


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = tuple(head)
    body = [_row(row) for row in rows]
    return [_row(head), _row("---" for _ in head), *body] if body else []


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
