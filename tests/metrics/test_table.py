"""The table of metrics: names and labels that Prometheus takes, each once."""

from __future__ import annotations

import re

from redrive.observe.metrics import TABLE, Scope, Type

NAME = re.compile(r"redrive_[a-z][a-z_]*[a-z]")


def test_names_follow_the_conventions() -> None:
    names = [metric.name for metric in TABLE]
    assert len(set(names)) == len(names)
    for metric in TABLE:
        assert NAME.fullmatch(metric.name), metric.name
        assert metric.name.endswith("_total") == (metric.type is Type.COUNTER), metric.name
        assert metric.name.startswith("redrive_fleet_") == (metric.scope is Scope.FLEET), metric.name
        assert (metric.help.endswith(".") and metric.help[0].isupper()) or metric.help[0].isdigit(), metric.help


def test_a_process_is_named_by_its_worker() -> None:
    for metric in TABLE:
        assert ("worker" in metric.all_labels) == (metric.scope is Scope.PROCESS), metric.name
        assert "worker" not in metric.labels and "le" not in metric.labels
