"""Tasks filtered by a remote batch: its id is not that of the join of its items, and finds them all the same."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from redrive import App
from redrive.batches.app_batch import Batches
from redrive.batches.batch import BatchConflict
from redrive.batches.remote.application import RemoteBatches
from redrive.errors import BatchUnknown, Conflict
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.reads import Query
from redrive.kernel.task import State
from tests.batches_remote.conftest import ANN, Scripted, made, settled
from tests.batches_remote.test_faces import client_of
from tests.worker.conftest import until

BROKEN = {"fail": "model"}


async def test_lists_and_retries_find_the_items(app: App, provider: Scripted) -> None:
    batch = await made(app, [{}, BROKEN, BROKEN])
    await made(app, [BROKEN])  # another one
    await settled(app, batch)
    own, which = await app.operator(ANN), FailureFilter(join=str(batch.id))
    assert len((await own.tasks.list(Query(join=str(batch.id)))).tasks) == 3
    assert (await own.failures.list(which)).total == await own.failures.count(which) == 2
    assert len((await own.failures.end(which, 5))[0]) == 2
    seen = await own.operations.preview(Action.RETRY, which)
    assert seen.number == 2 and "retry-failed" in str(list(seen.withheld.values()))
    told = await own.failures.retry_matching(which, reason="again", limit=5)
    assert not told.retried and len(told.skipped) == 2, "it is settled: only a new charge starts them again"


async def test_after_a_retry_its_last_round_is_meant(app: App, provider: Scripted) -> None:
    batch = await settled(app, await made(app, [{}, {**BROKEN, "once": True}]))
    await app.of(RemoteBatches).retry_failed(batch.id)
    own, which = await app.operator(ANN), FailureFilter(join=str(batch.id))
    assert (await own.failures.list(which)).total == 0
    await settled(app, batch)
    found = (await own.tasks.list(Query(join=str(batch.id)))).tasks
    assert [task.state for task in found] == [State.COMPLETED]


async def test_what_has_no_tasks_says_where_to_look(app: App, provider: Scripted) -> None:
    batch, own = await made(app, [{}]), await app.operator(ANN)
    with pytest.raises(BatchConflict, match="has no tasks") as refused:
        await own.tasks.list(Query(join=str(batch.id)))
    assert refused.value.hint == f"redrive batch items {batch.id} shows its items"
    with pytest.raises(BatchUnknown):
        await own.failures.known(FailureFilter(join=str(uuid4())))


async def test_it_is_not_cancelled_by_its_tasks(app: App, provider: Scripted) -> None:
    provider.hold = True
    batch = await made(app, [{}] * 5)

    async def begun() -> bool:
        return (await app.of(RemoteBatches).get(batch.id)).join_id is not None

    async with app.worker(queues=",".join(app.queues())):
        await until(begun)
    own, which = await app.operator(ANN), FailureFilter(join=str(batch.id))
    for act in (own.operations.begin, own.operations.preview):
        with pytest.raises(Conflict) as refused:
            await act(Action.CANCEL, which)
        assert f"redrive batch cancel {batch.id}" in str(refused.value.hint)


async def test_the_application_gets_either_sort(app: App, provider: Scripted) -> None:
    jobs, tasks = await made(app, [{}, {}]), await app.of(Batches)([("SYSTEM_HEALTH_CHECK", None)])
    found = await app.of(Batches).get(jobs.id)
    assert (found.id, found.total, found.remote and found.remote.provider) == (jobs.id, 2, "video")
    assert (await app.of(Batches).get(str(tasks.id))).remote is None
    with pytest.raises(BatchUnknown):
        await app.of(Batches).get(uuid4())


async def test_over_http(app: App, provider: Scripted) -> None:
    batch = await settled(app, await made(app, [{}, BROKEN]))
    async with client_of(app) as client:

        async def ids(path: str) -> list[UUID]:
            answer = await client.get(path, params={"batchId": str(batch.id)})
            assert answer.status_code == 200, answer.text
            return [one["id"] for one in answer.json()["tasks"]]

        assert len(await ids("/api/tasks")) == 2 and len(await ids("/api/tasks/failed")) == 1
