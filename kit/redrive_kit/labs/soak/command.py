"""``redrive soak``: a mixed load and faults for some minutes, with invariants that are checked all the time."""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli.support.instance import InProduction, refuse_production
from redrive.cli.support.options import Yes
from redrive.errors import InvalidInput
from redrive.feature.cli import Json, output
from redrive.stores import is_sqlite

LINE_EVERY_S = 10.0  # where there is no terminal


def soak(
    minutes: Annotated[float, typer.Option("--minutes", metavar="N", min=0.1, max=10_080, help="For how long.")] = 5.0,
    at: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="A store that is there: SQLite or PostgreSQL. A soak uses the queues soak and outbox:soak in it, and "
            "a table redrive_soak_booking, and leaves nothing that waits or is failed. Else: a fresh SQLite file.",
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", min=1, max=10_000, help="Tasks and events a second, half each.")
    ] = 60.0,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Repeats a run's random choices.")] = None,
    backends: Annotated[
        bool,
        typer.Option(
            "--backends",
            help="Also terminate PostgreSQL backends of redrive in this database: for one that nobody else uses.",
        ),
    ] = False,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="Keep logs and journals there (else where it broke).")
    ] = None,
    in_production: InProduction = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """A mixed load with faults for some minutes; the invariants are checked all the time. Workers are killed, frozen
    and stopped, the sink fails and is gone. Exit code 1 where an invariant is broken, with where, and the last faults.
    """
    if at is not None:
        refuse_production("redrive soak", None, in_production, yes)
    if backends and (at is None or is_sqlite(at)):
        raise InvalidInput("--backends is about PostgreSQL", hint="--url postgresql://user@host/database")
    from redrive_kit.labs.processes import run_until_stopped
    from redrive_kit.labs.soak.run import Plan, Soak

    used = secrets.randbelow(2**31) if seed is None else seed
    folder = _folder(keep)
    show = _Shown(quiet=json)
    show.say(f"soak of {minutes:g} min, seed {used}, logs in {folder}")
    outcome = run_until_stopped(Soak(Plan(minutes, at, rate, used, backends, folder, show.say, show)).run())
    if outcome.broken is None and keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    if json:
        output.emit({**asdict(outcome), "ok": outcome.broken is None, "seed": used, "logs": str(folder)})
    else:
        show.say(
            f"{outcome.tasks:,} tasks, {outcome.events:,} events, {outcome.refused} offers refused and made again,"
            f" {outcome.faults} faults, {outcome.checks} checks, {outcome.quiet_points} quiet points"
            f" in {outcome.seconds / 60:.1f} min"
        )
        if outcome.broken is None:
            show.say("OK: nothing lost, nothing committed twice, nothing stuck, the sink has what the source has")
        else:
            show.say(f"BROKEN: {outcome.broken}", "the last faults:", *(f"  {one}" for one in outcome.last_faults))
            show.say(f"seed {used}; logs and journals: {folder}")
    if outcome.broken is not None:
        raise typer.Exit(1)


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="redrive-soak-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{keep} cannot be written to: {error.strerror}", hint="--keep DIR") from None
    if any(keep.iterdir()):
        raise InvalidInput(f"{keep} is not empty", hint="--keep takes a new folder: journals of two soaks do not mix")
    return keep.absolute()


class _Shown:
    """A status line that is replaced on a terminal, and repeated now and then elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = sys.stdout.isatty()
        self._next = 0.0

    def __call__(self, text: str) -> None:
        if self._quiet:
            return
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            sys.stdout.write(f"\r{text[:width]:<{width}}")
            sys.stdout.flush()
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_EVERY_S
            output.say(text)

    def say(self, *lines: str) -> None:
        """Prints lines that stay."""
        if self._quiet:
            return
        if self._terminal:
            sys.stdout.write("\r\x1b[K")
        output.say(*lines)
