"""Erasing: a marker in every column and every collection that can hold text is gone, or kept on purpose."""

from __future__ import annotations

import ast
import dataclasses
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, TypeGuard
from uuid import UUID

import asyncpg
import pytest

import redrive
from redrive.kernel.approved import Request
from redrive.kernel.circuit import SetCircuit
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action, Canary
from redrive.kernel.reads import CauseQuery
from redrive.kernel.records import Put
from redrive.ops import actions, approvals, causes, drill
from redrive.ops.alerts.look import silence
from redrive.ops.allowance import Rule
from redrive.ops.operations import erase, lifecycle
from redrive.ops.operations.erase_subject import LABELS as LABEL_FIELDS
from redrive.ops.operations.erase_subject import WRITTEN
from redrive.ops.operations.lifecycle import How
from redrive_kit.conformance.harness import Harness, failing
from tests.conformance.harness_sqlite import SqliteHarness
from tests.ops.conftest import opened
from tests.ops.test_erase import SCOPE, SECRET, a_life, begun, by_the_workers_role, carried_out, table

WORD = f"of {SCOPE} itself"
NAMES = "the application's own names of kinds, queues and schedules"
CODES = "codes and causes, made of the programmer's words"
LATER = "a task to come, erased by its own scope: see test_erase"
WHO = "who acted, or which process"
LABELS = {
    "kind": NAMES,
    "queue": NAMES,
    "lane": NAMES,
    "worker_id": WHO,
    "actor": WHO,
    "lease_token": "an id",
    "join_id": "an id",
    "code": CODES,
    "reason": CODES,
    "failure_type": CODES,
    "fingerprint": CODES,
    "alias": CODES,
    "build": NAMES,
}
# What stays, by table and column, and why. A new column is erased, or has its reason here.
KEPT: dict[str, dict[str, str]] = {
    "history": LABELS,
    "attempt": LABELS,
    "dead_letter": LABELS | {"error_code": CODES, "error_reason": CODES, "error_fingerprint": CODES},
    "failure_group": LABELS,
    "failure_delta": LABELS,
    "failure_hour": LABELS,
    "retry_total": {"bulk_id": "an id", "outcome": CODES, "cause": CODES},
    "retry_delta": {"bulk_id": "an id", "outcome": CODES, "cause": CODES},
    "audit": {"actor": WHO, "action": CODES, "kind": NAMES, "bulk_id": "an id"},
    "record": {"id": "an id, or the name of who acts", "state": CODES},
    "hold": {"actor": WHO, "name": NAMES, "target": NAMES},
    "kind": LABELS | {"circuit": NAMES},
    "circuit": {
        **dict.fromkeys(("name", "kinds"), NAMES),
        "actor": WHO,
        **dict.fromkeys(("probe", "token"), "an id"),
    },
    "schedule": dict.fromkeys(("name", "owner", "kind", "cron", "timezone", "missed", "queue", "payload"), NAMES),
    "worker": dict.fromkeys(("id", "host", "queues", "version", "build", "sheet_id", "drain_by", "machine"), WHO),
    "duty": {"name": NAMES},
    "known_name": dict.fromkeys(("name", "what"), NAMES),
    "used_name": {"declared_by": "a database role", **dict.fromkeys(("kind", "queue"), NAMES)},
    "name_allowance": {"role": "a database role"},
    "reserved_kind": dict.fromkeys(("begins", "feature"), NAMES),
    "clock": {"boot": "an id"},
    "series": LABELS | {"document": "numbers", "resolution": CODES},
    "series_sheet": {"document": "numbers, by kind and queue"},
    "migration": dict.fromkeys(("feature", "name", "digest", "sha256", "version"), "about the schema"),
    "join": {"id": "an id", "on_complete": LATER, "on_success": LATER, "fault": CODES},
    "task_join": {"on_complete": LATER, "on_success": LATER, "fault": CODES},
    "pruned": {"name": NAMES, "tie": "a place", "key": "a place"},
    "resuming": {"task_group": "gone with the next ticks"},
    "account": {"name": "the application's books, which have their own keep"},
    "posting": {"key": "the application's books", "note": "the application's books"},
    "entry": {"posting": "the application's books", "account": "the application's books"},
}
# By these rows are found: a marker there would hide the row, not test it.
STRUCTURE = {
    ("task", "feature"),
    ("history", "feature"),
    ("history", "state"),
    ("audit", "erased"),
    ("migration", "feature"),
    ("migration", "digest"),
    ("function_set", "feature"),
    ("record", "collection"),
    ("record", "body"),
}
# Counted by the store from what tasks say: nothing is written there, but nothing may be left there either.
COUNTED = {"total", "total_delta", "failed_total", "failed_sum", "failed_delta"}
# Of live tasks, what those counts are made of.
COUNTED_BY = {
    *("kind", "queue", "lane", "task_group", "error_code", "error_reason", "failure_type", "dead_reason"),
    *("error_fingerprint", "state", "idempotency_key"),
}
# Collections that do not quote people, and why.
QUIET = {
    "outbox_job": "names of projections and of their indexes, ids",
    "outbox_index": "names of projections, and what an index calls itself",
    "access": "empty",
    "batch_places": "empty",
    "token": "names of those who act",
    "session": "names of those who act, for a day",
    "alone": "numbers, by who acts",
    "vitals": "numbers",
    "stray-handler": "ids, kinds and workers, for a day",
    "unhandled-kind": "kinds and workers, for minutes",
    "blocked-loop": "ids, kinds, workers and places in the program, for a day",
    "audit-seal": "hashes",
    "audit-prune": "empty",
}
COLUMNS = """
select c.table_name::text, c.column_name::text from information_schema.columns c
join pg_class t on t.relname = c.table_name and t.relnamespace = 'redrive'::regnamespace
where c.table_schema = 'redrive' and t.relkind in ('r', 'p') and not t.relispartition
  and c.data_type not in ('uuid', 'integer', 'bigint', 'smallint', 'boolean', 'double precision', 'real', 'numeric')
  and c.data_type !~ '^(timestamp|time|date|interval)'
"""


@pytest.fixture(params=["sqlite", "postgres"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    async with opened(request.param, request, tmp_path) as made, by_the_workers_role(made, request):
        yield made


def collections() -> set[str]:
    """Every collection that a document is written into, by looking at each ``Put`` of the sources."""
    sources, names = Path(redrive.__file__).parent, set[str]()
    for path in sources.rglob("*.py"):
        written = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if _puts(node)]
        if not written or "testing" in path.parts:
            continue
        module = import_module(".".join(("redrive", *path.relative_to(sources).with_suffix("").parts)))
        for node in written:
            text = ast.unparse(node.args[0])
            if text != "record.collection":  # the document that was read is written again
                names.add(eval(text, vars(module)))
    return names


def _puts(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Put"


async def texts(harness: Harness) -> set[tuple[str, str]]:
    """Every column that is no number, time or truth, by table and name."""
    if not isinstance(harness, SqliteHarness):
        return {(row[0], row[1]) for row in await harness.sql(COLUMNS)}
    names = await harness.sql("select name from sqlite_master where type = 'table' and name like 'redrive_%'")
    return {
        (name.removeprefix("redrive_"), column[1])
        for (name,) in names
        for column in await harness.sql(f"pragma table_info({name})")
        if column[2].lower() not in ("integer", "real")
    }


async def plant(harness: Harness, name: str, column: str) -> bool:
    """Into all rows, each its own, as text that is a document as well; False where no such text fits."""
    other = "hex(randomblob(8))" if isinstance(harness, SqliteHarness) else "gen_random_uuid()"
    made = f"""'"{WORD} ' || {other} || '"'"""
    for value in (made, f"({made})::jsonb", f"array[{made}]"):
        with suppress(sqlite3.Error, asyncpg.PostgresError):  # a check, a type, a reference: this form does not fit
            await harness.sql(f"update {table(harness, name)} set {column} = {value}")
            return True
    return False


async def identifiers(harness: Harness, name: str, column: str) -> bool:
    found = await harness.sql(f"select {column} from {table(harness, name)} where {column} is not null")
    try:
        return bool(found) and all(UUID(str(row[0])) for row in found)
    except ValueError:
        return False


async def found(harness: Harness) -> set[tuple[str, str]]:
    """Columns in which the person is named."""
    sql = "select 1 from {} where cast({} as text) like '%{}%' or cast({} as text) like '%{}%' limit 1"
    return {
        (name, column)
        for name, column in await texts(harness)
        if await harness.sql(sql.format(table(harness, name), column, SCOPE, column, SECRET))
    }


async def a_full_house(harness: Harness) -> None:
    """Rows of the person wherever there can be some: causes both added up and not yet, a pause that names somebody."""
    await a_life(harness)
    await harness.store.upkeep("fold")
    claimed = await harness.running("A", scope=SCOPE, max_attempts=1)
    await harness.settle(claimed, failing(f"no such user {SECRET}"))
    await what_operators_say(harness)


async def what_operators_say(harness: Harness) -> None:
    said, now = f"floods {SCOPE}", await harness.store.now()
    await actions.hold(harness.store, "queue", "mail", actor="bob", reason=said)
    await silence(harness.store, "dead_letters", "", now + timedelta(days=1), actor="bob", reason=said)
    await harness.beat("w9")
    assert await actions.drain(harness.store, ["w9"], actor="bob", reason=said) == (["w9"], [])
    await harness.store.apply(Commit(controls=[SetCircuit("mail", 0, ("MAIL",), True, 60.0, said, "bob")]))


async def test_every_column(harness: Harness) -> None:
    await a_full_house(harness)
    there = await found(harness)
    assert {("task", "scope"), ("history", "idempotency_key"), ("audit", "reason")} <= there
    kept = {(name, column) for name, columns in KEPT.items() for column in columns}
    for name, column in sorted(await texts(harness) - STRUCTURE - there):
        if name in COUNTED or (name == "task" and column in COUNTED_BY) or await identifiers(harness, name, column):
            continue
        if await plant(harness, name, column):
            full = await harness.sql(f"select 1 from {table(harness, name)} limit 1")
            assert full or (name, column) in kept, f"nothing to erase in {name}: have a row in this test, or say why"
    await carried_out(harness, await begun(harness))
    await harness.store.upkeep("fold")
    assert sorted(await found(harness) - kept) == [], "erase it, or say above why it stays"
    assert await found(harness), "it would be found"


async def test_every_collection(harness: Harness) -> None:
    names = collections()
    assert set(erase.QUOTING_COLLECTIONS) | QUIET.keys() == names and not set(erase.QUOTING_COLLECTIONS) & QUIET.keys()
    for name in erase.QUOTING_COLLECTIONS:
        body = {
            **dict.fromkeys(WRITTEN, WORD),
            "filter": dict.fromkeys(LABEL_FIELDS, SCOPE),
            "steps": [{"detail": WORD}],
        }
        await harness.store.apply(Commit(puts=[Put(name, "x", body, state="completed")]))
    assert (await erase.preview(harness.store, SCOPE, None))["documents"] == len(erase.QUOTING_COLLECTIONS)
    await carried_out(harness, await begun(harness))
    bodies = await harness.sql(f"select cast(body as text) from {table(harness, 'record')}")
    assert SCOPE not in json.dumps([row[0] for row in bodies])


async def test_what_the_work_of_a_feature_has_found(harness: Harness) -> None:
    """Keys of entities, under names of the feature's own."""
    work = {
        "feature": "outbox",
        "subject": "projection notes",
        "state": {"place": SCOPE, "seen": [{"key": SCOPE}]},
        "result": {"stale": 1, "stale_keys": [SCOPE, "note:of-another"], "refused": [f"{SCOPE}: too long"]},
    }
    await harness.store.apply(Commit(puts=[Put(erase.OPERATIONS, "x", {"work": work}, state="completed")]))
    assert (await erase.preview(harness.store, SCOPE, None))["documents"] == 1
    await carried_out(harness, await begun(harness))
    [record] = [one for one in await harness.store.records(erase.OPERATIONS, limit=10) if one.id == "x"]
    assert SCOPE not in json.dumps(record.body)
    assert record.body["work"]["result"]["stale_keys"][1] == "note:of-another"
    assert record.body["work"]["subject"] == "projection notes"


# Fields of documents that an erasure neither looks at nor changes: redrive's own words, numbers, ids, who acted.
REDRIVES_OWN = {
    *("action", "phase", "place", "which", "actor", "total", "upto", "cursor", "done", "skipped", "rate", "canary"),
    "stop_on_return",
    *("fingerprints", "plan", "approval", "archive", "erased", "letters", "cancelled", "given_up_until", "idempotent"),
    "forgotten",
    "join",  # of a filter: an id
    *("feature", "arguments", "page"),  # of an action of a feature that is asked for: names, ids and numbers
    "more",  # of a plan: its number is a lower bound
    *("rule", "by", "at"),  # of a silence
    *("last_piece", "driver", "operation", "filter", "requested_by", "decided_by", "decision", "count"),
    *("since", "then", "until"),
    *("listed", "muted_until", "resolved_at", "resolved_by", "operator", "task_id", "conclusion", "steps"),
    *("name", "ok"),
    *("seconds", "kind", "queue", "error_code", "error_reason", "failure_type", "dead_reason", "fingerprint"),
    "bulk_id",
    *("ids", "first", "percent", "full", "passed"),
}


def fields(value: Any) -> set[str]:
    """Every name in a document."""
    if isinstance(value, list):
        return {name for item in value for name in fields(item)}
    if isinstance(value, dict):
        return {*value, *(name for item in value.values() for name in fields(item))}
    return set()


async def test_every_field_of_a_document_is_looked_at_or_not_on_purpose(harness: Harness) -> None:
    await a_life(harness)
    [cause, *_] = await harness.store.causes(CauseQuery(1))
    now = (await harness.store.overview()).now
    said: dict[str, Any] = {"note": "n", "owner": "o", "muted_until": now + timedelta(days=1), "resolved": True}
    await causes.annotate(harness.store, cause.fingerprint, actor="bob", **said)
    _, record = await lifecycle.begin(
        harness.store, Action.RETRY, FailureFilter(kind="A"), actor="bob", rule=Rule(0), how=How(canary=Canary(1))
    )
    assert record is not None
    await approvals.reject(harness.store, record.id, actor="cy", reason="no")
    await approvals.ask_for(harness.store, "bob", Request("ledger", "adjust", {}, 1, "title", "told"), "why", "much")
    await what_operators_say(harness)
    await drill._write_down(harness.store, drill.Drill("d1", "bob", steps=[drill.Step("look", True, "seen", 0.1)]))
    await begun(harness)
    found = {field.name for field in dataclasses.fields(FailureFilter)}
    for name in erase.QUOTING_COLLECTIONS:
        bodies = [record.body for record in await harness.store.records(name, limit=100)]
        assert bodies, name
        found |= fields(bodies)
    assert found == REDRIVES_OWN | WRITTEN | LABEL_FIELDS, "text or label: erase_subject.py; else above"
