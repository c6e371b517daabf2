"""Keeps one rule that is broken in many queues from pushing the alerts of all others out of the book."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from redrive.kernel.alerts.rules import Condition
from redrive.kernel.diagnosis import Level

MOST_NAMED = 20  # queues of one rule
MOST_ALERTS = 500
SHOWN = 3
_WORST_FIRST = {Level.CRITICAL: 0, Level.WARNING: 1}
_MORE_FIX = "redrive stats lists all queues; mend those that are named, and the next ones are"


def fold(broken: Iterable[Condition], known: Collection[str]) -> tuple[list[Condition], int]:
    """Returns what is broken, and how many had to be left out: of each rule so many queues by name, and one condition
    for all the others. Those that are ``known`` keep their names: none of them is taken for ended. Where there are
    still too many, queues are left out before what is about the store or a feature."""
    by_rule: dict[str, list[Condition]] = {}
    for one in broken:
        by_rule.setdefault(one.rule, []).append(one)
    kept = [one for of_rule in by_rule.values() for one in _named(of_rule, known)]
    kept.sort(key=lambda one: (one.key not in known, bool(one.queue), _WORST_FIRST.get(one.level, 2)))
    return kept[:MOST_ALERTS], max(len(kept) - MOST_ALERTS, 0)


def _named(of_rule: list[Condition], known: Collection[str]) -> list[Condition]:
    """Returns the conditions of one rule: those that are known, then the worst, then one about the rest."""
    order = sorted(of_rule, key=lambda one: (one.key not in known, bool(one.queue), -one.value))
    already = sum(one.key in known for one in order)
    most = max(MOST_NAMED, already)
    # One more is named rather than hidden behind "and one more".
    if len(order) <= most + 1:
        return order
    return [*order[:most], _rest(order[most:], most)]


def _rest(others: list[Condition], named: int) -> Condition:
    """Returns one condition about many queues, which fires as soon as the first of them would."""
    shown = ", ".join(one.queue for one in others[:SHOWN])
    text = f"{named} queues are named, and {len(others):,} more have the same: {shown}, …"
    soonest = min(one.hold for one in others)
    return replace(others[0], queue="", value=float(len(others)), text=text, hold=soonest, fix=_MORE_FIX)
