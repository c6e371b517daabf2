"""The filter of audit rows: made of what people give, and told in the name of an export's file."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from redrive.kernel.audit import AuditFilter
from redrive.kernel.task import check_text
from redrive.kernel.trace import trace_id_of
from redrive.ops.audit_rows import outside
from redrive.ops.inspect import parse_id
from redrive.ops.moments import parse_span

SINCE = "Done then or later: 15m, 1h, 7d (ago), or 2026-03-01T08:30, of UTC without a zone."
UNTIL = "Done before then."
LONGEST_NAME = 150  # characters; file systems take 255
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.]+")


def make_audit(
    task_id: str | None = None, *, since: str | None = None, until: str | None = None, **texts: str | None
) -> AuditFilter:
    """Returns a filter of audit rows, checked."""
    checked: dict[str, Any] = {name: check_text(value, outside(name)) for name, value in texts.items()}
    checked["trace_id"] = trace_id_of(checked.get("trace_id"))
    begin, end = parse_span(since, until)
    return AuditFilter(**checked, task_id=None if task_id is None else parse_id(task_id), since=begin, until=end)


def file_name(which: AuditFilter, form: str, now: datetime) -> str:
    """Returns what an export is called: when it was made, and what is in it."""
    given = [f"{outside(name)}-{_said(value)}" for name, value in asdict(which).items() if value is not None]
    return "_".join(["redrive-audit", _said(now), *given])[:LONGEST_NAME] + f".{form}"


def _said(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    return _NOT_IN_NAMES.sub("-", str(value))[:40].strip("-.")
