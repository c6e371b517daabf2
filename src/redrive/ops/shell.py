"""Commands for people to copy: they go to the store itself, so they say which one it is."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from redrive.settings import DEFAULT_URL

_FILE = "sqlite:///"
_WITH_SUBCOMMANDS = "causes|groups|operations|approvals|audit|tokens|workers|schedules|alerts|circuits|outbox"
_WITHIN = (
    "show|note|mute|resolve|reopen|retry|watch|pause|resume|cancel|approve|reject|export|prune|verify|search|"
    "create|revoke|drain|run|silence|unsilence|replay|rebuild|trigger|work|list|put-back|open|close|probe"
)
_ALONE = (
    "up|work|migrate|erase|list|show|failed|stats|doctor|smoke|enqueue|retry|replay|cancel|forget|flush|purge|pause|resume|"
    "limits|drill|why|slo"
)
_COMMAND = re.compile(rf"\bredrive (?:(?:{_WITH_SUBCOMMANDS})(?: (?:{_WITHIN}))?|{_ALONE})\b")
_VALUE = r"(?:'[^']*'|[^\s;,:']|[,:](?=[^\s]))+"
_ARGUMENT = re.compile(
    rf" (?:--[a-z-]+(?: (?!-|[,;])(?:{_VALUE}))?|[A-Z][A-Z_]*\b(?!\w)|(?=[^\s]*\d)[\w:@.-]*\w|[^\s;,:]+(?= --|$))"
)
_STATEMENT = re.compile(r"(?:^|: )([a-z]+ [^:]*;)$")  # of SQL
# These are not about one of several connections.
_ANY_APP = "--app module:app"
_OF_NONE = ("up", "tokens", "smoke", "drill")


@dataclass(slots=True, frozen=True)
class Shell:
    """How commands find the store: ``option`` is added to each; ``note`` says what has to be set where that must not be
    shown. ``app``: where they import the application from, if that is known. ``connection``: which of several they are
    about."""

    option: str = ""
    note: str | None = None
    app: str | None = None
    connection: str | None = None

    def of(self, command: str) -> str:
        return command + self.option

    def with_app(self, command: str) -> str:
        """Returns a command that needs what the application declares."""
        return command if self.app is None else f"{command} --app {shlex.quote(self.app)}"

    def words(self, text: str) -> str:
        """Returns our own words with commands that can be run as they stand here, wherever that is."""
        named = text if self.app is None else text.replace(_ANY_APP, f"--app {shlex.quote(self.app)}")
        return with_options(named, self.option) if self.connection is None else for_connection(named, self.connection)


def shell_for(url: str, shown: str, app: str | None = None) -> Shell:
    """Returns how a shell on this machine reaches the store of ``url``; ``shown`` is the same without its secrets."""
    if shown != url:
        note = "REDRIVE_URL has to be set as for this server; it holds a password, so it is not shown."
        return Shell(note=note, app=app)
    if url == DEFAULT_URL:
        return Shell(app=app)
    return Shell(f" --url {shlex.quote(_anywhere(url))}", app=app)


def shell_at(connection: str, app: str | None = None) -> Shell:
    """Returns how a shell reaches one of several connections: by its name in the configuration."""
    return Shell(f" --connection {connection}", app=app, connection=connection)


NO_SHELL = Shell()


def _anywhere(url: str) -> str:
    """Returns the address of a file by its whole path: a shell is seldom where the server was started."""
    path = url.removeprefix(_FILE)
    return url if path == url or path.startswith(("/", ":")) else f"{_FILE}{Path(path).resolve()}"


def commands_in(text: str) -> list[str]:
    """Returns the commands that stand among our own words, each as it can be run: an option takes one value, and what
    is named besides is an id or written in capitals. A statement of SQL is one as well."""
    found = [text[one.start() : _end(text, one.end())] for one in _COMMAND.finditer(text)]
    return found or [one[1] for one in [_STATEMENT.search(text)] if one is not None]


def _end(text: str, place: int) -> int:
    """Returns where a command ends whose name ends at this place."""
    while word := _ARGUMENT.match(text, place):
        place = word.end()
    return place


def with_options(text: str, options: str) -> str:
    """Returns our own words with these options added to each command in them."""
    return _COMMAND.sub(lambda found: found.group(0) + options, text) if options else text


def for_connection(text: str, connection: str | None) -> str:
    """Returns our own words with commands that are about this connection, where there are several."""
    if connection is None or "--connection" in text:
        return text

    def add(found: re.Match[str]) -> str:
        return found[0] if found[0].split()[1] in _OF_NONE else f"{found[0]} --connection {connection}"

    return _COMMAND.sub(add, text)
