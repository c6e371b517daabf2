"""Finds where tasks of a kind go: the routes of the configuration, by patterns of kinds."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping

from redrive.errors import ConfigError, InvalidInput
from redrive.settings import Route

WILD = "*?"


class Routing:
    """The routes of an application. Of several that fit a kind, the most specific holds: the kind itself, else the one
    with most letters of it; of two alike, the first."""

    def __init__(self, default: str, routes: Mapping[str, Route]) -> None:
        self.default = default
        self._exact = {name: route for name, route in routes.items() if not _is_wild(name)}
        self._wild = sorted((name for name in routes if _is_wild(name)), key=_vagueness)
        self._routes = routes
        self._known: dict[str, Route | None] = {}

    def of(self, kind: str) -> Route | None:
        """Returns the route of a kind; None where nothing is said about it."""
        if kind not in self._known:
            self._known[kind] = self._find(kind)
        return self._known[kind]

    def connection_of(self, kind: str) -> str:
        route = self.of(kind)
        return self.default if route is None or route.connection is None else route.connection

    def queue_of(self, kind: str) -> str | None:
        """Returns the queue that a route gives a kind."""
        route = self.of(kind)
        return None if route is None else route.queue

    @property
    def kinds(self) -> set[str]:
        """Kinds that a route names; not those that a pattern fits."""
        return set(self._exact)

    @property
    def queues(self) -> set[str]:
        return {route.queue for route in self._routes.values() if route.queue is not None}

    def connections_of(self, queue: str) -> set[str]:
        """Returns the connections on which routes put tasks into this queue."""
        return {route.connection or self.default for route in self._routes.values() if route.queue == queue}

    def exempt(self, kind: str, feature: str) -> None:
        """Leaves a kind of a feature where the feature is: its tasks land with its rows, in one transaction."""
        if kind in self._exact:
            raise ConfigError(
                f"routes.{kind}: the kind belongs to the feature {feature!r}, which lives on the default connection",
                hint="remove that route",
            )
        self._known[kind] = None

    def only(self, kinds: Iterable[str]) -> str:
        """Returns the connection that all of these kinds go to; refused where there are several."""
        found = {self.connection_of(kind): kind for kind in kinds}
        if len(found) > 1:
            (one, first), (other, second), *_ = sorted(found.items())
            raise InvalidInput(
                f"{first} goes to the connection {one}, and {second} to {other}: they cannot be all or none",
                hint="enqueue those of each connection by themselves, or say on=… for all of them",
            )
        return next(iter(found), self.default)

    def unused(self, kinds: Iterable[str]) -> list[str]:
        """Returns routes that fit none of these kinds: most likely they are misspelt."""
        known = list(kinds)
        return [name for name in self._routes if not any(_fits(kind, name) for kind in known)]

    def _find(self, kind: str) -> Route | None:
        found = self._exact.get(kind)
        return found or next((self._routes[name] for name in self._wild if _fits(kind, name)), None)


def _fits(kind: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(kind, pattern)


def _is_wild(name: str) -> bool:
    return any(letter in name for letter in WILD)


def _vagueness(name: str) -> int:
    return -sum(letter not in WILD for letter in name)
