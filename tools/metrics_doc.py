"""Writes docs/metrics.md from the table of metrics, so that the two cannot differ."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from redrive.observe.metrics import TABLE, Metric, Scope

MARK = "<!-- From here on written by ./dev docs from src/redrive/observe/metrics.py. -->"


def render(text: str) -> str:
    """Returns a document with its tables as they are now."""
    before, mark, _ = text.partition(MARK)
    parts = [f"{before}{mark}", ""]
    titles = {
        Scope.PROCESS: "Of each worker (all with the labels `connection` and `worker`)",
        Scope.FLEET: "Of the fleet (all with the label `connection`)",
    }
    for scope, title in titles.items():
        rows = [_row(metric) for metric in TABLE if metric.scope is scope]
        parts += [f"## {title}", "", "| name | type | labels | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(parts)


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
        sys.stderr.write(f"{path} differs from observe/metrics.py; run ./dev docs\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
