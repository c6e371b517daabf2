"""A sink that is gone for two minutes, with a worker as it is started by default: it is left alone, and is found again
within one backoff."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from redrive_kit.labs.facts import Facts
from redrive_kit.labs.sinks import SimulatedSink
from redrive_kit.labs.world import World

pytestmark = [pytest.mark.anyio, pytest.mark.faults, pytest.mark.timeout(900)]
EVENTS = 2000
OUTAGE_S = 120.0
MAX_BACKOFF_S = 60.0  # the default, and the longest that the recovery may take
SLACK_S = 60.0  # for a machine that is busy


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    sqlite = request.param == "sqlite"
    return f"sqlite:///{tmp_path}/redrive.db" if sqlite else str(request.getfixturevalue("postgres_url"))


class Knocks:
    """Counts who wants to speak to a sink that is down: connections are taken, and closed at once."""

    def __init__(self) -> None:
        self.by_second: Counter[int] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.by_second[int(time.monotonic())] += 1
        writer.transport.abort()


@pytest.mark.repeats
async def test_a_sink_that_is_down_for_two_minutes_is_left_alone_and_found_again(url: str, tmp_path: Path) -> None:
    sink = SimulatedSink(tmp_path, "outage")
    await sink.start()
    world = World(url, tmp_path, "outage", "outage", sink, {}, fresh=True)
    try:
        await world.app.migrate()
        await world.worker("first")
        await world.publish(1)
        await _until(world, lambda now: now.done == 1)
        port = urlsplit(sink.url.partition("+")[2]).port
        await sink.stop()
        knocks = Knocks()
        async with await asyncio.start_server(knocks.serve, "127.0.0.1", port):
            await world.publish(EVENTS)
            await asyncio.sleep(OUTAGE_S)
        during = await world.facts("at its end")
        await sink.start()
        back = time.monotonic()
        await _until(world, lambda now: now.lag == 0)
        took = time.monotonic() - back
        after = await world.facts("after")
        versions = await sink.versions()
    finally:
        await world.close()
    total, most = knocks.by_second.total(), max(knocks.by_second.values())
    print(f"{total} requests in {OUTAGE_S:g} s, at most {most} within a second, {during.most_attempts} attempts;")
    print(f"all {after.done} were there {took:.1f} s after it was back")
    assert total <= OUTAGE_S and most <= 20, sorted(knocks.by_second.items())
    assert 1 <= during.most_attempts <= 9 and after.failed == 0 and after.done == EVENTS + 1
    assert took <= MAX_BACKOFF_S + SLACK_S
    assert versions == world.source


async def _until(world: World, condition: object) -> Facts:
    assert callable(condition)
    give_up = time.monotonic() + 300
    while not condition(now := await world.facts("")):
        assert time.monotonic() < give_up, now.words()
        await asyncio.sleep(0.2)
    return now
