"""Alerts as findings of doctor, in the same words."""

from __future__ import annotations

from datetime import timedelta

from redrive.kernel.alerts.book import Silence
from redrive.kernel.alerts.rules import Condition, conditions
from redrive.kernel.alerts.thresholds import Limits
from redrive.kernel.diagnosis import Finding, Level
from redrive.kernel.ports.store import Store
from redrive.kernel.wording import span
from redrive.ops.alerts.look import book_of, look, silences_of

STALE = timedelta(minutes=3)


async def findings(store: Store, limits: Limits, queue: str | None = None) -> list[Finding]:
    """Returns the alerts that fire; where nobody evaluates the rules any more, what is broken now, and that."""
    figures = await store.figures()
    book, _ = book_of(figures)
    if book.at is None:
        return []
    found: list[Finding] = []
    silences = silences_of(figures)
    if figures.now - book.at > STALE:
        facts, _ = await look(store, limits, figures, book)
        text = f"alerts are not evaluated since {span(figures.now - book.at)}; a live worker does that"
        found.append(Finding(Level.WARNING, "alerts_stale", text, "redrive work --app module:app"))
        found += [_broken(one) for one in conditions(facts, limits) if queue in (None, one.queue)]
    else:
        for alert in book.firing:
            if queue in (None, alert.queue) or not alert.queue:
                silence = next((one for one in silences if one.covers(alert, figures.now)), None)
                found.append(
                    Finding(
                        alert.level if silence is None else Level.NOTE,
                        alert.rule,
                        alert.text + _silenced(silence),
                        alert.fix or None,
                        ("queue", alert.queue) if alert.queue else None,
                    )
                )
    if book.lost is not None:
        text = f"a message about alerts reached nobody: {book.lost}"
        found.append(Finding(Level.WARNING, "alerts_not_sent", text, "look for alerts.not_sent in the workers' logs"))
    return found


def _broken(one: Condition) -> Finding:
    return Finding(one.level, one.rule, one.text, one.fix or None, ("queue", one.queue) if one.queue else None)


def _silenced(silence: Silence | None) -> str:
    if silence is None:
        return ""
    why = f": {silence.reason}" if silence.reason else ""
    return f" (silenced by {silence.by} until {silence.until:%Y-%m-%d %H:%M} UTC{why})"
