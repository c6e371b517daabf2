"""What is known about an alert when it fires, for whoever is woken by it: kinds, causes, the objective.

Nothing that not everybody may see: messages leave the house."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections import Counter
from dataclasses import replace

from redrive.kernel.alerts.book import Alert, Book
from redrive.kernel.alerts.rules import DEPTH, FAILED, NO_WORKER, OLDEST_AGE, PENDING, SLO_FAST, SLO_SLOW, SURGE
from redrive.kernel.failed import FailureFilter
from redrive.kernel.figures import Figures
from redrive.kernel.ports.store import Store
from redrive.kernel.summary import type_and_words
from redrive.kernel.task import State
from redrive.kernel.wording import counted, percent
from redrive.ops import causes
from redrive.ops.causes import Cause

OF_CAUSES = (FAILED.name, SURGE.name)
OF_KINDS = (DEPTH.name, PENDING.name, OLDEST_AGE.name, NO_WORKER.name, SLO_FAST.name, SLO_SLOW.name)
MOST_KINDS = 3
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
    return {queue: await _of_queue(store, queue) for queue in queues}


async def _of_queue(store: Store, queue: str) -> list[str]:
    known = [name for name, said in (await causes.spoken_of(store)).items() if said in ("muted", "resolved")]
    which = FailureFilter(queue=queue)
    found = await causes.list_causes(store, which, limit=min(SHOWN + len(known), causes.MOST_LISTED))
    open_ = [one for one in found.causes if one.is_open]
    more = (found.total or 0) - (len(found.causes) - len(open_)) - SHOWN
    rest = [f"and {counted(more, 'other cause')}: {_listing(queue)}"] if more > 0 else []
    return [*map(_cause, open_[:SHOWN]), *rest]


def _listing(queue: str) -> str:
    return shlex.join(["redrive", "causes", "--queue", queue])


def _cause(cause: Cause) -> str:
    more = len(cause.kinds) - MOST_KINDS
    others = f" and {counted(more, 'other kind')}" if more > 0 else ""
    named = ", ".join([*cause.kinds][:MOST_KINDS]) + others
    kind, words = type_and_words(cause.row.summary)
    said = ": ".join(part for part in (kind or cause.row.code, words.partition("\n")[0][:120]) if part)
    owner = f", owner {cause.owner}" if cause.owner else ""
    share = "" if cause.failed == cause.of else f" ({percent(cause.share)} of all failed)"
    told = f"{named}: {counted(cause.failed)} failed{share} by {said}{owner}"
    return f"{told}; redrive causes show {cause.row.fingerprint}"
