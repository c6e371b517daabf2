"""Defines the filters by which tasks are chosen, each with one name on every face, and reads the times that people
give."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from redrive.errors import InvalidInput
from redrive.kernel.failure_filter import FailureFilter
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


def filters_by_name(which: Iterable[Filter] = FAILURE_FILTERS) -> dict[str, Filter]:
    """Returns filters by every name that they have over HTTP and in addresses."""
    return {name: one for one in which for name in (one.parameter, one.earlier) if name is not None}


def texts_of(given: Mapping[str, str | None], of: Iterable[Filter] = FAILURE_FILTERS) -> dict[str, str | None]:
    """Returns what filters say by their fields, of what is given by their names: some have an older one, too."""
    return {
        one.field: one_of(given.get(one.earlier or ""), given.get(one.parameter), f"{one.earlier} and {one.parameter}")
        for one in of
    }


def one_of(first: str | None, second: str | None, names: str) -> str | None:
    """Returns the value of a filter that has two names; both may be given, if they say the same."""
    if first is not None and second is not None and first != second:
        raise InvalidInput(f"{names} are two names of one filter, and differ", hint="give one of them")
    return second if first is None else first


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


# -- moments and spans that people give --------------------------------------------------------------------------------


_AGO = re.compile(r"(\d{1,6})\s*(s|m|min|h|d|w)")
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_LONGEST = timedelta(days=36_500)


def parse_moment(text: str, name: str, now: datetime) -> datetime:
    """Returns the time that ``90s``, ``15m``, ``1h``, ``7d``, ``2w`` (ago) or an ISO time means; without a zone it is
    one of UTC. Times ago are those of whole minutes: who asks again soon means the same."""
    given = text.strip()
    if ago := _AGO.fullmatch(given):
        span = int(ago[1]) * _UNITS[ago[2]]
        if span <= _LONGEST:
            found = (now - span).replace(microsecond=0)
            return found if ago[2] == "s" else found.replace(second=0)
    try:
        found = datetime.fromisoformat(given)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        hint = "15m, 1h, 7d (ago), or 2026-03-01T08:30 (UTC), 2026-03-01T08:30+01:00"
        raise InvalidInput(f"{name} is no time: {given[:50]!r}", hint=hint) from None


def parse_coming(text: str, name: str, now: datetime) -> datetime:
    """Returns the moment to come that ``08:00``, the next one, or an ISO time means; without a zone it is of UTC."""
    given = text.strip()
    if found := _TIME_OF_DAY.fullmatch(given):
        hour, minute = int(found[1]), int(found[2])
        today = now.astimezone(UTC).replace(hour=hour, minute=minute, second=0, microsecond=0)
        return today if today > now else today + timedelta(days=1)
    try:
        moment = datetime.fromisoformat(given)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        hint = "08:00 (UTC), 2026-03-01T08:00 (UTC), 2026-03-01T08:00+01:00"
        raise InvalidInput(f"{name} is no time: {given[:50]!r}", hint=hint) from None


def parse_span(since: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    """Returns the first moment of a stretch of time, and the first after it; None is open."""
    now = datetime.now(UTC)
    begin = None if since is None else parse_moment(since, "since", now)
    end = None if until is None else parse_moment(until, "until", now)
    if begin is not None and end is not None and begin >= end:
        raise InvalidInput("since is not before until", hint="since is the earlier one; until does not belong to it")
    return begin, end
