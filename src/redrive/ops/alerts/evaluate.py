"""One round of alerts: look, judge, write down, tell. One worker of the fleet does it every 15 s, whoever has the duty;
what fires and who was told is in the book, so that nobody is told twice."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType

from redrive.errors import ChangedMeanwhile, RedriveError
from redrive.ids import new_id
from redrive.kernel.alerts.book import (
    Alert,
    Book,
    Message,
    Silence,
    mark_notified,
    of_others,
    read_book,
    set_back,
    step,
    to_tell,
)
from redrive.kernel.alerts.own import OwnRule, own_conditions
from redrive.kernel.alerts.rules import (
    DEPTH,
    FAILED,
    NO_WORKER,
    OLDEST_AGE,
    PENDING,
    SLO_FAST,
    SLO_SLOW,
    SURGE,
    conditions,
)
from redrive.kernel.alerts.slo import Objective
from redrive.kernel.alerts.thresholds import Limits
from redrive.kernel.commit import Commit
from redrive.kernel.documents import to_document
from redrive.kernel.duty import Duty
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.figures import Figures
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put
from redrive.kernel.summary import type_and_words
from redrive.kernel.task import State
from redrive.kernel.wording import counted, percent
from redrive.ops import causes
from redrive.ops.alerts.look import BOOK, COLLECTION, book_of, look, silences_of
from redrive.ops.alerts.own_rules import ASKED_EVERY, ask_all
from redrive.ops.alerts.send import NotSent, Send, call, deliver, in_thread
from redrive.ops.causes import Cause

logger = logging.getLogger("redrive.alerts")
EVERY_S = 15.0
WRITTEN_EVERY = timedelta(seconds=60)  # where nothing is broken and nothing has changed
TOLD_WITHIN_S = 10.0  # in one round, with all tries: the next one is due after EVERY_S, and waits for this one
CLAIMED_FOR = timedelta(seconds=60)  # whoever sends a message has so long before somebody else tries
GIVEN_UP_AFTER = timedelta(hours=1)
MOST_MESSAGES = 100
Stopping = Callable[[], bool]


class Evaluator:
    """Evaluates the rules of one configuration. ``send``: to whom, by name; ``heartbeat``: an address that is called
    after each round, so that somebody notices when nobody evaluates; ``own``: rules of the application and its
    features, ``objectives``: service levels of queues. ``starts``: returns the command that starts a worker for a
    queue. ``asked_every``: how often rules are asked that have to look for themselves."""

    def __init__(
        self,
        limits: Limits,
        send: Mapping[str, Send],
        heartbeat: str | None = None,
        own: Mapping[str, OwnRule] = MappingProxyType({}),
        objectives: Mapping[str, Objective] = MappingProxyType({}),
        starts: Callable[[str], str] | None = None,
        asked_every: timedelta = ASKED_EVERY,
    ) -> None:
        self._starts = starts
        self._asked_every = asked_every
        self._objectives = objectives
        self._limits = limits
        self._own = own
        self._send = send
        self._heartbeat = heartbeat
        self._faults: dict[str, str] = {}  # what was logged and has not changed

    async def run(self, store: Store, worker: str, stopping: Stopping = lambda: False) -> None:
        """Does one round."""
        figures = await store.figures()
        before, version = book_of(figures)
        before = set_back(before, figures.now)
        if before.at is not None and figures.now <= before.at:
            return  # somebody was quicker
        facts, after = await look(store, self._limits, figures, before, self._objectives)
        answers = await ask_all(store, self._own, before.answers, figures.now, self._asked_every)
        known, theirs = of_others(before, self._own.keys(), figures.now)
        found = await asyncio.to_thread(conditions, facts, self._limits)  # many queues may be in trouble
        broken = [*found, *own_conditions(self._own, answers), *theirs]
        judged = self._with_commands(await asyncio.to_thread(step, after, broken, figures.now))
        after = replace(judged, by=worker, answers={**known, **answers})
        after = await with_details(store, after, figures)
        due = self._address(before, after, silences_of(figures), figures.now)
        if due is not None:
            after = due
        written = before.at is not None and figures.now - before.at < WRITTEN_EVERY
        if written and not after.alerts and _same(before, after):
            await self._beat()
            return
        after, mine = self._take(after, figures.now)
        try:
            await store.apply(Commit(puts=[Put(COLLECTION, BOOK, to_document(after), version)]))
        except ChangedMeanwhile:
            return  # somebody else evaluates; that one tells
        _log(before, after)
        # At the same time: whoever waits for the heartbeat must not wait for a destination that hangs.
        await asyncio.gather(self._beat(), self._deliver(store, mine, stopping))

    def _with_commands(self, book: Book) -> Book:
        """Returns a book with the command that starts a worker here, where one is needed."""
        if self._starts is None:
            return book
        alerts = {
            key: replace(alert, fix=self._starts(alert.queue))
            for key, alert in book.alerts.items()
            if alert.rule == NO_WORKER.name and alert.queue
        }
        return replace(book, alerts={**book.alerts, **alerts})

    def _address(self, before: Book, after: Book, silences: list[Silence], now: datetime) -> Book | None:
        """Returns the book with a message about what has to be told; None when there is nothing, or nobody."""
        told = to_tell(before, after, silences, now)
        if not told or not self._send:
            return None
        message = Message(str(new_id()), now, now, tuple(self._send), tuple(told))
        return replace(mark_notified(after, told), messages=[*after.messages, message][-MOST_MESSAGES:])

    def _take(self, book: Book, now: datetime) -> tuple[Book, list[Message]]:
        """Returns the book in which this one sends what is due, and what that is. Too old ones are given up."""
        kept: list[Message] = []
        mine: list[Message] = []
        lost = book.lost
        for message in book.messages:
            if now - message.at > GIVEN_UP_AFTER:
                lost = f"{', '.join(message.to)} could not be told for {GIVEN_UP_AFTER.seconds // 60} min"
                logger.error("%s", lost, extra={"event": "alerts.given_up", "message_id": message.id})
                continue
            if message.next_at <= now and any(name in self._send for name in message.to):
                message = replace(message, next_at=now + CLAIMED_FOR, tries=message.tries + 1)
                mine.append(message)
            kept.append(message)
        return replace(book, messages=kept, lost=lost), mine

    async def _deliver(self, store: Store, messages: list[Message], stopping: Stopping) -> None:
        """Sends what is due to all destinations at the same time: none waits for another."""
        if not messages:
            return
        new_first = sorted(messages, key=lambda one: (one.tries, one.at))
        told = await asyncio.gather(*(self._deliver_to(name, new_first, stopping) for name in self._send))
        reached = dict(zip(self._send, told, strict=True))
        await _settle(
            store,
            {one.id: tuple(name for name in one.to if one.id not in reached.get(name, ())) for one in messages},
        )

    async def _deliver_to(self, name: str, messages: list[Message], stopping: Stopping) -> set[str]:
        """Returns what a destination has got. After one that it did not take, or when it takes too long, the others
        wait for another round."""
        reached = set[str]()
        try:
            async with asyncio.timeout(TOLD_WITHIN_S):
                for message in (one for one in messages if name in one.to):
                    fault = await deliver(self._send[name], message, stopping)
                    self._note(name, fault)
                    if fault is not None:
                        break
                    reached.add(message.id)
        except TimeoutError:
            self._note(name, "no answer in time")
        return reached

    async def _beat(self) -> None:
        if self._heartbeat is None:
            return
        url = self._heartbeat
        try:
            await in_thread(lambda: call(url))
            self._note("heartbeat", None)
        except NotSent as error:
            self._note("heartbeat", str(error))

    def _note(self, name: str, fault: str | None) -> None:
        """Logs that somebody cannot be told, once until it changes."""
        if fault is not None and self._faults.get(name) != fault:
            logger.warning("alerts: %s: %s", name, fault, extra={"event": "alerts.not_sent", "destination": name})
        if fault is None:
            self._faults.pop(name, None)
        else:
            self._faults[name] = fault


async def _settle(store: Store, left: Mapping[str, tuple[str, ...]]) -> None:
    """Writes down who was told. ``left``: whom each message has still to reach."""
    for _ in range(5):
        record = await store.record(COLLECTION, BOOK)
        if record is None:
            return
        book = read_book(record.body)
        kept = [replace(one, to=left.get(one.id, one.to)) for one in book.messages]
        sent = replace(book, messages=[one for one in kept if one.to], lost=book.lost if any(left.values()) else None)
        try:
            await store.apply(Commit(puts=[Put(COLLECTION, BOOK, to_document(sent), record.version)]))
            return
        except ChangedMeanwhile:
            continue


def _same(before: Book, after: Book) -> bool:
    """Returns whether there is nothing in a book that others have to know."""

    def known(book: Book) -> object:
        states = {key: (alert.state, alert.told, alert.gone) for key, alert in book.alerts.items()}
        return states, book.counted, book.chain, book.depths, book.messages, book.answers, book.services

    return not after.messages and known(before) == known(after)


def _log(before: Book, after: Book) -> None:
    for alert in after.firing:
        if before.alerts.get(alert.key) is None or before.alerts[alert.key].fired is None:
            _say("firing", alert)
    for alert in after.ended:
        if alert.ended == after.at:
            _say("resolved", alert)


def _say(event: str, alert: Alert) -> None:
    extra = {"event": f"alert.{event}", "rule": alert.rule, "queue": alert.queue or None, "alert_level": alert.level}
    logger.log(logging.WARNING if event == "firing" else logging.INFO, "%s: %s", event, alert.sentence, extra=extra)


# -- where no worker evaluates ----------------------------------------------------------------------------------------


# A worker that evaluates writes the book so often at least; two more rounds are for one that is slow.
SILENT_AFTER_S = WRITTEN_EVERY.total_seconds() + 2 * EVERY_S


class Standby:
    """Does the rounds of ``duty`` from ``redrive up`` as long as no worker does: when all are gone, that has to be
    said. ``store`` returns the store, opened."""

    def __init__(self, name: str, duty: Duty, store: Callable[[], Awaitable[Store]]) -> None:
        self._name = name
        self._duty = duty
        self._store = store
        self._away = False

    async def run(self, every: float = EVERY_S) -> None:
        """Runs until it is cancelled."""
        while True:
            try:
                await self.round()
                self._away = False
            except RedriveError as error:
                if not self._away:  # once until it is there again
                    logger.warning("alerts: %s", error, extra={"event": "alerts.not_evaluated"})
                self._away = True
            await asyncio.sleep(every)

    async def round(self) -> bool:
        """Evaluates the rules once, unless somebody else did a moment ago; returns whether it did."""
        store = await self._store()
        figures = await store.figures()
        book, _ = book_of(figures)
        at = book.at if book.by != self._name else None
        if at is not None and abs((figures.now - at).total_seconds()) < SILENT_AFTER_S:
            return False
        await self._duty.run(store, self._name, lambda: False)
        return True


# -- what is known about an alert when it fires, for whoever is woken by it --------------------------------------------


OF_CAUSES = (FAILED.name, SURGE.name)
OF_KINDS = (DEPTH.name, PENDING.name, OLDEST_AGE.name, NO_WORKER.name, SLO_FAST.name, SLO_SLOW.name)
MOST_KINDS = 3
SHOWN = 2
LONGEST_LINE = 300
MOST_DETAILED = 50  # alerts of one moment
LIMIT_S = 5.0


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
