"""Refuses features that need more than a store can do, before anything is done with either."""

from __future__ import annotations

from collections.abc import Iterable

from redrive.errors import ConfigError
from redrive.kernel.feature import Feature, Need
from redrive.kernel.ports.store import Capabilities
from redrive.stores.schema import load

_WORDS = {
    Need.REACTIONS: "reactions",
    Need.JOINS: "joins",
    Need.LEDGER: "a ledger",
    Need.TABLES: "tables of features",
}
_DIALECTS = ("sqlite", "postgres")


def needs_of(feature: Feature) -> set[Need]:
    """Returns what a feature needs: what it says, and what follows from a reaction and from tables."""
    found = set(feature.needs)
    if feature.react is not None:
        found.add(Need.REACTIONS)
    if any(load(feature.package, f"migrations/{dialect}") for dialect in _DIALECTS):
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
