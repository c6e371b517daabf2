"""Items of a round that has ended are retried only with a new charge; other retries leave them alone, and say so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redrive import App, Context, State
from redrive.batches.names import BatchState
from redrive.batches.remote import actions as remote_actions
from redrive.batches.remote import step_handlers
from redrive.batches.remote.model import RemoteBatch
from redrive.errors import InvalidTransition
from redrive.kernel import operation
from redrive.kernel.audit import AuditFilter
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action, Canary, Status
from redrive.kernel.retry_guard import Guards
from redrive.kernel.task import Task
from redrive.ops.operations.lifecycle import How
from redrive.ops.operator import Operator
from tests.batches_remote.conftest import ANN, Scripted, counts, made, money, service, settled, work
from tests.batches_remote.test_faces import client_of
from tests.console.conftest import console, page, send, text_of
from tests.worker.conftest import drain, until

BEFORE_THE_END = ("batches-dispatch", "batches")  # without the queue of settlements


async def operator(app: App) -> Operator:
    return await app.operator(ANN)


async def failed_item(app: App, batch: RemoteBatch) -> Task:
    (found,) = [task for task in await app.failed.list() if task.kind == "BATCH_ITEM_VIDEO"]
    return found


async def a_settled_batch(app: App) -> tuple[RemoteBatch, Task]:
    batch = await work(app, await made(app, [{}, {"fail": "bad luck", "once": True}]))
    assert batch.state is BatchState.COMPLETED
    return batch, await failed_item(app, batch)


async def an_ordinary_failure(app: App) -> Task:
    @app.task("BREAK", max_attempts=1)
    async def broken(ctx: Context) -> None:
        if not ctx.task.replay_count:
            raise ValueError("broken")

    task_id = (await app.enqueue("BREAK")).id
    await drain(app, queues=app.queues())
    found = await app.get(task_id)
    assert found is not None and found.state is State.FAILED
    return found


async def test_one_is_refused_with_what_to_do(app: App, provider: Scripted) -> None:
    batch, item = await a_settled_batch(app)
    with pytest.raises(InvalidTransition, match=f"its batch {batch.id} is settled") as refused:
        await app.retry(item.id, actor="ann")
    assert f"redrive batch retry-failed {batch.id}" in str(refused.value.hint)
    with pytest.raises(InvalidTransition, match="is settled"):
        await (await operator(app)).tasks.retry(item.id)
    again = await app.get(item.id)
    assert again is not None and (again.state, again.replay_count) == (State.FAILED, 0)
    async with client_of(app) as client:
        answer = await client.post(f"/api/tasks/{item.id}/retry", json={})
        assert (answer.status_code, answer.json()["code"]) == (409, "TRANSITION_INVALID")
        assert f"retry-failed {batch.id}" in answer.text
    assert (await counts(app, batch), len(provider.starts)) == ({"completed": 1, "failed": 1}, 2)


async def test_a_cancelled_item_is_refused_as_well(app: App, provider: Scripted) -> None:
    batch, item = await a_settled_batch(app)
    await (await operator(app)).failures.forget([item.id])
    with pytest.raises(InvalidTransition, match="is settled"):
        await app.retry(item.id, actor="ann")
    assert (await counts(app, batch)) == {"completed": 1, "failed": 1}


async def test_many_are_retried_but_for_those(app: App, provider: Scripted) -> None:
    _, item = await a_settled_batch(app)
    other = await an_ordinary_failure(app)
    failures = (await operator(app)).failures
    foreseen = await failures.preview(FailureFilter())
    assert list(foreseen.skipped) == [item.id] and "is settled" in foreseen.skipped[item.id]
    told = await failures.dry_run([item.id, other.id])
    assert (told.would_retry, list(told.skipped)) == ([other.id], [item.id])
    named = await failures.preview(FailureFilter(ids=(item.id, other.id)))
    assert (named.ids, list(named.skipped)) == ([other.id], [item.id])
    result = await failures.retry_matching(FailureFilter(), limit=10)
    assert (result.retried, list(result.skipped)) == ([other.id], [item.id])
    assert "retry-failed" in result.skipped[item.id]
    rows = await (await app.store()).audit(AuditFilter(bulk_id=result.bulk_id), limit=10)
    said = {row.action: row for row in rows}
    skipped = said["TASK_RETRY_BATCH_SKIPPED"]
    assert (skipped.task_id, skipped.before) == (item.id, None) and "is settled" in str(skipped.reason)
    assert said["TASK_RETRY_BATCH_SUMMARY"].after["skipped"] == 1


async def test_an_operation_skips_them(app: App, provider: Scripted) -> None:
    _, item = await a_settled_batch(app)
    await an_ordinary_failure(app)
    service = (await operator(app)).operations
    foreseen = await service.preview(Action.RETRY, FailureFilter(queue=item.queue))
    assert (foreseen.number, list(foreseen.withheld)) == (1, [item.id])
    begun = await service.begin(Action.RETRY, FailureFilter(since=item.failed_at), how=How(canary=Canary(1)))
    assert begun.approval is None

    async def over() -> bool:
        return (await service.show(begun.operation.id)).status is Status.COMPLETED

    async with app.worker(queues=",".join(app.queues())):
        await until(over)
    ended = await service.show(begun.operation.id)
    assert (ended.done, ended.skipped) == (1, 1)
    task = await app.get(item.id)
    assert task is not None and task.state is State.FAILED


async def test_by_cause_and_in_the_console(app: App, provider: Scripted) -> None:
    batch, item = await a_settled_batch(app)
    async with console(app) as client:
        shown = text_of(await page(client, f"/failures/preview?fingerprint={item.error_fingerprint}"))
        assert "1 of these would not be retried" in shown and f"its batch {batch.id} is settled" in shown
        at = f"/tasks/{item.id}"
        refused = await send(client, at, {"do": "retry"}, at)
        assert refused.status_code == 409 and f"retry-failed {batch.id}" in text_of(refused.text)


async def test_what_was_started_again_is_failed_no_more(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pieces of one: the first lands with the new round, the others are done by a worker.
    monkeypatch.setattr(remote_actions, "TASKS_PER_PIECE", 1)
    monkeypatch.setattr(operation, "TASKS_PER_PIECE", 1)
    batch = await work(app, await made(app, [{}, {"fail": "bad luck", "once": True}, {"fail": "always"}]))
    old = {task.id for task in await app.failed.list()}
    assert len(old) == 2
    await (await service(app)).retry_failed(batch.id, "try again")
    assert await app.failed.count() == 1
    batch = await settled(app, batch)
    assert (batch.round, batch.state, batch.captured) == (2, BatchState.COMPLETED, 20)
    store = await app.store()

    async def over() -> bool:
        return bool(await store.records(operation.COLLECTION, states=(Status.COMPLETED.value,), limit=10))

    async with app.worker(queues=",".join(app.queues())):
        await until(over)
    (left,) = await app.failed.list()
    assert left.id not in old
    gone = await app.get(next(iter(old)))
    assert gone is not None and gone.state is State.CANCELLED
    with pytest.raises(InvalidTransition, match="has started it again, in round 2"):
        await app.retry(gone.id, actor="ann")
    (put_away,) = await store.records(operation.COLLECTION, limit=10)
    ended = operation.Operation.of(put_away)
    assert (ended.status, ended.done, ended.total) == (Status.COMPLETED, 2, 2)
    assert (await counts(app, batch), await money(app)) == ({"completed": 2, "failed": 1}, (980, 0, 20))
    await (await service(app)).retry_failed(batch.id)
    assert (await work(app, batch)).round == 3
    assert await app.failed.count() == 1


async def test_between_the_end_and_the_settlement(app: App, provider: Scripted) -> None:
    batch = await made(app, [{}, {"fail": "bad luck"}])
    await drain(app, queues=BEFORE_THE_END)
    item = await failed_item(app, batch)
    with pytest.raises(InvalidTransition, match="is about to be settled"):
        await app.retry(item.id, actor="ann")
    batch = await work(app, batch)
    assert (batch.state, batch.captured) == (BatchState.COMPLETED, 10)


async def test_a_settlement_waits_for_who_was_quicker_than_the_guard(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL a join may end between the look and the retry. Then the item is charged in the same round."""
    monkeypatch.setattr(step_handlers, "AGAIN_S", 1.0)  # not before the worker has found nothing to do
    batch = await made(app, [{}, {"fail": "bad luck"}])
    await drain(app, queues=BEFORE_THE_END)
    item = await failed_item(app, batch)
    store = await app.store()
    off: Guards = {}
    monkeypatch.setattr(store.features, "guards", off)  # type: ignore[attr-defined]
    await app.retry(item.id, actor="ann")
    await drain(app, queues=("batches-settle",))
    assert await money(app) == (980, 20, 0)
    batch = await settled(app, batch)
    assert (batch.state, len(provider.starts)) == (BatchState.COMPLETED, 3)
    assert (await counts(app, batch), await money(app)) == ({"completed": 1, "failed": 1}, (990, 0, 10))
    await (await service(app)).retry_failed(batch.id)  # this is the way
    await work(app, batch)
    assert f"{batch.id}-2:2" in provider.starts


def test_a_guard_needs_its_statement() -> None:
    from redrive.batches import BATCHES
    from redrive.batches.remote.item_task import GUARD
    from redrive.errors import ConfigError
    from redrive.stores.features import Features

    with pytest.raises(ConfigError, match="has no statement 'nothing'"):
        Features([replace(BATCHES, retry_guard=replace(GUARD, statement="nothing"))], "sqlite")
