"""A provider spoken to by the handlers of a real worker, through an outage, on both stores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive import App, Context, Fail, Snooze, State
from redrive.remote import ProviderError, RemoteItem
from redrive.testing.provider import SimulatedProvider, simulated_provider
from tests.worker.conftest import MakeApp, make_app, url, working

__all__ = ["make_app", "url"]


@pytest.fixture
def simulated() -> Iterator[SimulatedProvider]:
    with simulated_provider("--duration", "0.05", "--lost-share", "0.3") as made:
        yield made


def rendering(app: App) -> App:
    @app.task("RENDER", max_attempts=60)
    async def render(ctx: Context, outcome: str) -> object:
        video = app.provider_of("video")
        item = RemoteItem(str(ctx.task_id), {"simulate": {"outcome": outcome}})
        job = ctx.state or await video.start(item, str(ctx.task_id))
        status = (await video.poll([job]))[job]
        if isinstance(status, ProviderError):
            raise status
        if not status.state.ended:
            return Snooze(0.05, state=job)
        if status.failure is not None:
            raise Fail("RENDER_FAILED", status.failure.message, failure_type=status.failure.failure_type)
        return status.result

    return app


async def test_every_job_is_started_once_and_ends_as_it_has_to(make_app: MakeApp, simulated: SimulatedProvider) -> None:
    app = rendering(make_app(providers={"video": {**simulated.table, "timeout": 60}}))
    outcomes = ["succeed", "timeout", "param_error"] * 4
    tasks = await app.enqueue_many([("RENDER", {"outcome": outcome}) for outcome in outcomes])
    simulated.control(down_for=0.3, down_as="drop")
    async with working(app) as worker:
        import asyncio

        async with asyncio.timeout(120):
            while worker.health.completed + worker.health.failed < len(tasks):
                await asyncio.sleep(0.02)
    for task, outcome in zip(tasks, outcomes, strict=True):
        found = await app.get(task.id)
        assert found is not None
        expected = (State.COMPLETED, None) if outcome == "succeed" else (State.FAILED, outcome)
        assert (found.state, found.failure_type) == expected
    seen = simulated.seen()
    assert set(seen["keys"]) == {str(task.id) for task in tasks} and seen["jobs"] == len(tasks)
    assert seen["starts"] > len(tasks), "some answers were lost, and those starts were repeated"
