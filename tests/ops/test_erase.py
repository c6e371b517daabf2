"""Erasing: nothing of a person is left anywhere, totals and seals stay right, and a crash is followed up."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from redrive.errors import InvalidInput, InvalidTransition, StoreError
from redrive.ids import new_id
from redrive.kernel.audit import AuditFilter
from redrive.kernel.commit import Commit, Target
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.joins import NewJoin
from redrive.kernel.machine import Event
from redrive.kernel.operation import Action, Operation, Status
from redrive.kernel.outcome import Completed
from redrive.kernel.ports.reads import get_task
from redrive.kernel.ports.store import CauseQuery, Store
from redrive.kernel.task import State
from redrive.ops import actions, approvals, audit, audit_chain, audit_verify, causes
from redrive.ops.allowance import UNRESTRICTED, Rule
from redrive.ops.audit_archive import Archive
from redrive.ops.audit_rows import ERASE_SUMMARY, PRUNE_SUMMARY
from redrive.ops.operations import drive, erase, lifecycle, plans, retry
from redrive.ops.operations.erase_subject import emptied
from redrive.stores.postgres.store import PostgresStore
from redrive_kit.conformance.harness import Harness, failing
from tests.conformance.harness_postgres import PostgresHarness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.objects import Objects, serving
from tests.ops.test_audit_chain import AT_ONCE

SCOPE, SECRET = "user:ann.smith", "ann-secret-4711"
DRIVERS: dict[int, Store] = {}


def table(harness: Harness, name: str) -> str:
    return f"redrive_{name}" if isinstance(harness, SqliteHarness) else f"redrive.{name}"


async def dump(harness: Harness) -> str:
    """Everything in the database, as text; after workers have folded what they fold within a second."""
    await harness.store.upkeep("fold")
    if isinstance(harness, SqliteHarness):
        names, each = "select name from sqlite_master where type = 'table'", "select * from {}"
    else:
        names, each = (
            "select relname::text from pg_class where relnamespace = 'redrive'::regnamespace and relkind = 'r'",
            "select x::text from redrive.{} x",
        )
    lines = []
    for (name,) in await harness.sql(names):
        lines += [f"{name} {row}" for row in await harness.sql(each.format(name))]
    return "\n".join(lines)


def quoting(text: str) -> list[str]:
    return [line for line in text.splitlines() if SECRET in line or SCOPE in line]


async def a_life(harness: Harness) -> dict[str, UUID]:
    """Tasks of a person in all states, with the secret in everything that they carry and say."""
    options: dict[str, Any] = {
        "scope": SCOPE,
        "trace_id": f"trace-{SECRET}",
        "group": f"group-{SECRET}",
        "payload": json.dumps({"mail": SECRET}),
        "max_attempts": 1,
    }
    made = {}
    claimed = await harness.running("DONE", idempotency_key=f"key-{SECRET}", **options)
    await harness.settle(claimed, Completed(json.dumps({"sent to": SECRET})))
    made["completed"] = claimed.id
    for name in ("failed", "given up", "retried"):
        claimed = await harness.running("A", idempotency_key=f"{name}-{SECRET}", **options)
        await harness.settle(claimed, failing(f"no such user {SECRET}"))
        made[name] = claimed.id
    await actions.retry(harness.store, [made["retried"]], actor="bob", reason=f"{SECRET} asked")
    await harness.settle(await harness.claim_one(), Completed(json.dumps(SECRET)))
    await actions.cancel(harness.store, [made["given up"]], actor="bob", reason=f"{SECRET} left")
    made["waiting"] = await harness.enqueue("A", **{**options, "queue": "later"})
    made["delayed"] = await harness.enqueue("A", **{**options, "queue": "later", "delay": 600.0})
    made["paused"] = await harness.enqueue("A", **{**options, "queue": "later"})
    await harness.operate(Event.PAUSE, made["paused"], reason=f"for {SCOPE}")
    await plans.make(harness.store, FailureFilter(scope=SCOPE), "bob")
    [cause, *_] = await harness.store.causes(CauseQuery(1))
    await causes.annotate(harness.store, cause.fingerprint, actor="bob", note=f"happens to {SCOPE} only")
    return made


async def others(harness: Harness) -> list[UUID]:
    claimed = await harness.running("A", scope="user:bob", max_attempts=1)
    await harness.settle(claimed, failing("boom of bob"))
    await actions.cancel(harness.store, [claimed.id], actor="cy", reason="of bob")
    return [claimed.id]


@asynccontextmanager
async def by_the_workers_role(harness: Harness, request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """On PostgreSQL ``carried_out`` has the rights of a worker, as in production, and not those of the owner."""
    if not isinstance(harness, PostgresHarness):
        yield
        return
    databases = request.getfixturevalue("databases")
    with databases.role("worker") as role:
        await harness.sql(f"select redrive.grant_worker('{role}')")
        name = urlsplit(harness.url).path.removeprefix("/")
        DRIVERS[id(harness)] = store = PostgresStore(databases.url(name, user=role), harness.features)
        yield
        del DRIVERS[id(harness)]
        await store.close()
        await harness.sql(f"drop owned by {role}")


def driver_of(harness: Harness) -> Store:
    """The store by which ``carried_out`` carries an erasure out."""
    return DRIVERS.get(id(harness), harness.store)


async def carried_out(harness: Harness, operation: Operation) -> Operation:
    for _ in range(1000):
        if await drive.step(driver_of(harness), operation.id, "w1") is None:
            break
    record = await harness.store.record("operation", operation.id)
    assert record is not None
    return Operation.of(record)


async def begun(harness: Harness, archive: Archive | None = None, **what: Any) -> Operation:
    given = {"scope": SCOPE, "task_id": None, **what}
    operation, _ = await erase.begin(
        harness.store,
        given["scope"],
        given["task_id"],
        actor="cy",
        reason="she asked for it",
        rule=UNRESTRICTED,
        archive=None if archive is None else str(archive),
    )
    return operation


async def test_nothing_is_left_anywhere(harness: Harness) -> None:
    made, bobs = await a_life(harness), await others(harness)
    await audit_chain.seal(harness.store, **AT_ONCE)
    assert SECRET in await dump(harness) and SCOPE in await dump(harness)
    previewed = await erase.preview(harness.store, SCOPE, None)
    assert previewed["live"] == 4 and previewed["finished"] == 3 and previewed["dead_letters"] == 3
    assert previewed["documents"] == 2 and previewed["attempts"] == 3 and previewed["audit"] == 4
    ended = await carried_out(harness, await begun(harness))
    await harness.store.upkeep("fold")
    left = await dump(harness)
    assert SECRET not in left and SCOPE not in left, [
        line for line in left.splitlines() if SECRET in line or SCOPE in line
    ]
    assert (ended.status, ended.note, ended.done) == (Status.COMPLETED, erase.NOT_COVERED, 7)
    assert (await harness.task(made["completed"])).scope == f"erased:{ended.id[-12:]}"
    states = {name: await harness.state(task_id) for name, task_id in made.items()}
    assert states == {
        "completed": State.COMPLETED,
        "retried": State.COMPLETED,
        **dict.fromkeys(("failed", "given up", "waiting", "delayed", "paused"), State.CANCELLED),
    }
    await harness.check_totals()
    found = await audit_verify.verify(harness.store)
    assert found.problems == [] and found.erased == 4, found
    [letter, *_] = (await harness.store.timeline(bobs[0])).dead_letters  # type: ignore[union-attr]
    assert (letter.scope, letter.error_message) == ("user:bob", "boom of bob")
    assert (await harness.audit(task_id=bobs[0]))[0].reason == "of bob"


async def test_what_was_erased_cannot_be_retried(harness: Harness) -> None:
    made = await a_life(harness)
    await carried_out(harness, await begun(harness))
    result = await actions.retry(harness.store, [made["failed"], made["given up"]], actor="bob")
    assert set(result.skipped.values()) == {"it is erased: what it carried is gone"}
    bulk = await retry.retry_matching(
        harness.store, FailureFilter(ids=(made["failed"],)), actor="bob", rule=UNRESTRICTED
    )
    assert bulk.skipped == {made["failed"]: "it is erased, not failed or cancelled"}
    assert await harness.store.failed_ids(FailureFilter(kind="A"), limit=10, cancelled=True) == []
    assert await harness.state(made["failed"]) is State.CANCELLED
    assert (await harness.task(made["failed"])).erased_at is not None


async def test_a_key_that_names_another_task_by_now_stays(harness: Harness) -> None:
    done = await harness.running("A", idempotency_key="order-17", scope=SCOPE)
    await harness.advance(31 * 86_400)
    await harness.settle(done, Completed())
    await harness.store.upkeep("prune")
    options: dict[str, Any] = {"idempotency_key": "order-17", "scope": "user:bob"}
    bobs = await harness.enqueue("A", **options)
    assert bobs != done.id
    await carried_out(harness, await begun(harness))
    assert await harness.enqueue("A", **options) == bobs


async def test_a_key_goes_also_when_its_task_is_gone(harness: Harness) -> None:
    claimed = await harness.running("A", idempotency_key=f"key-{SECRET}", scope=SCOPE, max_attempts=1)
    await harness.settle(claimed, failing("boom"))
    other = await harness.enqueue("A", idempotency_key="key of bob")
    await actions.cancel(harness.store, [claimed.id], actor="bob")
    await harness.sql(f"delete from {table(harness, 'history')}")
    assert SECRET in await dump(harness)
    ended = await carried_out(harness, await begun(harness))
    assert ended.erased["keys"] == 1 and SECRET not in await dump(harness)
    assert await harness.enqueue("A", idempotency_key="key of bob") == other


@pytest.mark.parametrize(("by", "folded"), [("scope", True), ("task", False)])
async def test_what_a_cause_quotes_goes_when_nothing_else_is_left(harness: Harness, by: str, folded: bool) -> None:
    claimed = await harness.running("A", scope=SCOPE, max_attempts=1)
    await harness.settle(claimed, failing(f"no mailbox for {SECRET}"))
    await actions.cancel(harness.store, [claimed.id], actor="bob")
    other = await harness.running("B", scope="user:bob", max_attempts=1)
    await harness.settle(other, failing("bob is out"))
    if folded:
        await harness.store.upkeep("fold")
    for name in ("history", "attempt", "dead_letter"):
        await harness.sql(f"delete from {table(harness, name)}")
    scope, task_id = (SCOPE, None) if by == "scope" else (None, claimed.id)
    assert await erase.preview(harness.store, scope, task_id) == {"causes": 1, "audit": 1}
    ended = await carried_out(harness, await begun(harness, scope=scope, task_id=task_id))
    assert ended.note == erase.NOT_COVERED and ended.erased["causes"] == 1
    assert quoting(await dump(harness)) == []
    assert sorted(cause.message for cause in await harness.store.causes(CauseQuery(10))) == ["bob is out", "erased"]
    assert [cause.count for cause in await harness.store.causes(CauseQuery(10))] == [1, 1]


async def test_a_pause_named_after_the_person_goes(harness: Harness) -> None:
    await harness.enqueue("A", scope=SCOPE, group=SCOPE)
    await harness.hold(Target.GROUP, SCOPE)
    await actions.hold(harness.store, "queue", "mail", actor="bob", reason=f"floods {SCOPE}")
    await harness.tick()
    await audit_chain.seal(harness.store, **AT_ONCE)
    assert (await erase.preview(harness.store, SCOPE, None))["holds"] == 2
    ended = await carried_out(harness, await begun(harness))
    assert ended.note == erase.NOT_COVERED and ended.erased["holds"] == 2
    assert quoting(await dump(harness)) == []
    [hold] = (await harness.store.overview()).holds
    assert (hold.target, hold.name, hold.reason) == ("queue", "mail", "erased"), "that pause itself stays"
    assert (await audit_verify.verify(harness.store)).problems == []


async def test_a_pause_stays_while_it_keeps_tasks_of_others(harness: Harness) -> None:
    """To let them run is not for an erasure to decide."""
    bobs = await harness.enqueue("A", scope="user:bob", group=SCOPE)
    await harness.enqueue("A", scope=SCOPE, group=SCOPE)
    await harness.hold(Target.GROUP, SCOPE)
    ended = await carried_out(harness, await begun(harness))
    assert ended.note is not None and "1 pauses, of groups with tasks of others" in ended.note
    assert await harness.claim(5) == []
    await actions.cancel(harness.store, [bobs], actor="bob")
    ended = await carried_out(harness, await begun(harness))
    assert ended.note == erase.NOT_COVERED and (await harness.store.overview()).holds == []


@pytest.mark.parametrize("scope", ["erased", "erased:0123456789ab"])
async def test_what_is_erased_is_not_erased_again(harness: Harness, scope: str) -> None:
    """Others could not be told from it, and it would never end."""
    for what in (
        erase.preview(harness.store, scope, None),
        erase.begin(harness.store, scope, None, actor="cy", rule=Rule(1000)),
    ):
        with pytest.raises(InvalidInput, match="stands for data that is erased already"):
            await what


async def test_one_task(harness: Harness) -> None:
    made = await a_life(harness)
    ended = await carried_out(harness, await begun(harness, scope=None, task_id=made["failed"]))
    assert ended.status is Status.COMPLETED and ended.done == 1
    timeline = await harness.store.timeline(made["failed"])
    assert timeline is not None and SECRET not in str(timeline)
    assert SECRET in str(await harness.store.timeline(made["given up"]))
    await harness.check_totals()


async def test_the_audit_log_counts_and_does_not_repeat(harness: Harness) -> None:
    await a_life(harness)
    operation, approval = await erase.begin(
        harness.store, SCOPE, None, actor="cy", rule=Rule(1000), reason="she asked for it"
    )
    assert approval is not None and approval.body["filter"] == {"scope": SCOPE}, "the second person sees whom"
    with pytest.raises(Exception, match="cannot approve"):
        await approvals.approve(harness.store, approval.id, actor="Cy")
    assert await drive.step(harness.store, operation.id, "w1") is None, "it waits"
    await approvals.approve(harness.store, approval.id, actor="dee")
    ended = await carried_out(harness, operation)
    rows = await harness.store.audit(AuditFilter(bulk_id=operation.id), limit=100)
    assert {row.action for row in rows} >= {"APPROVAL_REQUEST", "OPERATION_START", ERASE_SUMMARY}
    assert SCOPE not in str(rows) and SECRET not in str(rows)
    assert ended.erased["tasks"] == 7 and ended.erased["dead_letters"] == 3 and ended.erased["given_up"] == 4
    assert quoting(await dump(harness)) == []


async def test_running_tasks_are_in_the_way_and_others_are_told(harness: Harness) -> None:
    claimed = await harness.running("A", scope=SCOPE)
    with pytest.raises(InvalidTransition, match="1 of these tasks run now"):
        await begun(harness)
    await harness.settle(claimed, Completed())
    operation = await begun(harness)
    await drive.step(harness.store, operation.id, "w1")
    late = await harness.running("A", scope=SCOPE)
    ended = await carried_out(harness, operation)
    assert ended.note is not None and "1 running" in ended.note and "erase again" in ended.note
    assert SCOPE not in ended.note
    assert (await harness.task(late.id)).scope == SCOPE


async def test_refused(harness: Harness) -> None:
    with pytest.raises(InvalidInput, match="one scope, or one task"):
        await erase.begin(harness.store, None, None, actor="cy", rule=Rule(1000))
    with pytest.raises(InvalidInput, match="the reason names what is to be erased"):
        await erase.begin(harness.store, SCOPE, None, actor="cy", rule=Rule(1000), reason=f"{SCOPE} wrote to us")
    await erase.begin(harness.store, SCOPE, None, actor="cy", rule=Rule(1000))
    with pytest.raises(InvalidTransition, match="is about the same scope"):
        await erase.begin(harness.store, SCOPE, None, actor="cy", rule=Rule(1000))


async def pruned_by(harness: Harness, **which: str) -> None:
    await audit.prune(harness.store, AuditFilter(**which), older_than_days=0, actor="cy")  # type: ignore[arg-type]


async def test_what_a_prune_was_asked_for_goes(harness: Harness) -> None:
    """Scope and trace ids in its filter; the hashes that it left, which prove the seals of what it took, stay."""
    await a_life(harness)
    await others(harness)
    await audit_chain.seal(harness.store, **AT_ONCE)
    await plans.make(harness.store, FailureFilter(trace_id=f"trace-{SECRET}"), "bob")
    await pruned_by(harness, trace_id=f"trace-{SECRET}", action="TASK_RETRY")
    await pruned_by(harness, scope=SCOPE, action="TASK_PAUSE")
    await pruned_by(harness, scope="user:bob")
    previewed = await erase.preview(harness.store, SCOPE, None)
    assert previewed["audit"] == 1 + 1 + 2 and previewed["documents"] == 3, "a task, a note, two prunes"
    ended = await carried_out(harness, await begun(harness))
    assert ended.erased["audit"] == previewed["audit"]
    left = await dump(harness)
    assert ended.note == erase.NOT_COVERED and quoting(left) == [] and "user:bob" in left
    rows = await harness.audit(action=PRUNE_SUMMARY)
    assert [row.before and row.before["filter"].get("scope") for row in rows] == ["user:bob", None, None]
    assert [row.after["removed"] for row in rows] == [1, 1, 1]
    found = await audit_verify.verify(harness.store)
    assert found.problems == [] and found.pruned == 3
    await harness.sql(
        f"update {table(harness, 'audit')} set before = null, salt = null, erased = '{'0' * 64}'"
        f" where id = {rows[0].id}"
    )
    problems = (await audit_verify.verify(harness.store)).problems
    assert any(f"rows {rows[0].id} were emptied, and no sealed erasure says so" in problem for problem in problems)


async def test_prunes_alone_know_of_it(harness: Harness) -> None:
    task_id = await harness.enqueue("A", scope=SCOPE)
    await actions.cancel(harness.store, [task_id], actor="bob")
    await pruned_by(harness, scope=SCOPE)
    await harness.sql(f"delete from {table(harness, 'history')}")
    assert await erase.preview(harness.store, SCOPE, None) == {"audit": 1}
    await carried_out(harness, await begun(harness))
    assert quoting(await dump(harness)) == []


# -- the archive -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving(tmp_path_factory.mktemp("objects")) as found:
        yield found


@pytest.fixture(params=["folder", "bucket"])
def archive(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    if request.param == "folder":
        return Archive(str(tmp_path / "archive"))
    found: Objects = request.getfixturevalue("objects")
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    return Archive(found.bucket() + "/audit")


async def archived_life(harness: Harness, archive: Archive) -> None:
    await a_life(harness)
    await others(harness)
    await audit_chain.seal(harness.store, **AT_ONCE)
    await audit.prune(harness.store, older_than_days=0, actor="cy", piece=3, archive=archive)
    assert SCOPE in str(list(archive.read()))


def archived(archive: Archive) -> str:
    return "".join(str(row) for row in archive.read())


async def test_the_archive_is_rewritten_and_stays_proven(harness: Harness, archive: Archive) -> None:
    await archived_life(harness, archive)
    before = archive.names()
    assert (await erase.preview(harness.store, SCOPE, None, str(archive)))["archive"] >= 3
    ended = await carried_out(harness, await begun(harness, archive))
    assert ended.erased["archive"] >= 3 and len(archive.names()) == len(before) and archive.names() != before
    assert SCOPE not in archived(archive) and SECRET not in archived(archive) and "of bob" in archived(archive)
    found = await audit_verify.verify(harness.store, archive)
    assert found.problems == [] and found.erased >= 3
    # Also when the row that tells of it is in the archive itself.
    await audit_chain.seal(harness.store, **AT_ONCE)
    await audit.prune(harness.store, older_than_days=0, actor="cy", archive=archive)
    assert (await audit_verify.verify(harness.store, archive)).problems == []


async def test_emptied_by_somebody_else_is_tampering(harness: Harness, tmp_path: Path) -> None:
    archive = Archive(str(tmp_path / "archive"))
    await archived_life(harness, archive)
    [name, *_] = archive.names()
    rows = archive.rows(name)
    archive.remove(name)
    archive.write([emptied(rows[0]), *rows[1:]])
    problems = (await audit_verify.verify(harness.store, archive)).problems
    assert any("were emptied, and no sealed erasure says so" in problem for problem in problems)
    assert any(f"{name} is missing from the archive" in problem for problem in problems)


def _die(*_: Any, **__: Any) -> Any:
    raise StoreError("the worker was killed here")


async def test_a_crash_in_the_archive_is_followed(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(str(tmp_path / "archive"))
    await archived_life(harness, archive)
    operation = await begun(harness, archive)
    with monkeypatch.context() as patched:
        patched.setattr(Archive, "write", _die)
        with pytest.raises(StoreError, match="killed here"):
            await carried_out(harness, operation)
    ended = await carried_out(harness, operation)
    assert ended.status is Status.COMPLETED and SCOPE not in archived(archive)
    assert (await audit_verify.verify(harness.store, archive)).problems == []


async def test_what_is_done_again_after_crashes_counts_once(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(str(tmp_path / "archive"))
    await archived_life(harness, archive)
    previewed = (await erase.preview(harness.store, SCOPE, None, str(archive)))["archive"]
    operation = await begun(harness, archive)
    for _ in range(3):
        with monkeypatch.context() as patched:
            patched.setattr(Archive, "remove", _die)
            with pytest.raises(StoreError, match="killed here"):
                await carried_out(harness, operation)
    problems = (await audit_verify.verify(harness.store, archive)).problems
    assert any("is in the archive still, although it was erased" in problem for problem in problems)
    ended = await carried_out(harness, operation)
    assert ended.erased["archive"] == previewed and SCOPE not in archived(archive)
    assert (await audit_verify.verify(harness.store, archive)).problems == []


@pytest.mark.parametrize("steps", [1, 3, 5])
async def test_it_goes_on_where_it_was(harness: Harness, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erase, "TASKS_PER_PIECE", 2)
    await a_life(harness)
    operation = await begun(harness)
    for _ in range(steps):
        await drive.step(harness.store, operation.id, "w1")
    await harness.advance(10)  # the other is gone
    for _ in range(1000):
        if await drive.step(harness.store, operation.id, "w2") is None:
            break
    left = await dump(harness)
    assert quoting(left) == []
    await harness.check_totals()


async def test_what_a_join_would_enqueue_for_the_person_goes(harness: Harness) -> None:
    theirs, bobs = harness.new("AFTER", scope=SCOPE, payload=json.dumps(SECRET)), harness.new("AFTER", scope="bob")
    join = NewJoin(new_id(), on_complete=theirs, on_success=bobs)
    member = harness.new(join=join.id)
    await harness.store.apply(Commit(joins=[join], enqueues=[member]))
    await carried_out(harness, await begun(harness))
    await harness.settle(await harness.claim_one(), Completed())
    assert [task.scope for task in await harness.claim(5)] == ["bob"]
    assert await get_task(harness.store, theirs.id) is None


async def test_what_was_said_about_the_persons_tasks_goes(harness: Harness) -> None:
    await a_life(harness)
    said: dict[str, Any] = {"actor": "bob", "reason": f"{SECRET} called", "rule": UNRESTRICTED}
    about, _ = await lifecycle.begin(harness.store, Action.RETRY, FailureFilter(scope=SCOPE), **said)
    said["reason"] = "the server is back"
    other, _ = await lifecycle.begin(harness.store, Action.RETRY, FailureFilter(kind="A"), **said)
    await carried_out(harness, about)
    await carried_out(harness, other)
    await harness.advance(60)
    while claimed := await harness.claim(10):
        for task in claimed:
            await harness.settle(task, Completed())
    await carried_out(harness, await begun(harness))
    records = {record.id: record.body for record in await harness.store.records("operation")}
    assert records[about.id]["reason"] == "erased" and records[other.id]["reason"] == "the server is back"
    assert SECRET not in json.dumps(list(records.values()))


async def test_a_request_that_quotes_the_person_is_withdrawn(harness: Harness) -> None:
    """Asked for after the erasure was begun; its words are not changed under whoever decides, it ends with them."""
    await a_life(harness)
    erasure = await begun(harness)
    waiting, request = await lifecycle.begin(
        harness.store, Action.FORGET, actor="bob", reason=f"as {SCOPE} said", rule=Rule(0)
    )
    assert waiting.status is Status.WAITING and request is not None
    done = await carried_out(harness, erasure)
    assert done.erased["requests_withdrawn"] == 1
    after = await approvals.show(harness.store, request.id)
    assert (after.state, after.body["decided_by"]) == (approvals.WITHDRAWN, "redrive")
    assert SCOPE not in json.dumps(after.body) and after.body["decision_reason"] == erase.OUT_OF_DATE
    ended = await lifecycle.show(harness.store, waiting.id)
    assert (ended.status, ended.note) == (Status.CANCELLED, erase.OUT_OF_DATE)
    with pytest.raises(InvalidTransition, match="is withdrawn"):
        await approvals.approve(harness.store, request.id, actor="cy")


async def all_documents(harness: Harness) -> list[tuple[str, Any]]:
    return [
        (record.id, record.body)
        for name in erase.QUOTING_COLLECTIONS
        for record in await harness.store.records(name, limit=100)
    ]


async def audit_of_others(harness: Harness, scope: str) -> list[Any]:
    rows = await harness.store.audit(AuditFilter(), limit=500)
    return [row for row in rows if row.scope != scope and row.action != ERASE_SUMMARY]


@pytest.mark.parametrize("scope", ["retry", "state", "bob"])
async def test_a_scope_that_is_a_word_of_redrives_own(harness: Harness, scope: str) -> None:
    """Any producer chooses scopes: nothing of others is emptied or broken, and the preview has said what went."""
    await others(harness)
    claimed = await harness.running("A", scope="user:bob", max_attempts=1)
    await harness.settle(claimed, failing("boom"))
    [cause, *_] = await harness.store.causes(CauseQuery(1))
    await causes.annotate(harness.store, cause.fingerprint, actor="bob", note="call the bank")
    await actions.hold(harness.store, "queue", "mail", actor="bob", reason="it is down")
    plan = await plans.make(harness.store, FailureFilter(kind="A"), "bob", cancelled=True)
    said: dict[str, Any] = {"actor": "bob", "reason": "mended the bucket"}
    asked, _ = await lifecycle.begin(harness.store, Action.RETRY, FailureFilter(kind="A"), rule=Rule(0), **said)
    begun_by_bob, _ = await lifecycle.begin(harness.store, Action.RETRY, rule=UNRESTRICTED, plan=plan.token, **said)
    await carried_out(harness, begun_by_bob)
    for task in await harness.claim(10):
        await harness.settle(task, Completed())
    done = await harness.running("OK", scope=scope)
    await harness.settle(done, Completed())
    await actions.retry(harness.store, [done.id], actor="bob", reason="again")

    documents, rows = await all_documents(harness), await audit_of_others(harness, scope)
    previewed = await erase.preview(harness.store, scope, None)
    ended = await carried_out(harness, await begun(harness, scope=scope))
    assert {name: n for name, n in previewed.items() if name != "finished"} == {
        name: n for name, n in ended.erased.items() if name != "tasks"
    }
    assert ended.status is Status.COMPLETED and ended.erased["tasks"] == previewed["finished"] == 1
    mine = {ended.id}
    assert [one for one in await all_documents(harness) if one[0] not in mine] == documents
    after = {row.id: row for row in await audit_of_others(harness, scope)}
    assert [after[row.id] for row in rows] == rows
    assert {one.id for one in await lifecycle.list_operations(harness.store)} == {begun_by_bob.id, asked.id, ended.id}


async def test_a_short_scope_leaves_the_request_for_its_erasure(harness: Harness) -> None:
    done = await harness.running("OK", scope="ann")
    await harness.settle(done, Completed())
    operation, record = await erase.begin(harness.store, "ann", None, actor="cy", reason="she asked", rule=Rule(0))
    assert record is not None and "scope ann" in record.body["needed"]
    await approvals.approve(harness.store, record.id, actor="bob", reason="right")
    await carried_out(harness, operation)
    body = (await approvals.show(harness.store, record.id)).body
    assert "ann" not in json.dumps({**body, "needed": body["needed"].replace("personal", "")})
    assert body["action"] == "erase" and body["decision"] == "approved"


async def test_an_id_that_runs_again_does_not_keep_it_from_ending(harness: Harness) -> None:
    done = await harness.running("A", scope=SCOPE)
    await harness.settle(done, Completed())
    operation = await begun(harness)
    again = await harness.running("A", id=done.id, scope="user:bob")
    ended = await carried_out(harness, operation)
    assert ended.status is Status.COMPLETED and "1 finished" in str(ended.note)
    assert await harness.settle(again, Completed())
