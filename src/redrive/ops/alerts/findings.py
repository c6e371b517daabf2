"""Alerts as findings of doctor, in the same words."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from redrive.kernel.alerts.book import Silence, fold, silence_over
from redrive.kernel.alerts.facts import Answer, Facts
from redrive.kernel.alerts.own import OwnRule
from redrive.kernel.alerts.rules import Condition, Unit, conditions
from redrive.kernel.alerts.slo import Objective
from redrive.kernel.alerts.thresholds import Limits
from redrive.kernel.diagnosis import Finding, Level
from redrive.kernel.ports.store import Store
from redrive.kernel.wording import span
from redrive.ops.alerts.look import is_stale, load, look
from redrive.ops.alerts.own_rules import ask, ask_rule
from redrive.settings import Triage


@dataclass(slots=True, frozen=True)
class Watched:
    """What is watched: thresholds, rules of the application and its features, notes on queues with queries of theirs,
    and service levels."""

    limits: Limits = field(default_factory=Limits)
    own: Mapping[str, OwnRule] = field(default_factory=dict)
    triage: Mapping[str, Triage] = field(default_factory=dict)
    objectives: Mapping[str, Objective] = field(default_factory=dict)


async def findings(store: Store, now: datetime, watched: Watched, queue: str | None = None) -> list[Finding]:
    """Returns the alerts that fire, and what the application's own queries answer; where nobody evaluates the rules any
    more, what is broken now, and that."""
    book, silences = await load(store, now)
    found = await _answers(store, watched, queue)
    if book.at is None:
        return found
    if is_stale(book.at, now):
        facts, _ = await look(store, watched.limits, await store.figures(), book, watched.objectives)
        text = f"alerts are not evaluated since {span(abs(now - book.at))}; a live worker does that"
        found.append(Finding(Level.WARNING, "alerts_stale", text, "redrive work --app module:app"))

        def broken() -> list[Finding]:
            return [_broken(one) for one in fold(_conditions(facts, watched.limits, queue), ())[0]]

        found += await asyncio.to_thread(broken)  # there may be many queues
    else:
        for alert in book.firing:
            if queue in (None, alert.queue) or not alert.queue:
                silence = silence_over(alert, silences, now)
                found.append(
                    Finding(
                        alert.level if silence is None else Level.NOTE,
                        alert.rule,
                        alert.text + _silenced(silence),
                        alert.fix or None,
                        ("queue", alert.queue) if alert.queue else None,
                    )
                )
    if book.dropped:
        text = f"more rules are broken than alerts are kept: {book.dropped:,} are not shown and not told"
        found.append(Finding(Level.WARNING, "alerts_dropped", text, "mend those that fire, or have fewer rules"))
    if book.lost is not None:
        text = f"a message about alerts reached nobody: {book.lost}"
        found.append(Finding(Level.WARNING, "alerts_not_sent", text, "look for alerts.not_sent in the workers' logs"))
    return found


def _conditions(facts: Facts, limits: Limits, queue: str | None) -> list[Condition]:
    return [one for one in conditions(facts, limits) if queue in (None, one.queue)]


async def _answers(store: Store, watched: Watched, queue: str | None) -> list[Finding]:
    found = []
    for name, rule in watched.own.items():
        if not rule.told_by_findings and (queue is None or rule.queue == queue):
            answer = await ask_rule(store, rule)
            if rule.look is not None and answer.value is None and answer.fault is None:
                continue  # a feature that has nothing to judge: most do not use all that comes with redrive
            text = f"{rule.summary or name}: {_answer_text(answer, rule.unit)}; alert at {rule.op} {rule.limit}"
            broken = answer.value is not None and rule.broken(answer.value)
            level = Level.NOTE if broken else Level.OK
            if rule.look is None:
                found.append(_finding_of(text, answer, rule.queue, level))
            elif broken or answer.fault is not None:  # nobody asked for a feature's rule: it is silent while it holds
                found.append(_finding_of(text, answer, rule.queue, level, "the log of this process says more"))
    for name, note in watched.triage.items():
        for about, query in note.queries.items() if queue in (None, name) else ():
            answer = await ask(store, query)
            found.append(_finding_of(f"queue {name}, {about}: {_answer_text(answer)}", answer, name))
    return found


def _answer_text(answer: Answer, unit: Unit = Unit.NUMBER) -> str:
    return answer.fault or ("nothing" if answer.value is None else unit.in_words(answer.value))


def _finding_of(
    text: str, answer: Answer, queue: str, level: Level = Level.OK, fix: str = "mend the query in redrive.toml"
) -> Finding:
    """Returns what a query answers; ``fix``: what to do where it does not. One that breaks its rule is no more than a
    note: when it has for long enough, the alert is a finding of its own."""
    level = level if answer.fault is None else Level.WARNING
    return Finding(level, "own_query", text, None if answer.fault is None else fix, ("queue", queue) if queue else None)


def _broken(one: Condition) -> Finding:
    return Finding(one.level, one.rule, one.text, one.fix or None, ("queue", one.queue) if one.queue else None)


def _silenced(silence: Silence | None) -> str:
    if silence is None:
        return ""
    why = f": {silence.reason}" if silence.reason else ""
    return f" (silenced by {silence.by} until {silence.until:%Y-%m-%d %H:%M} UTC{why})"
