"""What somebody with the database's and the archive's passwords may try, and what verify says to it.

Each attack comes with what is said of it; ``None``: it cannot be seen in the store alone, but by a head that was
written down before.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from redrive.kernel.audit import Audit, AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.records import Put
from redrive.ops import audit, audit_chain, audit_verify
from redrive.ops.audit_archive import Archive
from redrive.ops.audit_rows import PRUNE_SUMMARY, archived_values, content_digest, row_hash
from redrive_kit.conformance.harness import Harness
from tests.ops.conftest import opened
from tests.ops.test_audit_chain import AT_ONCE, write


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_chain, "ROWS_PER_SEAL", 4)


@dataclass
class Scene:
    """Ten rows, three seals; then rows 1 to 4 pruned into the archive, and sealed again."""

    harness: Harness
    archive: Archive
    folder: Path
    head: str = ""

    async def sql(self, text: str) -> list[tuple[Any, ...]]:
        return await self.harness.sql(text.format(audit="redrive_audit", record="redrive_record"))

    async def verdict(self, head: str | None = None) -> audit_verify.Verdict:
        return await audit_verify.verify(self.harness.store, self.archive, head)

    async def seal(self) -> None:
        await audit_chain.seal(self.harness.store, **AT_ONCE)

    async def insert(self, number: int, action: str, after: Any, actor: str = "eve") -> None:
        """A row by SQL, under a number of the attacker's choice."""
        document = json.dumps(after).replace("{", "{{").replace("}", "}}")
        await self.sql(
            "insert into {audit} (id, at, actor, action, after) values"
            f" ({number}, (select max(at) from {{audit}}), '{actor}', '{action}', '{document}')"
        )

    def piece(self) -> Path:
        [found] = self.folder.iterdir()
        return found

    def forge(self, lines: list[dict[str, Any]]) -> None:
        """A piece as the archive would write it."""
        text = "".join(json.dumps(line) + "\n" for line in lines)
        self.plant(gzip.compress(text.encode(), mtime=0), lines[0]["id"], lines[-1]["id"])

    def plant(self, data: bytes, first: int, last: int) -> None:
        mark = hashlib.sha256(data).hexdigest()[:12]
        (self.folder / f"audit-{first:012d}-{last:012d}-{mark}.jsonl.gz").write_bytes(data)


@pytest.fixture
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened("sqlite", request, tmp_path) as harness:
        folder = tmp_path / "archive"
        made = Scene(harness, Archive(str(folder)), folder)
        await write(harness, 4, "old")
        await write(harness, 6)
        await made.seal()
        await audit.prune(harness.store, AuditFilter(actor="old"), older_than_days=0, actor="ann", archive=made.archive)
        await made.seal()
        verdict = await made.verdict()
        assert (verdict.problems, verdict.pruned, verdict.archived, verdict.rows) == ([], 4, 4, 7)
        made.head = verdict.head
        yield made


Attack = Callable[[Scene], Awaitable[None]]


async def row_emptied_as_if_erased(scene: Scene) -> None:
    [row] = await scene.harness.store.audit(AuditFilter(), limit=1, after=5)
    await scene.sql(
        f"update {{audit}} set salt = null, erased = '{content_digest(row)}', reason = null, before = null,"
        " after = null where id = 6"
    )


async def row_refilled_after_emptying(scene: Scene) -> None:
    await row_emptied_as_if_erased(scene)
    await scene.sql("update {audit} set reason = 'what I like better' where id = 6")


async def deleted_with_an_unsealed_summary(scene: Scene) -> None:
    rows = await scene.harness.store.audit(AuditFilter(), limit=2, after=6)
    await scene.sql("delete from {audit} where id in (7, 8)")
    await scene.insert(
        50,
        PRUNE_SUMMARY,
        {
            "ids": "7-8",
            "removed": 2,
            "everything": True,
            "hashes": [row_hash(row) for row in rows],
            "piece": None,
            "youngest": rows[-1].at.isoformat(),
            "older_than": rows[-1].at.isoformat(),
        },
        actor=audit.RETENTION_ACTOR,
    )


async def deleted_with_a_summary_that_the_workers_sealed(scene: Scene) -> None:
    """Workers seal what they find: a forged row among it. That does not make it a prune."""
    await deleted_with_an_unsealed_summary(scene)
    await scene.seal()


async def everything_through_said_by_nobody(scene: Scene) -> None:
    await scene.insert(50, PRUNE_SUMMARY, {"everything": True, "ids": "1-10", "hashes": []})
    await scene.sql("delete from {audit} where id between 5 and 8")


async def summary_stretched(scene: Scene) -> None:
    """A sealed summary is made to tell of one more row."""
    [row] = await scene.harness.store.audit(AuditFilter(), limit=1, after=4)
    [summary] = await scene.harness.store.audit(AuditFilter(), limit=1, after=10)
    after = {**summary.after, "ids": "1-5", "removed": 5, "hashes": [*summary.after["hashes"], row_hash(row)]}
    text = json.dumps(after).replace("{", "{{").replace("}", "}}")
    await scene.sql(f"update {{audit}} set after = '{text}' where id = 11")
    await scene.sql("delete from {audit} where id = 5")


async def seals_swapped(scene: Scene) -> None:
    for source, target in (("1", "x"), ("2", "1"), ("x", "2")):
        await scene.sql(
            f"update {{record}} set id = '00000000000{target}'"
            f" where collection = 'audit-seal' and id = '00000000000{source}'"
        )


async def seal_rewritten_to_fit(scene: Scene) -> None:
    await scene.sql("delete from {audit} where id = 6")
    records = {record.id: record for record in await scene.harness.store.records(audit_chain.COLLECTION, limit=10)}
    first, second = records["000000000001"], records["000000000002"]
    rows = await scene.harness.store.audit(AuditFilter(), limit=3, after=4)
    body = audit_chain.body_of([row for row in rows if row.id <= 8], audit_chain.Seal.of(first))
    await scene.harness.store.apply(Commit(puts=[Put(audit_chain.COLLECTION, second.id, body, second.version)]))


def rewriting(**changes: Any) -> Attack:
    """Returns the attack that changes what the second seal says."""

    async def attack(scene: Scene) -> None:
        records = {record.id: record for record in await scene.harness.store.records(audit_chain.COLLECTION, limit=10)}
        found = records["000000000002"]
        put = Put(audit_chain.COLLECTION, found.id, {**found.body, **changes}, found.version)
        await scene.harness.store.apply(Commit(puts=[put]))

    attack.__name__ = f"seal with {', '.join(changes)} rewritten"
    return attack


async def piece_with_another_row(scene: Scene) -> None:
    lines = [archived_values(row) for row in scene.archive.read()]
    scene.piece().unlink()
    lines[1]["reason"] = "what I like better"
    scene.forge(lines)


async def piece_slipped_in(scene: Scene) -> None:
    lines = [archived_values(row) for row in scene.archive.read()]
    scene.forge([{**lines[0], "id": 400, "actor": "bob"}])


async def piece_with_a_second_version(scene: Scene) -> None:
    lines = [archived_values(row) for row in scene.archive.read()]
    scene.forge([{**lines[2], "actor": "bob"}])


async def piece_removed(scene: Scene) -> None:
    scene.piece().unlink()


async def piece_under_another_name(scene: Scene) -> None:
    scene.plant(scene.piece().read_bytes(), 3, 9)


async def piece_cut_off(scene: Scene) -> None:
    scene.piece().write_bytes(scene.piece().read_bytes()[:-9])


async def piece_of_another_store(scene: Scene) -> None:
    """Two stores number their rows alike."""
    lines = [archived_values(row) for row in scene.archive.read()]
    scene.piece().unlink()
    scene.forge([{**line, "salt": "11" * 16, "reason": "of the other store"} for line in lines])


async def archive_of_absurd_json(scene: Scene) -> None:
    scene.plant(gzip.compress(b"[" * 200_000 + b"\n", mtime=0), 1, 4)


async def archive_of_a_pipe(scene: Scene) -> None:
    os.mkfifo(scene.folder / f"audit-{1:012d}-{4:012d}-{'0' * 12}.jsonl.gz")


async def row_that_cannot_be_read(scene: Scene) -> None:
    await scene.sql("update {audit} set at = 9223372036854775807, task_id = 'x' where id = 6")


async def end_cut_off(scene: Scene) -> None:
    await scene.sql("delete from {audit} where id > 8")
    await scene.sql("delete from {record} where collection = 'audit-seal' and id > '000000000002'")


async def end_cut_off_and_sealed_again(scene: Scene) -> None:
    await end_cut_off(scene)
    await write(scene.harness, 3, "eve")
    await scene.seal()


SWAP = "update {audit} set actor = case id when 5 then 'x' else actor end, reason = 'r' where id in (5, 6)"


def by(statement: str) -> Attack:
    """Returns the attack that is one statement."""

    async def attack(scene: Scene) -> None:
        await scene.sql(statement)

    attack.__name__ = statement
    return attack


ATTACKS: list[tuple[Attack, str | None]] = [
    (by("update {audit} set reason = 'another' where id = 6"), "rows 5-8 are not what was sealed"),
    (by("delete from {audit} where id = 7"), "rows 7 are gone, and no sealed prune says so"),
    (by(SWAP), "rows 5-8 are not what was sealed"),
    (by("update {audit} set id = 900 where id = 7"), "rows 7 are gone, and no sealed prune says so"),
    (by("update {audit} set salt = null where id = 6"), "rows 5-8 are not what was sealed"),
    (row_emptied_as_if_erased, "rows 6 were emptied, and no sealed erasure says so"),
    (row_refilled_after_emptying, "rows 5-8 are not what was sealed"),
    (deleted_with_an_unsealed_summary, "rows 50 tell of removals, and were not sealed with them"),
    (deleted_with_a_summary_that_the_workers_sealed, "rows 7-8 are gone, and no sealed prune says so"),
    (everything_through_said_by_nobody, "rows 5-8 are gone, and no sealed prune says so"),
    (by("delete from {audit} where id = 11"), "rows 11 are gone, and no sealed prune says so"),
    (by("update {audit} set actor = 'bob' where id = 11"), "rows 11 are not what was sealed"),
    (summary_stretched, "rows 5 are gone, and no sealed prune says so"),
    (by("delete from {record} where collection = 'audit-seal' and id like '%2'"), "seal 2 is missing"),
    (
        by("update {record} set id = '000000000009' where collection = 'audit-seal' and id like '%2'"),
        "seal 2 is missing",
    ),
    (seals_swapped, "seal 1 (rows 5-8) does not fit"),
    (seal_rewritten_to_fit, "seal 3 (rows 9-10) does not fit"),
    (rewriting(ids="1-1000000000000000000"), "seal 2 cannot be read"),
    (rewriting(digest="0" * 64), "seal 2 (rows 5-8) does not fit"),
    (rewriting(last=10**18), "seal 2 (rows 5-8) does not fit"),
    (rewriting(since=[], last="x", ids=None), "seal 2 cannot be read"),
    (piece_with_another_row, "row 2 in the archive is not the one that was removed"),
    (piece_slipped_in, "rows 400 of the archive were never sealed"),
    (piece_with_a_second_version, "row 3 in the archive is not the one that was removed"),
    (piece_removed, "audit-000000000001-000000000004-"),
    (piece_under_another_name, "audit-000000000003-000000000009-"),
    (piece_cut_off, "audit-000000000001-000000000004-"),
    (piece_of_another_store, "row 1 in the archive is not the one that was removed"),
    (archive_of_absurd_json, "audit-000000000001-000000000004-"),
    (archive_of_a_pipe, "is no piece of an archive: not a file"),
    (row_that_cannot_be_read, "rows 5-8 are not what was sealed"),
    (end_cut_off, None),
    (end_cut_off_and_sealed_again, None),
]


@pytest.mark.parametrize(("attack", "said"), ATTACKS, ids=[attack.__name__ for attack, _ in ATTACKS])
async def test_attack(scene: Scene, attack: Attack, said: str | None) -> None:
    await attack(scene)
    found = (await scene.verdict(scene.head if said is None else None)).problems
    wanted = "the head that was written down is not part of the chain" if said is None else said
    assert any(wanted in problem for problem in found), found


async def test_an_old_head_is_part_of_the_chain_and_a_replayed_store_lacks_the_new_one(scene: Scene) -> None:
    await write(scene.harness, 4)
    await scene.seal()
    newer = (await scene.verdict()).head
    assert (await scene.verdict(scene.head)).problems == []
    await scene.sql("delete from {audit} where id > 11")
    await scene.sql("delete from {record} where collection = 'audit-seal' and id > '000000000005'")
    assert (await scene.verdict(scene.head)).problems == []  # as it was: only the newer head tells
    assert (await scene.verdict(newer)).problems != []


async def test_every_prune_is_named_with_actor_and_age(scene: Scene) -> None:
    [removal] = (await scene.verdict()).removals
    assert (removal.actor, removal.rows, removal.action) == ("ann", 4, PRUNE_SUMMARY)
    assert removal.youngest is not None and (removal.at - removal.youngest).total_seconds() < 3600
    await audit.prune(scene.harness.store, older_than_days=0, actor=audit.RETENTION_ACTOR)
    last = max((await scene.verdict()).removals, key=lambda removal: removal.at)
    assert last.actor == audit.RETENTION_ACTOR and audit_verify.younger_than(last, 30)


async def test_a_prune_that_lies_about_the_age_of_what_it_took(scene: Scene) -> None:
    """Sealed as a prune would be, which takes the right to write the chain: the seals of the rows know better."""
    rows = await scene.harness.store.audit(AuditFilter(), limit=4, after=4)
    after = {
        "ids": "5-8",
        "removed": 4,
        "everything": False,
        "hashes": [row_hash(row) for row in rows],
        "piece": None,
        "youngest": "2001-01-01T00:00:00+00:00",
        "older_than": "2001-01-02T00:00:00+00:00",
    }
    forged = Audit(audit.RETENTION_ACTOR, PRUNE_SUMMARY, None, None, "b", None, after)
    await audit_chain.apply_sealed(scene.harness.store, Commit(pruned=[5, 6, 7, 8], conclusion=lambda _: [forged]))
    found = await scene.verdict()
    assert any("which is younger than it says" in problem for problem in found.problems), found.problems
    assert any(audit_verify.younger_than(removal, 30) for removal in found.removals)


RUBBISH: list[Any] = [
    {"ids": "1-1000000000000000000", "hashes": []},
    {"ids": 5},
    {"ids": "1", "hashes": 5},
    [1],
    {"ids": "9-1", "hashes": []},
    {"ids": "1,1", "hashes": ["a", "b"]},
    {"hashes": [[[]]]},
]


async def test_summaries_of_rubbish(scene: Scene) -> None:
    """Each is reported: as malformed where it was sealed by itself, else as slipped in."""
    store = scene.harness.store
    await store.apply(Commit(audits=[Audit("eve", PRUNE_SUMMARY, after=RUBBISH[0])]))
    for after in RUBBISH:
        row = Audit("eve", PRUNE_SUMMARY, None, after=after)
        await audit_chain.apply_sealed(store, Commit(conclusion=lambda _, row=row: [row]))
    found = (await scene.verdict()).problems
    assert any(problem.startswith("rows 12 tell of removals") for problem in found), found
    for number in range(13, 13 + len(RUBBISH)):
        assert any(problem.startswith(f"row {number} tells of a removal, but") for problem in found), found


async def test_a_bomb_does_not_fill_the_memory(scene: Scene) -> None:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as bomb:
        for _ in range(300):
            bomb.write(b" " * (1 << 20))
    scene.plant(packed.getvalue(), 1, 4)
    tracemalloc.start()
    found = (await scene.verdict()).problems
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 120 << 20, f"{peak >> 20} MiB"
    assert any("audit-000000000001-000000000004-" in problem for problem in found)


async def test_sealing_goes_on_where_seals_were_moved(scene: Scene) -> None:
    """The order of writing may be tampered with; the numbers say where the end is."""
    await scene.sql("update {record} set seq = seq + 1000 where collection = 'audit-seal' and id = '000000000001'")
    await write(scene.harness, 4)
    assert await audit_chain.seal(scene.harness.store, **AT_ONCE) == 4
    assert (await scene.verdict()).problems == []
