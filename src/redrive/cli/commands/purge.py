"""``redrive purge``: waiting tasks are given up."""

from __future__ import annotations

import typer

from redrive.cli.support.confirm import DryRun, Yes
from redrive.cli.support.filters import filtered_by
from redrive.cli.support.options import AppName, By, Json, Reason, Url
from redrive.cli.support.start_operation import (
    Ask,
    Wait,
    begin_bulk,
)
from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import Action


@filtered_by("queue", "kind")
def purge(
    which: FailureFilter,
    wait: Wait = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Give waiting tasks up (queued, delayed, paused), once a second operator agrees."""
    if which == FailureFilter():
        raise typer.BadParameter("say which: --queue NAME, --kind KIND, or both")
    ask = Ask(wait, dry_run, yes, reason, by, url, app, json)
    begin_bulk(Action.PURGE, which, {}, ask)
