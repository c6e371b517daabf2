"""What is said to people when alerts fire or end: the same facts as JSON, for Slack, and as a mail."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redrive.kernel.alerts.book import Alert, Message
from redrive.kernel.alerts.rules import OWN_ANCHOR, TABLE
from redrive.ops.shell import for_connection
from redrive.settings import Settings, Triage

MOST_WORDED = 20  # alerts of one message that are told in words
_ANCHORS = {rule.name: rule.anchor for rule in TABLE}


def runbook(base: str, alert: Alert) -> str:
    """Returns where it is written what to do about an alert."""
    return alert.runbook or f"{base}#{_ANCHORS.get(alert.rule, OWN_ANCHOR)}"


@dataclass(slots=True, frozen=True)
class Place:
    """What a message is about: a store, the host of whoever evaluates its rules, the environment, and the connection
    where there are several."""

    store: str
    host: str
    environment: str
    connection: str | None = None

    @property
    def told(self) -> str:
        named = f", connection {self.connection}" if self.connection else ""
        return f"{self.environment}, host {self.host}{named}, store {self.store}"


class Wording:
    """How messages are worded here: where the runbooks are, what they are about, and notes on queues."""

    def __init__(self, runbooks: str, place: Place, triage: Mapping[str, Triage]) -> None:
        self._runbooks = runbooks
        self._place = place
        self._triage = triage

    def document(self, message: Message) -> dict[str, Any]:
        """Returns it for programs. ``id`` is the same however often it is sent."""
        states = {alert.state for alert in message.alerts}
        return {
            "version": 1,
            "id": message.id,
            "at": message.at.isoformat(),
            "status": "firing" if "firing" in states else "resolved",
            "store": self._place.store,
            "host": self._place.host,
            "environment": self._place.environment,
            "connection": self._place.connection,
            "alerts": [self.alert(alert) for alert in message.alerts],
        }

    def alert(self, alert: Alert) -> dict[str, Any]:
        note = self._triage.get(alert.queue)
        return {
            "key": alert.key,
            "status": alert.state,
            "rule": alert.rule,
            "queue": alert.queue or None,
            "level": alert.level.value,
            "text": alert.sentence,
            "detail": self._command(alert.detail),
            "value": alert.value,
            "since": alert.since.isoformat(),
            "firedAt": None if alert.fired is None else alert.fired.isoformat(),
            "resolvedAt": None if alert.ended is None else alert.ended.isoformat(),
            "fix": self._command(alert.fix),
            "runbook": runbook(self._runbooks, alert),
            "triage": None if note is None else {"look": note.look, "problems": note.problems, "tables": note.tables},
        }

    def slack(self, message: Message) -> dict[str, Any]:
        """Returns it as Slack and those that are like it take it."""
        lines = [*self._lines(message.alerts), _printable(self._place.told)]
        return {"text": "\n".join(_escaped(line) for line in lines)}

    def mail(self, message: Message) -> tuple[str, str]:
        """Returns subject and text."""
        first, more = message.alerts[0], len(message.alerts) - 1
        more_told = f" (and {more} more)" if more else ""
        subject = f"[redrive {self._place.environment}] {_status(first)}: {first.sentence}{more_told}"
        return _printable(subject)[:200], "\n".join([*self._lines(message.alerts), "", _printable(self._place.told)])

    def _lines(self, alerts: Sequence[Alert]) -> list[str]:
        lines = [_printable(line) for alert in alerts[:MOST_WORDED] for line in self._told(alert)]
        more = len(alerts) - MOST_WORDED
        return lines if more <= 0 else [*lines, f"… and {more} more: redrive alerts"]

    def _told(self, alert: Alert) -> list[str]:
        lines = [f"{_status(alert)}: {alert.sentence}"]
        if alert.ended is not None:
            return lines
        lines += [f"  {line}" for line in self._command(alert.detail).splitlines()]
        lines += [f"  what to do: {self._command(alert.fix)}"] if alert.fix else []
        note = self._triage.get(alert.queue)
        if note is not None:
            lines += [f"  {note.look}"] if note.look else []
            lines += [f"  typical: {problem}" for problem in note.problems]
            lines += [f"  business tables: {', '.join(note.tables)}"] if note.tables else []
        address = runbook(self._runbooks, alert)
        where = " in redrive's documentation" if not alert.runbook and "://" not in address else ""
        return [*lines, f"  runbook: {address}{where}"]

    def _command(self, text: str) -> str:
        return for_connection(text, self._place.connection)


def _status(alert: Alert) -> str:
    return "resolved" if alert.ended is not None else alert.level.value


def _printable(text: str) -> str:
    """Returns a line that is one: names of queues may hold anything."""
    spaced = "".join(" " if each.isspace() else each for each in text)
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in spaced)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# -- the command that starts a worker for a queue --------------------------------------------------------------------


def start_command(settings: Settings, connection: str, queue: str, app: str = "module:app") -> str:
    """Returns ``redrive work`` with the group that serves the queue, else with the queue itself."""
    for name, group in settings.workers.items():
        there = (group.connection or settings.default_connection) == connection
        if there and queue in group.given.get("queues", ()):
            return f"redrive work --app {app} --group {name}"
    return f"redrive work --app {app} --queue {shlex.quote(queue)}"
