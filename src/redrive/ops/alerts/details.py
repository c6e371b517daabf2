"""What is known about an alert when it fires, for whoever is woken by it: kinds, causes, the objective.

Nothing that not everybody may see: messages leave the house."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace

from redrive.kernel.alerts.book import Alert, Book
from redrive.kernel.alerts.rules import DEPTH, FAILED, NO_WORKER, OLDEST_AGE, PENDING, SLO_FAST, SLO_SLOW, SURGE
from redrive.kernel.figures import Figures
from redrive.kernel.ports.store import Store
from redrive.kernel.summary import type_and_words
from redrive.kernel.task import State
from redrive.kernel.wording import counted
from redrive.ops import causes
from redrive.ops.causes import Cause

OF_CAUSES = (FAILED.name, SURGE.name)
OF_KINDS = (DEPTH.name, PENDING.name, OLDEST_AGE.name, NO_WORKER.name, SLO_FAST.name, SLO_SLOW.name)
MOST_CAUSES, MOST_KINDS = 50, 3
SHOWN = 2
LONGEST_LINE = 300
MOST_DETAILED = 50  # alerts of one moment
LIMIT_S = 5.0
logger = logging.getLogger("redrive.alerts")


async def with_details(store: Store, book: Book, figures: Figures) -> Book:
    """Returns the book with what is known about the alerts that fire since this moment, the worst of them. Whatever
    keeps it from being found out, the alert is told without it."""
    new = [alert for alert in book.firing if alert.fired == figures.now][:MOST_DETAILED]
    failing = {alert.queue for alert in new if alert.rule in OF_CAUSES}
    by_cause: dict[str, list[str]] = {}
    try:
        async with asyncio.timeout(LIMIT_S):
            by_cause = await _by_cause(store, failing) if failing else {}
    except Exception as error:
        extra = {"event": "alerts.without_detail"}
        logger.warning("alerts are told without causes: %s", type(error).__name__, extra=extra)
    known = {alert.key: _detailed(alert, book, figures, by_cause) for alert in new}
    return replace(book, alerts={key: known.get(key, alert) for key, alert in book.alerts.items()})


def _detailed(alert: Alert, book: Book, figures: Figures, by_cause: dict[str, list[str]]) -> Alert:
    lines = by_cause.get(alert.queue, []) if alert.rule in OF_CAUSES else []
    if alert.rule in OF_KINDS:
        lines = [*_objective(alert, book), *_kinds(alert.queue, figures)]
    return replace(alert, detail="\n".join(line[:LONGEST_LINE] for line in lines))


def _objective(alert: Alert, book: Book) -> list[str]:
    service = book.services.get(alert.queue)
    if service is None or alert.rule not in (SLO_FAST.name, SLO_SLOW.name):
        return []
    late = f", {service.waiting} wait longer now" if service.overdue else ""
    left = f"{service.left:.0%} of the error budget is left" if service.left > 0 else "the error budget is used up"
    return [f"objective: {service.objective.told}; {left}{late}"]


def _kinds(queue: str, figures: Figures) -> list[str]:
    """Returns which kinds wait in a queue, and how many of each."""
    waiting = Counter[str]()
    for each in figures.kinds:
        if each.queue == queue:
            waiting[each.kind] += each.states.get(State.QUEUED, 0)
    most = [f"{kind} {n:,}" for kind, n in waiting.most_common(MOST_KINDS) if n]
    more = len(+waiting) - len(most)
    others = f" and {counted(more, 'other kind')}" if more else ""
    return [f"waiting: {', '.join(most)}{others}"] if most else []


async def _by_cause(store: Store, queues: set[str]) -> dict[str, list[str]]:
    """Returns by which causes most tasks of these queues are failed, those left out that somebody knows of."""
    open_ = [one for one in await causes.failing_causes(store, MOST_CAUSES) if one.status not in ("muted", "resolved")]
    known = {one.row.fingerprint: one for one in open_}
    failed: dict[str, Counter[str]] = {queue: Counter() for queue in queues}
    kinds: dict[tuple[str, str], Counter[str]] = {}
    for count in await store.failed_counts(list(known)) if known else ():
        if count.queue in queues:
            failed[count.queue][count.fingerprint] += count.n
            kinds.setdefault((count.queue, count.fingerprint), Counter())[count.kind] += count.n
    return {
        queue: [
            _cause(known[fingerprint], n, kinds[queue, fingerprint]) for fingerprint, n in counts.most_common(SHOWN)
        ]
        + ([f"and {counted(more, 'other cause')}: redrive causes"] if (more := len(counts) - SHOWN) > 0 else [])
        for queue, counts in failed.items()
    }


def _cause(cause: Cause, n: int, kinds: Counter[str]) -> str:
    more = len(kinds) - MOST_KINDS
    others = f" and {counted(more, 'other kind')}" if more > 0 else ""
    named = ", ".join(kind for kind, _ in kinds.most_common(MOST_KINDS)) + others
    kind, words = type_and_words(cause.row.summary)
    said = ": ".join(part for part in (kind or cause.row.code, words.partition("\n")[0][:120]) if part)
    owner = f", owner {cause.owner}" if cause.owner else ""
    return f"{named}: {counted(n)} failed by {said}{owner}; redrive causes show {cause.row.fingerprint}"
