"""Finds the features of an application: those that come with redrive, those of installed packages, and its own."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module, machinery
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redrive.errors import ConfigError

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature

# Packages name theirs under this in their metadata: NAME = "package.module:FEATURE".
GROUP = "redrive.features"
_METADATA = (".dist-info", ".egg-info")
_FINDERS = (machinery.PathFinder,)
# Those that come with redrive, named alike: they are imported when somebody asks, since they use what is above.
BUILT_IN: tuple[str, ...] = (
    "redrive.ledger:LEDGER",
    "redrive.webhooks:WEBHOOKS",
    "redrive.batches:BATCHES",
    "redrive.outbox:OUTBOX",
)
# Commands, addresses of the API and pages of the console that redrive has itself. A test keeps them complete, and also
# the first words of its tables: a worker's role may write to tables that are named after a feature.
_TAKEN = """
act alerts approvals audit cancel causes circuits connections dead_letters deploy docs doctor drill enqueue erase
executors failed failure_groups failure_types failures find flush forget groups history internal kinds lab limits list
live migrate operations overview pause providers purge queues rates replay resume retry routes schedules settings show
sign_in sign_out simulate slo smoke soak static stats task_groups tasks theme tokens up version who why
work worker workers
"""
_TABLES = """
account attempt audit circuit clock dead duty entry failed failure fold history hold idempotency join kind known
migration move name partition position posting pruned record reserved resuming retry schedule series task total
used v worker
"""
TAKEN, TABLES = frozenset(_TAKEN.split()), frozenset(_TABLES.split())


@cache
def installed() -> tuple[Feature, ...]:
    """Returns the features that every process of this installation knows, also a command that was given no
    application."""
    return (*(_load(name, name) for name in BUILT_IN), *of_packages())


def of_packages() -> tuple[Feature, ...]:
    """Returns the features that other installed packages bring."""
    return tuple(_load(name, value) for name, value in _entry_points())


def _entry_points() -> Iterator[tuple[str, str]]:
    """Yields what installed packages name, as name and value."""
    if not _may_be_named():
        return
    from importlib.metadata import entry_points

    yield from ((entry.name, entry.value) for entry in entry_points(group=GROUP))


def _may_be_named() -> bool:
    """Returns False only where certainly no package names a feature, by a look at the files that say so: Python's own
    way reads all metadata, and takes longer to import than most commands."""
    if any(hasattr(finder, "find_distributions") and finder not in _FINDERS for finder in sys.meta_path):
        return True
    return any(_names_some(Path(folder or ".")) for folder in sys.path)


def _names_some(folder: Path) -> bool:
    try:
        found = [one / "entry_points.txt" for one in folder.iterdir() if one.name.endswith(_METADATA)]
        return any(GROUP in file.read_text(encoding="utf-8", errors="replace") for file in found if file.is_file())
    except FileNotFoundError:
        return False
    except OSError:  # an archive, or what may not be looked at: that is left to Python
        return True


def features_of(own: Iterable[Feature]) -> tuple[Feature, ...]:
    """Returns all features of an application; one whose name is taken is refused."""
    found: dict[str, Feature] = {}
    for feature in (*installed(), *_checked(own)):
        if feature.name in TAKEN or feature.called in TAKEN or feature.name.partition("_")[0] in TABLES:
            raise ConfigError(
                f"a feature cannot be named {feature.name!r}",
                hint="redrive has a command, an address or tables of that name itself: rename the feature",
            )
        known = found.setdefault(feature.name, feature)
        if known is not feature:
            raise ConfigError(
                f"two features are named {feature.name!r}", hint=f"{known.package} and {feature.package}: rename one"
            )
        if any(one.called == feature.called for one in found.values() if one is not feature):
            raise ConfigError(f"the commands of two features are called {feature.called!r}", hint="rename one of them")
    return tuple(found.values())


def _checked(own: Any) -> list[Feature]:
    """Returns what an application was given as its features, if it is a list of them."""
    if own == ():  # as most are; then nothing is imported
        return []
    from redrive.kernel.feature import Feature

    given: list[Any] = [own] if isinstance(own, Feature | str) else list(own)
    for one in given:
        if one is own or not isinstance(one, Feature):
            what = "one Feature" if isinstance(one, Feature) else repr(one)
            raise ConfigError(
                f"the features of an application are a list of Feature values, not {what}",
                hint="App(features=[ORDERS]), where ORDERS is a Feature: docs/features.md",
            )
    return given


def load(name: str) -> Any:
    """Imports what a feature names as "package.module:attribute"."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except AttributeError as error:
        if getattr(error, "obj", None) is not sys.modules.get(module):
            raise  # a mistake inside the module
        raise ConfigError(f"{module} has no {attribute!r}, which a feature names as {name!r}") from None


def _load(name: str, value: str) -> Feature:
    from redrive.kernel.feature import Feature

    found = load(value)
    if not isinstance(found, Feature):
        raise ConfigError(f"the entry point {name!r} of {GROUP} is {type(found).__name__}, not a Feature")
    return found


def hooks_of(features: Iterable[Feature], asker: str) -> Iterator[tuple[str, Any]]:
    """Yields the features that do something where this one asks, with what it is."""
    for feature in features:
        if asker in feature.hooks:
            yield feature.name, load(feature.hooks[asker])
