"""Hints: whoever listens hears of ready work, of what is due soon and of cancel requests, also from other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from redrive.kernel.outcome import Completed
from redrive.kernel.ports.store import Store, Wake
from redrive_kit.conformance.harness import Harness

HINT_PATIENCE_S = 20.0


class HintCollector:
    """Collects hints, and waits for one that fits."""

    def __init__(self, store: Store, queues: tuple[str, ...]) -> None:
        self._heard: list[Wake] = []
        self._news = asyncio.Event()
        store.listen(self._on_wake, queues)

    def _on_wake(self, wake: Wake) -> None:
        self._heard.append(wake)
        self._news.set()

    async def hear(self, fits: Callable[[Wake], bool]) -> None:
        async with asyncio.timeout(HINT_PATIENCE_S):
            while not any(fits(wake) for wake in self._heard):
                self._news.clear()
                await self._news.wait()

    def forget(self) -> None:
        self._heard.clear()


async def ears(store: Store, *queues: str) -> HintCollector:
    listening = HintCollector(store, queues or ("default",))
    # A listener is a worker: it has been at work before. (Twice: the first may only just open the connection.)
    for _ in range(2):
        await store.renew([], 1.0, {})
    async with asyncio.timeout(HINT_PATIENCE_S):
        while not getattr(store, "listening", True):  # noqa: ASYNC110 - the port has no event for it
            await asyncio.sleep(0.01)
    # What is announced when a listener connects is not what the tests wait for.
    await asyncio.sleep(0)
    listening.forget()
    return listening


def ready(queue: str) -> Callable[[Wake], bool]:
    """A hint may be unspecific: "look anywhere"."""
    return lambda wake: wake.due_in is None and not wake.cancel and wake.queue in (queue, "*", None)


class TestWakes:
    @pytest.fixture(autouse=True)
    def _notifies(self, harness: Harness) -> None:
        if not harness.store.capabilities.notifies:
            pytest.skip("this store is polled")

    @pytest.mark.parametrize("same", [True, False], ids=["same process", "another process"])
    async def test_new_work(self, harness: Harness, same: bool) -> None:
        store = harness.store if same else await harness.another()
        heard = await ears(store, "mail")
        task_id = await harness.enqueue(queue="mail")
        await heard.hear(ready("mail"))
        assert [task.id for task in await harness.claim(1, queues=("mail",), store=store)] == [task_id]

    async def test_promoted_work(self, harness: Harness) -> None:
        store = await harness.another()
        await harness.enqueue(delay=10.0)
        await harness.advance(11)
        heard = await ears(store)
        await harness.tick()
        await heard.hear(ready("default"))
        assert len(await harness.claim(1, store=store)) == 1

    async def test_what_is_due_soon(self, harness: Harness) -> None:
        heard = await ears(harness.store)
        await harness.enqueue(delay=1.5)
        await heard.hear(lambda wake: wake.due_in is not None and wake.due_in <= 1.5)

    async def test_a_cancel_request(self, harness: Harness) -> None:
        claimed = await harness.running()
        heard = await ears(harness.store)
        await harness.ask_to_cancel(claimed.id)
        await heard.hear(lambda wake: wake.cancel or wake == Wake())
        assert (await harness.tick()).cancels == [claimed.id]

    async def test_a_free_place_of_a_full_kind(self, harness: Harness) -> None:
        await harness.limit("K", concurrency=1)
        await harness.enqueue_many(2, "K")
        claimed = await harness.claim_one()
        heard = await ears(harness.store)
        await harness.settle(claimed, Completed())
        await heard.hear(ready("default"))
        assert len(await harness.claim(1)) == 1

    async def test_several_listeners_of_one_store(self, harness: Harness) -> None:
        first = await ears(harness.store)
        second = await ears(harness.store, "mail")
        await harness.enqueue()
        await first.hear(ready("default"))
        await harness.enqueue(queue="mail")
        await second.hear(ready("mail"))
