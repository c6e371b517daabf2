"""Each duty of recovering looks after its own tasks, and asks for no more than those."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import App
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import ClaimRequest
from redrive.settings import Options

from .conftest import placed


@pytest.fixture
def app(each_app: App) -> App:
    """On both stores."""
    return each_app


async def test_a_duty_recovers_its_own_and_asks_once(app: App) -> None:
    store: Any = await app.store()
    app.declare("PLAIN")
    await app.enqueue("PLAIN")
    await placed(app, addresses=("here", "there"))
    queues = tuple({count.queue for count in await store.counts()})
    claimed = (await store.cycle(Commit(), ClaimRequest("gone", queues, 9, 0.0))).claimed
    of = {task.id: task.feature or "" for task in claimed}
    assert sorted(of.values()) == ["", "orders", "orders"]
    worker = app.worker(store, Options())
    duties = ["recover", "recover:orders"]
    assert set(duties) <= set(worker.duties)
    asked = _heard(store)
    for name, feature, left in (("recover:orders", "orders", [""]), ("recover", "", [])):
        await worker.duties[name].run(store, worker.id, lambda: False)
        assert asked == ["expired", ("apply", [feature] * list(of.values()).count(feature))], name
        running = [await app.get(task_id) for task_id in of]
        assert [of[task.id] for task in running if task is not None and task.state == "running"] == left
        asked.clear()
    for name in duties:  # nothing is left: one look each
        await worker.duties[name].run(store, worker.id, lambda: False)
    assert asked == ["expired"] * 2


def _heard(store: Any) -> list[Any]:
    """Returns what the store is asked for from now on: each look, and the features of what is moved."""
    heard: list[Any] = []
    expired, apply = store.expired, store.apply

    async def look(*args: Any) -> Any:
        heard.append("expired")
        return await expired(*args)

    async def move(commit: Commit) -> Any:
        heard.append(("apply", [transition.feature or "" for transition in commit.transitions]))
        return await apply(commit)

    store.expired, store.apply = look, move
    return heard
