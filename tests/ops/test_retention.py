"""Nothing is kept for ever by accident: every table and every collection has a keep, or a reason."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive.kernel.failure_filter import FailedRef, FailureFilter
from redrive.kernel.machine import Event
from redrive.kernel.retention import Retention
from redrive.kernel.task import State
from redrive.ops import access
from redrive.ops.duties import duties_of
from redrive.ops.operations.selection import matching
from redrive.ops.retention import FAILED_SUMMARY, KEPT_FOR_GOOD, give_up_failed, retention_of
from redrive.settings import Settings, fields_of
from redrive_kit.conformance.harness import TERMINAL, Harness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.ops.making import fail

DAY = 86_400
SOURCES = Path(redrive.__file__).parent
# By table: what removes its rows, or why they stay. A new table needs a line here, and one in docs/settings.md.
TABLES = {
    "task": "failed ones after REDRIVE_FAILED_DAYS, if that is set; all others end",
    "history": "REDRIVE_HISTORY_DAYS",
    "attempt": "REDRIVE_ATTEMPT_DAYS",
    "dead_letter": "REDRIVE_DEAD_LETTER_DAYS",
    "failure_group": "REDRIVE_CAUSE_DAYS",
    "failure_hour": "REDRIVE_TREND_DAYS",
    "failure_delta": "folded within seconds",
    "total": "a row for each queue and kind, which are names in code",
    "total_delta": "folded within seconds",
    "failed_total": "rows of what nobody is any more go at once",
    "failed_sum": "rows of what nobody is any more go at once",
    "failed_delta": "folded within seconds",
    "idempotency_key": "REDRIVE_KEY_DAYS",
    "join": "REDRIVE_HISTORY_DAYS after its end, and as long as a member is live",
    "task_join": "the same on PostgreSQL",
    "join_delta": "folded within seconds",
    "kind": "a row for each kind, which are names in code",
    "circuit": "a row for each circuit, which are names in code",
    "hold": "until it is resumed",
    "resuming": "until its tasks are back",
    "schedule": "as long as an application declares it",
    "series": "REDRIVE_SERIES_MINUTE_HOURS, REDRIVE_SERIES_HOUR_DAYS, REDRIVE_SERIES_DAY_DAYS",
    "series_sheet": "added up within a minute",
    "series_lock": "empty: only locked",
    "worker": "a day after it was seen last",
    "duty": "a row for each duty",
    "clock": "one row",
    "pruned": "a row for each sort of thing that is pruned",
    "audit": "TASK_AUDIT_LOG_TTL_DAYS",
    "record": "by collection, below",
    "probe": "of a feature that the conformance suite brings along",
    "account": "money",
    "posting": "money",
    "entry": "money",
    "migration": "a row for each step of the schema",
    "function_set": "a row for each set of functions",
    "reserved_kind": "a row for each beginning of kinds that a feature has to itself",
    "position": "one row",
    "failed_seq": "one row",
    "retry_total": "with the operation that retried them",
    "retry_delta": "folded within seconds",
    "used_name": "a day after its last task, as far as nobody declares it",
    "name_allowance": "ten rows for each role that only enqueues, as long as there is that role",
    "known_name": "a row for each name that is declared or routed",
    "name_bound": "one row",
    "name_lock": "empty: only locked",
    "claim_lock": "empty: only locked",
    "move_lock": "empty: only locked",
    "fold_lock": "empty: only locked",
    "partition_lock": "empty: only locked",
}

# Of features, which ops does not name: why what they write down stays.
KEPT_BY_FEATURES = {
    "outbox_job": "two for each projection, which are names in code",
    "batch_places": "one, once an item has waited for a place",
    "outbox_index": "one for each projection, which are names in code",
}


async def test_every_table_has_a_keep_or_a_reason(harness: Harness) -> None:
    if isinstance(harness, SqliteHarness):
        found = await harness.sql("select name from sqlite_master where type = 'table' and name like 'redrive_%'")
    else:
        found = await harness.sql(
            "select relname from pg_class where relnamespace = 'redrive'::regnamespace and relkind in ('r', 'p')"
            " and relname !~ '^history_'"
        )
    names = {name.removeprefix("redrive_") for (name,) in found}
    assert names - TABLES.keys() == set(), "say how long their rows are kept"
    documented = (SOURCES.parents[1] / "docs" / "settings.md").read_text(encoding="utf-8")
    for keep in TABLES.values():
        for setting in re.findall(r"[A-Z]+_[A-Z_]+DAYS", keep):
            assert f"`{setting}`" in documented


def test_every_collection_has_a_keep_or_a_reason() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py") if "testing" not in path.parts)
    names = set(re.findall(r'^\w*COLLECTION\w* = "([\w-]+)"', text, re.MULTILINE))
    assert {"operation", "token", "audit-seal"} <= names
    assert set(re.findall(r'Put\(\s*"([\w-]+)"', text)) <= names, "a collection is named by a constant"
    rules = retention_of(Settings()).records or {}
    assert names - rules.keys() - KEPT_FOR_GOOD.keys() - KEPT_BY_FEATURES.keys() == set(), (
        "say how long they are kept, in ops/retention.py"
    )


def test_settings_reach_the_stores() -> None:
    """Each its own: with one number for all, two that are mixed up would not be seen."""
    names = [name for name in fields_of(Settings) if name.endswith("_days") and name != "plan_days"]
    days = {name: 11.0 + nth for nth, name in enumerate(names)} | {"plan_days": 0.5}
    kept = retention_of(Settings(**days))
    for name in ("history", "key", "attempt", "dead_letter", "cause", "noted_cause", "trend"):
        assert getattr(kept, f"{name}_days") == days[f"{name}_days"], name
    told = {
        "operation": "operation",
        "approval": "operation",
        "plan": "plan",
        "drill": "drill",
        "vitals": "growth",
        "token": "revoked_token",
    }
    rules = kept.records or {}
    assert {name: rule.days for name, rule in rules.items()} == {
        name: days[f"{setting}_days"] for name, setting in told.items()
    }
    assert {one["collection"]: one["days"] for one in kept.values()["records"]} == {
        name: rule.days for name, rule in rules.items()
    }


async def test_failed_tasks_are_given_up_only_when_asked_for(harness: Harness) -> None:
    old = await fail(harness, 5, kind="A") + await fail(harness, 2, kind="B")
    await harness.advance(20 * DAY)
    young = await fail(harness, 3, kind="A")
    assert "failed" not in {duty.name for duty in duties_of(Settings())}
    assert await give_up_failed(harness.store, 10) == 7
    assert [await harness.state(task_id) for task_id in old] == [State.CANCELLED] * 7
    assert [await harness.state(task_id) for task_id in young] == [State.FAILED] * 3
    assert (await matching(harness.store, FailureFilter())).total == 3, "a retry of all brings none of them back"
    assert (await matching(harness.store, FailureFilter(forgotten=True))).total == 10
    rows = await harness.audit(action=FAILED_SUMMARY)
    assert {(row.kind, row.after["given_up"], row.actor) for row in rows} == {
        ("A", 5, "redrive:retention"),
        ("B", 2, "redrive:retention"),
    }
    assert await harness.audit(task_id=old[0]) == [], "one row a piece, not one a task"
    await harness.check_totals()
    timeline = await harness.store.timeline(old[0])
    assert timeline is not None and len(timeline.dead_letters) == len(timeline.attempts) == 1
    assert await give_up_failed(harness.store, 10) == 0


async def test_failed_tasks_in_pieces(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.ops.retention.TASKS_PER_PIECE", 4)
    await fail(harness, 11)
    await harness.advance(20 * DAY)
    await fail(harness, 1)
    assert await give_up_failed(harness.store, 10) == 11
    assert [row.after["given_up"] for row in await harness.audit(action=FAILED_SUMMARY)] == [3, 4, 4]
    assert await harness.store.count_failed(FailureFilter()) == 1


@pytest.mark.parametrize("days", [0, 20], ids=["young", "old"])
async def test_what_leaves_meanwhile_takes_no_young_ones_with_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """One of them is retried, and another fails again, after retention has looked and before it acts."""
    ids = await fail(harness, 6)
    await harness.advance(days * DAY)
    young = await fail(harness, 2)
    look = harness.store.failed_ids

    async def looked(*args: Any, **options: Any) -> list[FailedRef]:
        monkeypatch.undo()
        found = await look(*args, **options)
        await harness.operate(Event.REDRIVE, ids[2])
        assert await harness.settle(await harness.claim_one(), TERMINAL)
        await harness.operate(Event.REDRIVE, ids[4])
        return found

    monkeypatch.setattr(harness.store, "failed_ids", looked)
    given_up = [] if days == 0 else [ids[0], ids[1], ids[3], ids[5]]
    assert await give_up_failed(harness.store, 10) == len(given_up)
    states = {task_id: await harness.state(task_id) for task_id in [*ids, *young]}
    assert [task_id for task_id, state in states.items() if state is State.CANCELLED] == given_up
    assert states[ids[2]] is State.FAILED and states[ids[4]] is State.QUEUED
    await harness.check_totals()


async def test_the_last_token_stays_revoked_or_not(harness: Harness) -> None:
    """Without any token the API would be open to everyone."""
    for name in ("ann", "bob"):
        made = await access.create(harness.store, name, access.Role.ADMIN, actor="root")
        await access.revoke(harness.store, made.record.id, actor="root")
    keep = retention_of(Settings(revoked_token_days=5.0))
    await harness.advance(6 * DAY)
    await harness.store.upkeep("prune", keep)
    assert len(await harness.store.records(access.COLLECTION)) == 1


async def test_defaults_are_those_of_the_settings() -> None:
    kept = retention_of(Settings())
    assert Retention(records=kept.records) == kept
    assert timedelta(days=kept.dead_letter_days) >= timedelta(days=kept.history_days)
