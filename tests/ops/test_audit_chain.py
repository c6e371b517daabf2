"""The audit log's chain: what was tampered with shows, what was pruned on purpose does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import StoreError
from redrive.kernel.audit import Audit, AuditFilter
from redrive.kernel.commit import Commit
from redrive.ops import audit, audit_chain, audit_verify
from redrive.ops.audit_archive import Archive
from redrive.ops.audit_rows import PRUNE_SUMMARY
from redrive_kit.conformance.harness import Harness
from tests.conformance.harness_sqlite import SqliteHarness

AT_ONCE: dict[str, Any] = {"lag": -timedelta(seconds=1), "patience": timedelta(0)}


@pytest.fixture
async def timed(tmp_path: Path) -> AsyncIterator[SqliteHarness]:
    """Where time passes without the rows being touched; on PostgreSQL the tests shift them, which is tampering."""
    made = SqliteHarness(tmp_path / "redrive.db")
    await made.store.open()
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_chain, "ROWS_PER_SEAL", 4)


def table(harness: Harness, name: str) -> str:
    return f"redrive_{name}" if isinstance(harness, SqliteHarness) else f"redrive.{name}"


async def write(harness: Harness, count: int, actor: str = "ann") -> None:
    for number in range(count):
        row = Audit(actor, "NOTE", f"reason {number}", before={"n": number, "ü": [1.5, None]}, after={"b": 1, "a": 2})
        await harness.store.apply(Commit(audits=[row]))


async def insert_ahead(harness: Harness) -> None:
    """A row of the year 2999."""
    columns = f"insert into {table(harness, 'audit')} (at, actor, action)"
    at = "32472144000000000" if isinstance(harness, SqliteHarness) else "'2999-01-01 00:00:00+00'"
    await harness.sql(f"{columns} values ({at}, 'ann', 'NOTE')")


async def sealed(harness: Harness, count: int = 10) -> None:
    await write(harness, count)
    assert await audit_chain.seal(harness.store, **AT_ONCE) == count


async def problems(harness: Harness, *archived: Archive) -> list[str]:
    return (await audit_verify.verify(harness.store, *archived)).problems


async def test_all_is_well(harness: Harness) -> None:
    await sealed(harness, 10)
    await write(harness, 2)
    found = await audit_verify.verify(harness.store)
    assert (found.problems, found.seals, found.rows, found.unsealed) == ([], 3, 10, 2)
    assert (await audit_verify.verify(harness.store, head=found.head)).problems == []
    await audit_chain.seal(harness.store, **AT_ONCE)
    assert (await audit_verify.verify(harness.store, head=found.head)).problems == []
    assert (await audit_verify.verify(harness.store)).head != found.head


async def test_a_row_whose_time_lies_ahead_holds_nothing_up(harness: Harness) -> None:
    await sealed(harness, 3)
    await insert_ahead(harness)
    await insert_ahead(harness)
    assert await audit_chain.seal(harness.store) == 0, "nothing behind it says that no other row is on its way"
    await write(harness, 2)
    assert await audit_chain.seal(harness.store, lag=timedelta(0), patience=timedelta(0)) == 4
    found = await audit_verify.verify(harness.store)
    assert (found.problems, found.rows, found.unsealed) == ([], 7, 0)
    for _ in range(audit_chain.ROWS_PER_SEAL):
        await insert_ahead(harness)
    assert await audit_chain.seal(harness.store) == audit_chain.ROWS_PER_SEAL, "a whole stretch of them is sealed"


async def test_rows_that_should_have_been_sealed_are_told(timed: SqliteHarness) -> None:
    await write(timed, 2)
    store = timed.store
    assert (await audit_verify.verify(store)).unsealed_since is None
    assert await audit_chain.unsealed_since(store, await store.now()) is None
    [first, _] = await store.audit(AuditFilter(), limit=2, after=0)
    await timed.advance(601)
    assert (await audit_verify.verify(store)).unsealed_since == first.at
    assert await audit_chain.unsealed_since(store, await store.now()) == first.at


async def test_young_rows_wait(timed: SqliteHarness) -> None:
    await write(timed, 3)
    await timed.advance(59)
    await write(timed, 4)
    assert await audit_chain.seal(timed.store) == 0
    await timed.advance(2)
    assert await audit_chain.seal(timed.store) == 0, "fewer than a stretch wait for more"
    await timed.advance(60)
    assert await audit_chain.seal(timed.store) == 4
    await timed.advance(240)
    assert await audit_chain.seal(timed.store) == 3
    assert await audit_chain.seal(timed.store) == 0


async def test_a_row_slipped_in_between_two_seals(harness: Harness) -> None:
    """Numbers have gaps: a transaction that was rolled back has used its number up."""
    await write(harness, 5)
    await harness.sql(f"delete from {table(harness, 'audit')} where id = 5")  # as if it had been rolled back
    await write(harness, 3)
    await audit_chain.seal(harness.store, **AT_ONCE)
    assert await problems(harness) == []
    columns = "id, at, actor, action"
    await harness.sql(
        f"insert into {table(harness, 'audit')} ({columns})"
        + ("" if isinstance(harness, SqliteHarness) else " overriding system value")
        + f" select 5, at, 'eve', 'APPROVAL_APPROVE' from {table(harness, 'audit')} where id = 4"
    )
    assert await problems(harness) == ["rows 5 were slipped in: they are not part of seal 2"]


async def test_a_prune_while_it_looks(timed: SqliteHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    await sealed(timed, 8)
    await timed.advance(86_400 * 40)
    plain = audit_verify._Verifier._present

    async def meanwhile(self: Any, *args: Any) -> Any:
        await audit.retain(timed.store, 30, 500, lambda: False)
        return await plain(self, *args)

    monkeypatch.setattr(audit_verify._Verifier, "_present", meanwhile)
    assert await problems(timed) == []


async def test_summaries_go_with_everything_and_not_by_a_filter(timed: SqliteHarness) -> None:
    await write(timed, 3, "bob")
    await write(timed, 5)
    await audit_chain.seal(timed.store, **AT_ONCE)
    await timed.advance(86_400 * 5)
    await audit.prune(timed.store, AuditFilter(actor="bob"), older_than_days=1, actor="cy")
    await timed.advance(86_400 * 5)
    for which in (AuditFilter(action=PRUNE_SUMMARY), AuditFilter(actor="cy")):
        assert (await audit.prune(timed.store, which, older_than_days=1, actor="cy")).removed == 0
    assert await problems(timed) == []
    assert (await audit.prune(timed.store, older_than_days=1, actor="cy")).removed == 6
    assert await problems(timed) == []


async def test_a_prune_of_a_stretch_of_time_is_no_tampering(timed: SqliteHarness) -> None:
    begin = await timed.store.now()
    await write(timed, 3)
    await timed.advance(3600)
    await write(timed, 2)
    await audit_chain.seal(timed.store, **AT_ONCE)
    await timed.advance(86_400 * 5)
    first = AuditFilter(since=begin, until=begin + timedelta(minutes=30))
    assert (await audit.prune(timed.store, first, older_than_days=1, actor="cy")).removed == 3
    found = await audit_verify.verify(timed.store)
    assert (found.problems, found.pruned, found.rows) == ([], 3, 2)


async def test_what_was_pruned_is_no_tampering(timed: SqliteHarness) -> None:
    await write(timed, 3, "bob")
    await write(timed, 5)
    await audit_chain.seal(timed.store, **AT_ONCE)
    await timed.advance(86_400 * 5)
    await audit.prune(timed.store, AuditFilter(actor="bob"), older_than_days=1, actor="cy", piece=2)
    found = await audit_verify.verify(timed.store)
    assert (found.problems, found.pruned, found.rows) == ([], 3, 5)
    await timed.sql(f"update {table(timed, 'audit')} set reason = 'x' where id = 5")
    assert await problems(timed) == ["rows 5-8 are not what was sealed: at least one was changed"]


async def test_retention_for_a_long_time(timed: SqliteHarness, tmp_path: Path) -> None:
    """Everything goes in its time, the summaries too; the chain still holds, and the archive proves it."""
    archive = Archive(str(tmp_path / "archive"))
    for _ in range(4):
        await write(timed, 5)
        await timed.advance(86_400 * 20)
        await audit_chain.seal(timed.store)
        await audit.retain(timed.store, 30, 3, lambda: False, archive)
    found = await audit_verify.verify(timed.store)
    assert found.problems == [] and found.pruned > 10
    assert (await audit_verify.verify(timed.store, archive)).problems == []
    notes = list(archive.read(AuditFilter(action="NOTE")))
    assert len(notes) == 15 and notes == sorted(notes, key=lambda row: row.id)
    assert [row.reason for row in archive.read(AuditFilter(actor="ann"))][:2] == ["reason 0", "reason 1"]


async def test_a_row_changed_before_it_was_archived(timed: SqliteHarness, tmp_path: Path) -> None:
    await sealed(timed, 8)
    await timed.sql(f"update {table(timed, 'audit')} set reason = 'x' where id = 2")
    await timed.advance(86_400 * 40)
    archive = Archive(str(tmp_path))
    await audit.retain(timed.store, 30, 500, lambda: False, archive)
    assert "rows 1-4 are not what was sealed" in (await problems(timed, archive))[0]


async def test_an_archive_that_cannot_be_written_keeps_everything(timed: SqliteHarness, tmp_path: Path) -> None:
    await write(timed, 3)
    await timed.advance(86_400 * 40)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="nothing was removed"):
        await audit.retain(timed.store, 30, 500, lambda: False, Archive(str(tmp_path / "file" / "below")))
    assert len(await timed.audit()) == 3


async def test_what_was_pruned_before_it_was_sealed_counts_as_pruned(timed: SqliteHarness) -> None:
    await write(timed, 3)
    await timed.advance(86_400 * 5)
    await audit.prune(timed.store, AuditFilter(), older_than_days=1, actor="cy")
    found = await audit_verify.verify(timed.store)
    assert (found.problems, found.pruned, found.pruned_unsealed) == ([], 0, 3)
    assert [removal.rows for removal in found.removals] == [3]
