"""``redrive cancel``."""

from __future__ import annotations

from redrive.cli.support.by_id import report
from redrive.cli.support.options import AppName, By, Ids, Json, Reason, Url
from redrive.cli.support.session import operate
from redrive.ops import inspect


def cancel(
    ids: Ids, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False
) -> None:
    """Cancel waiting tasks now, and ask running ones to stop."""
    wanted = [inspect.parse_id(value) for value in ids]
    report(operate(url, app, lambda own: own.tasks.cancel(wanted, reason), by=by), "cancelled", json)
