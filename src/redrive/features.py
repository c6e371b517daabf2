"""Finds the features of an application: those that come with redrive, those of installed packages, and its own."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from redrive.errors import ConfigError
from redrive.kernel.feature import Feature

# Packages name theirs under this in their metadata: NAME = "package.module:FEATURE".
GROUP = "redrive.features"
BUILT_IN: tuple[Feature, ...] = ()


@cache
def installed() -> tuple[Feature, ...]:
    """Returns the features that every process of this installation knows, also a command that was given no
    application."""
    return (*BUILT_IN, *(_load(entry.name, entry.value) for entry in entry_points(group=GROUP)))


def features_of(own: Iterable[Feature]) -> tuple[Feature, ...]:
    """Returns all features of an application; two of one name are refused."""
    found: dict[str, Feature] = {}
    for feature in (*installed(), *own):
        known = found.setdefault(feature.name, feature)
        if known is not feature:
            raise ConfigError(
                f"two features are named {feature.name!r}", hint=f"{known.package} and {feature.package}: rename one"
            )
    return tuple(found.values())


def load(name: str) -> Any:
    """Imports what a feature names as "package.module:attribute"."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def _load(name: str, value: str) -> Feature:
    found = load(value)
    if not isinstance(found, Feature):
        raise ConfigError(f"the entry point {name!r} of {GROUP} is {type(found).__name__}, not a Feature")
    return found
