"""Runs the command line: what its exit codes mean, and what is said about errors. Commands are in ``table.py``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from redrive.cli import quick
from redrive.cli.support import output
from redrive.cli.table import COMMANDS, FEATURES, HELP_OPTIONS, HIDDEN, SERVING
from redrive.errors import RedriveError
from redrive.features import of_packages

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature


def app_named_in(arguments: Sequence[str]) -> str | None:
    """Returns the application that ``--app`` names, else the settings, before anything is parsed."""
    for one, following in pairwise([*arguments, ""]):
        if one == "--app" or one.startswith("--app="):
            return following if one == "--app" else one.removeprefix("--app=")
    if not {"REDRIVE_APP", "REDRIVE_CONFIG"} & os.environ.keys() and not Path("redrive.toml").exists():
        return None  # nothing can name one; settings take longer to import than help to be shown
    from redrive.settings import configured_app

    return configured_app()


EXIT_OK, EXIT_INTERRUPTED = 0, 130  # further ones are said by errors
VERSION = (["version"], ["version", "--json"], ["--version"])


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe that cannot show a character gets a substitute, not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command; returns its exit code."""
    as_json = "--json" in arguments
    output.repeat(arguments)
    try:
        code = _answer(list(arguments))
        sys.stdout.flush()
    except RedriveError as error:
        output.report(error, as_json)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _forget(sys.stdout)
        return EXIT_OK
    return code


def _answer(arguments: list[str]) -> int:
    """Runs a command. Typer is imported only where there is something to parse."""
    if arguments in VERSION:
        quick.say_version(json="--json" in arguments)
        return EXIT_OK
    if _asks_for_all(arguments):
        brought = [feature for feature in (*of_packages(), *_own_features(arguments)) if feature.commands]
        if all(feature.about for feature in brought):
            about = FEATURES | {feature.called: feature.about for feature in brought}
            sys.stdout.write(quick.all_commands(about.items()))
            return EXIT_OK
    from redrive.cli.root import call
    from redrive.settings import misspelt

    if not any(arguments[: len(words)] == words for words in SERVING):
        for text in misspelt():
            output.warn(text)
    return call(arguments, _own_features(arguments))


def _own_features(arguments: Sequence[str]) -> Sequence[Feature]:
    """Returns the features of the application where commands of theirs can be meant, by a name that is not known
    otherwise or by --help: importing an application takes time, and may fail."""
    helps = _asks_for_all(arguments)
    if not helps:
        known = {*HIDDEN, *FEATURES, *(name for listed in COMMANDS.values() for name in listed)}
        if (
            arguments[0].startswith("-")
            or arguments[0] in known
            or arguments[0] in (one.called for one in of_packages())
        ):
            return ()
    try:
        spec = app_named_in(arguments)
        if spec is None:
            return ()
        from redrive.cli.support.loading import load

        return load(None, spec).app.features
    except RedriveError:
        if helps:
            return ()  # whoever looks for help needs no application for it
        raise


def _asks_for_all(arguments: Sequence[str]) -> bool:
    return not arguments or arguments[0] in HELP_OPTIONS


def _forget(stream: TextIO) -> None:
    """Drops our output when its reader is gone (``redrive list | head``): nothing more to say, also not at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
