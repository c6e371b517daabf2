"""Prometheus' own opinion of the page: that of promtool, and that of its client library."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from redrive.kernel.spread import Spread
from redrive.observe import open_metrics
from redrive.observe.exposition import Told, render, rows_of
from redrive.observe.metrics import TABLE, Scope, Type
from redrive.observe.samples import Samples
from redrive.observe.text_format import CONTENT_TYPE


def everything(*values: float) -> Told:
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
    return Told("main", {"w": process, 'an "odd" one': process}, {"main": fleet, "insights": fleet})


def test_the_library_writes_the_same() -> None:
    told = everything(0.0, 1.0, 0.1, 2.5e-05, 999_999.0, 1_000_000.0, 1.7948327015868335e9, 12345678.25)
    body, content_type = render(TABLE, told, "text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
    families = [(metric, list(rows_of(metric, told))) for metric in TABLE]
    assert (body.decode(), content_type) == (open_metrics.write(families, "")[0].decode(), CONTENT_TYPE)
    assert open_metrics.write(families, "")[1] == CONTENT_TYPE


def test_promtool_has_nothing_to_say() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not here (apt install prometheus): what it says of the metrics was NOT checked")
    body, _ = render(TABLE, everything(1.0))
    said = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True)
    assert (said.returncode, said.stdout + said.stderr) == (0, b""), (said.stdout + said.stderr).decode()
