"""``redrive version``."""

from __future__ import annotations

import platform
import sqlite3

from redrive.cli.support import output
from redrive.cli.support.options import AppName, Json, Url
from redrive.version import __version__


def version(url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Which redrive this is, on which Python and SQLite."""
    python, sqlite = platform.python_version(), sqlite3.sqlite_version
    if json:
        output.emit({"redrive": __version__, "python": python, "sqlite": sqlite})
    else:
        output.say(f"redrive {__version__} (Python {python}, SQLite {sqlite})")
