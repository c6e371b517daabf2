"""``redrive flush``: all failures are given up."""

from __future__ import annotations

from redrive.cli.support.options import AppName, By, DryRun, Json, Reason, Url, Yes
from redrive.cli.support.start_operation import (
    Ask,
    Fixed,
    Idempotent,
    Wait,
    begin_bulk,
)
from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import Action


def flush(
    fixed: Fixed = None,
    idempotent: Idempotent = None,
    wait: Wait = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Give all failures up, once a second operator agrees. Where there are several connections:
    --connection NAME, or all for one on each."""
    ask = Ask(wait, dry_run, yes, reason, by, url, app, json)
    begin_bulk(Action.FORGET, FailureFilter(), {"fixed": fixed, "idempotent": idempotent}, ask, "flush")
