"""Somebody else was quicker, or the answer to a commit was lost: nothing is emptied, nothing stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from redrive import App
from redrive.batches import BatchService
from redrive.batches.names import BatchState
from redrive.batches.remote import commits, step_handlers
from redrive.batches.remote.model import Counts, RemoteBatch, count_items, find_remote
from redrive.errors import MayHaveLanded, StoreError
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import Store
from redrive.kernel.reads import Query
from tests.batches_remote.conftest import ANN, Scripted, counts, listed, made, money, service, settled, work


async def cancelled_without_release(app: App, provider: Scripted) -> RemoteBatch:
    """Returns a cancelled batch of which three items run, and whose other money nobody has given back yet."""
    provider.hold = True
    batch = await work(app, await made(app, [{}] * 10))
    store = await app.store()
    await store.apply(replace(commits.cancel(batch, "ann", "enough", await count_items(store, batch)), enqueues=[]))
    provider.hold = False
    return await find_remote(store, batch.id)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_release_that_lands_while_a_settlement_looks_does_not_stop_it(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    batch = await cancelled_without_release(app, provider)
    looks: list[int] = []

    async def overtaken(store: Store, found: RemoteBatch) -> Counts:
        seen = await count_items(store, found)
        if len(looks) < times:
            looks.append(found.version)
            moved = commits.release(found, seen.unreleased) if seen.unreleased else Commit(rows=[found.moved()])
            await store.apply(moved)
        return seen

    monkeypatch.setattr(step_handlers, "count_items", overtaken)
    batch = await settled(app, batch)
    assert (batch.state, batch.released, batch.frozen, len(looks)) == (BatchState.CANCELLED, 100, 0, times)
    assert await money(app) == (1000, 0, 0)
    [step] = await (await app.store()).find(Query(kind="BATCH_SETTLE", limit=10))
    assert step.attempt_count == 1


async def test_a_step_whose_answer_was_lost_has_been_taken(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await made(app, [{}])
    lose(await app.store(), "remote_moved", MayHaveLanded("lost"), monkeypatch)
    batch = await work(app, batch)
    assert (batch.state, await money(app)) == (BatchState.COMPLETED, (990, 0, 10))
    assert not await app.failed.list()


@pytest.mark.parametrize("key", [None, "K"])
async def test_a_batch_whose_commit_was_not_answered_is_returned_with_its_items(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    lose(await app.store(), "remote_queued", MayHaveLanded("lost"), monkeypatch)
    batch = await made(app, [{"n": 1}, {"n": 2}], key=key)
    assert [item.payload for item in await (await service(app)).items(batch.id)] == [{"n": 1}, {"n": 2}]
    assert (await work(app, batch)).state is BatchState.COMPLETED
    assert await counts(app, batch) == {"completed": 2}


@pytest.mark.parametrize("error", [asyncio.CancelledError, lambda: StoreError("what then?")])
async def test_a_caller_who_leaves_after_the_commit_leaves_a_whole_batch(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch, error: Callable[[], BaseException]
) -> None:
    store = await app.store()
    lose(store, "remote_queued", error(), monkeypatch, reads=error())
    with pytest.raises(type(error())):
        await made(app, [{}, {}], key="K")
    monkeypatch.undo()
    [there] = await listed(app)
    batch = await made(app, [{}, {}], key="K")
    assert batch.id == there.id
    assert (await work(app, batch)).state is BatchState.COMPLETED
    assert await counts(app, batch) == {"completed": 2}


async def test_a_draft_that_is_given_up_while_it_becomes_a_batch_is_one_or_nothing(
    app: App, provider: Scripted
) -> None:
    """Whoever is cancelled in the middle of the commit gives the draft up while the database is still at it."""
    for moment in range(12):
        making = asyncio.ensure_future(made(app, [{}] * 3, key=f"K{moment}"))
        for _ in range(moment * 4):
            await asyncio.sleep(0)
        making.cancel()
        await asyncio.gather(making, return_exceptions=True)
    own = await service(app)
    for batch in (await (await app.operator(ANN)).of(BatchService).list()).items:
        assert len(await own.items(batch.id)) == 3


def lose(
    store: Store, statement: str, error: BaseException, patch: pytest.MonkeyPatch, reads: BaseException | None = None
) -> None:
    """Makes each commit with this statement land and then raise; and reads after it, where these are given."""
    apply, rows, landed = store.apply, store.feature_rows, list[bool]()

    async def lost(commit: Commit, **more: Any) -> Any:
        done = await apply(commit, **more)
        if any(one.statement == statement for one in commit.rows):
            landed.append(True)
            raise error
        return done

    async def read(*given: Any) -> Any:
        if reads is not None and landed:
            raise reads
        return await rows(*given)

    patch.setattr(store, "apply", lost)
    patch.setattr(store, "feature_rows", read)
