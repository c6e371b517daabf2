"""Answers what needs no command to be loaded: the version, and the page of all commands."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from redrive.cli.support import output
from redrive.cli.support.help_page import Page, Panel, show
from redrive.cli.table import ABOUT, COMMANDS, EPILOG, HELP_OPTIONS, VERSION_HELP
from redrive.version import __version__


def say_version(json: bool) -> None:
    """Prints which redrive this is, and what it runs on."""
    import sqlite3

    python, sqlite = sys.version.partition(" ")[0], sqlite3.sqlite_version
    if json:
        output.emit({"redrive": __version__, "python": python, "sqlite": sqlite})
    else:
        output.say(f"redrive {__version__} (Python {python}, SQLite {sqlite})")


def all_commands(features: Iterable[tuple[str, str]] = ()) -> str:
    """Returns the page of all commands; ``features`` are those that features bring, each with what it does."""
    options = [("--version", VERSION_HELP), (", ".join(HELP_OPTIONS), "Show this message and exit.")]
    panels = [
        Panel("Options", options),
        *(Panel(title, [(name, line) for name, (_, line) in listed.items()]) for title, listed in COMMANDS.items()),
        Panel("Features", list(features)),
    ]
    return show(Page("redrive [OPTIONS] COMMAND [ARGS]...", ABOUT, panels, EPILOG))
