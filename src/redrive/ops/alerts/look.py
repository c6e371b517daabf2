"""Gathers the facts that rules are judged by: one statement while all is well, a few more where something failed or
waits for long; how queues stand against their objectives; and what operators have silenced."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from types import MappingProxyType
from typing import Any

from redrive.errors import InvalidInput, NotFound
from redrive.kernel.alerts.book import Book, Silence, read_book, read_silence
from redrive.kernel.alerts.facts import SURGE_WINDOW, USUAL_WINDOW, Facts, QueueFacts, depth_before, remember
from redrive.kernel.alerts.slo import BURST, WINDOWS, Objective, ServiceLevel, measure
from redrive.kernel.alerts.thresholds import NOT_EVALUATED_S, Limits
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.documents import to_document
from redrive.kernel.figures import Figures
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put, Record
from redrive.kernel.series import ALL, MOST_SERIES, Resolution, SeriesQuery
from redrive.kernel.task import State, check_moment, check_text
from redrive.ops import audit_chain, causes
from redrive.ops.workers import Standing, standing

COLLECTION, BOOK = "alert", "book"
MOST_DOCUMENTS = 500
CHAIN_EVERY = timedelta(minutes=5)
STALE = timedelta(seconds=NOT_EVALUATED_S)


def is_stale(evaluated: datetime | None, now: datetime) -> bool:
    """Returns whether nobody evaluates the rules any more: also by a clock that was ahead. Where nobody ever has, there
    was no worker yet."""
    return evaluated is not None and abs(now - evaluated) > STALE


async def load(store: Store, now: datetime) -> tuple[Book, list[Silence]]:
    """Returns the book of alerts and the silences, by statements that look at nothing else."""
    records = await store.records(COLLECTION, limit=MOST_DOCUMENTS)
    if len(records) == MOST_DOCUMENTS and (book := await store.record(COLLECTION, BOOK)) is not None:
        records = [*records, book]  # the oldest of them
    bodies = {record.id: record.body for record in records}
    return read_book(bodies.pop(BOOK, None)), _ordered(bodies.values(), now)


def book_of(figures: Figures) -> tuple[Book, int]:
    """Returns the book of alerts, and its version."""
    version, body = figures.alerts.get(BOOK, (0, None))
    return read_book(body), version


def silences_of(figures: Figures) -> list[Silence]:
    """Returns silences that are not over, those that end first first."""
    return _ordered((body for name, (_, body) in figures.alerts.items() if name != BOOK), figures.now)


def _ordered(bodies: Iterable[Mapping[str, Any]], now: datetime) -> list[Silence]:
    found = map(read_silence, bodies)
    return sorted((one for one in found if one is not None and one.until > now), key=lambda one: one.until)


async def look(
    store: Store,
    limits: Limits,
    figures: Figures,
    book: Book,
    objectives: Mapping[str, Objective] = MappingProxyType({}),
) -> tuple[Facts, Book]:
    """Returns the facts of this moment, and the book with what was counted for them."""
    now = figures.now
    book = await _with_chain(store, book, now)
    paused = set(figures.paused_kinds)
    held = paused | figures.waiting_kinds  # what waits behind an open circuit is told by that alone
    # What is computed is computed beside the loop: there may be many queues, and this process has handlers to run.
    queued, failed, oldest = await asyncio.to_thread(_by_queue, figures, held)
    waiting, most = await asyncio.to_thread(_waiting, limits, queued, oldest)
    overdue = await store.overdue(waiting, sorted(held), most) if waiting else {}
    known = await known_failures(store, now) if failed else Counter[str]()
    surged, usual = await _surges(store, now) if failed else (Counter[str](), Counter[str]())
    services = await look_again(store, objectives, book.services, now, sorted(paused))

    def judged() -> tuple[Facts, Book]:
        depths = remember(book.depths, queued, limits, now)
        served, alive = _served(figures)
        paused_queues = set(figures.paused_queues)
        # Queues in which nothing is wrong and nothing waits are not looked at: they may be left from a purge.
        used = {*queued, *failed, *((known | surged | usual).keys() | services.keys()) & _queues(figures)}
        queues = {
            queue: QueueFacts(
                queued=queued[queue],
                oldest=oldest.get(queue, 0.0),
                failed=max(failed[queue] - known[queue], 0),
                known=known[queue],
                overdue=overdue.get(queue, 0),
                surged=surged[queue],
                usual=usual[queue] * (SURGE_WINDOW / USUAL_WINDOW),
                workers=served[queue],
                paused=queue in paused_queues,
                before=depth_before(depths.get(queue, ()), limits.of(queue).depth_for, now),
                fast=services[queue].fast if queue in services else 0.0,
                slow=services[queue].slow if queue in services else 0.0,
            )
            for queue in sorted(used)
        }
        # Of as many, by name, as have metrics of their own: the book is read and written each round.
        named = islice(((name, own) for name, own in queues.items() if own.failed or own.overdue), MOST_SERIES)
        counted = {name: (own.failed, own.overdue) for name, own in named}
        facts = Facts(
            now=now,
            queues=queues,
            expired=figures.expired,
            late=figures.late_schedules,
            unsealed=figures.unsealed_age if alive else 0.0,
            chain=book.chain,
            horizon=figures.horizon or 0.0,
            circuit=max(figures.outages.values(), default=0.0),
        )
        return facts, replace(book, depths=depths, counted=counted, services=services)

    return await asyncio.to_thread(judged)


def _queues(figures: Figures) -> set[str]:
    return {each.queue for each in figures.kinds}


def _waiting(
    limits: Limits, queued: Counter[str], oldest: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, int]]:
    """Returns the queues whose first task has waited for too long: for how long is too long, and how many matter."""
    ages = {queue: limits.of(queue).pending_age for queue, age in oldest.items() if age > limits.of(queue).pending_age}
    return ages, {queue: limits.of(queue).most_waiting(queued[queue]) for queue in ages}


def _by_queue(figures: Figures, held: set[str]) -> tuple[Counter[str], Counter[str], dict[str, float]]:
    """Returns of each queue how many tasks are queued and failed, and how long the first has waited."""
    queued, failed = Counter[str](), Counter[str]()
    for each in figures.kinds:
        failed[each.queue] += each.states.get(State.FAILED, 0)
        queued[each.queue] += 0 if each.kind in held else each.states.get(State.QUEUED, 0)
    oldest: dict[str, float] = {}
    for (queue, kind), age in figures.oldest.items():
        if kind not in held:
            oldest[queue] = max(age, oldest.get(queue, 0.0))
    return +queued, +failed, oldest


def _served(figures: Figures) -> tuple[Counter[str], bool]:
    """Returns how many live workers each queue has, and whether any is alive."""
    live = [worker for worker in figures.workers if standing(worker, figures.now) is Standing.ALIVE]
    return Counter(queue for worker in live for queue in worker.queues), bool(live)


async def known_failures(store: Store, now: datetime) -> Counter[str]:
    """Returns how many tasks of each queue are failed by causes that somebody has muted or resolved."""
    known = [name for name, said in (await causes.spoken_of(store)).items() if said in ("muted", "resolved")]
    found = Counter[str]()
    for count in await store.failed_counts(known) if known else ():
        found[count.queue] += count.n
    return found


async def _surges(store: Store, now: datetime) -> tuple[Counter[str], Counter[str]]:
    """Returns the terminal failures of each queue: of the last ten minutes, and of the hour before."""
    surged, before = Counter[str](), Counter[str]()
    since = now - SURGE_WINDOW - USUAL_WINDOW
    for row in await store.series(SeriesQuery(Resolution.MINUTE, since, ends=True)):
        (surged if row.at > now - SURGE_WINDOW else before)[row.queue] += row.failed
    return surged, before


async def _with_chain(store: Store, book: Book, now: datetime) -> Book:
    """Looks now and then whether the end of the audit log's chain is as it was written."""
    if book.chain_at is not None and now - book.chain_at < CHAIN_EVERY:
        return book
    return replace(book, chain=await audit_chain.tail_fault(store), chain_at=now)


# -- how queues stand against their objectives -------------------------------------------------------------------------


LOOKED_EVERY = timedelta(seconds=60)


async def look_again(
    store: Store,
    objectives: Mapping[str, Objective],
    known: Mapping[str, ServiceLevel],
    now: datetime,
    paused_kinds: Sequence[str] = (),
) -> dict[str, ServiceLevel]:
    """Returns how each queue stands, looked at again where that is a minute ago."""
    found: dict[str, ServiceLevel] = {}
    for queue, objective in objectives.items():
        last = known.get(queue)
        fresh = last is not None and last.at is not None and now - last.at < LOOKED_EVERY
        same = last is not None and last.objective == objective
        found[queue] = (
            last if last is not None and fresh and same else await _look(store, queue, objective, now, paused_kinds)
        )
    return found


async def look_at_all(store: Store, objectives: Mapping[str, Objective]) -> dict[str, ServiceLevel]:
    """Returns how each queue stands now."""
    return await look_again(store, objectives, {}, await store.now()) if objectives else {}


async def _look(
    store: Store, queue: str, objective: Objective, now: datetime, paused_kinds: Sequence[str]
) -> ServiceLevel:
    recent = await _starts(store, queue, objective, Resolution.MINUTE, now - WINDOWS["6h"])
    days = await _starts(store, queue, objective, Resolution.DAY, now - timedelta(days=objective.days))
    overdue = (await store.overdue({queue: objective.wait_seconds}, paused_kinds)).get(queue, 0)
    long = {queue: objective.wait_seconds + BURST.total_seconds()}
    lasting = (await store.overdue(long, paused_kinds)).get(queue, 0) if overdue else 0
    return measure(objective, recent, days, overdue, now, lasting)


async def _starts(
    store: Store, queue: str, objective: Objective, resolution: Resolution, since: datetime
) -> list[tuple[datetime, tuple[int, int]]]:
    rows = await store.series(SeriesQuery(resolution, resolution.start(since), queue))
    return [(row.at, objective.split(row.tally.wait)) for row in rows if (row.queue, row.kind) == (queue, ALL)]


# -- silences ----------------------------------------------------------------------------------------------------------


LONGEST = timedelta(days=30)
MOST_SILENCES = 200
STATE = "silence"


async def silence(store: Store, rule: str, queue: str, until: datetime, *, actor: str, reason: str | None) -> Silence:
    """Silences a rule, in a queue or everywhere; one that is silenced already gets this end and this reason."""
    now, why = await store.now(), check_text(reason, "reason")
    if why is None:
        raise InvalidInput("a silence needs a reason", hint="others want to know why nobody is told")
    if check_moment(until, "until", now) <= now:
        raise InvalidInput(f"{until.isoformat()} is in the past", hint="say until when, later than now")
    if until - now > LONGEST:
        raise InvalidInput(f"a silence ends within {LONGEST.days} days", hint="for good: off in [alerts.thresholds]")
    new = Silence(rule, queue, until, actor, why, now)
    before = await _record(store, new.key)
    if before is None and len(await store.records(COLLECTION, states=(STATE,), limit=MOST_SILENCES)) >= MOST_SILENCES:
        raise InvalidInput(f"there are {MOST_SILENCES} silences already", hint="redrive alerts unsilence RULE")
    body = to_document(new)
    row = Audit(
        *(actor, "ALERT_SILENCE", why),
        before=None if before is None else {"until": before.body.get("until")},
        after={"until": until.isoformat()},
        target=f"alert:{new.key}",
    )
    version = 0 if before is None else before.version
    put = Put(COLLECTION, f"silence:{new.key}", body, version, STATE, (until - now).total_seconds())
    await store.apply(Commit(puts=[put], audits=[row]))
    return new


async def unsilence(store: Store, rule: str, queue: str, *, actor: str, reason: str | None) -> None:
    """Ends a silence now."""
    now, key = await store.now(), f"{rule}:{queue}" if queue else rule
    record = await _record(store, key)
    known = None if record is None else read_silence(record.body)
    if record is None or known is None or known.until <= now:
        raise NotFound(f"nobody has silenced {key}", hint="redrive alerts lists what is silenced")
    row = Audit(
        *(actor, "ALERT_UNSILENCE", check_text(reason, "reason")),
        before={"until": record.body.get("until")},
        target=f"alert:{key}",
    )
    body = {**record.body, "until": now.isoformat()}
    put = Put(COLLECTION, record.id, body, record.version, STATE, 0.0)
    await store.apply(Commit(puts=[put], audits=[row]))


async def _record(store: Store, key: str) -> Record | None:
    return await store.record(COLLECTION, f"silence:{key}")
