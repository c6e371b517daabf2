"""``redrive flush``: all failures are given up."""

from __future__ import annotations

from redrive.cli.support.start_operation import ANSWERS, Ask, asked, begin_bulk, carried_out
from redrive.kernel.failure_filter import EVERY_FAILURE
from redrive.kernel.operation import Action
from redrive.ops.operations.lifecycle import How


@asked
@carried_out(*ANSWERS)
def flush(how: How, ask: Ask) -> None:
    """Give all failures up, once a second operator agrees. Where there are several connections:
    --connection NAME, or all for one on each."""
    begin_bulk(Action.FORGET, EVERY_FAILURE, ask, how, verb="flush")
