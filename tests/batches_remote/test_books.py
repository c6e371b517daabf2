"""``redrive ledger verify`` knows batches: what they say of their money is what the books say."""

from __future__ import annotations

import pytest

from redrive import App
from redrive.batches.remote.application import RemoteBatches
from redrive.ledger.accounts import NotFrozen
from redrive.ledger.application import AppLedger
from redrive.ledger.reversals import NotReversible
from redrive.ledger.service import FreezeHeld, Ledger
from redrive.ledger.verify import Verdict
from redrive.ops.access import Caller, Role
from redrive.ops.retention import retention_of
from tests.batches_remote.conftest import ANN, Scripted, made, money, rich, rows_left, service, settled, work
from tests.ledger.conftest import run_sql

ROOT = Caller("root", Role.ADMIN)
BROKEN = {
    "an item that was charged fails": (
        "update ITEM set state = 'failed' where n = 2",
        "1 items have succeeded, at 10 each 10, and 20 were charged",
    ),
    "an item of two rounds ago is completed": (
        "update ITEM set state = 'completed', round = 1 where n = 3",
        "3 items have succeeded, at 10 each 30, and 20 were charged",
    ),
    "price": ("update TABLE set price = 5", "2 items have succeeded, at 5 each 10, and 20 were charged"),
    "captured": ("update TABLE set captured = captured + 1", "21 are captured, and 20 by the books"),
    "frozen": ("update TABLE set frozen = 5", "5 are frozen, and 0 by the books"),
}


async def verified(app: App) -> Verdict:
    return await (await app.operator(ANN)).of(Ledger).verify()


async def test_every_charge_is_settled_once(app: App, provider: Scripted) -> None:
    """Two rounds, one of them released in part before its end; and one that waits."""
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
    provider.hold = True
    batch = await work(app, await made(app, [{}]))
    ledger = (await app.operator(ROOT)).of(Ledger)
    for act in (ledger.release, ledger.capture):
        with pytest.raises(FreezeHeld, match="settles this money itself") as refused:
            await act("acme", batch.reference, "it will not end", 10)
        assert refused.value.hint == f"redrive batch cancel {batch.id} gives back what was not started"
    reversals = (await app.operator(ROOT)).of(Ledger)
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
    batch = await work(app, await made(app, [{}, {}, {"fail": "no"}]))
    statement, text = BROKEN[what]
    await run_sql(app, named(app, statement))
    [problem] = (await verified(app)).problems
    assert (problem.what, problem.name, problem.text.partition(":")[0]) == ("batch", str(batch.id), text)


def named(app: App, statement: str) -> str:
    at = "redrive_" if app.url.startswith("sqlite") else "redrive."
    for word, table in (("TABLE", "batches_remote"), ("ITEM", "batches_item"), ("MOVEMENT", "ledger_movement")):
        statement = statement.replace(word, f"{at}{table}")
    return statement


@pytest.mark.parametrize("under", [None, "batch:01a1ebe1-0000-7000-8000-000000000000", "of nothing"])
async def test_a_settlement_of_no_batch_is_named(app: App, provider: Scripted, under: str | None) -> None:
    """It adds up to zero, accounts have what their entries say, and what is frozen is what freezes say."""
    provider.hold = True
    batch = await work(app, await made(app, [{}, {}]))
    now = "unixepoch() * 1000000" if app.url.startswith("sqlite") else "clock_timestamp()"
    await run_sql(app, f"insert into {{posting}} (key, at) values ('settle:forged', {now})")
    for account, amount in (("frozen:acme", -5), ("system:revenue", 5)):
        await run_sql(app, f"insert into {{account}} (name, balance) values ('{account}', 0) on conflict do nothing")
        await run_sql(
            app, f"insert into {{entry}} (posting, account, amount) values ('settle:forged', '{account}', {amount})"
        )
        await run_sql(app, f"update {{account}} set balance = balance + {amount} where name = '{account}'")
    await run_sql(app, "update {freeze} set amount = amount - 5")
    if under is not None:
        await run_sql(app, named(app, f"insert into MOVEMENT values ('settle:forged', 'acme', '{under}')"))
    found = [problem.text for problem in (await verified(app)).problems]
    wanted = {
        None: "moves frozen money, and nothing says what that was frozen for",
        "of nothing": "5 more were settled for of nothing than were frozen for it",
    }.get(under, f"moves money of {under}, and there never was such a batch, or such a round of it")
    assert wanted in found, found
    assert any(f"frozen for batch:{batch.id}, and 20 by its entries" in text for text in found), found


async def test_a_round_that_a_batch_never_had_is_named(app: App, provider: Scripted) -> None:
    batch = await work(app, await made(app, [{}, {}]))
    now = "unixepoch() * 1000000" if app.url.startswith("sqlite") else "clock_timestamp()"
    for what, entries in {
        "freeze": (("account:acme", -5), ("frozen:acme", 5)),
        "settle": (("frozen:acme", -5), ("system:revenue", 5)),
    }.items():
        key = f"{what}:{batch.id}:9"
        await run_sql(app, f"insert into {{posting}} (key, at) values ('{key}', {now})")
        for account, amount in entries:
            values = f"('{key}', '{account}', {amount})"
            await run_sql(app, f"insert into {{entry}} (posting, account, amount) values {values}")
            await run_sql(app, f"update {{account}} set balance = balance + {amount} where name = '{account}'")
        await run_sql(app, named(app, f"insert into MOVEMENT values ('{key}', 'acme', 'batch:{batch.id}')"))
    found = {problem.name for problem in (await verified(app)).problems}
    assert found == {f"freeze:{batch.id}:9", f"settle:{batch.id}:9"}


async def test_items_that_are_gone_hide_none_that_were_changed(app: App, provider: Scripted) -> None:
    await work(app, await made(app, [{}, {}, {}, {"fail": "no"}]))
    await run_sql(app, named(app, "delete from ITEM where n = 4"))
    assert (await verified(app)).ok, "as while it is pruned"
    await run_sql(app, named(app, "update ITEM set state = 'failed' where n < 3"))
    [problem] = (await verified(app)).problems
    assert "somebody changed its items" in problem.text


async def test_what_was_pruned_stays_proven(app: App, provider: Scripted) -> None:
    batch = await work(app, await made(app, [{}, {"fail": "no"}]))
    free = await app.of(RemoteBatches).create([{}], provider="video", price=0)
    await work(app, free)
    store = await app.store()
    late = retention_of(app.settings.with_values(history_days=0.000_000_1), app.features)
    for _ in range(3):
        await store.upkeep("prune", late)
    assert await store.sql.feature_rows("batches", "remote_by_id", str(batch.id)) == []
    assert (await verified(app)).ok
    await run_sql(app, named(app, "update TABLE set price = 5").replace("batches_remote", "batches_paid"))
    [problem] = (await verified(app)).problems
    assert problem.name == str(batch.id) and "at 5 each 5, and 10 were charged" in problem.text


async def test_a_batch_whose_freeze_failed_is_pruned_too(app: App, provider: Scripted) -> None:
    """It was never settled: it goes by the time of its end, not before, and the books miss nothing."""
    await rich(app, amount=5)
    batch = await work(app, await made(app, [{}, {}]))
    assert (batch.state, batch.settled_at) == ("failed", None) and batch.ended_at is not None
    store = await app.store()
    for days, left in ((1.0, (1, 2)), (0.000_000_1, (0, 0))):
        for _ in range(3):
            await store.upkeep("prune", retention_of(app.settings.with_values(history_days=days), app.features))
        assert await rows_left(app) == left
    assert (await verified(app)).ok
