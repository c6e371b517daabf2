"""Causes of failure: how many failures, since when, where; and what people noted about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from redrive.errors import CauseUnknown, InvalidInput
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import CauseRow, Store
from redrive.kernel.records import Put, Record
from redrive.kernel.task import check_int, check_moment, check_text
from redrive.ops.actions import check_actor, check_states

COLLECTION = "cause"
CAUSE_STATES = ("open", "reopened", "muted", "quiet", "resolved")
SHORTEST_PREFIX = 4  # characters by which a fingerprint may be named
MOST_CAUSES_SEARCHED = 500
TREND_HOURS = 24  # hours
_SAID = ("muted", "resolved", "reopened")
SPOKEN_OF, NOTED = "spoken-of", "noted"  # states of records: whether they bear on the status


@dataclass(slots=True)
class Cause:
    """A cause. ``count``: all failures ever seen; ``failed``: the tasks that are failed by it now.
    ``at_least``: there may be more of them than were counted."""

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

    @property
    def place(self) -> str:
        """Where it stands in the list, for the next page."""
        return f"{self.row.last_seen.isoformat()}~{self.row.fingerprint}"

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


async def list_causes(
    store: Store, *, limit: int = 50, status: str | None = None, before: str | None = None
) -> list[Cause]:
    """Returns causes, those that were seen last first; ``before`` is the ``place`` of the last one seen."""
    check_int(limit, "limit", 1, 500)
    at = None if before is None else parse_place(before)
    if status is None:
        return await with_notes(store, await store.causes(limit, before=at))
    check_states([status], CAUSE_STATES)
    if status in _SAID:
        return await _annotated(store, status, limit, at)
    found: list[Cause] = []
    # The store knows which are failing; what people said about a few of them decides about the rest.
    failing = status == "open"
    while len(found) < limit and (rows := await store.causes(MOST_CAUSES_SEARCHED, before=at, failing=failing)):
        at = (rows[-1].last_seen, rows[-1].fingerprint)
        found += [cause for cause in await with_notes(store, rows) if cause.status == status]
    return found[:limit]


async def failing_causes(store: Store, limit: int) -> list[Cause]:
    """Returns causes by which tasks are failed now, whatever is said about them, those that were seen last first."""
    return await with_notes(store, await store.causes(limit, failing=True))


async def _annotated(store: Store, status: str, limit: int, before: tuple[datetime, str] | None) -> list[Cause]:
    """Returns causes that are muted, resolved or regressed: those that somebody has annotated, which are few."""
    found: list[Cause] = []
    after: int | None = None
    while records := await store.records(COLLECTION, states=(SPOKEN_OF,), limit=MOST_CAUSES_SEARCHED, before=after):
        after = records[-1].seq
        rows = await store.causes_of([record.id for record in records])
        found += [cause for cause in await with_notes(store, rows) if cause.status == status]
    found.sort(key=lambda cause: (cause.row.last_seen, cause.row.fingerprint), reverse=True)
    return [cause for cause in found if before is None or (cause.row.last_seen, cause.row.fingerprint) < before][:limit]


async def show(store: Store, fingerprint: str) -> Cause:
    """Returns one cause, also by the beginning of its fingerprint, among those that were seen lately, if only one
    begins so."""
    rows = await store.causes_of([fingerprint])
    if not rows and len(fingerprint) < SHORTEST_PREFIX:
        raise InvalidInput(
            f"{fingerprint!r} is too short for a fingerprint",
            hint=f"at least {SHORTEST_PREFIX} characters of what redrive causes lists",
        )
    if not rows:
        rows = [row for row in await store.causes(MOST_CAUSES_SEARCHED) if row.fingerprint.startswith(fingerprint)]
    if len(rows) > 1:
        several = ", ".join(row.fingerprint for row in rows[:5])
        raise InvalidInput(f"{len(rows)} fingerprints begin with {fingerprint!r}", hint=f"say more of it: {several}")
    if not rows:
        raise CauseUnknown(f"no failure has the fingerprint {fingerprint!r}", hint="redrive causes lists them")
    return (await with_notes(store, rows))[0]


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


async def with_notes(store: Store, rows: list[CauseRow]) -> list[Cause]:
    """Adds what is failed now, the trend, and what people noted."""
    if not rows:
        return []
    names = [row.fingerprint for row in rows]
    now = await store.now()
    kinds: dict[str, Counter[str]] = {name: Counter() for name in names}
    for count in await store.failed_counts(names):
        kinds[count.fingerprint][count.kind] += count.n
    said = {record.id: record for record in await store.records(COLLECTION, ids=names, limit=len(names))}
    since = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=TREND_HOURS - 1)
    trends = await store.trends(names, since)
    return [
        _cause(row, kinds[row.fingerprint], said.get(row.fingerprint), trends[row.fingerprint], since, now)
        for row in rows
    ]


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


def parse_place(text: str) -> tuple[datetime, str]:
    """Returns the ``place`` of a cause, as it is ordered by."""
    when, found, fingerprint = text.partition("~")
    try:
        at = datetime.fromisoformat(when)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or not found or not 1970 <= at.year <= 9000:
        raise InvalidInput(f"{text[:100]!r} is no place in the list", hint="give the nextBefore of the page before")
    return at, fingerprint
