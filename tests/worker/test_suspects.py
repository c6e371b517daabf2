"""Whoever is suspected of killing its worker runs when nothing else could be condemned with it."""

from __future__ import annotations

from redrive import Context, State
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import Beat, ClaimRequest, Gone, Judgement, Process, Store
from redrive_kit.conformance.harness import JUDGEMENT
from tests.worker.conftest import MakeApp, drain

SUSPECTS = 4


async def test_suspects_of_one_claim_are_handed_back_before_one_of_them_begins(make_app: MakeApp) -> None:
    app = make_app(max_worker_deaths=2)
    beside: list[int] = []

    @app.task("SUSPECT", max_attempts=1)
    async def suspect(ctx: Context) -> None:
        tasks = [await app.get(one.id) for one in made]
        beside.append(sum(task is not None and task.state is State.RUNNING for task in tasks) - 1)

    made = [await app.enqueue("SUSPECT") for _ in range(SUSPECTS)]
    await _die_with_all(await app.store(), JUDGEMENT)
    await drain(app)
    assert beside == [0] * SUSPECTS


async def _die_with_all(store: Store, judgement: Judgement) -> None:
    """Lets a worker claim everything, and end."""
    await store.beat(Beat("dead", Process("host", 1), ("default",), 4, 0, "0", 0.0, 1.5, 1.0, judgement))
    cycle = await store.cycle(Commit(), ClaimRequest("dead", ("default",), SUSPECTS, 600.0))
    assert len(cycle.claimed) == SUSPECTS
    assert (await store.end_leases(Gone("dead", Process("host", 1))))["dead"].tasks == SUSPECTS
