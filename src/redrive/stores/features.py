"""Holds the features of a process as a store needs them: who reacts, and with which statements."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import cache
from uuid import UUID

from redrive.errors import ConfigError, InvalidInput
from redrive.kernel.audit import Audit
from redrive.kernel.erase import BELONGING, ERASE, PERSONAL
from redrive.kernel.feature import Feature, Need
from redrive.kernel.machine import Transition
from redrive.kernel.ports.store import Capabilities
from redrive.kernel.reactions import Landed, Reactions, conflict_row
from redrive.kernel.task import Enqueued, NewTask
from redrive.stores.schema import load
from redrive.stores.sql import has_file, statements

logger = logging.getLogger("redrive.store")
DIALECTS = ("sqlite", "postgres")


def _nothing(transition: Transition, landed: Landed) -> None:
    """The reaction of a feature that has none."""


@cache
def _compare(package: str) -> None:
    """Refuses a feature one of whose two files lacks a statement: that would be noticed by its first call, in
    production."""
    files = [f"{dialect}.sql" for dialect in DIALECTS if has_file(package, f"{dialect}.sql")]
    names = [statements(package, file).keys() for file in files]
    if len(names) == len(DIALECTS) and (odd := sorted(names[0] ^ names[1])):
        lacking = files[odd[0] in names[0]]
        raise ConfigError(f"{lacking} of {package} has no statement {odd[0]!r}, which the other file has")


def check_statements(feature: Feature, names: Iterable[str]) -> None:
    """Refuses names of statements that a file of the feature lacks, before the first call would notice."""
    for file in (f"{dialect}.sql" for dialect in DIALECTS if has_file(feature.package, f"{dialect}.sql")):
        known = statements(feature.package, file)
        for name in names:
            if name not in known:
                raise ConfigError(
                    f"the feature {feature.name!r} prunes by {name!r}, which {file} of {feature.package} does not have",
                    hint=f"it has: {', '.join(sorted(known))}",
                )


class Features:
    """The features that a store knows. ``dialect`` names the ``.sql`` file of each: "sqlite" or "postgres"."""

    def __init__(self, features: Sequence[Feature], dialect: str) -> None:
        self.all = tuple(features)
        # Also those that add nothing: their tasks are theirs all the same, and are run and ended here.
        self.reactions = Reactions({f.name: f.react or _nothing for f in features if f.tasks})
        self._packages = {f.name: f.package for f in features}
        self._dialect = dialect
        for feature in features:
            _compare(feature.package)
        self.guards = {f.name: f.retry_guard for f in features if f.retry_guard is not None}
        for name, guard in self.guards.items():
            self.statement(name, guard.statement)  # refused here if there is none
        # Those with tables: what stands there about a person is theirs to find.
        self.erasing = {f.name: self._erasing(f.name) for f in features if load(f.package, f"migrations/{dialect}")}
        # Those that know tasks of somebody's which do not carry the scope themselves.
        self.belonging = [name for name in self.erasing if BELONGING in self._statements(name)]

    def statement(self, feature: str, name: str) -> str:
        """Returns a feature's statement by its name."""
        if feature not in self._packages:
            raise InvalidInput(
                f"the feature {feature!r} is not known here", hint="name the application that brings it (--app)"
            )
        found = self._statements(feature).get(name)
        if found is None:
            raise ConfigError(f"{self._file(feature)} has no statement {name!r}")
        return found

    def _erasing(self, feature: str) -> list[str]:
        """Returns the statements by which it forgets somebody; without them nobody would know what stays."""
        found = self._statements(feature)
        for name in (PERSONAL, ERASE):
            if name not in found:
                raise ConfigError(
                    f"the feature {feature!r} has tables, and {self._file(feature)} has no statement {name!r}",
                    hint='erasing somebody\'s data has to reach them: docs/features.md, "Retention and erasing"',
                )
        return [text for name, text in found.items() if name == ERASE or name.startswith(f"{ERASE}_")]

    def _statements(self, feature: str) -> dict[str, str]:
        return statements(self._packages[feature], f"{self._dialect}.sql")

    def _file(self, feature: str) -> str:
        return f"{self._dialect}.sql of {self._packages[feature]}"


def with_callbacks(erased: dict[str, int], callbacks: int) -> dict[str, int]:
    """Returns what was erased, with what joins would have enqueued."""
    return {**erased, "joins": erased.get("joins", 0) + callbacks} if callbacks else erased


def tell_conflicts(who: str, tasks: Sequence[NewTask], answers: Iterable[Enqueued]) -> list[Audit]:
    """Logs which tasks of a reaction were not made because their keys name other work, and returns the audit rows that
    doctor finds them by: one for each kind. The move itself is right, and is kept: its task has ended, whatever
    follows."""
    found: dict[str, list[UUID]] = {}
    for task, answer in zip(tasks, answers, strict=True):
        if answer.conflict:
            found.setdefault(task.kind, []).append(answer.id)
            logger.error(
                "%s wanted to add a task %s, and its idempotency key names other work, task %s: it was not made",
                who,
                task.kind,
                answer.id,
                extra={"event": "reaction.key_conflict", "kind": task.kind, "task_id": str(answer.id)},
            )
    return [conflict_row(who, kind, ids) for kind, ids in found.items()]


# Refuses features that need more than a store can do, before anything is done with either.

_WORDS = {
    Need.REACTIONS: "reactions",
    Need.JOINS: "joins",
    Need.LEDGER: "a ledger",
    Need.TABLES: "tables of features",
}


def needs_of(feature: Feature) -> set[Need]:
    """Returns what a feature needs: what it says, and what follows from a reaction and from tables."""
    found = set(feature.needs)
    if feature.react is not None:
        found.add(Need.REACTIONS)
    if any(load(feature.package, f"migrations/{dialect}") for dialect in DIALECTS):
        found.add(Need.TABLES)
    return found


def check_needs(features: Iterable[Feature], capabilities: Capabilities, where: str) -> None:
    """Refuses a feature that needs what this store cannot do."""
    for feature in features:
        needed = needs_of(feature)
        missing = [words for need, words in _WORDS.items() if need in needed and not getattr(capabilities, need)]
        if missing:
            raise ConfigError(
                f"the feature {feature.name!r} needs {', '.join(missing)}, which {where} does not have",
                hint="keep its tasks in SQLite or PostgreSQL, or leave the feature out",
            )
