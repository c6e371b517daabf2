"""The dashboard: every expression names metrics and labels that there are, and every metric is drawn."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from redrive.features import installed
from redrive.observe.feature_metrics import table_of
from redrive.observe.grafana import dashboard
from redrive.observe.metrics import TABLE, Metric, Scope, Type, by_name
from tests.cli.conftest import here, redrive  # noqa: F401 - fixtures
from tests.metrics.test_features import OPEN, PAID

ALL = (*TABLE, PAID, OPEN)
NAME = re.compile(r"\b(?:redrive|shop)_[a-z_]+")
WORDS = {"sum", "max", "by", "rate", "time", "histogram_quantile", "le"}


def panels(table: tuple[Metric, ...] = ALL) -> list[dict[str, Any]]:
    return [panel for panel in dashboard(table)["panels"] if panel["type"] != "row"]


def targets() -> Iterator[tuple[str, str]]:
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def metrics_in(expression: str) -> list[Metric]:
    known = by_name(ALL)
    found = []
    for name in NAME.findall(expression):
        bucket = name.removesuffix("_bucket")
        metric = known[bucket if bucket in known else name]
        assert (metric.type is Type.HISTOGRAM) == (name != metric.name), f"{name}: only buckets are drawn"
        found.append(metric)
    return found


@pytest.mark.parametrize(("expression", "legend"), targets())
def test_expressions_name_what_there_is(expression: str, legend: str) -> None:
    used = metrics_in(expression)
    assert used
    for metric in used:
        labels = {*metric.all_labels, *(("le",) if metric.type is Type.HISTOGRAM else ())}
        for selector in re.findall(rf"{metric.name}(?:_bucket)?{{([^}}]*)}}", expression):
            assert set(re.findall(r"(\w+)(?:=~|=)", selector)) <= labels, expression
        for by in re.findall(r"by \(([^)]*)\)", expression):
            assert {label.strip() for label in by.split(",")} <= labels, expression
    grouped = {label.strip() for by in re.findall(r"by \(([^)]*)\)", expression) for label in by.split(",")}
    assert set(re.findall(r"{{(\w+)}}", legend)) <= grouped
    plain = re.sub(r'"[^"]*"|\[[^]]*]|{[^}]*}', "", expression)
    rest = set(re.findall(r"[a-z_]+", NAME.sub("", plain)))
    assert rest <= WORDS | {label for metric in used for label in metric.all_labels}, rest


@pytest.mark.parametrize("expression", [expression for expression, _ in targets()])
def test_figures_of_the_fleet_are_taken_once(expression: str) -> None:
    for metric in metrics_in(expression):
        if metric.scope is Scope.FLEET:
            assert re.search(rf"max(?: by \([^)]*\))? \((?:rate\()?{metric.name}\b", expression), expression


def test_every_metric_is_drawn() -> None:
    drawn = {metric.name for expression, _ in targets() for metric in metrics_in(expression)}
    assert {metric.name for metric in ALL} - drawn == set()


def test_panels_do_not_lie_over_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard(ALL)["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    numbers = [panel["id"] for panel in dashboard(ALL)["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_prometheus_can_read_every_expression(tmp_path: Any) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not here (apt install prometheus): the dashboard's expressions were NOT parsed by it")
    rules = [
        {"record": f"expression:{nth}", "expr": expression.replace("$__rate_interval", "5m")}
        for nth, (expression, _) in enumerate(targets())
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    said = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr


def test_the_command_prints_it(redrive: Any) -> None:  # noqa: F811
    said = redrive("deploy", "grafana")
    assert said.code == 0
    assert said.json == json.loads(json.dumps(dashboard(table_of(installed()))))
