"""The rules besides the table's: those of the application and those that its features bring."""

from __future__ import annotations

from collections.abc import Iterable

from redrive.kernel.alerts.own import OwnRule
from redrive.kernel.feature import Feature
from redrive.settings import Settings


def more_rules(settings: Settings, features: Iterable[Feature], connection: str | None = None) -> dict[str, OwnRule]:
    """Returns those that hold on a connection, the default one for None. A feature may have tasks on each."""
    return {**settings.own_alerts(connection), **_feature_rules(settings, features)}


def all_more_rules(settings: Settings, features: Iterable[Feature]) -> dict[str, OwnRule]:
    """Returns those of all connections."""
    return {**settings.alerts.own, **_feature_rules(settings, features)}


def _feature_rules(settings: Settings, features: Iterable[Feature]) -> dict[str, OwnRule]:
    rules = [rule.bound(feature.examine, settings) for feature in features for rule in feature.alerts]
    return {rule.name: rule for rule in rules if settings.alerts.limits.holds(rule.name, "")}
