"""A feature: one folder that brings tables, reactions, duties, settings, routes, commands and pages of its own.

Everything is found by this one value, so nothing outside the folder has to name the feature. Its package holds:

- ``sqlite.sql`` and ``postgres.sql``: its named statements, for ``Rows`` and for reading. A feature with tables has two
  by fixed names: ``personal`` counts what it knows about a scope or tasks, ``erase`` removes it (more of them:
  ``erase_…``);
- ``migrations/sqlite`` and ``migrations/postgres``: its tables, numbered from 0001, named after the feature;
- ``templates/NAME``: the templates of its pages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from redrive.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from uuid import UUID

    from redrive.kernel.alerts.own import AlertRule
    from redrive.kernel.approved import ApprovedAction
    from redrive.kernel.diagnosis import Dependency, Finding
    from redrive.kernel.duty import Duty
    from redrive.kernel.ports.store import Store
    from redrive.kernel.reactions import React
    from redrive.kernel.retry_guard import RetryGuard

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")  # a part of names of tables, of addresses, and a command


class Need(StrEnum):
    """What a feature may need of a store: the name of one of its capabilities."""

    REACTIONS = "reactions"
    JOINS = "joins"
    LEDGER = "ledger"
    TABLES = "tables"


@dataclass(slots=True, frozen=True)
class Belongs:
    """What a task belongs to: ``label`` ("order o1"), and ``page``, where the console shows it ("/orders/o1").
    Everybody who may see the task sees it."""

    label: str
    page: str | None = None
    feature: str | None = None  # whose words these are, where the task does not carry its name


@dataclass(slots=True, frozen=True)
class Members:
    """The tasks that an id of a feature stands for, as members of a join. ``cancel``: what to do instead where
    cancelling these tasks would not cancel what they are part of."""

    join: UUID
    cancel: str | None = None


@dataclass(slots=True, frozen=True)
class Groups:
    """Ids of a feature that stand for several tasks. ``members`` gets the store and an id by which tasks are filtered;
    returns the members of which join are meant, None where the id is none of its own. It refuses one of its own that
    has no tasks, and says where to look instead. ``belongs`` gets the join of a task that carries no feature's name;
    returns what its members belong to. ``listed``: the command that lists them."""

    members: Callable[[Store, UUID], Awaitable[Members | None]]
    belongs: Callable[[UUID], Belongs]
    listed: str


@dataclass(slots=True, frozen=True)
class Feature:
    """What a feature brings. Routes, commands, pages and metrics are given by name: only the process that serves
    them imports them. Functions that get settings get the application's; ``settings.of(OrderSettings)`` are its own."""

    name: str
    package: str
    react: React | None = None
    duties: Callable[[Any], Sequence[Duty]] | None = None  # gets the settings
    kinds: Any = (
        None  # redrive.handlers.kinds.Kinds: its own, which its reaction can make tasks of wherever it is known
    )
    declare: Callable[[Any], None] | None = None  # gets the App, for schedules and what depends on the application
    # Gets the App and the name of a provider: called for each that the application has, configured or registered.
    provider: Callable[[Any, str], None] | None = None
    # What it puts on the App: a name → "package.service:Class", made of the App when it is first asked for.
    services: Mapping[str, str] = field(default_factory=dict, hash=False)
    routes: str | None = None  # "package.routes:router", a FastAPI router or several, below /api/NAME
    # Beginnings of addresses below /api/NAME/ that anybody may POST to: the address itself proves who calls, and of the
    # body nothing is read.
    public: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()  # addresses that read JSON lines as they come, and bound them themselves
    commands: str | None = None  # "package.commands:cli", a Typer application, called ``redrive NAME …``
    pages: str | None = None  # "package.pages:pages", FeaturePages of the console, below /ops/queue/NAME
    settings: Any = None  # a class of redrive.settings.FeatureSettings
    # Gets the settings; returns how many days rows are kept, by the name of the statement that removes older ones.
    retention: Callable[[Any], Mapping[str, float]] | None = None
    # Gets the store and the settings; returns what is wrong, for doctor and the console.
    examine: Callable[[Store, Any], Awaitable[Sequence[Finding]]] | None = None
    alerts: Sequence[AlertRule] = ()  # its rules: what of it somebody is told, without asking
    # Gets the same; returns what it depends on besides the store, for /readyz.
    dependencies: Callable[[Store, Any], Awaitable[Sequence[Dependency]]] | None = None
    # Gets the facts of a task; returns what it belongs to, for API, command line and console. Also asked for lists: it
    # looks at nothing else.
    belongs: Callable[[Mapping[str, Any]], Belongs | None] | None = None
    groups: Groups | None = None  # its ids that stand for several tasks
    approved: tuple[ApprovedAction, ...] = ()  # its actions that a second operator may have to agree to
    retry_guard: RetryGuard | None = None  # says which of its tasks nobody may retry, and what to do instead
    metrics: str | None = None  # "package.metrics:metrics", FeatureMetrics, for /metrics
    # What it does where others ask, by who asks: "package.checks:hook", imported when they do. Of another feature's
    # name that feature says what it is; "erase" is async, gets the store and a scope, and returns why that cannot be
    # erased now, and what has to end before (Withheld), or None.
    hooks: Mapping[str, str] = field(default_factory=dict, hash=False)
    # What kinds begin with that only the feature itself enqueues. On PostgreSQL a step of it writes the same into the
    # table redrive.reserved_kind, by which redrive.enqueue refuses them to producers.
    reserved_kinds: tuple[str, ...] = ()
    # What kinds begin with that no usual number of dead workers fails (TASK_MAX_WORKER_DEATHS): how many deaths in a
    # row do, None where the feature itself bounds them by something else.
    max_deaths: Mapping[str, int | None] = field(default_factory=dict, hash=False)
    about: str = ""  # what its commands are for, in a sentence; without it the page of all commands has to import them
    command: str | None = None  # what its commands are called, where not by its name: ``redrive batch``, of "batches"
    tasks: bool = True  # False: no task carries its name, so nobody has to look after such
    needs: tuple[Need, ...] = ()  # of the store; what follows from a reaction and from tables goes without saying

    @property
    def called(self) -> str:
        """The word behind ``redrive`` on the command line."""
        return self.name if self.command is None else self.command

    def __post_init__(self) -> None:
        if self.command is not None and not _NAME.fullmatch(self.command):
            raise ConfigError(
                f"the feature {self.name!r} cannot be called {self.command!r} as a command: it is no name"
            )
        for name in self.services:
            if not _NAME.fullmatch(name):
                raise ConfigError(f"the feature {self.name!r} cannot put {name!r} on the application: it is no name")
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"{self.name!r} is no name of a feature",
                hint="its tables, addresses and commands are named after it: small letters, digits and _, 40 at most",
            )
        for path in self.public:
            if not path.startswith(f"/api/{self.name}/") or not path.endswith("/"):
                raise ConfigError(
                    f"the feature {self.name!r} cannot open {path!r} to everybody", hint=f'say "/api/{self.name}/…/"'
                )
        if not self.tasks and (self.react or self.kinds or self.belongs or self.retry_guard):
            raise ConfigError(f"the feature {self.name!r} has no tasks, and something that is about them")
        if len({action.name for action in self.approved}) < len(self.approved):
            raise ConfigError(f"the feature {self.name!r} has two actions of one name that are approved")
        for rule in self.alerts:
            rule.check(self.name, self.examine)
        if len({rule.name for rule in self.alerts}) < len(self.alerts):
            raise ConfigError(f"the feature {self.name!r} has two alerts of one name")
