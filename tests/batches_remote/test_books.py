"""``redrive ledger verify`` knows batches: what they say of their money is what the books say."""

from __future__ import annotations

import pytest

from redrive import App
from redrive.ledger.service import Ledger
from redrive.ledger.verify import Verdict
from tests.batches_remote.conftest import ANN, Scripted, made, money, rich, service, work
from tests.ledger.conftest import run_sql

pytestmark = pytest.mark.anyio
BROKEN = {
    "captured": ("update TABLE set captured = captured + 1", "21 are captured, and 20 by the books"),
    "frozen": ("update TABLE set frozen = 5", "5 are frozen, and 0 by the books"),
}


async def verified(app: App) -> Verdict:
    return await (await app.operator(ANN)).of(Ledger).verify()


async def test_every_charge_is_settled_once(app: App, provider: Scripted) -> None:
    """Two rounds, one of them released in part before its end; and one that waits."""
    await rich(app)
    batch = await made(app, [{}, {"fail": "not yet", "once": True}])
    await work(app, batch)
    await (await service(app)).retry_failed(batch.id, "again")
    batch = await work(app, batch)
    assert (batch.round, batch.captured, batch.released) == (2, 20, 10)
    cancelled = await made(app, [{} for _ in range(9)])
    await (await service(app)).cancel(cancelled.id, "no more")
    await work(app, cancelled)
    await made(app, [{}])
    verdict = await verified(app)
    assert verdict.ok, verdict.problems
    assert "batches" in verdict.checks
    assert (await money(app))[1:] == (0, 20)


@pytest.mark.parametrize("what", sorted(BROKEN))
async def test_what_differs_is_named(app: App, provider: Scripted, what: str) -> None:
    await rich(app)
    batch = await work(app, await made(app, [{}, {}]))
    statement, text = BROKEN[what]
    table = "redrive_batches_remote" if app.url.startswith("sqlite") else "redrive.batches_remote"
    await run_sql(app, statement.replace("TABLE", table))
    [problem] = (await verified(app)).problems
    assert (problem.what, problem.name, problem.text) == ("batch", str(batch.id), text)
