"""Failed tasks: list, count, figures by type, and the filters that people give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.kernel.classify import FailureRules, FailureType
from redrive.kernel.failure_filter import EVERY_FAILURE, FailedCount, FailureFilter
from redrive.kernel.failure_rule import FailureRule
from redrive.kernel.machine import DeadReason
from redrive.kernel.ports.store import Store
from redrive.kernel.task import Task, check_int, check_text
from redrive.kernel.trace import trace_id_of
from redrive.ops import inspect
from redrive.ops.fields import Open, Seen
from redrive.ops.filters import parse_span
from redrive.ops.history import Counts, history
from redrive.ops.pages import in_pieces

MOST_CAUSES = 100
MOST_LISTED = 1000
_COUNTED_BY = {
    "kind": "kind",
    "group": "group",
    "code": "error_code",
    "type": "failure_type",
    "reason": "dead_reason",
    "cause": "fingerprint",
}


@dataclass(slots=True)
class FailureStats:
    """How many tasks are failed now, by what they have in common: the largest 1,000 of each, of causes the largest
    100."""

    total: int
    by_kind: dict[str, int]
    by_group: dict[str, int]
    by_code: dict[str, int]
    by_type: dict[str, int]
    by_reason: dict[str, int]
    by_fingerprint: dict[str, int]


def together(found: Iterable[FailureStats]) -> FailureStats:
    """Returns the counts of several stores added up, the largest first."""
    listed = list(found)
    sums: dict[str, Counter[str]] = {name: Counter() for name in FailureStats.__dataclass_fields__ if name != "total"}
    for one in listed:
        for name, counts in sums.items():
            counts.update(getattr(one, name))
    return FailureStats(sum(one.total for one in listed), **{n: dict(c.most_common()) for n, c in sums.items()})


async def list_failed(
    store: Store,
    which: FailureFilter = EVERY_FAILURE,
    *,
    limit: int = 50,
    offset: int = 0,
    before: int | None = None,
    paged: bool = False,
) -> list[Task]:
    """Returns failed tasks newest first; ``before`` is the ``failed_seq`` of the last one seen, and stays stable while
    more fail. ``paged``: with documents as text, as far as the budget of a page goes."""
    check_int(limit, "limit", 1, 1000)
    check_int(offset, "offset", 0, 10_000_000)
    # Where totals say that there are none, no index has to be walked to find out.
    if await store.count_failed(which, offset + 1) <= offset:
        return []
    upto = None if before is None else before - 1
    if paged:
        return await failed_in_pieces(store, which, limit, offset, upto, newest=True)
    return await store.failed(which, limit=limit, offset=offset, upto=upto, newest=True)


async def failed_in_pieces(
    store: Store, which: FailureFilter, limit: int, offset: int = 0, upto: int | None = None, *, newest: bool = False
) -> list[Task]:
    """Returns failed tasks with documents as text, as far as the budget of a page goes."""

    async def fetch(number: int, documents: int, last: Task | None) -> list[Task]:
        seq = None if last is None else last.failed_seq or 0
        below, above = (upto if seq is None else seq - 1, 0) if newest else (upto, seq or 0)
        return await store.failed(
            which,
            limit=number,
            offset=offset if last is None else 0,
            after=above,
            upto=below,
            newest=newest,
            documents=documents,
        )

    return await in_pieces(limit, fetch)


async def statistics(store: Store, which: FailureFilter = EVERY_FAILURE) -> FailureStats:
    """Returns totals by what failures have in common. They are kept, so nothing is counted; not by scope, trace or
    id."""
    if which == EVERY_FAILURE:
        sums = await store.failed_sums(MOST_LISTED)
    else:
        sums = _sums(await _counted(store, which))

    def by(name: str, most: int = MOST_LISTED) -> dict[str, int]:
        return dict(list(sums.get(name, {}).items())[:most])

    return FailureStats(
        sums.get("total", {}).get("", 0),
        by("kind"),
        by("group"),
        by("code"),
        by("type"),
        by("reason"),
        by("cause", MOST_CAUSES),
    )


async def _counted(store: Store, which: FailureFilter) -> list[FailedCount]:
    if which.unsummed:
        named = " and ".join(name.replace("_", " ") for name in which.unsummed)
        raise InvalidInput(f"totals are not kept by {named}", hint="leave that filter out; redrive failed lists by it")
    found = await store.failed_counts(None if which.fingerprint is None else [which.fingerprint])
    return [one for one in found if which.sums(one)]


def _sums(counts: Sequence[FailedCount]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {name: Counter() for name in ("total", *_COUNTED_BY)}
    for count in counts:
        found["total"][""] += count.n
        for name, column in _COUNTED_BY.items():
            found[name][getattr(count, column) or ""] += count.n
    return {name: dict(sums.most_common()) for name, sums in found.items()}


def parse_filter(**texts: str | None) -> FailureFilter:
    """Makes a filter of what people give, checked. Codes are the applications' own; types and dead reasons are
    known."""
    known: dict[str, type[StrEnum]] = {"failure_type": FailureType, "dead_reason": DeadReason}
    for name, values in known.items():
        given = texts.get(name)
        if given is not None and given not in list(values):
            raise InvalidInput(f"{given!r} is no {name.replace('_', ' ')}", hint=f"one of: {', '.join(values)}")
    checked: dict[str, Any] = {name: check_text(value, name) for name, value in texts.items()}
    checked["trace_id"] = trace_id_of(checked.get("trace_id"))
    if checked.get("join") is not None:
        checked["join"] = str(inspect.parse_id(checked["join"]))
    checked["since"], checked["until"] = parse_span(checked.get("since"), checked.get("until"))
    return FailureFilter(**checked)


def parse_ids(values: Sequence[str]) -> tuple[UUID, ...]:
    return tuple(inspect.parse_id(value) for value in values)


# -- failures by type --------------------------------------------------------------------------------------------------


MEANINGS = {
    FailureType.MODEL_ERROR: "the provider or its model: 401, 403, 5xx, not available",
    FailureType.PARAM_ERROR: "what was asked for: 400 and other 4xx, invalid input",
    FailureType.TIMEOUT: "it took too long: time-outs, 408, 504",
    FailureType.NETWORK: "the way there: connections, DNS, TLS, 429",
    FailureType.UNKNOWN: "nothing tells what it was",
}


@dataclass(slots=True, frozen=True)
class TypeView:
    type: Seen[str]
    meaning: Seen[str]
    failed: Annotated[int, Open("Tasks that are failed by it now.")]
    attempts: Annotated[int, Open("Attempts that failed by it in the period.")]
    trend: Annotated[Counts, Open("The same for each of `moments`; null where nobody looked.")]


@dataclass(slots=True, frozen=True)
class RuleView:
    """A row of the application's own table: what has to fit, and what failures are that it fits."""

    status: Seen[list[int | str]]
    exception: Seen[list[str]]
    code: Seen[list[str]]
    words: Seen[list[str]]
    reason: Seen[str]
    failure_type: Seen[str]
    retry: Seen[bool]


@dataclass(slots=True, frozen=True)
class FailureTypesView:
    """All types, and the application's own rules for them. ``moments`` are the beginnings of the steps of trends."""

    period: Seen[str]
    step_seconds: Seen[float]
    moments: Seen[list[datetime]]
    types: Seen[list[TypeView]]
    rules: Seen[list[RuleView]]

    @property
    def some(self) -> bool:
        """Whether there is anything to tell."""
        return any(one.failed or one.attempts for one in self.types) or bool(self.rules)


async def failure_types(
    store: Store, rules: FailureRules, period: str, queue: str | None = None, kind: str | None = None
) -> FailureTypesView:
    """Returns figures of all types, of everything or of a queue or kind; nothing is counted for it, all is kept."""
    went = await history(store, period, queue, kind)
    now = (await statistics(store, FailureFilter(queue=queue, kind=kind))).by_type
    empty: Counts = [None if value is None else 0 for value in went.completed]
    return FailureTypesView(
        period,
        went.step_seconds,
        went.moments,
        [_figures(name, now.get(name, 0), went.attempts_failed.get(name, empty)) for name in FailureType],
        [RuleView(**rule.document()) for rule in rules.table if isinstance(rule, FailureRule)],
    )


def _figures(name: FailureType, failed: int, trend: Counts) -> TypeView:
    return TypeView(name.value, MEANINGS[name], failed, sum(value or 0 for value in trend), trend)
