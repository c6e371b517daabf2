"""Causes of failure: how many failures, since when, where; and what people noted about them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from redrive.errors import CauseUnknown, InvalidInput
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.microseconds import to_datetime, to_micros
from redrive.kernel.ports.store import CauseQuery, CauseRow, Store
from redrive.kernel.reads import CauseOrder
from redrive.kernel.records import Put, Record
from redrive.kernel.task import check_int, check_moment, check_text
from redrive.ops.actions import check_actor, check_states

COLLECTION = "cause"
CAUSE_STATES = ("open", "reopened", "muted", "quiet", "resolved")
ALL = "all"
EVERY_CAUSE = FailureFilter()
SHORTEST_PREFIX = 4  # characters by which a fingerprint may be named
MOST_LISTED = 500
MOST_TASKS = 5000  # are counted where no totals are kept
MOST_BROKEN_DOWN = 1000
BROKEN_DOWN_BY = ("peer", "scope", "group", "build")
TREND_HOURS = 24  # hours
_SAID = ("muted", "resolved", "reopened")
_PLACE = re.compile(r"(-?\d{1,18})~([^~]{1,200})~(\d{1,12})")
SPOKEN_OF, NOTED = "spoken-of", "noted"  # states of records: whether they bear on the status


@dataclass(slots=True)
class Cause:
    """A cause. ``count``: all failures ever seen; ``failed``: the tasks that are failed by it now, ``of`` so many by
    all causes. ``at_least``: there may be more of them than were counted."""

    row: CauseRow
    failed: int
    kinds: dict[str, int]
    trend: list[int]
    note: str | None = None
    owner: str | None = None
    muted_until: datetime | None = None
    resolved_at: datetime | None = None
    resolved_by: str | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    at_least: bool = False
    of: int = 0

    @property
    def share(self) -> float:
        """The part of all failed tasks that this cause has, from 0 to 1."""
        return self.failed / self.of if self.of else 0.0

    @property
    def is_open(self) -> bool:
        """True if tasks are failed by it now, and nobody has muted or resolved it since."""
        return self.status in ("open", "reopened")

    @property
    def status(self) -> str:
        """Resolved until it fails again: then it is open again, and regressed. Quiet: nothing is failed by it now."""
        if self.resolved_at is not None and self.row.last_seen <= self.resolved_at:
            return "resolved"
        if self.muted_until is not None and self.muted_until > self.now:
            return "muted"
        if not self.failed:
            return "quiet"
        return "open" if self.resolved_at is None else "reopened"


@dataclass(slots=True, frozen=True)
class CausePage:
    """Causes of a list, in its order. ``total``: how many causes it has on all pages, None where that is not counted;
    ``at_least``: there are more. ``tasks``: how many tasks that match are failed now, by whatever cause. ``more``:
    causes on the pages after this one, of which ``next_before`` is the place."""

    causes: list[Cause] = field(default_factory=list)
    total: int | None = 0
    at_least: bool = False
    tasks: int = 0
    more: int | None = 0
    next_before: str | None = None


@dataclass(slots=True, frozen=True)
class _Place:
    """Where a page begins: behind so many causes, the last of which has this key and fingerprint."""

    behind: int
    key: int
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.key}~{self.fingerprint}~{self.behind}"

    @property
    def after(self) -> tuple[int, str]:
        return self.key, self.fingerprint


def parse_place(text: str) -> _Place:
    """Returns where a page begins in its list."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise InvalidInput(
            f"{text[:100]!r} is no place in the list",
            hint="give what the page before said: next, or nextBefore over HTTP",
        )
    return _Place(int(found[3]), int(found[1]), found[2])


def order_of(text: str | None, status: str | None = None) -> CauseOrder:
    """Returns the order that is asked for, else the usual one of a list."""
    if text is None:
        return CauseOrder.LAST if status == "quiet" else CauseOrder.FAILED
    known = [order.value for order in CauseOrder]
    if text not in known:
        hint = f"order them by one of {', '.join(known)}"
        raise InvalidInput(f"causes are not ordered by {text[:80]!r}", hint=hint)
    return CauseOrder(text)


async def list_causes(
    store: Store,
    which: FailureFilter = EVERY_CAUSE,
    *,
    limit: int = 50,
    status: str | None = None,
    order: str | None = None,
    before: str | None = None,
) -> CausePage:
    """Returns causes by which tasks that match are failed now, those by which most are first. ``status``: only causes
    of which this is so; without a filter, ``quiet`` has those by which nothing is failed now, ``all`` these too.
    ``before``: the ``next_before`` of the page before."""
    check_int(limit, "limit", 1, MOST_LISTED)
    if status is not None:
        check_states([status], (*CAUSE_STATES, ALL))
    by = order_of(order, status)
    place = None if before is None else parse_place(before)
    said = await spoken_of(store)
    if which.unsummed:
        return await _by_tasks(store, which, status, by, place, limit, said)
    if status in _SAID:
        names = [name for name, one in said.items() if one == status]
        found = await with_notes(store, await store.causes(CauseQuery(fingerprints=names)), which)
        some = found if which == EVERY_CAUSE and status != "reopened" else [one for one in found if one.failed]
        return _cut(some, by, place, limit)
    if which != EVERY_CAUSE and status == "quiet":
        return CausePage()
    return await _by_totals(store, which, status, by, place, limit, said)


async def _by_totals(
    store: Store,
    which: FailureFilter,
    status: str | None,
    order: CauseOrder,
    place: _Place | None,
    limit: int,
    said: Mapping[str, str],
) -> CausePage:
    failing = {"quiet": False, ALL: None if which == EVERY_CAUSE else True}.get(status or "", True)
    left_out = {"quiet": ("muted", "resolved"), "open": _SAID}.get(status or "", ())
    without = [name for name, one in said.items() if one in left_out]
    if not failing and order is CauseOrder.LAST:
        return await _latest(store, failing, without, place, limit)
    ranking = await store.rank_causes(
        which,
        limit,
        order=order,
        since=_trend_since(await store.now()),
        after=None if place is None else place.after,
        failing=failing,
        without=without,
    )
    names = [one.fingerprint for one in ranking.causes]
    known = {row.fingerprint: row for row in await store.causes(CauseQuery(fingerprints=names))}
    found = await with_notes(store, [known[name] for name in names if name in known], which)
    behind = len(names) + (0 if place is None else place.behind)
    more = max(ranking.total - behind, 0) if names else 0
    last = _Place(behind, ranking.causes[-1].key, names[-1]) if more else None
    tasks = found[0].of if found else await store.count_failed(which)
    return CausePage(found, ranking.total, ranking.at_least, tasks, more, None if last is None else str(last))


async def _latest(
    store: Store, failing: bool | None, without: Sequence[str], place: _Place | None, limit: int
) -> CausePage:
    """Returns causes by when they were seen last, also such by which nothing is failed: there may be very many, and
    they are not counted."""
    found: list[Cause] = []
    at = None if place is None else (to_datetime(place.key), place.fingerprint)
    while len(found) <= limit and (rows := await store.causes(CauseQuery(limit + 1, before=at, failing=failing))):
        at = (rows[-1].last_seen, rows[-1].fingerprint)
        meant = [row for row in rows if row.fingerprint not in without]
        # What changed this moment may have come along.
        found += [one for one in await with_notes(store, meant) if failing is None or not one.failed]
    behind = limit + (0 if place is None else place.behind)
    more = found[limit - 1] if len(found) > limit else None
    last = None if more is None else _Place(behind, rank_of(more, CauseOrder.LAST), more.row.fingerprint)
    tasks = await store.count_failed(EVERY_CAUSE)
    return CausePage(found[:limit], None, False, tasks, None, None if last is None else str(last))


async def _by_tasks(
    store: Store,
    which: FailureFilter,
    status: str | None,
    order: CauseOrder,
    place: _Place | None,
    limit: int,
    said: Mapping[str, str],
) -> CausePage:
    """Counts tasks by cause: by scopes, traces, times and operations no totals are kept. No more than ``MOST_TASKS``
    are counted, those that failed last, and no more causes listed than ``MOST_LISTED``."""
    counts = Counter(await store.count_causes(which, MOST_TASKS))
    more = counts.total() >= MOST_TASKS and await store.count_failed(which, MOST_TASKS + 1) > MOST_TASKS
    names = [name for name, _ in counts.most_common() if status in (None, ALL, said.get(name, "open"))]
    noted = await with_notes(store, await store.causes(CauseQuery(fingerprints=names[:MOST_LISTED])))
    failed = [replace(one, failed=counts[one.row.fingerprint], at_least=more, of=counts.total()) for one in noted]
    return _cut(failed, order, place, limit)


def _cut(found: list[Cause], order: CauseOrder, place: _Place | None, limit: int) -> CausePage:
    """Returns a page of a list that is at hand as a whole."""
    found.sort(key=lambda cause: (-rank_of(cause, order), cause.row.fingerprint))
    first = 0
    if place is not None:
        passed = [(-rank_of(one, order), one.row.fingerprint) <= (-place.key, place.fingerprint) for one in found]
        first = sum(passed)
    page, more = found[first : first + limit], max(len(found) - first - limit, 0)
    last = _Place(first + limit, rank_of(page[-1], order), page[-1].row.fingerprint) if page and more else None
    tasks = found[0].of if found else 0
    return CausePage(page, len(found), False, tasks, more, None if last is None else str(last))


def rank_of(cause: Cause, order: CauseOrder) -> int:
    """Returns what a cause is put in order by, the largest first."""
    match order:
        case CauseOrder.FAILED:
            return cause.failed
        case CauseOrder.COUNT:
            return cause.row.count
        case CauseOrder.FIRST:
            return to_micros(cause.row.first_seen)
        case CauseOrder.LAST:
            return to_micros(cause.row.last_seen)
        case CauseOrder.TREND:
            return sum(cause.trend)


async def spoken_of(store: Store) -> dict[str, str]:
    """Returns what is said of causes that are muted, resolved, or failed again after that: somebody has annotated each
    of them, so they are few. Of those that are ``reopened`` nothing may be failed by now."""
    found: dict[str, str] = {}
    after: int | None = None
    now = await store.now()
    while records := await store.records(COLLECTION, states=(SPOKEN_OF,), limit=MOST_LISTED, before=after):
        after = records[-1].seq
        rows = await store.causes(CauseQuery(fingerprints=[record.id for record in records]))
        for cause in annotated(rows, records, now):
            status = replace(cause, failed=1).status
            if status in _SAID:
                found[cause.row.fingerprint] = status
    return found


async def show(store: Store, fingerprint: str) -> Cause:
    """Returns one cause, also by the beginning of its fingerprint, if only one begins so; or by a newer name that it
    has by a later version of the algorithm."""
    rows = await store.causes(CauseQuery(fingerprints=[fingerprint]))
    if not rows and len(fingerprint) < SHORTEST_PREFIX:
        raise InvalidInput(
            f"{fingerprint!r} is too short for a fingerprint",
            hint=f"at least {SHORTEST_PREFIX} characters of what redrive causes lists",
        )
    if not rows:
        rows = await store.causes(CauseQuery(10, prefix=fingerprint))
    if len(rows) > 1:
        several = ", ".join(row.fingerprint for row in rows[:5])
        raise InvalidInput(f"{len(rows)} fingerprints begin with {fingerprint!r}", hint=f"say more of it: {several}")
    if not rows:
        raise CauseUnknown(f"no failure has the fingerprint {fingerprint!r}", hint="redrive causes lists them")
    return (await with_notes(store, rows))[0]


@dataclass(slots=True, frozen=True)
class Breakdown:
    """What the tasks that are failed by a cause have in common: how many have each peer, scope, group and build, the
    largest first, without those that have none. ``tasks``: so many were looked at, those that failed last;
    ``at_least``: there are more."""

    tasks: int = 0
    at_least: bool = False
    peer: dict[str, int] = field(default_factory=dict)
    scope: dict[str, int] = field(default_factory=dict)
    group: dict[str, int] = field(default_factory=dict)
    build: dict[str, int] = field(default_factory=dict)

    @property
    def parts(self) -> dict[str, dict[str, int]]:
        """Those that say something, by name."""
        return {name: found for name in BROKEN_DOWN_BY if (found := getattr(self, name))}


async def break_down(store: Store, fingerprint: str) -> Breakdown:
    """Returns what those tasks have in common that are failed by a cause now: all, or the last ``MOST_BROKEN_DOWN``."""
    found = await store.cause_members(fingerprint, MOST_BROKEN_DOWN + 1)
    members = found[:MOST_BROKEN_DOWN]
    counts = {
        name: dict(Counter(value for one in members if (value := getattr(one, name))).most_common())
        for name in BROKEN_DOWN_BY
    }
    return Breakdown(len(members), len(found) > len(members), **counts)


async def annotate(store: Store, fingerprint: str, *, actor: str, reason: str | None = None, **said: Any) -> Cause:
    """Sets ``note``, ``owner``, ``muted_until`` (a datetime) or ``resolved`` (a bool); None takes one back."""
    who, why = check_actor(actor), check_text(reason, "reason")
    cause = await show(store, fingerprint)
    fingerprint = cause.row.fingerprint
    record = await store.record(COLLECTION, fingerprint)
    before = dict(record.body) if record is not None else {}
    changes = _changes(said, who, cause.now)
    if not changes:
        raise InvalidInput("say what is to change", hint="a note, an owner, muted until when, or resolved")
    body = {name: value for name, value in {**before, **changes}.items() if value is not None}
    row = Audit(
        who,
        _action(said),
        why,
        None,
        None,
        {name: before.get(name) for name in changes},
        changes,
        target=f"cause:{fingerprint}",
    )
    version = 0 if record is None else record.version
    state = SPOKEN_OF if "muted_until" in body or "resolved_at" in body else NOTED
    await store.apply(Commit(puts=[Put(COLLECTION, fingerprint, body, version, state=state)], audits=[row]))
    return await show(store, fingerprint)


def _changes(said: dict[str, Any], actor: str, now: datetime) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name in ("note", "owner"):
        if name in said:
            changes[name] = check_text(said[name], name)
    if "muted_until" in said:
        until = said["muted_until"]
        if until is not None and check_moment(until, "muted_until", now) <= now:
            raise InvalidInput(f"{until.isoformat()} is in the past", hint="mute it until some later time")
        changes["muted_until"] = None if until is None else until.isoformat()
    if "resolved" in said:
        on = bool(said["resolved"])
        changes |= {"resolved_at": now.isoformat() if on else None, "resolved_by": actor if on else None}
        if not on:
            changes["muted_until"] = None  # open means open
    return changes


def _action(said: dict[str, Any]) -> str:
    if "resolved" in said:
        return "CAUSE_RESOLVE" if said["resolved"] else "CAUSE_REOPEN"
    if "muted_until" in said:
        return "CAUSE_MUTE" if said["muted_until"] is not None else "CAUSE_UNMUTE"
    return "CAUSE_NOTE"


async def with_notes(store: Store, rows: list[CauseRow], which: FailureFilter = EVERY_CAUSE) -> list[Cause]:
    """Adds what is failed now and matches (a filter by which totals are kept), the trend, and what people noted."""
    if not rows:
        return []
    names = [row.fingerprint for row in rows]
    now, of = await store.now(), await store.count_failed(which)
    kinds: dict[str, Counter[str]] = {name: Counter() for name in names}
    for count in await store.failed_counts(names):
        if which.sums(count):
            kinds[count.fingerprint][count.kind] += count.n
    said = {record.id: record for record in await store.records(COLLECTION, ids=names, limit=len(names))}
    since = _trend_since(now)
    trends = await store.trends(names, since)
    return [
        replace(
            _cause(row, kinds[row.fingerprint], said.get(row.fingerprint), trends[row.fingerprint], since, now), of=of
        )
        for row in rows
    ]


def _trend_since(now: datetime) -> datetime:
    return now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=TREND_HOURS - 1)


def annotated(rows: Iterable[CauseRow], records: Iterable[Record], now: datetime) -> list[Cause]:
    """Returns causes with what people noted, and without what is counted: enough to know which are muted or
    resolved."""
    said = {record.id: record for record in records}
    return [_cause(row, Counter(), said.get(row.fingerprint), [], now, now) for row in rows]


def _cause(
    row: CauseRow,
    kinds: Counter[str],
    record: Record | None,
    hours: list[tuple[datetime, int]],
    since: datetime,
    now: datetime,
) -> Cause:
    trend = [0] * TREND_HOURS
    for hour, n in hours:
        place = int((hour - since).total_seconds() // 3600)
        if 0 <= place < TREND_HOURS:
            trend[place] += n
    body = {} if record is None else record.body
    return Cause(
        row,
        kinds.total(),
        dict(kinds.most_common()) or {row.kind: 0},
        trend,
        body.get("note"),
        body.get("owner"),
        _time(body.get("muted_until")),
        _time(body.get("resolved_at")),
        body.get("resolved_by"),
        now,
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
