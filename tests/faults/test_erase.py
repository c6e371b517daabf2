"""A worker dies in the middle of an erasure: another goes on, and nothing of the person is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redrive.kernel.operation import Operation, Status
from redrive.ops import actions, audit, audit_chain, audit_verify
from redrive.ops.allowance import UNRESTRICTED
from redrive.ops.audit_archive import Archive
from redrive.ops.operations import erase
from tests.faults.harness import World, until
from tests.ops.test_audit_chain import AT_ONCE

pytestmark = [pytest.mark.faults, pytest.mark.thorough]
SCOPE = "user:4711"


def test_a_killed_worker_leaves_nothing_half_erased(store: World, tmp_path: Path) -> None:
    archive = Archive(str(tmp_path / "archive"))
    ids = store.enqueue_many("QUICK", 600, scope=SCOPE, queue="elsewhere")
    call = store.app.sync._portal.call

    async def prepare() -> Operation:
        opened = await store.app.store()
        for start in range(0, 300, 100):
            await actions.cancel(opened, ids[start : start + 100], actor="ann", reason=f"{SCOPE} left")
        await audit_chain.seal(opened, **AT_ONCE)
        await audit.prune(opened, older_than_days=0, actor="ann", piece=50, archive=archive)
        begun, _ = await erase.begin(opened, SCOPE, None, actor="ann", archive=str(archive), rule=UNRESTRICTED)
        return begun

    operation = call(prepare())

    def now() -> Operation:
        async def look() -> Any:
            return await (await store.app.store()).record("operation", operation.id)

        return Operation.of(call(look()))

    small = {"redrive.ops.operations.erase.TASKS_PER_PIECE": 3}
    for number, phase in enumerate(("tasks", "archive")):
        worker = store.worker(f"w{number}", constants=small)
        until(lambda phase=phase: now().done > 30 and now().what.phase == phase, f"it is at the {phase}")  # type: ignore[misc]
        worker.kill()
        assert now().status is Status.RUNNING
    store.worker("last")
    until(lambda: now().status is Status.COMPLETED, "somebody else has ended it", timeout=60)

    async def verdict() -> audit_verify.Verdict:
        return await audit_verify.verify(await store.app.store(), archive)

    assert call(verdict()).problems == []
    assert now().done == 600 and SCOPE not in "".join(str(row) for row in archive.read())
    for name in ("task", "history", "audit", "record"):
        assert SCOPE not in str(store.sql(f"select * from {store.table(name)}")), name
    store.check_totals()


def test_no_byte_of_it_is_left_while_workers_work(sqlite: World) -> None:
    """The files are looked at while two workers read and write them, with tasks of others."""
    marker = "ann-secret-4711"
    sqlite.enqueue_many("ECHO", 100, scope=marker, payload={"text": marker * 300}, queue="elsewhere")
    done = sqlite.enqueue_many("QUICK", 50, scope=marker, trace_id=marker, group=marker)
    for name in ("a", "b"):
        sqlite.worker(name, constants={"redrive.ops.operations.erase.TASKS_PER_PIECE": 20})
    sqlite.wait_completed(done)
    call = sqlite.app.sync._portal.call

    async def begin() -> Operation:
        return (await erase.begin(await sqlite.app.store(), marker, None, actor="ann", rule=UNRESTRICTED))[0]

    async def look() -> Operation:
        found = await (await sqlite.app.store()).record("operation", operation.id)
        assert found is not None
        return Operation.of(found)

    async def prune() -> int:
        return await (await sqlite.app.store()).upkeep("prune")

    operation = call(begin())
    while (ended := call(look())).status is Status.RUNNING:
        sqlite.enqueue_many("QUICK", 50, scope="user:bob", trace_id="b" * 100)
    assert ended.note is not None and ended.note.startswith(erase.NOT_COVERED)

    def left() -> list[str]:
        files = list(sqlite.path.parent.glob(f"{sqlite.path.name}*"))
        assert len(files) == 3
        return [path.name for path in files if marker.encode() in path.read_bytes()]

    if erase.STILL_IN_THE_LOG in ended.note:  # a reader was in the way, and may be so again: each pruning tries once
        until(lambda: call(prune()) >= 0 and not left(), "pruning has emptied the log")
    assert left() == []
