"""What is said to people when alerts fire or end: the same facts as JSON, for Slack, and as a mail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redrive.kernel.alerts.book import Alert, Message
from redrive.kernel.alerts.rules import OWN_ANCHOR, TABLE
from redrive.settings import Triage

MOST_WORDED = 20  # alerts of one message that are told in words
_ANCHORS = {rule.name: rule.anchor for rule in TABLE}


def runbook(base: str, alert: Alert) -> str:
    """Returns where it is written what to do about an alert."""
    return alert.runbook or f"{base}#{_ANCHORS.get(alert.rule, OWN_ANCHOR)}"


class Wording:
    """How messages are worded here: where the runbooks are, which store it is about, and notes on queues."""

    def __init__(self, runbooks: str, store: str, triage: Mapping[str, Triage]) -> None:
        self._runbooks = runbooks
        self._store = store
        self._triage = triage

    def document(self, message: Message) -> dict[str, Any]:
        """Returns it for programs. ``id`` is the same however often it is sent."""
        states = {alert.state for alert in message.alerts}
        return {
            "version": 1,
            "id": message.id,
            "at": message.at.isoformat(),
            "status": "firing" if "firing" in states else "resolved",
            "store": self._store,
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
            "text": alert.text,
            "value": alert.value,
            "since": alert.since.isoformat(),
            "firedAt": None if alert.fired is None else alert.fired.isoformat(),
            "resolvedAt": None if alert.ended is None else alert.ended.isoformat(),
            "fix": alert.fix,
            "runbook": runbook(self._runbooks, alert),
            "triage": None if note is None else {"look": note.look, "problems": note.problems, "tables": note.tables},
        }

    def slack(self, message: Message) -> dict[str, Any]:
        """Returns it as Slack and those that are like it take it."""
        lines = [*self._lines(message.alerts), f"store: {self._store}"]
        return {"text": "\n".join(_escaped(line) for line in lines)}

    def mail(self, message: Message) -> tuple[str, str]:
        """Returns subject and text."""
        first, more = message.alerts[0], len(message.alerts) - 1
        subject = f"[redrive] {_status(first)}: {first.text}" + (f" (and {more} more)" if more else "")
        return _printable(subject)[:200], "\n".join([*self._lines(message.alerts), "", f"store: {self._store}"])

    def _lines(self, alerts: Sequence[Alert]) -> list[str]:
        lines = [_printable(line) for alert in alerts[:MOST_WORDED] for line in self._told(alert)]
        more = len(alerts) - MOST_WORDED
        return lines if more <= 0 else [*lines, f"… and {more} more: redrive alerts"]

    def _told(self, alert: Alert) -> list[str]:
        lines = [f"{_status(alert)}: {alert.text}"]
        if alert.ended is not None:
            return lines
        lines += [f"  what to do: {alert.fix}"] if alert.fix else []
        note = self._triage.get(alert.queue)
        if note is not None:
            lines += [f"  {note.look}"] if note.look else []
            lines += [f"  typical: {problem}" for problem in note.problems]
            lines += [f"  business tables: {', '.join(note.tables)}"] if note.tables else []
        return [*lines, f"  {runbook(self._runbooks, alert)}"]


def _status(alert: Alert) -> str:
    return "resolved" if alert.ended is not None else alert.level.value


def _printable(text: str) -> str:
    """Returns a line that is one: names of queues may hold anything."""
    spaced = "".join(" " if each.isspace() else each for each in text)
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in spaced)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
