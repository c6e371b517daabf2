"""Prometheus' own opinion of the page: that of promtool, and that of its client library, which reads what it wrote."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics

from redrive.kernel.series import Spread
from redrive.observe.exposition import render
from redrive.observe.metrics import TABLE, Scope, Type
from redrive.observe.samples import Samples
from tests.metrics.conftest import parsed


def everything(*values: float) -> dict[str, Any]:
    """Each metric with odd label values, and these values."""
    process: Samples = {}
    fleet: Samples = {}
    for metric in TABLE:
        into = fleet if metric.scope is Scope.FLEET else process
        for number in values:
            labels = tuple(f'the "{label}" of\\\n{number}' for label in metric.labels)
            spread = Spread(metric.bounds)
            spread.note(number)
            into.setdefault(metric.name, {})[labels] = spread if metric.type is Type.HISTOGRAM else number
    workers = {"w": process, 'an "odd" one': process}
    return {"connection": "main", "processes": workers, "fleets": {"main": fleet, "insights": fleet}}


def test_whoever_takes_text_gets_it_and_reads_every_value() -> None:
    numbers = (0.0, 1.0, 0.1, 2.5e-05, 999_999.0, 1_000_000.0, 1.7948327015868335e9, 12345678.25)
    given = everything(*numbers)
    for accept in ("", "text/plain;version=0.0.4;q=0.5,*/*;q=0.1", "application/openmetrics-text,text/plain"):
        body, content_type = render(TABLE, **given, accept=accept)
        assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    page = parsed(body.decode())
    for metric in TABLE:
        if metric.type is Type.HISTOGRAM:
            assert sum(page[f"{metric.name}_count"].values()) == 2 * len(numbers if metric.labels else "x")
        elif metric.labels:
            assert {*page[metric.name].values()} == {*numbers}, metric.name
    assert ("worker", 'an "odd" one') in {pair for labels in page["redrive_worker_slots"] for pair in labels}


def test_open_metrics_is_for_who_takes_nothing_else() -> None:
    body, content_type = render(TABLE, **everything(1.0), accept="application/openmetrics-text;version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert len([*read_open_metrics(body.decode())]) == len(TABLE)


def test_promtool_has_nothing_to_say() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not here (apt install prometheus): what it says of the metrics was NOT checked")
    body, _ = render(TABLE, **everything(1.0))
    said = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True)
    assert (said.returncode, said.stdout + said.stderr) == (0, b""), (said.stdout + said.stderr).decode()
