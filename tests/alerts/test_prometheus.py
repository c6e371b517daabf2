"""The rule file: names what there is, and fires when the product does. promtool has the last word."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from redrive.features import installed
from redrive.kernel.alerts.own import OwnRule
from redrive.kernel.alerts.rules import TABLE
from redrive.kernel.alerts.thresholds import Limits, Thresholds
from redrive.observe.metrics import Scope, by_name
from redrive.observe.prometheus_rules import rule_file, rules_of
from tests.alerts.cases import CASES, Case
from tests.cli.conftest import here, redrive  # noqa: F401 - fixtures

EVALUATED = "redrive_fleet_alerts_evaluated_timestamp_seconds"
NAME = re.compile(r"\bredrive_[a-z_]+")
OWN = {
    "late_reports": OwnRule("late_reports", "select 1"),
    "odd": OwnRule("odd", "select 1", summary='{{ broken "so" \\ {{ $labels }}'),
}
ODD = Limits(
    Thresholds(off=["surge"]), {'odd "q"\\.*': Thresholds(depth=500, depth_for=90, pending_share=0.25, off=["horizon"])}
)
HERE = ["main"]
RULES = [*rules_of(Limits(), "docs/operations.md", HERE, OWN), *rules_of(ODD, "docs/operations.md", HERE, {})]


@pytest.mark.parametrize("expression", sorted({rule.expression for rule in RULES}))
def test_expressions_name_what_there_is(expression: str) -> None:
    known = by_name()
    assert NAME.findall(expression)
    for name in NAME.findall(expression):
        metric = known[name]
        plain = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
        for selector in re.findall(rf"\b{name}{{([^}}]*)}}", plain):
            assert set(re.findall(r"(\w+)(?:=~|!=|=)", selector)) <= set(metric.all_labels), expression
        if metric.scope is Scope.FLEET:
            once = rf"(?:max(?: by \([^)]*\))? ?\(|absent\(){name}\b"
            assert len(re.findall(once, expression)) == len(re.findall(rf"\b{name}\b", expression)), expression
    for labels, name in re.findall(r"(?:max|sum) by \(([^)]*)\) \((?:increase\()?(redrive_[a-z_]+)", expression):
        assert {label.strip() for label in labels.split(",")} <= set(known[name].all_labels), expression


def test_each_queue_with_thresholds_of_its_own_has_a_rule_of_its_own() -> None:
    found = [
        rule
        for rule in rules_of(Limits(queues={"reports": Thresholds(depth=500)}), "r", HERE, {})
        if rule.alert == "RedriveDepth"
    ]
    assert ['queue!="reports"' in rule.expression for rule in found] == [True, False]
    assert "> 100" in found[0].expression and "> 500" in found[1].expression


def test_the_command_prints_it(redrive: Any, here: Path) -> None:  # noqa: F811
    (here / "redrive.toml").write_text("[alerts.thresholds.reports]\nfailed_for = 60\n")
    said = redrive("deploy", "prometheus")
    assert said.code == 0
    brought = sum(len(feature.alerts) for feature in installed())
    assert said.out.count("- alert:") == len(TABLE) + sum(rule.of_queue is not None for rule in TABLE) + 1 + brought
    assert "for: 1m" in said.out and "docs/operations.md#alert-failed" in said.out and "absent(" in said.out


def promtool(folder: Path, *arguments: str) -> None:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not here (apt install prometheus): the rules were NOT evaluated by it")
    said = subprocess.run([found, *arguments], cwd=folder, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("limits", [Limits(), ODD], ids=["default", "odd"])
def test_prometheus_can_read_it(limits: Limits, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(
        rule_file(limits, "https://example.com/operations", ["main", "insights"], OWN), encoding="utf-8"
    )
    promtool(tmp_path, "check", "rules", "rules.yml")


def test_prometheus_fires_when_the_product_does(tmp_path: Path) -> None:
    """Each rule in a file of its own: promtool evaluates all rules of a file in every case."""
    files = {repr(case.limits): case.limits for case in CASES}
    tests: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for case in CASES:
        tests.setdefault((_name(case.rule), repr(case.limits)), []).append(_test(case))
    evaluated = _with(EVALUATED, "a")
    tests["RedriveNotEvaluated", repr(Limits())] = [
        _absent({}, True),
        _absent({evaluated: "0+60x90"}, False),
        _absent({evaluated: "0x90"}, True),
    ]
    names = []
    for (alert, limits), cases in tests.items():
        file = yaml.safe_load(rule_file(files[limits], "docs/operations.md", HERE))
        names.append(name := f"{alert}{list(files).index(limits)}")
        own = [{**group, "rules": [r for r in group["rules"] if r["alert"] == alert]} for group in file["groups"]]
        (tmp_path / f"{name}.yml").write_text(json.dumps({"groups": [group for group in own if group["rules"]]}))
        (tmp_path / f"{name}.tests.yml").write_text(
            json.dumps({"rule_files": [f"{name}.yml"], "evaluation_interval": "1m", "tests": cases})
        )
    promtool(tmp_path, "test", "rules", *(f"{name}.tests.yml" for name in names))


def test_one_connection_is_not_taken_for_another(tmp_path: Path) -> None:
    """Two stores that one Prometheus scrapes: what is wrong with one is not hidden by the other, nor added to it."""
    both = ["main", "insights"]
    (tmp_path / "rules.yml").write_text(rule_file(Limits(), "docs/operations.md", both), encoding="utf-8")
    own, other = (f'{EVALUATED}{{connection="{name}"}}' for name in both)
    fine = {own: "0+60x90", other: "0+60x90"}
    waits = 'redrive_fleet_tasks{connection="%s", queue="q", kind="A", state="queued"}'
    works = 'redrive_fleet_workers{connection="%s", queue="q"}'
    tests = [
        _absent(fine, False),
        _absent({own: "0+60x90"}, True),
        _absent({own: "0+60x90", other: "0x90"}, True),
        _fires("RedriveDepth", fine | {waits % "main": "60x90", waits % "insights": "60x90"}, 0),
        _fires("RedriveDepth", fine | {waits % "main": "160x90", waits % "insights": "60x90"}, 1),
        _fires("RedriveNoWorker", {waits % "main": "5x90", works % "main": "0x90", works % "insights": "1x90"}, 1),
    ]
    (tmp_path / "tests.yml").write_text(
        json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests})
    )
    promtool(tmp_path, "test", "rules", "tests.yml")


def _test(case: Case) -> dict[str, Any]:
    rule = next(one for one in rules_of(Limits(), "docs/operations.md", HERE, {}) if one.alert == _name(case.rule))
    series = [
        {"series": _with(name, place), "values": values}
        for name, values in case.series.items()
        for place in (("a", "b") if "_fleet_" in name else ("a",))
    ]
    expression = {
        "expr": f'count(ALERTS{{alertname="{rule.alert}", alertstate="firing"}}) or vector(0)',
        "eval_time": "90m",
    }
    return {
        "name": f"{case.rule} {case.name}",
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [{**expression, "exp_samples": [{"labels": "{}", "value": int(case.fires)}]}],
        "alert_rule_test": [] if case.fires else [{"eval_time": "90m", "alertname": rule.alert, "exp_alerts": []}],
    }


def _absent(series: dict[str, str], fires: bool) -> dict[str, Any]:
    return _fires("RedriveNotEvaluated", series, int(fires))


def _fires(rule: str, series: dict[str, str], number: int) -> dict[str, Any]:
    expression = f'count(ALERTS{{alertname="{rule}", alertstate="firing"}}) or vector(0)'
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": expression, "eval_time": "90m", "exp_samples": [{"labels": "{}", "value": number}]}
        ],
    }


def _with(series: str, instance: str) -> str:
    """The same series from one of the processes that serve it."""
    name, _, labels = series.partition("{")
    return f'{name}{{connection="main", instance="{instance}"' + (f", {labels}" if labels else "}")


def _name(rule: str) -> str:
    return "Redrive" + rule.title().replace("_", "")
