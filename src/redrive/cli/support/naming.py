"""Finds which application a command is about, before anything is parsed or imported."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from redrive.settings import configured_app


def app_named_in(arguments: Sequence[str]) -> str | None:
    """Returns the application that ``--app`` names, else the settings, before anything is parsed."""
    for one, following in pairwise([*arguments, ""]):
        if one == "--app" or one.startswith("--app="):
            return following if one == "--app" else one.removeprefix("--app=")
    return configured_app()
