"""Doctor: what is wrong with tasks that do not move, how bad it is, and what to do."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType

from redrive.errors import RedriveError, StoreUnavailable, StoreUnusable
from redrive.kernel.alerts.book import MOST_NAMED
from redrive.kernel.alerts.rules import (
    AUDIT_CHAIN,
    AUDIT_UNSEALED,
    CIRCUIT_OPEN,
    DEPTH,
    NO_WORKER,
    OLDEST_AGE,
    PENDING,
    SCHEDULE_MISSED,
)
from redrive.kernel.diagnosis import Diagnosis, Finding, Level
from redrive.kernel.failure_filter import FailedCount, FailureFilter
from redrive.kernel.operation import Erasure, Operation, Status
from redrive.kernel.ports.store import CauseQuery, Overview, Store, WorkerRow
from redrive.kernel.task import State
from redrive.kernel.wording import counted, percent, span
from redrive.ops import approvals, audit_chain, causes, growth, handler_notes, inspect, reaction_conflicts
from redrive.ops.alerts import findings as alerts
from redrive.ops.alerts.findings import Watched
from redrive.ops.causes import Cause
from redrive.ops.circuits import describe
from redrive.ops.held import HeldQueue, held_queues
from redrive.ops.late_schedules import late_schedules
from redrive.ops.operations import lifecycle
from redrive.ops.workers import Lost, drivers, fell_silent, live_workers, lost

logger = logging.getLogger("redrive.doctor")
Look = Callable[[], Awaitable[Sequence[Finding]]]
SLOW = timedelta(minutes=5)
STALE = timedelta(seconds=30)
RECENT = timedelta(hours=1)
NEWS, FORGOTTEN = timedelta(minutes=15), timedelta(hours=2)  # a worker that fell silent: an alarm, a note, history
MOST_HOLDS = 20  # are named; anybody can pause thousands
MANY = 1000  # the most tasks that are counted of an unknown feature
SHOWN, LOOKED_AT = 5, 20  # causes: those by which most tasks are failed, and the latest, of which one is told
WORKER_LOST = "worker_lost"
NO_MORE = Watched()
# What a queue without a worker comes to, sooner or later.
FOLLOWS = {"backlog", DEPTH.name, PENDING.name, OLDEST_AGE.name}
ORDER = {Level.CRITICAL: 0, Level.WARNING: 1, Level.NOTE: 2, Level.OK: 3}


async def examine(
    store: Store,
    queue: str | None = None,
    queues: Sequence[str] = (),
    looks: Mapping[str, Look] = MappingProxyType({}),
    watched: Watched = NO_MORE,
) -> list[Finding]:
    """Returns findings, the worst first. ``queue`` leaves out what is about others; ``queues`` are those that the
    application names, ``looks`` what its features find, by feature; ``watched``: by alerts."""
    status = await store.migrations.status()
    if status.pending:
        return [
            Finding(
                Level.CRITICAL,
                "migrations",
                f"the schema is at version {status.version} of {status.latest}",
                "redrive migrate",
            )
        ]
    if queue is not None:
        await inspect.check_queue(store, queue, queues)
    overview, diagnosis = await store.overview(), await store.diagnose()
    stats = inspect.Stats(await store.counts(), overview)
    # Whatever is added up by name is so beside the loop: there may be many.
    by_queue = await asyncio.to_thread(stats.by, "queue")
    rows = by_queue if queue is None else {name: row for name, row in by_queue.items() if name == queue}
    found = [
        *await asyncio.to_thread(_workers, overview, rows),
        *_lost(lost(await store.leases(), overview), overview.now, queue),
        *await asyncio.to_thread(_backlog, diagnosis, stats, rows),
        *_leases(diagnosis),
        *(await late_schedules(store, overview) if queue is None else ()),
        *(await handler_notes.findings(store, overview) if queue is None else ()),
        *_features(diagnosis),
        *(await reaction_conflicts.findings(store, overview.now) if queue is None else ()),
        *_holds(overview, queue),
        *await asyncio.to_thread(_circuits, overview, stats, queue),
        *await asyncio.to_thread(_quotas, overview, stats),
        *await _failures(store, overview.now, rows, queue),
        *await _bulk(store, overview),
        *await _audit(store, overview),
        *diagnosis.findings,
        *await growth.trends(store, diagnosis),
        *[one for name, look in looks.items() for one in await _of_feature(name, look) if _concerns(one, queue)],
    ]
    said = {finding.text for finding in found}
    # Open circuits and schedules that are late are named above, each by itself.
    named = {CIRCUIT_OPEN.name, *(SCHEDULE_MISSED.name for one in found if one.code == SCHEDULE_MISSED.name)}
    rest = [one for one in await alerts.findings(store, overview.now, watched, queue) if one.code not in named]
    found += [one for one in rest if one.text not in said]
    found = _folded(found)
    return sorted(found, key=lambda finding: ORDER[finding.level]) or [Finding(Level.OK, "healthy", "nothing is wrong")]


def _folded(found: Sequence[Finding]) -> list[Finding]:
    """Returns the findings with what follows from another one named by that one: one trouble, one line."""
    unserved = {one.about for one in found if one.code == NO_WORKER.name and one.about is not None}
    follows = [one for one in found if one.about in unserved and one.code in FOLLOWS]
    left_out = {id(one) for one in follows}
    told = defaultdict[tuple[str, str] | None, list[str]](list)
    for one in follows:
        told[one.about].append(one.code)
    return [
        replace(one, text=f"{one.text}; so also {', '.join(sorted(set(told[one.about])))}")
        if one.code == NO_WORKER.name and one.about in told
        else one
        for one in found
        if id(one) not in left_out
    ]


async def _of_feature(name: str, look: Look) -> Sequence[Finding]:
    """Returns what a feature finds; one that cannot look must not hide what others have found."""
    try:
        return await look()
    except (StoreUnavailable, StoreUnusable):
        raise
    except Exception as error:
        logger.exception("feature %s could not be examined", name, extra={"event": "doctor.failed", "feature": name})
        told = error.message if isinstance(error, RedriveError) else type(error).__name__
        text = f"feature {name} could not be examined: {told}"
        return [Finding(Level.WARNING, "feature_examine", text, "the log of this process says more")]


def _concerns(finding: Finding, queue: str | None) -> bool:
    return queue is None or finding.about is None or finding.about[0] != "queue" or finding.about[1] == queue


def _waiting(row: dict[str, int]) -> int:
    """Returns how many tasks could run now; delayed ones may be due in months."""
    return row[State.QUEUED.value]


def _workers(overview: Overview, queues: dict[str, dict[str, int]]) -> list[Finding]:
    alive = live_workers(overview)
    served = {name for worker in alive for name in worker.queues}
    unserved = sorted(
        ((_waiting(row), name) for name, row in queues.items() if _waiting(row) and name not in served),
        key=lambda one: (-one[0], one[1]),
    )
    found = [
        Finding(
            Level.CRITICAL,
            "no_worker",
            NO_WORKER.sentence(name, counted(n), NO_MORE.limits.every),
            NO_WORKER.to_do(name, NO_MORE.limits.every),
            ("queue", name),
        )
        for n, name in unserved[:MOST_NAMED]
    ]
    if more := unserved[MOST_NAMED:]:
        waiting = counted(sum(n for n, _ in more))
        text = (
            f"no live worker serves {counted(len(more), 'more queue')}, with {waiting} waiting: {more[0][1]} and others"
        )
        found.append(Finding(Level.CRITICAL, "no_worker", text, "redrive stats lists all queues"))
    if not alive and not found:
        found.append(Finding(Level.WARNING, "no_worker", "no worker is alive", "redrive work --app module:app"))
    now = overview.now
    quiet = [w for w in overview.workers if fell_silent(w, now) and now - w.seen_at < FORGOTTEN]
    found += [_silent(worker, now) for worker in quiet][:5]
    if alive:
        found.append(
            Finding(Level.OK, "workers", f"{counted(len(alive), 'worker')} alive, for {', '.join(sorted(served))}")
        )
    return found


def _lost(found: Sequence[Lost], now: datetime, queue: str | None) -> list[Finding]:
    """Returns findings about tasks whose worker is not heard of any more."""
    meant = [one for one in found if queue in (None, one.queue)]
    return [
        Finding(
            Level.WARNING,
            "lost_tasks",
            f"{counted(one.tasks)} of queue {one.queue} {'is' if one.tasks == 1 else 'are'} held by worker"
            f" {one.worker.id}, which {one.worker_told(now)}: {one.return_told(now)}",
            f"redrive list --state running --queue {shlex.quote(one.queue)}; {_sooner(one.worker)} makes this shorter",
            ("worker", one.worker.id),
        )
        for one in meant[:SHOWN]
    ]


def _sooner(worker: WorkerRow) -> str:
    return "TASK_WORKER_DEAD_AFTER_MS" if worker.hears else "TASK_WORKER_LEASE_MS"


def _silent(worker: WorkerRow, now: datetime) -> Finding:
    """Returns a finding about a silent worker: an error at first, then a note for a while."""
    return Finding(
        Level.WARNING if now - worker.seen_at < NEWS else Level.NOTE,
        "silent_worker",
        f"worker {worker.id} was last seen {span(now - worker.seen_at)} ago, and did not say goodbye",
        f"look at its process: pid {worker.pid} on {worker.host}; a note after {span(NEWS)}, and forgotten after"
        f" {span(FORGOTTEN)}",
        ("worker", worker.id),
    )


def _backlog(diagnosis: Diagnosis, stats: inspect.Stats, queues: dict[str, dict[str, int]]) -> list[Finding]:
    overview, held = stats.overview, held_queues(stats.counts, stats.overview)
    paused = {hold.name for hold in overview.holds if hold.target == "queue"}
    slow = sorted(
        (since, name)
        for name, since in diagnosis.oldest.items()
        if name in queues and name not in paused and diagnosis.now - since > SLOW
    )
    found = [
        _backs_up(name, diagnosis.now - since, queues[name][State.QUEUED.value], held.get(name), overview)
        for since, name in slow[:MOST_NAMED]
    ]
    if more := slow[MOST_NAMED:]:
        waited = span(diagnosis.now - more[0][0])
        text = (
            f"{counted(len(more), 'more queue')} back up: {more[0][1]} and others; the first task waits since {waited}"
        )
        found.append(Finding(Level.WARNING, "backlog", text, "redrive stats lists all queues"))
    return found


def _backs_up(name: str, waited: timedelta, queued: int, held: HeldQueue | None, overview: Overview) -> Finding:
    """Returns a queue whose first task waits for long; where a paused kind or an open circuit is behind it, that."""
    number = f"{queued} are queued" if held is None else f"{held.queued} wait"
    text = f"queue {name} backs up: its first task waits since {span(waited)}, {number}"
    if held is None:
        fix = f"redrive list --state queued --queue {shlex.quote(name)}, then redrive show ID: it says why"
        return Finding(Level.WARNING, "backlog", text, fix, ("queue", name))
    first = held.kinds[0]
    fix = f"redrive resume --kind {shlex.quote(first.kind)}"
    if first.pause is None and first.circuit is not None:
        fix = f"mend the other side of circuit {first.circuit.name}: redrive circuits"
    return Finding(Level.WARNING, "held_backlog", f"{text}: {held.told(overview)}", fix, ("kind", first.kind))


def _features(diagnosis: Diagnosis) -> list[Finding]:
    return [
        Finding(
            Level.WARNING,
            "unknown_feature",
            f"{counted(n)}{' or more' if n >= MANY else ''} {'belongs' if n == 1 else 'belong'} to feature {name},"
            " which no live worker knows: nothing runs or ends them",
            "start a worker of the application that brings it: redrive work --app module:app",
        )
        for name, n in diagnosis.unknown.items()
    ]


def _leases(diagnosis: Diagnosis) -> list[Finding]:
    return [*_stale(diagnosis), *_stuck(diagnosis), *_joins(diagnosis)]


def _joins(diagnosis: Diagnosis) -> list[Finding]:
    """Joins whose end nothing followed, and those that nobody closes."""
    found = [
        Finding(
            Level.WARNING,
            "join_fault",
            f"join {join_id} has ended, but what should follow did not",
            "enqueue it by hand, and mend whoever opened the join",
            quoted=fault,
        )
        for join_id, fault in diagnosis.faults.items()
    ]
    if diagnosis.left_open:
        many = "1 join is" if diagnosis.left_open == 1 else f"{diagnosis.left_open} joins are"
        fix = "whoever opened them closes them: CloseJoin, or what its feature has for that"
        found.append(Finding(Level.NOTE, "joins_left_open", f"{many} open for more than a week: nothing follows", fix))
    return found


def _stale(diagnosis: Diagnosis) -> list[Finding]:
    """Leases that nobody recovers; where all of them are of features, ``_stuck`` says more."""
    oldest, plain = diagnosis.oldest_expired, diagnosis.expired - sum(n for n, _ in diagnosis.stuck.values())
    if oldest is None or not plain or diagnosis.now - oldest < STALE:
        return []
    single = diagnosis.expired == 1
    many = f"{diagnosis.expired} leases" if diagnosis.expired < 1000 else "1000 leases or more"
    since = span(diagnosis.now - oldest)
    return [
        Finding(
            Level.CRITICAL,
            "stale_leases",
            f"1 lease ran out {since} ago, and nobody recovers it"
            if single
            else f"{many} ran out, the first {since} ago, and nobody recovers them",
            "a live worker does so within seconds: start one, or read its log",
        )
    ]


def _stuck(diagnosis: Diagnosis) -> list[Finding]:
    """Leases of a feature's tasks: if a worker knows it and is alive, it refuses their end."""
    return [
        Finding(
            Level.CRITICAL,
            "feature_stuck",
            f"{counted(n)} of feature {name} {'is' if n == 1 else 'are'} not recovered, the first for"
            f" {span(diagnosis.now - oldest)}: no worker of it looks, or the feature refuses how they end",
            "a worker that knows it says why in its log (task.not_recovered): mend the feature, or start such a worker",
        )
        for name, (n, oldest) in diagnosis.stuck.items()
        if diagnosis.now - oldest >= STALE
    ]


def _holds(overview: Overview, queue: str | None) -> list[Finding]:
    """Finds what is paused: the latest by name, of further ones how many."""
    held = [hold for hold in overview.holds if queue is None or hold.target != "queue" or hold.name == queue]
    held.sort(key=lambda hold: hold.at, reverse=True)
    more = len(held) - MOST_HOLDS
    text = f"{more:,} more are paused"
    rest = [Finding(Level.NOTE, "paused", text, "redrive stats")] if more > 0 else []
    return [
        Finding(
            Level.NOTE,
            "paused",
            f"{hold.target} {hold.name} was paused by {hold.actor}"
            f" {span(overview.now - hold.at)} ago" + (f": {hold.reason}" if hold.reason else ""),
            f"redrive resume --{hold.target} {shlex.quote(hold.name)}",
            (hold.target, hold.name),
        )
        for hold in held[:MOST_HOLDS]
    ] + rest


def _circuits(overview: Overview, stats: inspect.Stats, queue: str | None) -> list[Finding]:
    """Finds open circuits: a note while they are fresh, a warning when the outage lasts."""
    found = []
    opened = [row for row in overview.circuits if row.open]
    queued = _queued_kinds(stats, {kind for row in opened for kind in row.kinds}, queue)
    for row in opened:
        waiting = sum(queued[kind] for kind in row.kinds)
        if queue is not None and not waiting:
            continue
        level = Level.WARNING if waiting and overview.now - row.since > SLOW else Level.NOTE
        waits = f"{counted(waiting)} of {', '.join(row.kinds)} waiting" if waiting else "nothing waits for it"
        text = f"circuit {row.name} is {describe(row, overview.now)}; {waits}"
        fix = f"mend the other side; redrive circuits probe {shlex.quote(row.name)} tries it now"
        found.append(Finding(level, "circuit_open", text, fix, ("circuit", row.name)))
    return found


async def _audit(store: Store, overview: Overview) -> list[Finding]:
    """Looks whether the audit log is sealed as it should be: what is not can be changed unnoticed."""
    fault = await audit_chain.tail_fault(store)
    if fault is not None:
        return [Finding(Level.CRITICAL, AUDIT_CHAIN.name, fault, AUDIT_CHAIN.fix)]
    since = await audit_chain.unsealed_since(store, overview.now)
    if since is None or not live_workers(overview):
        return []
    text = AUDIT_UNSEALED.sentence("", span(overview.now - since), NO_MORE.limits.every)
    return [Finding(Level.WARNING, AUDIT_UNSEALED.name, text, AUDIT_UNSEALED.fix)]


def _queued_kinds(stats: inspect.Stats, kinds: Collection[str], queue: str | None = None) -> Counter[str]:
    """Returns how many tasks of each of these kinds are queued, in one queue or in all."""
    found: Counter[str] = Counter()
    for one in stats.counts if kinds else ():
        if one.state is State.QUEUED and one.kind in kinds and queue in (None, one.queue):
            found[one.kind] += one.n
    return found


def _quotas(overview: Overview, stats: inspect.Stats) -> list[Finding]:
    full = [one for one in overview.limits if one.concurrency is not None and one.running >= one.concurrency]
    gated = {one.kind for one in full if overview.pause_of("kind", one.kind) is not None}
    queued = _queued_kinds(stats, {one.kind for one in full} - gated)
    return [
        Finding(
            Level.NOTE,
            "quota",
            f"kind {limit.kind} runs {limit.running} of {limit.concurrency} at once, and {queued[limit.kind]} wait",
            f"redrive limits {limit.kind} --concurrency N",
            ("kind", limit.kind),
        )
        for limit in full
        if queued[limit.kind]
    ]


async def _failures(store: Store, now: datetime, queues: dict[str, dict[str, int]], queue: str | None) -> list[Finding]:
    """Causes by which tasks are failed now, those by which most are, and how many more there are."""
    if not sum(row[State.FAILED.value] for row in queues.values()):
        return []
    which = FailureFilter(queue=queue)
    largest = await causes.list_causes(store, which, limit=SHOWN)
    # However few they are: what kills workers, and what fails since a moment ago.
    deadly = await causes.list_causes(store, FailureFilter(queue=queue, error_reason=WORKER_LOST), limit=SHOWN)
    latest = await causes.with_notes(store, await store.causes(CauseQuery(LOOKED_AT, failing=True)), which)
    recent = [one for one in latest if one.failed and one.is_open and now - one.row.last_seen < RECENT][:1]
    named = {one.row.fingerprint: one for one in (*recent, *deadly.causes, *largest.causes)}
    counts = await store.failed_counts([*named])

    def name_causes() -> list[Finding]:
        own: dict[str, list[FailedCount]] = defaultdict(list)
        for count in counts:
            if count.queue in queues:
                own[count.fingerprint].append(count)
        told = sorted(named.values(), key=lambda cause: -_tasks(own[cause.row.fingerprint]))
        found = [_by_cause(cause, own[cause.row.fingerprint], largest.tasks, now) for cause in told]
        # The totals are read one after the other: tasks may have failed in between.
        if (rest := largest.tasks - sum(_tasks(counts) for counts in own.values())) > 0:
            more = (largest.total or 0) - len(told)
            other = f" ({percent(rest / largest.tasks)} of all) by {counted(more, 'other cause')}" if more > 0 else ""
            command = "redrive causes" if queue is None else shlex.join(["redrive", "causes", "--queue", queue])
            found.append(Finding(Level.NOTE, "failures", f"{counted(rest)} failed{other}", command))
        return found

    return await asyncio.to_thread(name_causes)


def _tasks(counts: Sequence[FailedCount]) -> int:
    return sum(count.n for count in counts)


def _by_cause(cause: Cause, counts: Sequence[FailedCount], total: int, now: datetime) -> Finding:
    """Returns what is failed by one cause, whose it is first. What somebody has muted or resolved is known: worth a
    note, not an alarm."""
    row = cause.row
    if row.reason == WORKER_LOST and cause.is_open:
        return _poison(cause, counts, now)
    known = "" if cause.is_open else f" ({cause.status})"
    n = _tasks(counts)
    share = "" if n == total else f" ({percent(n / total)} of all)"
    said = ", ".join(f"{what}: {text}" for what, text in (("owner", cause.owner), ("note", cause.note)) if text)
    return Finding(
        Level.WARNING if now - row.last_seen < RECENT and not known else Level.NOTE,
        "failures",
        f"{_whose(counts)}: {counted(n)} failed{share} by {row.code}{known}, last {span(now - row.last_seen)} ago"
        + (f" [{said}]" if said else ""),
        f"redrive causes show {row.fingerprint}",
        ("cause", row.fingerprint),
        row.message[:200],
    )


def _poison(cause: Cause, counts: Sequence[FailedCount], now: datetime) -> Finding:
    """Returns what is failed because its workers were lost while they ran it."""
    row, n = cause.row, _tasks(counts)
    return Finding(
        Level.CRITICAL if now - row.last_seen < RECENT else Level.WARNING,
        "poison",
        f"{_whose(counts)}: {counted(n)} failed as worker_lost, last {span(now - row.last_seen)} ago: workers died"
        f" while they ran {'it' if n == 1 else 'them'}",
        f"redrive causes show {row.fingerprint}; look for memory and native code, "
        'and give the kind isolation="process", which dies alone',
        ("cause", row.fingerprint),
        row.message[:200],
    )


def _whose(counts: Sequence[FailedCount]) -> str:
    """Returns of which kind and queue most of these are: ``SEND of queue mail``, and how many more there are."""

    def most(of: Callable[[FailedCount], str]) -> tuple[str, int]:
        sums: Counter[str] = Counter()
        for count in counts:
            sums[of(count)] += count.n
        return max(sums, key=lambda name: sums[name], default=""), len(sums) - 1

    (kind, kinds), (queue, queues) = most(lambda one: one.kind), most(lambda one: one.queue)
    others = f" and {counted(kinds, 'other kind')}" if kinds > 0 else ""
    return f"{kind}{others} of queue {queue}" + (f" and {counted(queues, 'other')}" if queues > 0 else "")


async def _bulk(store: Store, overview: Overview) -> list[Finding]:
    now, alone = overview.now, not drivers(overview)
    found = [
        Finding(
            Level.NOTE,
            "approval",
            f"{record.body['requested_by']} waits for approval to {approvals.title(record)}",
            f"redrive approvals approve {record.id} --by NAME",
            ("approval", record.id),
        )
        for record in await approvals.list_approvals(store, states=(approvals.PENDING,), limit=10)
        if not approvals.expired(record, now)
    ]
    for record in await lifecycle.list_operations(store, states=(Status.RUNNING, Status.PAUSED), limit=10):
        operation = Operation.of(record)
        quiet = now - record.updated_at
        late = quiet > SLOW + timedelta(seconds=operation.pause_after_piece)
        erasure = operation.what if isinstance(operation.what, Erasure) else None
        waits = erasure is not None and erasure.phase != "files" and operation.note is not None
        still = operation.status is Status.RUNNING and (late or alone)
        stuck = still or (operation.status is Status.RUNNING and waits)
        found.append(
            Finding(
                Level.WARNING if stuck else Level.NOTE,
                "operation",
                f"operation {operation.id} is {operation.status}: {operation.done} of {operation.total}"
                + (f", without a step for {span(now - record.updated_at)}" if still else "")
                + (f"; {operation.note}" if waits else ""),
                _unstick(operation) if still else f"redrive operations show {operation.id}",
                ("operation", operation.id),
            )
        )
    return found


def _unstick(operation: Operation) -> str:
    if operation.testing:
        return "its canaries have not ended: redrive show one of them says why"
    return "start a worker: they carry it out; or read its log"


def worst(findings: Sequence[Finding]) -> Level:
    return min((finding.level for finding in findings), key=lambda level: ORDER[level])
