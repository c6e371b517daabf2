"""Connections, routes and groups of workers: ``[connections.NAME]``, ``[routes]`` and ``[workers.NAME]``; and what one
worker can be given on its command line, in code or by its group."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from redrive.errors import InvalidInput
from redrive.kernel.task import MAX_ATTEMPTS, MAX_TIMEOUT_SECONDS, check_name
from redrive.settings.declare import Values, fields_of, option
from redrive.settings.sources import guess
from redrive.settings.values import Problem

DEFAULT_CONNECTION = "default"  # what the only store is called
ALL = "all"  # what all of them together are called where one can be chosen
NO_GROUPS = ("http", "worker", "migrate")  # other programs have these names (``redrive deploy``)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_STORE = re.compile(r"\s*(sqlite|postgres(ql)?)(\+\w+)?:", re.IGNORECASE)
_STORES = "use one of: sqlite:///path/to/file.db, sqlite:///:memory:, postgresql://user@host/database"
NEEDS_URL = "it needs url, or url_from with the name of an environment variable"


class Connection(Values):
    """A store by its URL, or by the environment variable that has it: one with a password belongs there."""

    url: str | None = option(None, help="The store.", repr=False)
    url_from: str | None = option(None, help="The environment variable that has its URL.")

    @property
    def address(self) -> str | None:
        return os.environ.get(self.url_from) if self.url_from else self.url


class Route(Values):
    """Where tasks of some kinds go. Without a connection it is the default one, without a queue that of the kind."""

    connection: str | None = option(None, help="The connection.")
    queue: str | None = option(None, help="The queue there.")


class Options(Values):
    """What one worker process was told on its command line; everything else comes from Settings. Raises Unfit.

    The options of ``redrive work`` and the command lines of its child processes are made from this."""

    queues: tuple[str, ...] = option(
        ("default",), "A,B", help="Queues, the first drained first; else all of the app's."
    )
    concurrency: int = option(1, "N", ge=1, le=10_000, help="Tasks at once (else TASK_WORKER_CONCURRENCY, else 1).")
    sleep: float = option(1.5, "SECONDS", gt=0, help="Look again after so long (else TASK_WORKER_INTERVAL_MS).")
    tries: int | None = option(
        None, "N", ge=1, le=MAX_ATTEMPTS, help="Fail tasks after so many attempts, if they allow more."
    )
    timeout: float | None = option(
        None, "SECONDS", ge=0, le=MAX_TIMEOUT_SECONDS, help="For kinds without a timeout of their own; 0 is none."
    )
    max_time: float | None = option(None, "SECONDS", gt=0, help="Stop after so long.")
    max_jobs: int | None = option(None, "N", ge=1, help="Stop after so many tasks.")
    max_memory: float | None = option(None, "MB", gt=0, help="Stop when it holds more memory than so many megabytes.")
    once: bool = option(False, help="Run at most one task.")
    stop_when_empty: bool = option(False, help="Stop when nothing can run now.")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"the options of a worker stay as they are; {name} cannot be set")


class WorkerGroup(Options):
    """Workers that are started alike: the options of ``redrive work``, and where and how many."""

    connection: str | None = option(None, help="The connection that it serves.")
    processes: int = option(1, ge=1, le=512, help="Worker processes.")

    @property
    def options(self) -> dict[str, object]:
        """What it says of the options of a worker."""
        return {name: value for name, value in self.given.items() if name in fields_of(Options)}


Connections = Mapping[str, Connection]


def default_of(connections: Connections, chosen: str | None) -> str:
    """Returns the default connection: the chosen one, else the one of that name, else the first."""
    if chosen is not None:
        return chosen
    return DEFAULT_CONNECTION if DEFAULT_CONNECTION in connections else next(iter(connections), DEFAULT_CONNECTION)


def problems_of(connections: Connections, default: str, url: str | None) -> Iterator[Problem]:
    """Finds connections that cannot be used; ``url`` is what is said of the default one elsewhere."""
    known = connections or {default: Connection()}
    places: dict[str, str] = {}
    for name, one in known.items():
        place = ("connections", name)
        if not _NAME.fullmatch(name) or name == ALL:
            yield Problem(place, f"a connection is named in small letters, digits, - and _, and not {ALL!r}")
        if one.url is not None and one.url_from is not None:
            yield Problem(place, "it has url and url_from; one of them is enough")
        elif one.url_from is not None and not _VARIABLE.fullmatch(one.url_from):
            # Not quoted: perhaps it is the URL itself, with its password.
            yield Problem((*place, "url_from"), "that is no name of an environment variable; a URL is said with url")
        elif one.url_from is not None and not one.address and not (name == default and url):
            message = f"the environment has no {one.url_from}"
            yield Problem((*place, "url_from"), message, hint=f"set it: export {one.url_from}=postgresql://…")
        elif one.address is None and name != default:
            yield Problem(place, NEEDS_URL)
        elif one.url is not None and not _STORE.match(one.url):
            # Not quoted, either.
            yield Problem((*place, "url"), "no store is known for this URL", hint=_STORES)
        address = (name == default and url) or one.address
        if address and (other := places.setdefault(_normal_spelling(address), name)) != name:
            yield Problem(place, f"it is the same store as {other}: its tasks would be counted twice")


def _normal_spelling(url: str) -> str:
    """Returns a URL as all spellings of it: what cannot be taken apart is refused elsewhere."""
    try:
        parts = urlsplit(url)
        if parts.scheme.startswith("sqlite"):
            return f"sqlite:{os.path.realpath(unquote(parts.path.removeprefix('/')))}"
        user, host, port = parts.username or "", (parts.hostname or "").lower(), parts.port or 5432
    except ValueError:
        return url
    return f"{user}@{host}:{port}{parts.path}?{parts.query}" if parts.scheme.startswith("postgres") else url


def unknown_connection(name: str | None, place: tuple[str, ...], known: Iterable[str]) -> Iterator[Problem]:
    """Finds a connection that there is not."""
    names = list(known)
    if name is not None and name not in names:
        hint = guess(name, names) or f"; there are: {', '.join(names)}"
        yield Problem(place, f"there is no connection {name!r}{hint}")


def problems_of_routes(routes: Mapping[str, Route], known: Iterable[str]) -> Iterator[Problem]:
    """Finds routes that lead nowhere."""
    names = list(known)
    for pattern, route in routes.items():
        yield from unknown_connection(route.connection, ("routes", pattern, "connection"), names)
        yield from _bad_name(pattern.replace("*", "_").replace("?", "_"), "kind", ("routes", pattern))
        if route.queue is not None:
            yield from _bad_name(route.queue, "queue", ("routes", pattern, "queue"))
        if not route.given:
            yield Problem(("routes", pattern), "it says neither a connection nor a queue")


def problems_of_groups(groups: Mapping[str, WorkerGroup], known: Iterable[str]) -> Iterator[Problem]:
    """Finds groups of workers that cannot be started."""
    names = list(known)
    taken: dict[str, str] = {}
    for name, group in groups.items():
        if not _NAME.fullmatch(name) or name in NO_GROUPS:
            message = f"a group is named in small letters, digits, - and _, and not {', '.join(map(repr, NO_GROUPS))}"
            yield Problem(("workers", name), message)
        if (other := taken.setdefault(name.replace("_", "-"), name)) != name:
            yield Problem(("workers", name), f"its programs would have the names of those of {other!r}")
        yield from unknown_connection(group.connection, ("workers", name, "connection"), names)
        if group.given.get("queues") == ():
            yield Problem(("workers", name, "queues"), "it names no queue; left out, all of the application are served")
        for queue in group.given.get("queues", ()):
            yield from _bad_name(queue, "queue", ("workers", name, "queues"))


def _bad_name(text: str, what: str, place: tuple[str, ...]) -> Iterator[Problem]:
    try:
        check_name(text, what)
    except InvalidInput as error:
        yield Problem(place, error.message)
