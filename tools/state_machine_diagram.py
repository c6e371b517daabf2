"""Writes ``docs/state-machine.md`` from the transition table, so that the picture cannot drift from the code."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from redrive.kernel.machine import INSTEAD, TABLE, Attempts, Event, Meets, Rule
from redrive.kernel.task import HISTORY, State

HEAD = """# The state machine

Generated from `redrive/kernel/machine.py` by `./dev docs`; `./dev check` fails when the two differ.

A task, whatever it is for, is always in exactly one of these states. Only the events below move it, and every event is
one transaction. *Fenced* events are applied only if they carry the task's current lease token.
"""

MEANING = {
    State.QUEUED: "ready; the next free worker of its queue takes it",
    State.DELAYED: "waits for its time: a delay, a retry's backoff or a snooze",
    State.RUNNING: "leased to one worker, which holds its only valid token",
    State.PAUSED: "held by an operator, itself or through its group",
    State.FAILED: "ended without success; stays in the live table until someone retries or cancels it",
    State.COMPLETED: "done; in history",
    State.CANCELLED: "no longer wanted; in history, and can be retried",
}


MET = {Meets.CANCEL_REQUESTED: "its cancellation was requested", Meets.EARLY: "its time has not come"}


def render() -> str:
    return "\n".join([HEAD, "```mermaid", *_mermaid(), "```", "", *_states(), "", *_events(), "", *_landings(), ""])


def _mermaid() -> list[str]:
    lines = ["stateDiagram-v2", "    [*] --> queued: enqueue", "    [*] --> delayed: enqueue with delay or run-at"]
    for event, rule in TABLE.items():
        lines += [f"    {source} --> {target}: {event}" for source in rule.sources for target in rule.targets]
    return [*lines, "    completed --> [*]"]


def _states() -> list[str]:
    rows = [f"| {state} | {'history' if state in HISTORY else 'live'} | {MEANING[state]} |" for state in State]
    return ["## States", "", "| state | table | meaning |", "|---|---|---|", *rows]


def _events() -> list[str]:
    head = ["## Events", "", "| event | from | to | fenced | attempts | why |", "|---|---|---|---|---|---|"]
    return [*head, *(_event(event, rule) for event, rule in TABLE.items())]


def _landings() -> list[str]:
    head = ["## Where a move leads instead", "", "| event | if | it is |", "|---|---|---|"]
    rows = [
        f"| {event} | {MET[meets]} | {'left as it is' if (state,) == TABLE[event].sources else state} |"
        for (event, meets), state in INSTEAD.items()
    ]
    return [*head, *rows]


def _event(event: Event, rule: Rule) -> str:
    sources, targets = ", ".join(rule.sources), " or ".join(rule.targets)
    attempts = "" if rule.attempts is Attempts.KEEP else rule.attempts.value
    return f"| {event} | {sources} | {targets} | {'yes' if rule.fenced else ''} | {attempts} | {rule.why} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--check", type=Path)
    given = parser.parse_args()
    if given.write:
        given.write.write_text(render(), encoding="utf-8")
    if given.check and given.check.read_text(encoding="utf-8") != render():
        sys.stderr.write(f"{given.check} differs from kernel/machine.py; run ./dev docs\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
