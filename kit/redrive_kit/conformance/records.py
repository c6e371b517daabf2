"""Documents, changed only by whoever saw the last version; audit rows, found by what they are about."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redrive.errors import ChangedMeanwhile
from redrive.kernel.audit import Audit, AuditFilter
from redrive.kernel.commit import Commit, Limit
from redrive.kernel.machine import Event
from redrive.kernel.records import Put, Record
from redrive.kernel.task import State
from redrive_kit.conformance.harness import Harness, operator_move


async def put(harness: Harness, record_id: str = "p1", body: dict[str, object] | None = None, **how: object) -> None:
    await harness.store.apply(Commit(puts=[Put("plan", record_id, body or {"n": 1}, **how)]))  # type: ignore[arg-type]


async def record_of(harness: Harness, record_id: str) -> Record | None:
    found = await harness.store.records("plan", ids=[record_id])
    if harness.reads:
        assert await harness.store.record("plan", record_id) == (found[0] if found else None)
    return found[0] if found else None


class TestRecords:
    async def test_written_and_read(self, harness: Harness) -> None:
        assert await record_of(harness, "p1") is None
        await put(harness, body={"text": "ü\n'\"", "list": [1, None, {"a": 2.5}]}, state="open")
        record = await record_of(harness, "p1")
        assert record is not None
        assert (record.id, record.state, record.version) == ("p1", "open", 1)
        assert record.body == {"text": "ü\n'\"", "list": [1, None, {"a": 2.5}]}
        await put(harness, version=1, state="done", body={"n": 2})
        record = await record_of(harness, "p1")
        assert record is not None
        assert (record.state, record.version, record.body) == ("done", 2, {"n": 2})
        assert record.created_at <= record.updated_at

    async def test_whoever_comes_second_changes_nothing_at_all(self, harness: Harness) -> None:
        await put(harness)
        failed = await harness.failed()
        for version in (0, 7):
            late = Commit(
                transitions=[operator_move(Event.REDRIVE, failed)],
                audits=[Audit("ann", "NOTE")],
                puts=[Put("plan", "new", {}), Put("plan", "p1", {"n": 3}, version)],
            )
            with pytest.raises(ChangedMeanwhile, match="plan p1"):
                await harness.store.apply(late)
        assert await harness.state(failed) is State.FAILED
        assert await harness.audit() == []
        assert await record_of(harness, "new") is None
        record = await record_of(harness, "p1")
        assert record is not None and record.body == {"n": 1}

    async def test_lists(self, harness: Harness) -> None:
        for number in range(5):
            await put(harness, f"p{number}", state="open" if number % 2 else "done")
        await harness.store.apply(Commit(puts=[Put("other", "p1", {})]))

        async def names(**how: object) -> list[str]:
            return [record.id for record in await harness.store.records("plan", **how)]  # type: ignore[arg-type]

        assert await names() == ["p4", "p3", "p2", "p1", "p0"]
        assert await names(states=("open",)) == ["p3", "p1"]
        assert await names(states=("open", "done"), limit=2) == ["p4", "p3"]
        assert await names(ids=["p0", "p3", "x"]) == ["p3", "p0"]
        assert await names(ids=[]) == []
        third = await record_of(harness, "p2")
        assert third is not None
        assert await names(before=third.seq) == ["p1", "p0"]

    async def test_past_its_keep_it_goes(self, harness: Harness) -> None:
        await put(harness, "short", keep=60)
        await put(harness, "long")
        await harness.store.upkeep("prune")
        assert len(await harness.store.records("plan")) == 2
        await harness.advance(61)
        await harness.store.upkeep("prune")
        assert [record.id for record in await harness.store.records("plan")] == ["long"]


class TestAudit:
    async def test_found_by_what_it_is_about(self, harness: Harness) -> None:
        first = await harness.failed("A", scope="s1", trace_id="t1")
        second = await harness.failed("B", scope="s2")
        await harness.operate(Event.REDRIVE, first)
        await harness.operate(Event.CANCEL, second, actor="bob")
        await harness.control(Limit("A", 3, None, "ann"))
        about = [Audit("cy", "NOTE", "why", first, "b1"), Audit("cy", "NOTE", None, second, target="queue:x")]
        await harness.store.apply(Commit(audits=about))
        everything = await harness.audit()
        assert len(everything) == 5
        for name, value, wanted in (
            ("action", "NOTE", 2),
            ("actor", "bob", 1),
            ("bulk_id", "b1", 1),
            ("target", "queue:x", 1),
            ("task_id", first, 2),
            ("kind", "A", 3),
            ("kind", "B", 2),
            ("scope", "s1", 2),
            ("trace_id", "t1", 2),
            ("scope", "'; --", 0),
        ):
            which: dict[str, Any] = {name: value}
            rows = await harness.audit(**which)
            assert len(rows) == wanted, (name, value)
            assert [row.id for row in rows] == [row.id for row in everything if getattr(row, name) == value]
            assert await harness.store.count_audit(AuditFilter(**which)) == wanted
        assert [row.target for row in await harness.audit(action="NOTE")] == ["queue:x", None]

    async def test_pages_and_cursors(self, harness: Harness) -> None:
        for number in range(5):
            await harness.store.apply(Commit(audits=[Audit("ann", "NOTE", str(number))]))

        async def reasons(**how: int) -> list[str | None]:
            return [row.reason for row in await harness.store.audit(AuditFilter(actor="ann"), limit=2, **how)]

        ids = [row.id for row in await harness.audit()]
        assert await reasons() == ["4", "3"]
        assert await reasons(offset=4) == ["0"]
        assert await reasons(before=ids[1]) == ["2", "1"]
        assert await reasons(after=ids[4]) == ["1", "2"]
        assert await reasons(after=0) == ["0", "1"]

    async def test_rows_of_a_stretch_of_time(self, harness: Harness) -> None:
        for number in range(3):
            await harness.store.apply(Commit(audits=[Audit("ann", "NOTE", str(number))]))
            await harness.advance(3600)
        times = [row.at for row in await harness.audit()][::-1]

        async def reasons(**how: int) -> list[str | None]:
            return [row.reason for row in await harness.store.audit(which, limit=10, **how)]

        which = AuditFilter(since=times[1])
        assert await reasons() == ["2", "1"] and await harness.store.count_audit(which) == 2
        which = AuditFilter(until=times[1])
        assert await reasons() == ["0"]
        which = AuditFilter(actor="ann", since=times[0], until=times[2])
        assert await reasons() == ["1", "0"] and await reasons(after=0) == ["0", "1"]
        which = AuditFilter(actor="bob", since=times[0])
        assert await reasons() == []

    async def test_past_its_keep_it_can_go(self, harness: Harness) -> None:
        for number in range(3):
            await harness.store.apply(Commit(audits=[Audit("ann", "NOTE", str(number))]))
        await harness.advance(86400 * 2)
        await harness.store.apply(Commit(audits=[Audit("ann", "NOTE", "new")]))
        old = AuditFilter(older_than=await harness.store.now() - timedelta(days=1))
        rows = await harness.store.audit(old, limit=10, after=0)
        assert [row.reason for row in rows] == ["0", "1", "2"]
        assert await harness.store.count_audit(old) == 3
        summary = Audit("ann", "TASK_AUDIT_PRUNE_SUMMARY")
        await harness.store.apply(Commit(pruned=[row.id for row in rows[:2]], audits=[summary]))
        assert [row.reason for row in await harness.audit()] == [None, "new", "2"]
