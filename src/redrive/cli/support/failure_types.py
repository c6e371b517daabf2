"""Failures by type, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from redrive.cli.support import output
from redrive.cli.support.looked import Looked
from redrive.cli.support.sparkline import sparkline
from redrive.ops.failure_types import FailureTypes


def show(looked: Looked[FailureTypes], json: bool) -> None:
    """Shows the types of each connection by itself."""
    if json:
        documents = {name: asdict(one) for name, one in looked.found.items()}
        output.emit({"connections": documents, **looked.missing} if looked.everywhere else asdict(looked.only))
        return
    for name, one in looked.found.items():
        if looked.everywhere:
            output.heading(name)
        _show(one)


def _show(found: FailureTypes) -> None:
    rows = [(one.type, one.failed, f"{one.attempts:,}", sparkline(one.trend), one.meaning) for one in found.types]
    output.table(["type", "#failed now", f"#attempts in {found.period}", "", "what"], rows)
    if not found.rules:
        return
    output.say("", "rules of the application, the first that fits:")
    table = [
        (" and ".join(_conditions(rule)), rule["reason"], rule["failure_type"], "yes" if rule["retry"] else "no")
        for rule in found.rules
    ]
    output.table(["failures with", "reason", "type", "tried again"], table)


def _conditions(rule: dict[str, Any]) -> Iterator[str]:
    for name in ("status", "exception", "code", "words"):
        if rule[name]:
            yield f"{name} {' or '.join(map(str, rule[name]))}"
