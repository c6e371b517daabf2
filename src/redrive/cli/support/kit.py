"""Commands of redrive-kit, a distribution of its own: they are listed also where it is not installed, and say so."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer

from redrive.errors import KitNeeded
from redrive.features import load
from redrive.version import __version__

KIT = "redrive_kit"
_ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}


def need_kit(what: str) -> None:
    """Raises unless the kit is installed, in the version of redrive itself."""
    try:
        version = import_module(KIT).__version__
    except ModuleNotFoundError:
        raise KitNeeded(
            f"{what} is part of redrive-kit, which is not installed", hint="pip install redrive-kit"
        ) from None
    if version != __version__:
        raise KitNeeded(
            f"{what} is part of redrive-kit, and {version} of it is installed beside redrive {__version__}",
            hint=f"pip install redrive-kit=={__version__}",
        )


def kit_command(name: str, target: str) -> Any:
    """Returns a command of the kit: a function, or a Typer application."""
    need_kit(f"redrive {name}")
    return load(target)


def add_kit_command(group: typer.Typer, name: str, target: str, about: str) -> None:
    """Adds a command of the kit to a group; where the kit is missing, one that says what to install."""
    *_, last = name.split()
    try:
        group.command(last)(kit_command(name, target))
    except KitNeeded as error:
        missing = error

        @group.command(last, help=about, add_help_option=False, context_settings=_ANYTHING)
        def stand_in() -> None:
            raise missing
