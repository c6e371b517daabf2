"""What is given to a batch more than once: the same tasks, the same task to follow, the same idempotency keys."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from redrive.batches import BatchConflict, BatchState
from redrive.handlers.new_task import make_task
from tests.batches.conftest import drain, make_app
from tests.batches.test_batches import counts, service


def keyed(key: str, n: int = 1, **options: Any) -> dict[str, Any]:
    return {"kind": "WORK", "payload": {"n": n}, "idempotency_key": key, **options}


async def test_the_same_list_again_is_the_batch_of_its_key(app: Any) -> None:
    tasks = [make_task(app.registry, "WORK", {"n": n}) for n in range(2)]
    first = await app.batch(tasks, key="k")
    assert (await app.batch(tasks, key="k")).id == first.id
    assert {task.join_id for task in (await (await service(app)).tasks(first.id)).tasks} == {first.id}
    assert (await app.get(tasks[0].id)).join_id == first.id  # the caller knows it by the id that it has
    assert [task.join for task in tasks] == [None, None]


async def test_the_same_list_again_after_an_error(app: Any) -> None:
    tasks = [make_task(app.registry, "WORK", {"n": n}) for n in range(2)]
    with pytest.raises(RuntimeError):
        async with app.batch(key="k") as batch:
            await batch.add(tasks)
            raise RuntimeError("no")
    again = await app.batch(tasks, key="k")
    await drain(app)
    assert counts(await app.batch.get(again.id)) == (2, 2, 0, 0)


async def test_the_same_task_twice_is_two_items(app: Any) -> None:
    task = make_task(app.registry, "WORK", {"n": 1})
    batch = await app.batch([task, task])
    await drain(app)
    assert counts(await app.batch.get(batch.id)) == (2, 2, 0, 0)


async def test_one_task_follows_several_batches(app: Any) -> None:
    follows = make_task(app.registry, "ENDED", {"batch": "x"})
    made = [await app.batch([("WORK", {"n": n})], on_complete=follows, on_success=follows) for n in range(2)]
    await drain(app)
    assert app.told == [("ended", "x")] * 4
    assert [(await app.batch.get(one.id)).fault for one in made] == [None, None]


async def test_a_key_of_a_task_elsewhere_is_refused(app: Any) -> None:
    """The batch could not wait for it: it would end, and succeed, without it."""
    there = await app.enqueue("WORK", {"n": 1}, idempotency_key="a", delay=3600)
    with pytest.raises(BatchConflict, match=f"'a' of an item names task {there.id}"):
        await app.batch([("WORK", {"n": 2}), keyed("a")], on_complete=("ENDED", {}))
    assert (await (await service(app)).list()).items == []
    other = await app.batch([keyed("b")])
    with pytest.raises(BatchConflict, match="no item of this batch"):
        await app.batch([keyed("b")])
    await drain(app)
    with pytest.raises(BatchConflict):  # also when it has ended
        await app.batch([keyed("b")])
    assert app.told == [] and [one.id for one in (await (await service(app)).list()).items] == [other.id]


async def test_a_key_of_the_same_batch_is_one_item(app: Any) -> None:
    async with app.batch(on_complete=("ENDED", {})) as batch:
        await batch.add([keyed("a"), keyed("a"), keyed("b", 2)])
        await batch.add([keyed("b", 2), keyed("c", 3)])
    await drain(app)
    assert counts(await app.batch.get(batch.id)) == (3, 3, 0, 0) and app.told == [("ended", "")]


async def test_a_handler_that_runs_again_adds_once(app: Any) -> None:
    runs = []

    @app.task("FAN", max_attempts=2, backoff_base=0.001)
    async def fan(ctx: Any) -> None:
        await app.batch.of(ctx).add([keyed("x", 1), keyed("y", 2)])
        runs.append(1)
        if len(runs) == 1:
            raise ConnectionError("again")

    await app.enqueue("WORK", {"n": 7}, idempotency_key="elsewhere")

    @app.task("STRAY", max_attempts=1)
    async def stray(ctx: Any) -> None:
        await app.batch.of(ctx).add([keyed("z", 3), keyed("elsewhere", 7)])

    batch = await app.batch([("FAN", {}), ("STRAY", {})])
    await drain(app)
    found = await app.batch.get(batch.id)
    assert len(runs) == 2 and counts(found) == (4, 3, 1, 0) and found.state is BatchState.FAILED
    [failed] = (await (await service(app)).tasks(batch.id, kind="STRAY")).tasks
    assert "no item of this batch" in failed.error_message


async def test_two_with_one_key_and_keyed_items_at_the_same_time(app: Any) -> None:
    made = await asyncio.gather(*(app.batch([keyed("a")], key="k") for _ in range(5)))
    assert len({batch.id for batch in made}) == 1 and made[0].total == 1


async def test_keys_in_a_transaction_of_the_callers(tmp_path: Path) -> None:
    app: Any = make_app(f"sqlite:///{tmp_path}/own.db")
    await app.migrate()
    await app.enqueue("WORK", {"n": 1}, idempotency_key="there")

    def plain(*keys: str) -> Any:
        connection = sqlite3.connect(tmp_path / "own.db", isolation_level=None)
        connection.execute("begin immediate")
        try:
            with app.sync.batch(connection=connection) as batch:
                for key in keys:
                    batch.add(keyed(key))
            connection.execute("commit")
            return batch.id
        finally:
            connection.close()

    with pytest.raises(BatchConflict, match="no item of this batch"):
        await asyncio.to_thread(plain, "a", "there")
    made = await asyncio.to_thread(plain, "a", "b", "a")
    assert (await app.batch.get(made)).total == 2
    await app.close()
