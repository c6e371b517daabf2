"""Defines the filters by which tasks are chosen. Each has one name on every face."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from redrive.errors import InvalidInput
from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import facts
from redrive.kernel.ports.store import Query


@dataclass(slots=True, frozen=True)
class Filter:
    """One filter and its names. ``earlier`` is its name over HTTP in the earlier system, which is still understood
    there."""

    field: str
    metavar: str
    help: str
    earlier: str | None = None
    said: tuple[str, str] | None = None  # what users call it, where that is not its field: as an option, over HTTP

    @property
    def option(self) -> str:
        return f"--{self.field.replace('_', '-')}" if self.said is None else self.said[0]

    @property
    def parameter(self) -> str:
        first, *rest = self.field.split("_")
        return first + "".join(part.capitalize() for part in rest) if self.said is None else self.said[1]

    @property
    def words(self) -> str:
        """What it is called in a sentence."""
        return self.field.replace("_", " ") if self.said is None else self.said[0].removeprefix("--")


FILTERS = (
    Filter("kind", "KIND", "Of this kind.", "jobKind"),
    Filter("queue", "NAME", "Of this queue."),
    Filter("group", "NAME", "Of this group of tasks."),
    Filter("scope", "TEXT", "Of this scope (an episode, a customer, an order).", "episodeId"),
    Filter("trace_id", "ID", "Of this trace."),
    Filter("error_code", "CODE", "With this error code, such as TASK_EXECUTION_FAILED."),
    Filter("error_reason", "NAME", "With this reason of the error, such as timeout or http_5xx."),
    Filter("failure_type", "TYPE", "model_error, param_error, timeout, network or unknown."),
    Filter("dead_reason", "REASON", "non_retryable or max_attempts_exceeded."),
    Filter("fingerprint", "ID", "Failed by this cause, as redrive causes lists them; its beginning will do."),
    Filter("join", "ID", "Of this batch.", said=("--batch", "batchId")),
)

# Only of what is failed now.
TIMES = (
    Filter("since", "TIME", "Failed then or later: 15m, 1h, 7d (ago), or 2026-03-01T08:30, of UTC without a zone."),
    Filter("until", "TIME", "Failed before then."),
)
FAILURE_FILTERS = (*FILTERS, *TIMES)


def command_options(which: FailureFilter) -> str:
    """Returns a filter as options of a command, quoted for a shell."""
    given = facts(which)
    options = [f"{one.option} {shlex.quote(str(given[one.field]))}" for one in FAILURE_FILTERS if one.field in given]
    return " ".join([*(options or ["--all"]), "--forgotten"] if which.forgotten else options)


def query(which: FailureFilter, **more: Any) -> Query:
    """Makes a Query of the same filters, over all tasks or over dead letters."""
    if which.since is not None or which.until is not None:
        raise InvalidInput("only tasks that are failed now are listed by when they failed", hint="see redrive failed")
    return Query(**{one.field: getattr(which, one.field) for one in FILTERS}, **more)
