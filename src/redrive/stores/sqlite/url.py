"""Store URLs: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, ``sqlite:///:memory:``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from redrive.errors import WrongSetting
from redrive.stores.refusals import refused_url
from redrive.stores.shown import HIDDEN, scheme_of, shown_path

MEMORY = ":memory:"
_FORMS = "use sqlite:///relative/file.db, sqlite:////absolute/file.db or sqlite:///:memory:"
_SYNCHRONOUS = ("full", "normal")


@dataclass(slots=True, frozen=True)
class Location:
    """Which file, and how hard a commit is pressed to disk. ``shown`` and ``where`` are for others to read."""

    path: str = field(repr=False)
    synchronous: str = "full"
    shown: str = HIDDEN

    @property
    def memory(self) -> bool:
        return self.path == MEMORY

    @property
    def file(self) -> str:
        """The path as it may be shown."""
        return shown_path(self.path)

    @property
    def where(self) -> str:
        return "the in-memory SQLite database" if self.memory else f"SQLite file {self.file}"


def parse(url: str) -> Location:
    """Take a URL apart, or refuse it without repeating any of it: what was meant for another database may be here."""
    start, found, rest = url.partition(":///")
    scheme, driver = scheme_of(url)
    if scheme != "sqlite" or not found or start.lower() != (f"sqlite+{driver}" if driver else "sqlite"):
        raise refused_url(url, "is not a SQLite URL", hint=_FORMS)
    rest, asked, query = rest.partition("?")
    path = unquote(rest)
    if not path or path.endswith("/") or "\x00" in path:
        raise WrongSetting("the store's URL (sqlite:…) names no file", hint=_FORMS)
    synchronous = _synchronous(query)
    harmless = path == MEMORY or ("%" not in rest and shown_path(path) != HIDDEN)
    shown = f"{start}:///{rest if harmless else HIDDEN}{f'?synchronous={synchronous}' if asked and query else ''}"
    # Made absolute now: a later change of directory must not move the database.
    return Location(path if path == MEMORY else str(Path(path).absolute()), synchronous, shown)


def _synchronous(query: str) -> str:
    value = "full"
    for part in filter(None, query.split("&")):
        name, _, said = part.partition("=")
        if name != "synchronous":
            raise WrongSetting(
                "the store's URL (sqlite:…) has an option that is not known", hint="the only option is synchronous"
            )
        value = said.lower()
    if value not in _SYNCHRONOUS:
        raise WrongSetting(
            "the store's URL (sqlite:…) has an unknown synchronous",
            hint="full: a commit survives a power cut; normal: the last commits may be lost in one, never the file",
        )
    return value
