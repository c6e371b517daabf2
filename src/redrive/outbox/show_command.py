"""``redrive outbox show``: one projection, and what of it waits or fails."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from redrive.feature.cli import AppName, Json, Url, operate, output
from redrive.outbox.service import OutboxService

FIGURES = ("lag", "pending", "processing", "inflight", "retries", "stuck", "failed", "done", "workers")
LONGEST_SHOWN = 60


def show(
    projection: Annotated[str, typer.Argument(metavar="PROJECTION", help="Its name, as redrive outbox lists it.")],
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """One projection: figures, its sink, failures by reason, and the events that wait or fail longest."""
    found = operate(url, app, lambda own: own.of(OutboxService).show(projection))
    if json:
        output.emit(found)
        return
    for name, text in _facts(found):
        output.say(f"{name:<12} {text}")
    if found["events"]:
        output.say("")
        output.table(
            ["event", "status", "entity", "op", "version", "attempts", "published", "why"],
            [_event(one) for one in found["events"]],
        )
    elif found["rebuildable"]:
        past = "→ what was written past the outbox has no event:"
        output.say(output.suggest(f"{past} redrive outbox verify {projection} finds it"))


def age(one: dict[str, Any]) -> str:
    """Returns how long the oldest event that is not done has waited."""
    return "-" if one["oldest_age"] is None else f"{one['oldest_age']:.0f} s"


def _facts(one: dict[str, Any]) -> list[tuple[str, str]]:
    sink = f"{one['sink'] or 'not declared here'}: {one['sink_state']}"
    detail = f" ({one['sink_detail']})" if one["sink_detail"] else ""
    facts = [("projection", one["projection"]), ("sink", sink + detail)]
    if one["paused"] is not None:
        facts.append(("paused", f"by {one['paused']['by']}: {one['paused']['reason'] or 'no reason given'}"))
    if one["circuit"] is not None:
        facts.append(("circuit", one["circuit"]["told"]))
    facts += [(name, str(one[name])) for name in FIGURES]
    facts.append(("oldest", age(one)))
    facts += [("failed by", _reasons(one["failures"])), ("retried for", _reasons(one["retried"]))]
    return [(name, text) for name, text in facts if text]


def _reasons(found: list[dict[str, Any]]) -> str:
    return ", ".join(f"{one['reason'] or 'unknown'} {one['events']:,}" for one in found)


def _event(one: dict[str, Any]) -> tuple[str, ...]:
    why = one["error"] or one["error_reason"] or ""
    return (
        one["id"],
        one["status"],
        one["entity"] or "-",
        one["op"] or "-",
        "-" if one["version"] is None else str(one["version"]),
        f"{one['attempts']}/{one['max_attempts']}",
        output.when(one["created_at"]),
        why if len(why) <= LONGEST_SHOWN else f"{why[:LONGEST_SHOWN]}…",
    )
