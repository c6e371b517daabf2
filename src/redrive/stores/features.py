"""Holds the features of a process as a store needs them: who reacts, and with which statements."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.errors import InvalidInput
from redrive.kernel.feature import Feature
from redrive.kernel.reactions import Reactions
from redrive.stores.sql import statements


class Features:
    """The features that a store knows. ``dialect`` names the ``.sql`` file of each: "sqlite" or "postgres"."""

    def __init__(self, features: Sequence[Feature], dialect: str) -> None:
        self.all = tuple(features)
        self.reactions = Reactions({f.name: f.react for f in features if f.react is not None})
        self._packages = {f.name: f.package for f in features}
        self._dialect = dialect

    def statement(self, feature: str, name: str) -> str:
        """Returns a feature's statement by its name."""
        if feature not in self._packages:
            raise InvalidInput(
                f"the feature {feature!r} is not known here", hint="name the application that brings it (--app)"
            )
        return statements(self._packages[feature], f"{self._dialect}.sql")[name]
