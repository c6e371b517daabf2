"""A feature: one folder that brings tables, reactions, duties, routes and commands of its own.

Everything is found by this one value, so nothing outside the folder has to name the feature. Its package holds:

- ``sqlite.sql`` and ``postgres.sql``: its named statements, for ``Rows`` and for reading;
- ``migrations/sqlite`` and ``migrations/postgres``: its tables, numbered from 0001, named after the feature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redrive.kernel.duty import Duty
from redrive.kernel.reactions import React
from redrive.kernel.task import check_name


@dataclass(slots=True, frozen=True)
class Feature:
    """What a feature brings. ``routes`` and ``commands`` are given by name: only the process that serves them imports
    them."""

    name: str
    package: str
    react: React | None = None
    duties: tuple[Duty, ...] = ()
    declare: Callable[[Any], None] | None = None  # gets the App, for kinds and schedules of its own
    routes: str | None = None  # "package.routes:router", a FastAPI router
    commands: str | None = None  # "package.commands:cli", a Typer application, called ``redrive NAME …``

    def __post_init__(self) -> None:
        check_name(self.name, "feature")
