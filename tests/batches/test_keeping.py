"""Batches that are forgotten, pruned, erased, measured, made inside a transaction, and left by a killed maker."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from redrive.batches import BatchService, BatchState, metrics
from redrive.batches.doctor import examine_open as examine
from redrive.batches.duties import duties
from redrive.batches.settings import BatchSettings
from redrive.kernel.commit import Commit
from redrive.kernel.erase import Erase
from redrive.kernel.reads import Query
from redrive.kernel.task import State
from redrive.ops.operations.erase_subject import count_personal, find_erasable
from redrive.ops.retention import retention_of
from tests.batches.conftest import drain, make_app
from tests.batches.test_batches import counts, service

KILLED = """
import asyncio, sys, time
sys.path.insert(0, {root!r})
from tests.batches.conftest import make_app
async def main():
    app = make_app({url!r})
    async with app.batch(name="killed") as batch:
        await batch.add([{{"kind": "WORK", "payload": {{"n": n}}, "delay": 600.0}} for n in range(3)])
        print(batch.id, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


def url_of(app: Any) -> str:
    return str(app.url)


async def test_a_maker_that_is_killed_leaves_it_open_until_it_is_cancelled(app: Any) -> None:
    code = KILLED.format(root=str(Path(__file__).parents[2]), url=url_of(app))
    maker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None
    batch = (await asyncio.to_thread(maker.stdout.readline)).strip()
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    maker.stdout.close()
    store = await app.store()
    assert (await app.batch.get(batch)).open
    settings = app.settings.holding(BatchSettings(open_hours=0.000_000_1))
    [found] = await examine(store, settings)
    assert found.code == "batches_forgotten" and batch in found.text
    duty = duties(app.settings)[0]
    await duty.run(store, "w", lambda: False)
    assert (await app.batch.get(batch)).open, "it is not time yet"
    duty = duties(settings)[0]
    await duty.run(store, "w", lambda: False)
    after = await app.batch.get(batch)
    assert after.state is BatchState.CANCELLED and counts(after) == (3, 0, 0, 3)
    assert after.cancelled_by == "redrive" and await examine(store, settings) == []


async def test_it_goes_with_its_join(app: Any) -> None:
    batch = await app.batch([("WORK", {"n": 1})], key="k")
    waits = await app.batch([{"kind": "WORK", "payload": {"n": 1}, "delay": 600.0}])
    await drain(app)
    store = await app.store()
    late = app.settings.with_values(history_days=0.000_000_1)
    await store.upkeep("prune", retention_of(late, app.features))
    await store.upkeep("prune", retention_of(late, app.features))
    own = await service(app)
    assert [one.id for one in (await own.list()).items] == [waits.id]
    assert (await app.batch([("WORK", {"n": 2})], key="k")).id != batch.id


async def test_what_it_knows_about_somebody_is_erased(app: Any) -> None:
    batch = await app.batch([], name="for bob", meta={"bob": 1}, key="bob", scope="bob")
    store = await app.store()
    assert (await count_personal(store, "bob"))["batches_rows"] == 1
    await store.apply(Commit(erase=Erase("erased:1", scope="bob")))
    after = await app.batch.get(batch.id)
    assert (after.name, after.meta, after.key, after.scope) == (None, None, None, "erased:1")


async def test_what_a_batch_consists_of_is_about_whom_it_is_about(app: Any) -> None:
    """Items, those that an item adds, what follows, and an inner batch; who says otherwise is believed."""
    outer = await app.batch(
        [("WORK", {"n": 1}), {"kind": "WORK", "payload": {"n": 2}, "scope": "eve"}],
        on_complete=("WORK", {"n": 3}),
        scope="bob",
    )
    async with app.batch(scope="bob") as holder:
        inner = await app.batch([("WORK", {"n": 4})], on_success=("WORK", {"n": 5}), parent=holder)
    assert (await app.batch.get(inner.id)).scope == "bob"
    await drain(app)
    store = await app.store()
    done = [task for task in await store.find(Query(states=(State.COMPLETED,))) if task.kind == "WORK"]
    assert Counter(task.scope for task in done) == {"bob": 4, "eve": 1}
    [eves] = [task.id for task in done if task.scope == "eve"]
    assert eves in await find_erasable(store, "bob", 100), "it is an item of somebody's batch"
    assert outer.id in {task.join_id for task in (await store.get_many([eves])).values()}


async def test_figures(app: Any) -> None:
    async with app.batch() as batch:
        await batch.add(("WORK", {"n": 1}))
        found = await metrics.fleet(await app.store(), app.settings)
        assert found["redrive_batches_open"] == {(): 1.0} and found["redrive_batches_processing"] == {(): 1.0}
    await drain(app)
    found = await metrics.fleet(await app.store(), app.settings)
    assert found["redrive_batches_open"] == {(): 0.0} and found["redrive_batches_processing"] == {(): 0.0}


async def test_inside_a_transaction_of_the_callers(tmp_path: Path) -> None:
    app: Any = make_app(f"sqlite:///{tmp_path}/own.db")
    await app.migrate()
    own: BatchService = await service(app)

    def plain(*, keep: bool) -> Any:
        connection = sqlite3.connect(tmp_path / "own.db", isolation_level=None)
        connection.execute("begin immediate")
        batch = app.sync.batch([("WORK", {"n": n}) for n in range(3)], name="own", connection=connection)
        connection.execute("commit" if keep else "rollback")
        connection.close()
        return batch

    assert (await asyncio.to_thread(plain, keep=False)).total == 3
    assert (await own.list()).items == []
    batch = await asyncio.to_thread(plain, keep=True)
    await drain(app)
    assert counts(await app.batch.get(batch.id)) == (3, 3, 0, 0)
    await app.close()


async def test_inside_a_transaction_of_postgres(postgres_url: str) -> None:
    import asyncpg

    app: Any = make_app(postgres_url)
    await app.migrate()
    connection = await asyncpg.connect(postgres_url)
    async with connection.transaction():
        batch = await app.batch(
            [("WORK", {"n": n}) for n in range(3)], connection=connection, on_complete=("ENDED", {})
        )
    await connection.close()
    await drain(app)
    assert counts(await app.batch.get(batch.id)) == (3, 3, 0, 0) and app.told == [("ended", "")]
    await app.close()
