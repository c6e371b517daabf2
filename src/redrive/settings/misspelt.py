"""Finds environment variables that look like settings and are none."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from redrive.features import installed
from redrive.settings.declare import names_of
from redrive.settings.load_feature import OURS
from redrive.settings.own import Settings

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature

# Read elsewhere, or set by redrive itself for its own processes.
OTHER_NAMES = {
    "REDRIVE_CONFIG",
    "REDRIVE_ACTOR",
    "REDRIVE_DEV",
    "REDRIVE_METRICS_PIPE",
    "REDRIVE_SUPERVISED",
    "REDRIVE_TOKEN",
}
ALIKE = 0.9  # how much like a setting a name is that is taken for it misspelt, where others may have names of their own


def misspelt(features: Iterable[Feature] | None = None) -> list[str]:
    """Returns what to say about each of them. ``features``: those of the application; all installed ones unless said
    otherwise."""
    brought = _names(installed() if features is None else features)
    own = {*names_of(Settings), *OTHER_NAMES}
    wrong = sorted(name for name in os.environ if name not in own | brought and _looks_like_one(name, brought))
    return [f"{name} is set and is no setting of redrive; {_meant(name, own | brought)}" for name in wrong]


def _names(features: Iterable[Feature]) -> set[str]:
    return {name for feature in features if feature.settings is not None for name in names_of(feature.settings)}


def _looks_like_one(name: str, others: Collection[str]) -> bool:
    """Returns whether it begins as only ours do, or is nearly one of the others: other programs have an outbox and
    orders of their own."""
    if name.startswith(OURS):
        return not name.startswith("REDRIVE_TEST_")
    same = [other for other in others if other.partition("_")[0] == name.partition("_")[0]]
    return bool(difflib.get_close_matches(name, same, 1, ALIKE))


def _meant(name: str, known: Iterable[str]) -> str:
    close = next(iter(difflib.get_close_matches(name, known, 1)), None)
    return f"did you mean {close}?" if close else "redrive settings lists those there are"
