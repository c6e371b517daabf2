"""A worker that is killed at each step of a rebuild or a comparison: another goes on where it was."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from redrive.kernel.operation import Operation, Status
from redrive.outbox import operations
from redrive.outbox.index_job import Phase
from redrive.outbox.rebuild import delete_of
from tests.outbox.rebuild.conftest import Notes
from tests.outbox.rebuild.process import STEPS
from tests.outbox.rebuild.test_fence import ON_POSTGRES_FIRST, process
from tests.worker.conftest import until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.faults,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("notes", ON_POSTGRES_FIRST, indirect=True),
]
LONGEST = 120


async def killed_at(notes: Notes, log: Path, step: str) -> None:
    with process(notes, log, f"die:{step}") as dying:
        assert dying.wait(LONGEST) == -signal.SIGKILL, step


async def over(notes: Notes, begun: Operation) -> Operation:
    found: Operation | None = None

    async def look() -> Any:
        nonlocal found
        found = await notes.work(begun)
        return found is not None and found.status is not Status.RUNNING

    await until(look, LONGEST)
    assert found is not None
    return found


async def test_a_rebuild_goes_on(notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "DRIVER_GONE_AFTER_S", 0.5)
    notes.add(1, 20)
    await notes.work()
    begun = await notes.rebuild()
    index = (await notes.job()).index
    done: list[int] = []
    for number, step in enumerate(STEPS):
        await killed_at(notes, tmp_path / "worker.log", step)
        done.append((await notes.operation(begun.id)).done)
        notes.run(
            f"update notes set title = 'after {step}' where id = {number + 1}",
            f"delete from notes where id = {19 - number}",
        )
    assert done[0] == 0 < done[1] < 20 <= done[2] + 4, done
    assert (await notes.job()).phase is Phase.SWITCHING
    ended = await over(notes, begun)
    assert ended.status is Status.COMPLETED and ended.done <= 20, "no page was counted twice"
    job = await notes.job()
    assert (job.operation, job.index, job.phase) == (None, index, Phase.NONE)
    await notes.check_same()


@pytest.mark.thorough
async def test_a_comparison_goes_on(notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "DRIVER_GONE_AFTER_S", 0.5)
    notes.add(1, 20)
    await notes.work()
    version = (await notes.source())["notes:5"][0]
    await notes.sink.write([delete_of("notes:5", version - 1)])  # older: nothing happens
    begun = await notes.verify(repair=True)
    notes.run("update notes set title = 'new' where id = 1")
    await killed_at(notes, tmp_path / "worker.log", "source")
    assert (await notes.operation(begun.id)).status is Status.RUNNING
    ended = await over(notes, begun)
    assert ended.status is Status.COMPLETED and ended.done == 20, "nothing was counted twice"
    assert ended.work is not None and ended.work.result == {
        "repaired": 0,
        "left": 0,
        "left_keys": [],
        "on_their_way": 0,
    }
    await notes.check_same()
