"""Erasing: the files of SQLite do not hold it either, neither in free space nor in the log."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.outcome import Completed
from redrive.ops import actions, audit_chain
from redrive.ops.operations import drive, erase, plans
from redrive_kit.conformance.harness import Harness, failing
from tests.conformance.harness_sqlite import SqliteHarness
from tests.ops.conftest import opened
from tests.ops.test_audit_chain import AT_ONCE
from tests.ops.test_erase import SCOPE, SECRET, a_life, begun, carried_out, others


@pytest.fixture
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    async with opened("sqlite", request, tmp_path) as made:
        yield made


def files(harness: Harness) -> Iterator[Path]:
    assert isinstance(harness, SqliteHarness)
    yield from sorted(harness.path.parent.glob(f"{harness.path.name}*"))


def holding(harness: Harness) -> list[str]:
    """Files with the secret or the scope anywhere in their bytes."""
    return [path.name for path in files(harness) if any(text.encode() in path.read_bytes() for text in (SCOPE, SECRET))]


async def a_long_life(harness: Harness) -> None:
    """With payloads of many pages, rows that moved, and others in between, whose pages are split by later ones."""
    for number in range(40):
        await harness.enqueue("B", scope="user:bob", queue="later", payload=f'"{number} {"b" * (number * 90)}"')
        claimed = await harness.running("A", scope=SCOPE, payload=f'"{SECRET * 700}"')
        await harness.settle(claimed, Completed(f'"{SECRET * 300}"') if number % 2 else failing(SECRET * 50))
    await a_life(harness)
    await others(harness)
    await plans.make(harness.store, FailureFilter(scope=SCOPE), "bob")
    await audit_chain.seal(harness.store, **AT_ONCE)


async def test_no_byte_of_it_is_left(harness: Harness) -> None:
    await a_long_life(harness)
    assert holding(harness)
    ended = await carried_out(harness, await begun(harness))
    assert ended.note == erase.NOT_COVERED
    assert holding(harness) == []


async def test_the_log_is_emptied_later_when_somebody_reads(harness: Harness) -> None:
    await a_life(harness)
    assert isinstance(harness, SqliteHarness)
    with closing(sqlite3.connect(harness.path, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from redrive_task").fetchone()
        ended = await carried_out(harness, await begun(harness))
        assert ended.note == f"{erase.NOT_COVERED}; {erase.STILL_IN_THE_LOG}"
        assert [name for name in holding(harness) if name.endswith("-wal")]
        reader.execute("rollback")
    await harness.store.upkeep("prune")
    assert holding(harness) == []


async def test_what_was_deleted_before_is_not_in_free_space(harness: Harness) -> None:
    """Whether this SQLite was built so, or not."""
    assert isinstance(harness, SqliteHarness)
    assert await harness.store.read(lambda session: session.rows("pragma secure_delete")) == [(1,)]  # type: ignore[attr-defined]
    task_id = await harness.enqueue("A", scope=SCOPE, payload=f'"{SECRET * 2000}"')
    await actions.cancel(harness.store, [task_id], actor="bob")
    operation = await begun(harness, scope=None, task_id=task_id)
    while await drive.step(harness.store, operation.id, "w") is not None:
        pass
    assert not any(SECRET.encode() in path.read_bytes() for path in files(harness))
