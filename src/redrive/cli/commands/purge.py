"""``redrive purge``: waiting tasks are given up."""

from __future__ import annotations

import typer

from redrive.cli.support.filters import filtered_by
from redrive.cli.support.start_operation import Ask, asked, begin_bulk
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action


@asked
@filtered_by("queue", "kind")
def purge(which: FailureFilter, ask: Ask) -> None:
    """Give waiting tasks up (queued, delayed, paused), once a second operator agrees. Where there are several
    connections: --connection NAME, or all for one on each."""
    if which == FailureFilter():
        raise typer.BadParameter("say which: --queue NAME, --kind KIND, or both")
    begin_bulk(Action.PURGE, which, ask)
