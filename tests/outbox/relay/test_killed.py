"""A worker that is killed at each step of a bulk: nothing is lost, nothing is stuck when the lease is over, and the
sink has what the source has."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redrive import State
from redrive.outbox.health import event_counts
from tests.commands import Forked, start_module
from tests.outbox.conftest import BOTH_STORES, World, make_app
from tests.outbox.faulty import Faulty
from tests.outbox.forgetful import ForgetfulFts5
from tests.outbox.relay.dying_worker import POINTS
from tests.worker.conftest import until

pytestmark = [pytest.mark.anyio, pytest.mark.faults, pytest.mark.timeout(300)]
LONGEST = 90  # seconds that a worker has to come to a point, on a busy machine
ENTITIES = 100


@contextmanager
def worker(env: dict[str, str], log: Path, *point: str) -> Iterator[Forked]:
    process = start_module("tests.outbox.relay.dying_worker", *point, env=env, log=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


@BOTH_STORES
async def test_killed_when_the_sink_has_it_and_the_store_does_not_know(url: str, tmp_path: Path) -> None:
    await killed_at(("write:after",), url, tmp_path)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
@pytest.mark.thorough
async def test_killed_at_each_step(url: str, tmp_path: Path) -> None:
    await killed_at(POINTS, url, tmp_path)


async def killed_at(points: Sequence[str], url: str, tmp_path: Path) -> None:
    app = make_app(url, max_attempts=100)
    await app.migrate()
    fts = ForgetfulFts5(tmp_path / "search.db")
    app.outbox.projection("notes", sink=fts)
    world, log = World(app, fts, Faulty(fts)), tmp_path / "worker.log"
    env = {**os.environ, "REDRIVE_URL": url, "TEST_SEARCH": str(tmp_path / "search.db")}
    source: dict[str, tuple[int, Any]] = {}
    for round_, point in enumerate(points, 1):
        await publish_round(world, round_, source)
        with worker(env, log, point) as dying:
            assert dying.wait(LONGEST) == -signal.SIGKILL, point
    with worker(env, log):
        await until(lambda: drained(world), LONGEST)
    alive = {key: one for key, one in source.items() if one[1] is not None}
    assert await world.versions() == {key: version for key, (version, _) in alive.items()}
    assert [await fts.get(key) for key in alive] == [document for _, document in alive.values()]
    assert "outbox.reclaimed" in log.read_text()
    await app.close()
    await fts.close()


async def publish_round(world: World, version: int, source: dict[str, tuple[int, Any]]) -> None:
    """Changes every entity, and deletes some: the older half of it comes after the newer one."""
    events: list[tuple[Any, ...]] = []
    for entity in range(ENTITIES):
        deleted = (entity + version) % 5 == 0
        document = None if deleted else {"v": 2 * version, "text": f"round {version}"}
        events.append(("note", entity, "delete" if deleted else "upsert", 2 * version, document))
        source[f"note:{entity}"] = (2 * version, document)
    events += [("note", entity, "upsert", 2 * version - 1, {"v": "older"}) for entity in range(ENTITIES)]
    await world.app.outbox.publish_many(None, "notes", events)


async def drained(world: World) -> bool:
    [one] = await event_counts(await world.app.store(), world.app.settings)
    assert one.failed == 0, [task.error_message for task in await world.tasks() if task.state is State.FAILED][:3]
    return one.lag == 0 and one.stuck == 0
