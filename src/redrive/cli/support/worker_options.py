"""The options of a worker on a command line, as ``Options`` declares them: there they are added, here not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redrive.app import App
from redrive.cli.support.options import Command, flag_of, setting_option, with_options
from redrive.errors import InvalidInput, WrongSetting
from redrive.settings import Options, Unfit, WorkerGroup, fields_of
from redrive.settings.sources import file_path, guess
from redrive.worker.config import checked_options


def with_worker_options(*only: str, **help_instead: str) -> Callable[[Command], Command]:
    """Gives a command the options of a worker, or only some; it gets those that were given as one ``given``.
    ``help_instead``: what one means where it differs."""
    fields = {name: one for name, one in fields_of(Options).items() if not only or name in only}
    added = {name: setting_option(one, help_instead.get(name, one.help)) for name, one in fields.items()}
    return lambda command: with_options(command, "given", added, _non_empty)


def make_options(app: App, given: dict[str, Any]) -> Options:
    """Returns the worker's options: what was given, else the settings; without queues, all that the app handles."""
    listed: Sequence[str] | None = given.get("queues")
    names = [name.strip() for text in listed or () for name in text.split(",") if name.strip()]
    if listed and not names:
        raise InvalidInput("--queue names no queue", hint="for example --queue high,default")
    try:
        return checked_options({**given, "queues": names}, app.queues(), app.settings)
    except Unfit as error:
        problems = "; ".join(f"{flag_of(str(p.place[0]))} {p.value}: {p.message}" for p in error.problems)
        raise InvalidInput(f"these options cannot be used: {problems}", hint="see: redrive work --help") from None


def as_arguments(options: Options) -> list[str]:
    """Returns the options as they are typed: a command with these arguments has the same ones."""
    found: list[str] = []
    for name in fields_of(Options):
        match getattr(options, name):
            case None | False:
                pass
            case True:
                found.append(flag_of(name))
            case tuple() as several:
                found += [flag_of(name), ",".join(several)]
            case value:
                found += [flag_of(name), str(value)]
    return found


def _non_empty(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values that say something, as a 0 does."""
    return {name: value for name, value in values.items() if value is not None and value is not False}


@dataclass(slots=True, frozen=True)
class WorkerStart:
    """``connection`` None: the default one."""

    options: Options
    connection: str | None
    processes: int


def start_of(
    app: App, given: Mapping[str, Any], connection: str | None, group: str | None, processes: int | None
) -> WorkerStart:
    """Returns what the command line says, else the group."""
    found = WorkerGroup() if group is None else _group(app, group)
    name = connection or found.connection
    options = make_options(app, {**found.options, **given})
    return WorkerStart(options, None if name is None else app.at(name).name, processes or found.processes)


def _group(app: App, name: str) -> WorkerGroup:
    known = app.settings.workers
    if name not in known:
        hint = f"there are: {', '.join(known)}" if known else _missing(name)
        raise WrongSetting(f"there is no group of workers named {name!r}{guess(name, known)}", hint=hint)
    return known[name]


def _missing(group: str) -> str:
    """Returns why there is no group at all: of an image it is often the file that was left out."""
    path = file_path()
    if path.is_file():
        return f"{path} has no [workers.{group}]"
    return f"groups are in {path.name}, and there is none in {Path.cwd()}; REDRIVE_CONFIG may say where it is"
