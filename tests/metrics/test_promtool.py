"""Prometheus' own opinion of the page."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from redrive.kernel.spread import Spread
from redrive.observe.exposition import render
from redrive.observe.metrics import TABLE, Scope, Type
from redrive.observe.samples import Samples


def test_promtool_has_nothing_to_say() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not here (apt install prometheus): what it says of the metrics was NOT checked")
    process: Samples = {}
    fleet: Samples = {}
    for metric in TABLE:
        value = Spread(metric.bounds) if metric.type is Type.HISTOGRAM else 1.0
        labels = tuple(f'the "{label}" of\\\nit' for label in metric.labels)
        (fleet if metric.scope is Scope.FLEET else process)[metric.name] = {labels: value}
    body, _ = render(TABLE, {"w": process}, fleet)
    said = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True)
    assert (said.returncode, said.stdout + said.stderr) == (0, b""), (said.stdout + said.stderr).decode()
