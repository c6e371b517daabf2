"""The audit archive: in a folder and in a bucket, whole, found again, and never the reason that a row is lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.errors import ConfigError, StoreError
from redrive.kernel.audit import AuditFilter
from redrive.kernel.task import AuditRow
from redrive.ops import audit, audit_chain, audit_verify
from redrive.ops.audit_archive import Archive
from tests.conformance.harness_sqlite import SqliteHarness
from tests.objects import Objects, serving
from tests.ops.test_audit_chain import AT_ONCE, write

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def row(number: int, actor: str = "ann") -> AuditRow:
    return AuditRow(
        number,
        NOW + timedelta(seconds=number),
        actor,
        "NOTE",
        f"reason {number}",
        None,
        None,
        None,
        {"n": number},
        {"ü": "\u2028"},
        "A",
        salt="00",
    )


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Objects]:
    with serving(tmp_path_factory.mktemp("objects")) as found:
        yield found


@pytest.fixture
def bucket(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new bucket."""
    for name, value in objects.environment.items():
        monkeypatch.setenv(name, value)
    return objects.bucket()


@pytest.fixture(params=["folder", "bucket", "below"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "archive")
    return str(request.getfixturevalue("bucket")) + ("/audit/2026" if request.param == "below" else "")


def test_written_and_found_again(address: str) -> None:
    archive = Archive(address)
    archive.write([row(1), row(2), row(3, "bob")])
    archive.write([row(4), row(5)])
    assert list(Archive(address).read()) == [row(1), row(2), row(3, "bob"), row(4), row(5)]
    assert [found.id for found in archive.read(AuditFilter(actor="bob"))] == [3]
    assert [found.id for found in archive.read(AuditFilter(older_than=row(3).at))] == [1, 2]
    assert [found.id for found in archive.read(AuditFilter(since=row(2).at, until=row(3).at))] == [2]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.integers(1, 40), min_size=1), max_size=8))
def test_any_pieces(tmp_path_factory: pytest.TempPathFactory, pieces: list[set[int]]) -> None:
    archive = Archive(str(tmp_path_factory.mktemp("archive")))
    for piece in pieces:
        archive.write([row(number) for number in sorted(piece)])
    assert [found.id for found in archive.read()] == sorted(set().union(*pieces))


async def test_a_log_that_went_into_a_bucket(bucket: str, tmp_path: Path) -> None:
    harness = SqliteHarness(tmp_path / "redrive.db")
    await harness.store.open()
    archive = Archive(f"{bucket}/audit/2026")
    await write(harness, 4, "bob")
    await write(harness, 6)
    await write(harness, 2, "bob")
    await audit_chain.seal(harness.store, **AT_ONCE)
    await harness.advance(86_400 * 40)
    await audit.prune(harness.store, AuditFilter(actor="bob"), older_than_days=30, actor="cy", piece=5, archive=archive)
    await audit.retain(harness.store, 30, 5, lambda: False, archive)
    assert len([found for found in archive.read() if found.action == "NOTE"]) == 12
    verdict = await audit_verify.verify(harness.store, archive)
    assert (verdict.problems, verdict.pruned) == ([], 12)
    await harness.close()


async def test_nothing_is_removed_when_the_storage_is_gone(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = SqliteHarness(tmp_path / "redrive.db")
    await harness.store.open()
    await write(harness, 3)
    await harness.advance(86_400 * 40)
    with pytest.raises(StoreError, match="cannot be written: NoSuchBucket: ") as nowhere:
        await audit.retain(harness.store, 30, 500, lambda: False, Archive("s3://not-there"))
    assert "nothing was removed" in str(nowhere.value.hint)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreError, match="SignatureDoesNotMatch"):
        await audit.retain(harness.store, 30, 500, lambda: False, Archive(bucket))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="cannot be written"):
        await audit.retain(harness.store, 30, 500, lambda: False, Archive(bucket))
    assert len(await harness.audit()) == 3
    await harness.close()


def test_two_stores_in_one_place(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    archive.write([row(1), row(2)])
    archive.write([row(1, "other"), row(2)])
    assert sorted((found.id, found.actor) for found in archive.read()) == [(1, "ann"), (1, "other"), (2, "ann")]


def test_two_who_write_one_piece_at_once(tmp_path: Path) -> None:
    """Neither sees the other's draft."""
    archive = Archive(str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        names = {piece.name for piece in pool.map(lambda _: archive.write([row(n) for n in range(1, 50)]), range(200))}
    assert len(names) == 1 and [path.name for path in tmp_path.iterdir()] == [*names]
    assert len(list(archive.read())) == 49


def test_it_is_for_its_owner_and_failures_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, before = Archive(str(tmp_path)), os.umask(0o022)
    try:
        name = archive.write([row(1)]).name
    finally:
        os.umask(before)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        archive.write([row(2)])
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_places_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no archive"):
        list(Archive(str(tmp_path / "nowhere")).read())
    with pytest.raises(ConfigError, match="no place"):
        Archive("gs://bucket")
    with pytest.raises(ConfigError, match="no bucket"):
        Archive("s3://")
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(ConfigError, match="needs the package obstore") as missing:
        Archive("s3://bucket")
    assert "[s3]" in str(missing.value.hint)
