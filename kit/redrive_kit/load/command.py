"""``redrive outbox load``: makes load, through an application or into the database, and says how that went."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from redrive.cli.support.instance import InProduction, refuse_production
from redrive.cli.support.loading import Loaded, load
from redrive.cli.support.options import Command, Yes, setting_option, with_options
from redrive.cli.support.session import insist_on_file, named_connection, refuse_memory
from redrive.feature.cli import AppName, Json, Url, output
from redrive.outbox.application import BUILT_IN, projection_in, projections_of
from redrive.settings import fields_of
from redrive_kit.load.plan import LoadPlan, plan_of
from redrive_kit.load.runner import Runner
from redrive_kit.load.targets import HttpTarget, TableTarget, Target

EXIT_INTERRUPTED = 130
ProjectionName = Annotated[
    str | None, typer.Option("--projection", "-p", metavar="NAME", help=f"Where events go (else {BUILT_IN}).")
]


def _with_plan(command: Command) -> Command:
    """Gives a command the options of a plan; it gets what was given as one ``given``."""
    added = {name: setting_option(one, one.help) for name, one in fields_of(LoadPlan).items()}
    return with_options(command, "given", added, lambda found: found)


@_with_plan
def load_events(
    given: dict[str, Any],
    projection: ProjectionName = None,
    in_production: InProduction = False,
    yes: Yes = False,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Write notes and their events at a rate, and say how long that took: through the HTTP API of an application like
    redrive_kit.examples.notes (--api-base), else into the table redrive_example_note of the store's database, each row
    and its event in one transaction. What update and delete need is made first, and not counted. Exits with 1 if an
    operation failed."""
    plan = plan_of(given, os.environ)
    refuse_production("redrive outbox load", None, in_production, yes, does="writes notes that nobody wants")
    into, target = _target(plan, projection, url, app)
    found = asyncio.run(_run(plan, target, into))
    output.emit(found) if json else _say(found)
    if found["interrupted"]:
        raise typer.Exit(EXIT_INTERRUPTED)
    if found["failed"]:
        raise typer.Exit(1)


def _target(plan: LoadPlan, projection: str | None, url: str | None, app: str | None) -> tuple[str, Target]:
    """Returns where load goes to, in words, and that target."""
    if plan.api_base is not None:
        return plan.api_base.rpartition("@")[2], HttpTarget(plan.api_base, plan.concurrency)
    loaded = load(url, app)
    connection = named_connection()
    refuse_memory(loaded, connection)
    served = loaded.app.at(connection)
    insist_on_file(loaded, served.url)
    return served.shown_url, TableTarget(loaded.app, connection, _projection(loaded, projection))


def _projection(loaded: Loaded, name: str | None) -> str:
    """Returns the projection that events go to: the built-in one where there are several and none is named."""
    known = projections_of(loaded.app.registry)
    return projection_in(loaded.app.registry, BUILT_IN if name is None and BUILT_IN in known else name).name


async def _run(plan: LoadPlan, target: Target, into: str) -> dict[str, Any]:
    await target.open()
    try:
        runner = Runner(plan, target)
        with _stopped_by_signals(runner):
            if plan.needed:
                with output.progress_bar("made before", plan.needed) as made:
                    runner.told = made
                    await runner.prepare()
            with output.progress_bar(plan.scenario.value, plan.total) as done:
                runner.told = done
                await runner.run()
        return runner.tally.summary(plan, into)
    finally:
        await target.close()


@contextmanager
def _stopped_by_signals(runner: Runner) -> Iterator[None]:
    """The first signal ends the load with its summary, the second at once."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if runner.tally.interrupted:
            os._exit(EXIT_INTERRUPTED)
        runner.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _say(found: dict[str, Any]) -> None:
    asked = f", {found['rate']:g} asked for" if found["rate"] else ""
    stopped = " (stopped)" if found["interrupted"] else ""
    made = f"  made before {found['prepared']:,} notes" if found["prepared"] else None
    ops = ", ".join(f"{n:,} {op}" for op, n in found["operations"].items())
    output.say(
        f"{found['scenario']} into {found['into']}{stopped}",
        *([made] if made else []),
        f"  done        {found['done']:,} of {found['total']:,}"
        + (f" ({ops})" if len(found["operations"]) > 1 else ""),
        f"  failed      {found['failed']:,}",
        f"  per second  {found['per_second']:,} in {found['seconds']:.1f} s{asked}",
    )
    times = found["latency_ms"]
    if times["max"] is not None:
        output.say("  latency     " + "  ".join(f"{name} {value:,.1f} ms" for name, value in times.items()))
    for kind, n in found["errors"].items():
        output.say(f"  error       {n:,} × {kind}")
    sys.stdout.flush()
