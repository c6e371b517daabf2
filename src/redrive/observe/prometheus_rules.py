"""Makes the rule file of Prometheus from the table of rules: the same thresholds, words and runbooks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from redrive.kernel.alerts import promql
from redrive.kernel.alerts.own import OwnRule
from redrive.kernel.alerts.rules import OWN_ANCHOR, TABLE, Rule
from redrive.kernel.alerts.thresholds import Limits, Thresholds
from redrive.kernel.diagnosis import Level
from redrive.kernel.wording import prometheus_span

QUEUE = "{{ $labels.queue }}"
CONNECTION = "{{ $labels.connection }}"
HEAD = "# RuleText by redrive deploy prometheus from the settings; write it again after they have changed."


@dataclass(slots=True, frozen=True)
class RuleText:
    """A rule as Prometheus has it."""

    alert: str
    expression: str
    hold: float
    level: Level
    summary: str
    fix: str
    runbook: str


def rule_file(
    limits: Limits, runbooks: str, connections: Sequence[str], own: Mapping[str, OwnRule] | None = None
) -> str:
    """Returns the file; ``connections`` are those that somebody has to evaluate."""
    lines = [HEAD, "groups:", "  - name: redrive", "    rules:"]
    for one in rules_of(limits, runbooks, connections, own or {}):
        lines += [
            f"      - alert: {one.alert}",
            f"        expr: {json.dumps(one.expression, ensure_ascii=False)}",
            f"        for: {prometheus_span(one.hold)}",
            "        labels:",
            f"          severity: {one.level.value}",
            "        annotations:",
            f"          summary: {json.dumps(one.summary, ensure_ascii=False)}",
            f"          description: {json.dumps(one.fix, ensure_ascii=False)}",
            f"          runbook_url: {json.dumps(one.runbook)}",
        ]
    return "\n".join(lines) + "\n"


def rules_of(
    limits: Limits, runbooks: str, connections: Sequence[str], own: Mapping[str, OwnRule]
) -> Iterator[RuleText]:
    """Yields every rule: once for all queues, and once more for each queue that has thresholds of its own."""
    for rule in TABLE:
        for threshold, which in _groups(rule, limits):
            yield RuleText(
                _name(rule.name),
                rule.expression(threshold, which),
                rule.hold_seconds(threshold),
                rule.level,
                rule.sentence(QUEUE, rule.unit.template, threshold),
                rule.to_do(QUEUE, threshold),
                f"{runbooks}#{rule.anchor}",
            )
    for one in own.values():
        firing = f'max by (connection, rule, queue) (redrive_fleet_alerts_firing{{rule="{one.name}"}}) == 1'
        place = one.runbook or f"{runbooks}#{OWN_ANCHOR}"
        summary, fix = _literally(one.summary or one.name), _literally(one.fix)
        yield RuleText(_name(one.name), firing, 0.0, one.level, summary, fix, place)
    summary = f"nobody evaluates the rules of alerts of {CONNECTION}, or nobody serves the figures of its fleet"
    fix = "is a worker alive? is redrive up, or redrive work --fleet-metrics, scraped?"
    place = f"{runbooks}#alert-not-evaluated"
    yield RuleText("RedriveNotEvaluated", promql.not_evaluated(connections), 120.0, Level.CRITICAL, summary, fix, place)


def _groups(rule: Rule, limits: Limits) -> Iterator[tuple[Thresholds, str]]:
    """Yields thresholds, and the queues that have them."""
    if rule.of_queue is None:
        if limits.holds(rule.name, ""):
            yield limits.every, ""
        return
    others = {queue: own for queue, own in limits.queues.items() if own != limits.every}
    if rule.name not in limits.every.off:
        yield limits.every, promql.none_of(sorted(others))
    for queue in sorted(others):
        if rule.name not in others[queue].off:
            yield others[queue], promql.matching(queue)


def _literally(text: str) -> str:
    """Returns a text as a template that says it: what somebody has written may look like one."""
    return text if "{{" not in text else "{{ " + json.dumps(text, ensure_ascii=False) + " }}"


def _name(rule: str) -> str:
    return "Redrive" + "".join(part.capitalize() for part in rule.split("_"))


def anchors(rules: Iterable[Rule] = TABLE) -> list[str]:
    """Returns every place of the runbook that is linked to."""
    return [*(rule.anchor for rule in rules), OWN_ANCHOR, "alert-not-evaluated"]
