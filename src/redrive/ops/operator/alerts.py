"""Alerts: what fires, what is pending, what has ended; silence and unsilence; how queues keep their objectives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from redrive.errors import InvalidInput
from redrive.kernel.alerts.book import Alert, Silence, silence_over
from redrive.kernel.alerts.rules import NAMES
from redrive.kernel.alerts.slo import ServiceLevel
from redrive.kernel.diagnosis import Level
from redrive.kernel.figures import MOST_COUNTED
from redrive.kernel.task import check_seconds
from redrive.kernel.wording import EXAMPLES, at_least, seconds_of
from redrive.ops.access import Role
from redrive.ops.alerts.look import is_stale, load, look_at_all, silence, unsilence
from redrive.ops.alerts.messages import runbook
from redrive.ops.alerts.own_rules import all_more_rules
from redrive.ops.alerts.send import send_trial
from redrive.ops.filters import parse_coming
from redrive.ops.operator.declared import Given, OfQueue, Open, Reason, action, look, view_of
from redrive.ops.operator.session import Service

NO_OBJECTIVE = "no queue has an objective; in redrive.toml: [slo.NAME] with wait_seconds, target and days"
Rule = Annotated[str, Given("The rule, as the list names it.", metavar="RULE", positional=True)]
Until = Annotated[str | None, Given("08:00 (UTC), or 2026-01-31T09:00Z; within 30 days.", metavar="TIME")]
For = Annotated[str | None, Given("Or for how long: 30m, 8h, 7d.", metavar="SPAN", option="--for")]


@dataclass(slots=True, frozen=True)
class SilenceView:
    """Nobody is told of a rule until a time."""

    rule: Annotated[str, Open()]
    queue: Annotated[str | None, Open("Null: wherever the rule is broken.")]
    until: Annotated[datetime, Open()]
    by: Annotated[str, Open()]
    reason: Annotated[str | None, Open()]
    at: Annotated[datetime, Open()]

    @property
    def key(self) -> str:
        return _key(self.rule, self.queue)


@dataclass(slots=True, frozen=True)
class SilenceEnd:
    """A rule that is not silenced any more."""

    rule: Annotated[str, Open()]
    queue: Annotated[str | None, Open()]
    silenced: Annotated[bool, Open()] = False

    @property
    def key(self) -> str:
        return _key(self.rule, self.queue)


@dataclass(slots=True, frozen=True)
class AlertView:
    """An alert with its silence, its runbook, and the notes on its queue."""

    key: Annotated[str, Open()]
    state: Annotated[str, Open("pending, firing or resolved.")]
    rule: Annotated[str, Open()]
    queue: Annotated[str | None, Open()]
    level: Annotated[Level, Open()]
    text: Annotated[str, Open()]
    detail: Annotated[str, Open("What was known when it fired, a line each.")]
    value: Annotated[float, Open()]
    since: Annotated[datetime, Open("When its condition began.")]
    fired_at: Annotated[datetime | None, Open()]
    resolved_at: Annotated[datetime | None, Open()]
    fix: Annotated[str, Open()]
    runbook: Annotated[str, Open()]
    triage: Annotated[dict[str, Any] | None, Open("Notes of those who know the queue.")]
    silence: Annotated[SilenceView | None, Open()]


@dataclass(slots=True, frozen=True)
class AlertsView:
    """All alerts, the worst first."""

    worst: Annotated[Level, Open("Of what fires and nobody has silenced.")]
    stale: Annotated[bool, Open("Nobody evaluates the rules any more, which is a warning of its own.")]
    evaluated_at: Annotated[datetime | None, Open("When the rules last were; null: never.")]
    evaluated_by: Annotated[str | None, Open()]
    lost: Annotated[str | None, Open("Why the latest message reached nobody.")]
    firing: Annotated[list[AlertView], Open()]
    pending: Annotated[list[AlertView], Open("What is broken, and not for long enough yet.")]
    resolved: Annotated[list[AlertView], Open("What has ended lately.")]
    silences: Annotated[list[SilenceView], Open()]

    @property
    def loud(self) -> list[AlertView]:
        """Those that fire and that nobody has silenced."""
        return _loud(self.firing)


def _objective(one: ServiceView, _: datetime) -> str:
    return f"{one.target:.4g} within {one.wait_seconds:g} s, {one.days} d"


def _share(one: ServiceView, _: datetime) -> str:
    return f"{one.share:.2%}"


def _left(one: ServiceView, _: datetime) -> str:
    return f"{one.budget_left:.0%}"


def _waiting(one: ServiceView, _: datetime) -> str:
    return at_least(one.overdue, MOST_COUNTED)


def _burn(one: ServiceView, _: datetime) -> str:
    return ", ".join(f"{window} {rate:g}×" for window, rate in one.burn_rates.items())


@dataclass(slots=True, frozen=True)
class ServiceView:
    """How a queue stands against its objective."""

    queue: Annotated[str, Open(column="queue")]
    wait_seconds: Annotated[float, Open("Tasks start within so long.", column="objective", cell=_objective)]
    target: Annotated[float, Open("The share that has to.")]
    days: Annotated[int, Open("Over so long.")]
    good: Annotated[int, Open("Tasks that started in time.", column="in time")]
    bad: Annotated[int, Open("Tasks that did not.", column="late")]
    overdue: Annotated[int, Open("Of those: they wait still (1,000: or more).", column="waiting", cell=_waiting)]
    share: Annotated[float, Open("Of those that started in time.", column="share", cell=_share)]
    budget_left: Annotated[
        float, Open("A share, below 0 when more is late than allowed.", column="budget left", cell=_left)
    ]
    burn_rates: Annotated[
        dict[str, float],
        Open("By window: how many times as fast as allowed tasks are late.", column="burn rates", cell=_burn),
    ]


@dataclass(slots=True, frozen=True)
class DestinationView:
    name: Annotated[str, Open()]
    fault: Annotated[str | None, Open("Why it could not be reached; null where the message was sent.")]

    @property
    def told(self) -> str:
        return f"{self.name}: sent" if self.fault is None else f"{self.name}: not sent, {self.fault}"


@dataclass(slots=True, frozen=True)
class Trial:
    """What became of a test message."""

    destinations: Annotated[list[DestinationView], Open()]

    @property
    def ok(self) -> bool:
        return all(one.fault is None for one in self.destinations)

    @property
    def told(self) -> str:
        return "\n".join(one.told for one in self.destinations)


class AlertService(Service):
    """Alerts: what fires, silence, unsilence, test."""

    @look("GET /api/alerts")
    async def current(self) -> AlertsView:
        """Alerts that fire, the worst first, and those that are about to; what has ended lately. Exit code 1 when one
        fires that nobody has silenced, or nobody evaluates the rules any more."""
        return await self.at(await self._store.now())

    async def at(self, now: datetime) -> AlertsView:
        """Returns the same, where the store's time is known."""
        self._session.may(Role.VIEWER)
        book, silenced = await load(self._store, now)

        def view(alert: Alert) -> AlertView:
            silence, note = silence_over(alert, silenced, now), self._session.policy.triage.get(alert.queue)
            return view_of(
                AlertView,
                alert,
                queue=alert.queue or None,
                fired_at=alert.fired,
                resolved_at=alert.ended,
                runbook=runbook(self._session.settings.alert_runbooks, alert),
                triage=None if note is None else {"look": note.look, "problems": note.problems, "tables": note.tables},
                silence=None if silence is None else _silence(silence),
            )

        firing, stale = [view(alert) for alert in book.firing], is_stale(book.at, now)
        levels = [one.level for one in _loud(firing)] + [Level.WARNING] * stale
        return AlertsView(
            worst=next((level for level in (Level.CRITICAL, Level.WARNING) if level in levels), Level.OK),
            stale=stale,
            evaluated_at=book.at,
            evaluated_by=book.by or None,
            lost=book.lost,
            firing=firing,
            pending=[view(alert) for alert in book.alerts.values() if alert.fired is None],
            resolved=[view(alert) for alert in book.ended],
            silences=[_silence(one) for one in silenced],
        )

    @look("GET /api/alerts/slo", empty=NO_OBJECTIVE)
    async def services(self) -> list[ServiceView]:
        """Service levels: which share of a queue's tasks started in time, how much of the error budget is left, and how
        fast it goes."""
        found = await look_at_all(self._store, self._session.settings.slo)
        return [_service(queue, one) for queue, one in found.items()]

    @action(
        "POST /api/alerts/silences",
        said="{done.key} is silenced until {done.until:%Y-%m-%d %H:%M} UTC",
        status=201,
        whole=True,
    )
    async def silence(
        self, rule: Rule, queue: OfQueue = None, until: Until = None, span: For = None, reason: Reason = None
    ) -> SilenceView:
        """Nobody is told of a rule until a time; it is evaluated as before, and told when the time is over and it fires
        still."""
        await self._known(rule, queue)
        end = _end(until, span, await self._store.now())
        return _silence(await silence(self._store, rule, queue or "", end, actor=self._who, reason=reason))

    @action("POST /api/alerts/silences/end", said="{done.key} is not silenced any more", status=204, whole=True)
    async def unsilence(self, rule: Rule, queue: OfQueue = None, reason: Reason = None) -> SilenceEnd:
        """End a silence now: what fires still is told then."""
        await self._known(rule, None)
        await unsilence(self._store, rule, queue or "", actor=self._who, reason=reason)
        return SilenceEnd(rule, queue)

    @action("POST /api/alerts/test", said="{done.told}")
    async def test(self) -> Trial:
        """Send a message to every destination that is set here (Slack, webhook, mail): are the addresses right? Exit
        code 1 where one could not be reached. Workers use what their own environment says."""
        found = await send_trial(self._store, self._session.settings, self._who, self._session.connection_label)
        return Trial([DestinationView(name, fault) for name, fault in found.items()])

    @property
    def rules(self) -> list[str]:
        """The names of all rules, those of the application and its features last."""
        return [*NAMES, *all_more_rules(self._session.settings, self._session.features)]

    async def _known(self, rule: str, queue: str | None) -> None:
        if rule not in self.rules and not await self._in_book(rule):
            raise InvalidInput(f"there is no rule {rule[:100]!r}", hint=f"rules: {', '.join(self.rules)}")
        if queue is not None:
            await self._session.check_queue(queue)

    async def _in_book(self, rule: str) -> bool:
        """Returns whether there is an alert of a rule: also of a feature's that this process does not know."""
        book, _ = await load(self._store, await self._store.now())
        return any(alert.rule == rule for alert in (*book.alerts.values(), *book.ended))


def _loud(firing: list[AlertView]) -> list[AlertView]:
    return [one for one in firing if one.silence is None]


def _key(rule: str, queue: str | None) -> str:
    return f"{rule}:{queue}" if queue else rule


def _silence(row: Silence) -> SilenceView:
    return view_of(SilenceView, row, queue=row.queue or None)


def _service(queue: str, one: ServiceLevel) -> ServiceView:
    goal = one.objective
    return view_of(
        ServiceView,
        one,
        queue=queue,
        wait_seconds=goal.wait_seconds,
        target=goal.target,
        days=goal.days,
        budget_left=one.left,
        burn_rates=dict(one.burn),
    )


def _end(until: str | None, span: str | None, now: datetime) -> datetime:
    """Returns when a silence ends: at the time that was written, else after so long."""
    if until is not None:
        return parse_coming(until, "until", now)
    if span is None:
        raise InvalidInput("a silence has an end", hint="say until when, or for how long: --until TIME or --for SPAN")
    seconds = seconds_of(span)
    if seconds is None:
        raise InvalidInput(f"{span[:50]!r} is no span of time; write {EXAMPLES}")
    return now + timedelta(seconds=check_seconds(seconds, "the span"))
