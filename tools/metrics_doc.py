"""Writes docs/metrics.md from the table of metrics, so that the two cannot differ."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from redrive import features
from redrive.observe.feature_metrics import table_of
from redrive.observe.metrics import Metric, Scope

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature

MARK = "<!-- From here on written by ./dev docs from src/redrive/observe/metrics.py and the features' metrics.py. -->"


def render(text: str) -> str:
    """Returns a document with its tables as they are now."""
    before, mark, _ = text.partition(MARK)
    parts = [f"{before}{mark}", ""]
    titles = {
        Scope.PROCESS: "Of each worker (all with the labels `connection` and `worker`)",
        Scope.FLEET: "Of the fleet (all with the label `connection`)",
    }
    for scope, title in titles.items():
        rows = [_row(metric) for metric in table_of(_built_in()) if metric.scope is scope]
        parts += [f"## {title}", "", "| name | type | labels | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(parts)


def _built_in() -> list[Feature]:
    """Returns the features that come with redrive, whatever else is installed here."""
    return [features.load(name) for name in features.BUILT_IN]


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.type} | {labels} | {metric.help} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--check", type=Path)
    given = parser.parse_args()
    path = given.write or given.check
    text = path.read_text(encoding="utf-8")
    if given.write:
        path.write_text(render(text), encoding="utf-8")
    elif MARK not in text or text != render(text):
        sys.stderr.write(f"{path} differs from the tables of metrics; run ./dev docs\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
