"""Rules: each is broken by what it is about and by nothing else, and says so in words."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.kernel.alerts.facts import SAMPLE_EVERY, Facts, QueueFacts, depth_before, remember
from redrive.kernel.alerts.own import OwnRule
from redrive.kernel.alerts.rules import TABLE, conditions
from redrive.kernel.alerts.thresholds import Limits, Thresholds
from redrive.observe.prometheus_rules import anchors
from tests.alerts.cases import CASES, NOW, Case, at_rest, quiet

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.name}")
def test_a_rule_is_broken_by_what_it_is_about(case: Case) -> None:
    found = [one for one in conditions(case.facts, case.limits) if one.rule == case.rule]
    assert bool(found) == case.fires, found
    for one in found:
        assert one.queue == ("" if case.queue is None else "q")
        assert one.text and one.fix and "{" not in one.text + one.fix


def test_every_rule_is_seen_both_ways() -> None:
    seen = {(case.rule, case.fires) for case in CASES}
    assert seen == {(rule.name, fires) for rule in TABLE for fires in (True, False)}


@pytest.mark.parametrize("kind", [QueueFacts, Facts])
def test_no_fact_is_left_out_unnoticed(kind: type) -> None:
    """Whoever adds one has to say in ops/alerts/look.py where it comes from."""
    given = [one.name for one in fields(kind) if (one.default, one.default_factory) != (MISSING, MISSING)]
    assert given == []


def test_words() -> None:
    facts = at_rest({"reports": quiet(queued=150, before=140, overdue=30, failed=1200, oldest=7300)})
    said = {one.rule: one.text for one in conditions(facts, Limits())}
    assert said == {
        "failed": "queue reports has failed tasks: 1,200",
        "depth": "queue reports has 150 tasks queued, and not fewer than 10 min ago",
        "pending": "queue reports has 30 tasks that waited for more than 5 min, 20% of all that are queued",
        "oldest_age": "the first task of queue reports has waited for 2 h; 15 min is its limit",
        "no_worker": "no live worker serves queue reports, with 150 tasks waiting",
    }


def test_a_count_that_went_no_further_says_at_least() -> None:
    half = Limits(Thresholds(pending_share=0.5, off=["depth", "no_worker"]))
    facts = at_rest({"q": quiet(queued=4_000, overdue=2_500, workers=1)}, expired=1_000)
    assert [one.text for one in conditions(facts, half)] == [
        "queue q has at least 2,500 tasks that waited for more than 5 min, at least 62% of all that are queued",
        "leases that ran out and that nobody recovers: at least 1,000",
    ]


def test_thresholds_of_a_queue_and_rules_that_are_off() -> None:
    own = Thresholds(depth=500, oldest_age=60, pending_share=0.5, off=["no_worker"])
    facts = quiet(queued=150, before=150, overdue=30, oldest=61)
    found = conditions(at_rest({"reports": facts, "mail": facts}), Limits(queues={"reports": own}))
    assert [(one.rule, one.queue) for one in found] == [
        ("depth", "mail"),
        ("pending", "mail"),
        ("oldest_age", "reports"),
        ("no_worker", "mail"),
    ]


def test_depth_is_remembered_while_it_is_too_much() -> None:
    limits, known, now = Limits(), {}, NOW
    seen = []
    for depth in [150] * 22 + [90] + [200] * 3:
        known = remember(known, {"q": depth}, limits, now)
        seen.append(depth_before(known.get("q", ()), 600, now))
        now += SAMPLE_EVERY
    assert seen == [None] * 20 + [150] * 2 + [None] * 4
    assert len(known["q"]) <= 22


def test_depth_is_compared_with_the_beginning_of_its_window() -> None:
    known, now = {}, NOW
    for minute in range(60):
        now = NOW + timedelta(minutes=minute)
        known = remember(known, {"q": 1000 - minute}, Limits(), now)
    assert depth_before(known["q"], 600, now) == 1000 - 49
    assert len(known["q"]) == 11


@pytest.mark.parametrize(("op", "broken"), [(">", False), (">=", True), ("==", True), ("!=", False), ("<", False)])
def test_a_rule_of_an_application(op: str, broken: bool) -> None:
    assert OwnRule("late_reports", "select 1", op, 0.25).broken(0.25) is broken


def test_every_runbook_is_there() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    heads = {
        re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in re.findall(r"^#+ (.+)$", text, re.M)
    }
    assert set(anchors()) - heads == set()
