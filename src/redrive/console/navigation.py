"""The pages that the console's menu, palette and keys list, in their order. Features add theirs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from redrive.console.addresses import home
from redrive.errors import ConfigError, RedriveError
from redrive.ops.access import Role
from redrive.ops.operator import Operator

ASKED_EVERY_S = 5.0
Used = Callable[[Operator], Awaitable[bool]]


@dataclass(slots=True, frozen=True)
class Item:
    """One page: ``path`` below the console's address; ``badge`` names the live number that stands beside it, ``key``
    the letter that leads there after ``g``. Who is below ``role`` is not shown it."""

    name: str
    path: str
    about: str
    badge: str | None = None
    key: str | None = None
    role: Role = Role.VIEWER

    @property
    def url(self) -> str:
        return home() + self.path


@dataclass(slots=True, frozen=True)
class Section:
    name: str
    items: tuple[Item, ...]


SECTIONS = (
    Section(
        "See",
        (
            Item("Overview", "", "What is wrong, and how much is going on", key="o"),
            Item("Alerts", "/alerts", "Rules that are broken, and silences", "alerts", "l"),
            Item("Failures", "/failures", "Causes of failures, and the tasks that failed by them", "failed", "f"),
            Item("Dead letters", "/dead-letters", "The record of every terminal failure", key="d"),
            Item("Tasks", "/tasks", "All tasks, by state, kind, queue, scope and trace", key="t"),
        ),
    ),
    Section(
        "Act",
        (
            Item("Operations", "/operations", "Bulk retries and purges, live", "operations", "p"),
            Item("Approvals", "/approvals", "What waits for a second person", "approvals", "a"),
            Item("Audit", "/audit", "Who did what, when and why", key="u"),
        ),
    ),
    Section(
        "Run",
        (
            Item("Queues & limits", "/queues", "Pause, resume, quotas and rates", key="q"),
            Item("Workers", "/workers", "Who is alive, and what each runs", key="w"),
            Item("Schedules", "/schedules", "Periodic tasks: next and last runs", key="s"),
            Item("Settings", "/settings", "What is configured, and where it comes from", role=Role.OPERATOR),
        ),
    ),
)

# What can be done, by its name, and the page on which it is done.
ACTIONS = (
    Item(
        "Retry failed tasks",
        "/failures/preview",
        "run again, redrive, replay: preview what matches",
        role=Role.OPERATOR,
    ),
    Item("Mute or resolve a cause", "/failures", "note, owner, silence", role=Role.OPERATOR),
    Item("Pause or resume an operation", "/operations", "stop, cancel", role=Role.OPERATOR),
    Item("Approve or reject", "/approvals", "second person, decide", role=Role.OPERATOR),
    Item("Pause or resume a queue or kind", "/queues", "hold, stop", role=Role.OPERATOR),
    Item("Change limits", "/queues", "quota, concurrency, rate", role=Role.ADMIN),
    Item("Silence an alert", "/alerts", "mute, quiet, rule", role=Role.OPERATOR),
    Item("Export the audit log", "/audit", "csv, json"),
    Item("Verify the audit log", "/audit/verify", "chain, hashes"),
    Item("Prune the audit log", "/audit/prune", "retention, remove", role=Role.ADMIN),
)


def actions_named(words: str, role: Role) -> list[Item]:
    """Returns the actions that are called so, or are meant by it, and that this role may do."""
    wanted = words.casefold().split()
    allowed = [one for one in ACTIONS if one.role <= role]
    return [one for one in allowed if wanted and all(word in f"{one.name} {one.about}".casefold() for word in wanted)]


def joined(sections: Iterable[Section]) -> tuple[Section, ...]:
    """Returns sections of one name as one; a key that two pages want is refused."""
    found: dict[str, Section] = {}
    keys: dict[str, str] = {}
    for section in sections:
        known = found.setdefault(section.name, Section(section.name, ()))
        found[section.name] = replace(known, items=(*known.items, *section.items))
        for item in section.items:
            if item.key is not None and keys.setdefault(item.key, item.name) != item.name:
                raise ConfigError(f"the key {item.key!r} of page {item.name!r} is that of {keys[item.key]!r}")
    return tuple(found.values())


def visible_sections(role: Role, sections: Iterable[Section], unused: Collection[str] = ()) -> list[Section]:
    """Returns the sections with what this role may see, without the pages of features that nobody uses."""

    def is_shown(item: Item) -> bool:
        return item.role <= role and item.path.strip("/").partition("/")[0] not in unused

    seen = [replace(one, items=tuple(filter(is_shown, one.items))) for one in sections]
    return [section for section in seen if section.items]


class Usage:
    """Asks features whether they are used, each connection by itself: what is used once stays in the menu, and what is
    not is asked for now and then."""

    def __init__(self, asked: Mapping[str, Used]) -> None:
        self._asked = asked
        self._used: set[tuple[str, str]] = set()
        self._next: dict[tuple[str, str], float] = {}

    async def unused(self, operator: Operator) -> frozenset[str]:
        """Returns the names of features that nobody uses here."""
        return frozenset([name for name, used in self._asked.items() if not await self._is_used(name, used, operator)])

    async def _is_used(self, name: str, used: Used, operator: Operator) -> bool:
        key = (name, operator.connection)
        if key not in self._used and time.monotonic() >= self._next.get(key, 0.0):
            self._next[key] = time.monotonic() + ASKED_EVERY_S
            try:
                if await used(operator):
                    self._used.add(key)
            except RedriveError:  # the store is away: the page is needed all the more
                return True
        return key in self._used
