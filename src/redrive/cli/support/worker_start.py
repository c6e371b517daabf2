"""What ``redrive work`` starts: options, connection and processes, by the command line and the group it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redrive.app import App
from redrive.cli.support.worker_options import make_options
from redrive.errors import WrongSetting
from redrive.settings import Options, WorkerGroup
from redrive.settings.sources import file_path
from redrive.settings.wording import guess


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
