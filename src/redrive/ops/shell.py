"""Commands for people to copy: they go to the store itself, so they say which one it is."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from redrive.settings import DEFAULT_URL

_FILE = "sqlite:///"


@dataclass(slots=True, frozen=True)
class Shell:
    """How commands find the store: ``option`` is added to each; ``note`` says what has to be set where that must not be
    shown."""

    option: str = ""
    note: str | None = None

    def of(self, command: str) -> str:
        return command + self.option


def shell_for(url: str, shown: str) -> Shell:
    """Returns how a shell on this machine reaches the store of ``url``; ``shown`` is the same without its secrets."""
    if shown != url:
        return Shell(note="REDRIVE_URL has to be set as for this server; it holds a password, so it is not shown.")
    if url == DEFAULT_URL:
        return Shell()
    return Shell(f" --url {shlex.quote(_anywhere(url))}")


def _anywhere(url: str) -> str:
    """Returns the address of a file by its whole path: a shell is seldom where the server was started."""
    path = url.removeprefix(_FILE)
    return url if path == url or path.startswith(("/", ":")) else f"{_FILE}{Path(path).resolve()}"
