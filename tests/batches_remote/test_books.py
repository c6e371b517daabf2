"""``redrive ledger verify`` knows batches: what they say of their money is what the books say."""

from __future__ import annotations

import pytest

from redrive import App
from redrive.ledger.accounts import NotFrozen
from redrive.ledger.application import AppLedger
from redrive.ledger.reversals import NotReversible, Reversals
from redrive.ledger.service import FreezeHeld, Ledger
from redrive.ledger.verify import Verdict
from redrive.ops.access import Caller, Role
from tests.batches_remote.conftest import ANN, Scripted, made, money, rich, service, settled, work
from tests.ledger.conftest import run_sql

pytestmark = pytest.mark.anyio
ROOT = Caller("root", Role.ADMIN)
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


async def test_money_of_a_batch_that_has_not_ended_is_not_settled_by_hand(app: App, provider: Scripted) -> None:
    await rich(app)
    provider.hold = True
    batch = await work(app, await made(app, [{}]))
    ledger = (await app.operator(ROOT)).of(Ledger)
    for act in (ledger.release, ledger.capture):
        with pytest.raises(FreezeHeld, match="settles this money itself") as refused:
            await act("acme", batch.reference, "it will not end", 10)
        assert refused.value.hint == f"redrive batch cancel {batch.id} gives back what was not started"
    reversals = (await app.operator(ROOT)).of(Reversals)
    with pytest.raises(FreezeHeld, match="settles this money itself") as refused:
        await reversals.reverse(f"freeze:{batch.charge}", "it will not end")
    assert "redrive batch cancel" in str(refused.value.hint)
    assert (await money(app), (await verified(app)).ok) == ((990, 10, 0), True)
    provider.hold = False
    assert (await settled(app, batch)).captured == 10
    with pytest.raises(NotReversible) as charged:
        await reversals.reverse(f"settle:{batch.charge}", "they complained")
    assert "redrive ledger adjust acme +10" in str(charged.value.hint)
    with pytest.raises(NotFrozen):
        await ledger.release("acme", batch.reference, "once more")


async def test_money_that_was_taken_away_all_the_same_is_named_and_can_be_put_back(
    app: App, provider: Scripted
) -> None:
    await rich(app)
    provider.hold = True
    batch = await work(app, await made(app, [{}]))
    await app.of(AppLedger).settle("acme", batch.reference, "by hand", released=10)
    [problem] = (await verified(app)).problems
    assert problem.name == str(batch.id) and "10 are frozen for it, and the ledger holds 0" in problem.text
    await (await app.operator(ROOT)).of(Ledger).freeze("acme", 10, batch.reference, "as it was")
    assert (await verified(app)).ok
    provider.hold = False
    assert (await settled(app, batch)).captured == 10
    assert await money(app) == (990, 0, 10)


@pytest.mark.parametrize("what", sorted(BROKEN))
async def test_what_differs_is_named(app: App, provider: Scripted, what: str) -> None:
    await rich(app)
    batch = await work(app, await made(app, [{}, {}]))
    statement, text = BROKEN[what]
    table = "redrive_batches_remote" if app.url.startswith("sqlite") else "redrive.batches_remote"
    await run_sql(app, statement.replace("TABLE", table))
    [problem] = (await verified(app)).problems
    assert (problem.what, problem.name, problem.text) == ("batch", str(batch.id), text)
