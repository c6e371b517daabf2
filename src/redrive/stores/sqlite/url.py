"""Store URLs: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, ``sqlite:///:memory:``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from redrive.errors import ConfigError

MEMORY = ":memory:"
_FORMS = "use sqlite:///relative/file.db, sqlite:////absolute/file.db or sqlite:///:memory:"
_SYNCHRONOUS = ("full", "normal")


@dataclass(slots=True, frozen=True)
class Location:
    """Which file, and how hard a commit is pressed to disk."""

    path: str
    synchronous: str = "full"

    @property
    def memory(self) -> bool:
        return self.path == MEMORY

    @property
    def where(self) -> str:
        return "the in-memory SQLite database" if self.memory else f"SQLite file {self.path}"


def parse(url: str) -> Location:
    scheme, found, rest = url.partition(":///")
    if scheme.lower() != "sqlite" or not found:
        raise ConfigError(f"{url!r} is not a SQLite URL", hint=_FORMS)
    rest, _, query = rest.partition("?")
    path = unquote(rest)
    if not path or path.endswith("/") or "\x00" in path:
        raise ConfigError(f"the URL {url!r} names no file", hint=_FORMS)
    # Made absolute now: a later change of directory must not move the database.
    return Location(path if path == MEMORY else str(Path(path).absolute()), _synchronous(url, query))


def _synchronous(url: str, query: str) -> str:
    options = dict(parse_qsl(query, keep_blank_values=True))
    value = options.pop("synchronous", "full").lower()
    if options:
        raise ConfigError(
            f"the URL {url!r} has unknown options: {', '.join(sorted(options))}", hint="the only option is synchronous"
        )
    if value not in _SYNCHRONOUS:
        raise ConfigError(
            f"synchronous={value!r} in {url!r} is not known",
            hint="full: a commit survives a power cut; normal: the last commits may be lost in one, never the file",
        )
    return value
