"""Alerts: what fires, what is pending, what has ended; silence and unsilence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from redrive.errors import InvalidInput
from redrive.kernel.alerts.book import Alert, Silence, silence_over
from redrive.kernel.alerts.rules import NAMES
from redrive.kernel.alerts.slo import ServiceLevel
from redrive.kernel.diagnosis import Level
from redrive.ops.access import Role
from redrive.ops.alerts.look import is_stale, load, look_at_all, silence, unsilence
from redrive.ops.alerts.messages import runbook
from redrive.ops.alerts.more_rules import all_more_rules
from redrive.ops.alerts.send import send_trial
from redrive.ops.operator.session import Service
from redrive.settings import Triage


@dataclass(slots=True, frozen=True)
class Shown:
    """An alert as it is shown: with its silence, its runbook, and the notes on its queue."""

    alert: Alert
    silence: Silence | None
    runbook: str
    triage: Triage | None


@dataclass(slots=True, frozen=True)
class Alerts:
    """``evaluated``: when the rules were last evaluated; None: never. ``lost``: why the latest message reached
    nobody."""

    now: datetime
    evaluated: datetime | None
    by: str
    firing: list[Shown]
    pending: list[Shown]
    ended: list[Shown]
    silences: list[Silence]
    lost: str | None

    @property
    def loud(self) -> list[Shown]:
        """Those that fire and that nobody has silenced."""
        return [one for one in self.firing if one.silence is None]

    @property
    def stale(self) -> bool:
        """Whether nobody evaluates the rules any more: what is shown is old, and what is broken now is not in it."""
        return is_stale(self.evaluated, self.now)

    @property
    def worst(self) -> Level:
        """Returns the level of the worst that fires; OK when none does, and somebody evaluates the rules."""
        levels = [one.alert.level for one in self.loud] + [Level.WARNING] * self.stale
        return next((level for level in (Level.CRITICAL, Level.WARNING) if level in levels), Level.OK)


class AlertService(Service):
    async def look(self, now: datetime | None = None) -> Alerts:
        """Returns the alerts there are, the worst first. ``now``: the store's time, where it is known."""
        self._session.may(Role.VIEWER)
        now = await self._store.now() if now is None else now
        book, silenced = await load(self._store, now)

        def shown(alert: Alert) -> Shown:
            silence = silence_over(alert, silenced, now)
            triage: Mapping[str, Triage] = self._session.policy.triage
            base = self._session.settings.alert_runbooks
            return Shown(alert, silence, runbook(base, alert), triage.get(alert.queue))

        return Alerts(
            now,
            book.at,
            book.by,
            [shown(alert) for alert in book.firing],
            [shown(alert) for alert in book.alerts.values() if alert.fired is None],
            [shown(alert) for alert in book.ended],
            silenced,
            book.lost,
        )

    async def services(self) -> dict[str, ServiceLevel]:
        """Returns how each queue with an objective stands now."""
        self._session.may(Role.VIEWER)
        return await look_at_all(self._store, self._session.settings.slo)

    async def silence(self, rule: str, until: datetime, queue: str | None = None, reason: str | None = None) -> Silence:
        """Nobody is told of a rule until a time: of a queue, or wherever it is broken."""
        who = self._session.may(Role.OPERATOR)
        await self._known(rule, queue)
        return await silence(self._store, rule, queue or "", until, actor=who, reason=reason)

    async def unsilence(self, rule: str, queue: str | None = None, reason: str | None = None) -> None:
        """Ends a silence now: what fires still is told then."""
        who = self._session.may(Role.OPERATOR)
        await self._known(rule, None)
        await unsilence(self._store, rule, queue or "", actor=who, reason=reason)

    async def test(self) -> dict[str, str | None]:
        """Sends a message to every destination that this process knows; returns why it could not be, by destination."""
        who = self._session.may(Role.OPERATOR)
        return await send_trial(self._store, self._session.settings, who, self._session.told_connection)

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


def alert_shown(shown: Shown) -> dict[str, Any]:
    """Returns an alert as it is told: the same fields everywhere, in the spelling of each."""
    alert, note = shown.alert, shown.triage
    return {
        "key": alert.key,
        "state": alert.state,
        "rule": alert.rule,
        "queue": alert.queue or None,
        "level": alert.level.value,
        "text": alert.text,
        "detail": alert.detail,
        "value": alert.value,
        "since": alert.since,
        "fired_at": alert.fired,
        "resolved_at": alert.ended,
        "fix": alert.fix,
        "runbook": shown.runbook,
        "triage": None if note is None else {"look": note.look, "problems": note.problems, "tables": note.tables},
        "silence": None if shown.silence is None else silence_shown(shown.silence),
    }


def silence_shown(silence: Silence) -> dict[str, Any]:
    """Returns a silence as it is told."""
    values = {name: getattr(silence, name) for name in ("rule", "until", "by", "reason", "at")}
    return values | {"queue": silence.queue or None}


def alerts_shown(found: Alerts) -> dict[str, Any]:
    """Returns all alerts as they are told."""
    return {
        "worst": found.worst.value,
        "stale": found.stale,
        "evaluated_at": found.evaluated,
        "firing": [alert_shown(one) for one in found.firing],
        "pending": [alert_shown(one) for one in found.pending],
        "resolved": [alert_shown(one) for one in found.ended],
        "silences": [silence_shown(one) for one in found.silences],
    }
