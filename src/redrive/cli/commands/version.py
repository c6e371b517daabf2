"""``redrive version``."""

from __future__ import annotations

from redrive.cli.quick import say_version
from redrive.cli.support.options import AppName, Json, Url


def version(url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Which redrive this is, on which Python and SQLite."""
    say_version(json)
