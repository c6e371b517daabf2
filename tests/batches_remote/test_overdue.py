"""What never answers ends, also where nobody may ask: items behind an open circuit, and those of cancelled batches."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import App
from redrive.batches.remote.upkeep import cancel_unwanted, end_overdue, tell_ledger
from redrive.kernel.commit import Commit
from redrive.ledger import doctor
from redrive.ledger.settings import LedgerSettings
from redrive.remote import ProviderError
from tests.batches_remote.conftest import (
    Scripted,
    age,
    counts,
    end_unheard,
    made,
    make_app,
    money,
    never,
    open_circuit,
    rich,
    service,
    settled,
    work,
)


async def test_items_behind_an_open_circuit_end(app: App, provider: Scripted) -> None:
    await rich(app, amount=100)
    batch = await made(app, [{"polls": 1}] * 5)
    provider.hold = True
    await work(app, batch)  # three are started, as many as may be at once, and the others follow
    provider.down = ProviderError("gone", status_code=503)
    await open_circuit(app)
    await end_overdue(await app.store(), 3600.0, never)
    assert (await counts(app, batch)).get("failed") is None
    await end_unheard(app, batch, 5)
    assert await money(app) == (50, 50, 0)
    items = await (await service(app)).items(batch.id)
    assert {(one.error_code, one.failure_type) for one in items} == {("BATCH_MAX_ITEM_SECONDS", "timeout")}
    assert "the circuit is open (connect)" in str(items[0].error_message)
    found = await work(app, batch)
    assert (found.state, found.released) == ("failed", 50)
    assert await money(app) == (100, 0, 0)
    assert sum(provider.polls.values()) == 0


async def test_those_that_can_be_polled_are(app: App, provider: Scripted) -> None:
    await rich(app, amount=100)
    batch = await made(app, [{}])
    provider.hold = True
    await work(app, batch)
    await end_overdue(await app.store(), 0.0, never)  # no circuit is open: the next poll decides
    assert await counts(app, batch) == {"processing": 1}


async def test_polls_that_only_fail_end_by_time(store_url: str) -> None:
    app, provider = make_app(store_url, max_item_seconds=0.5), Scripted()
    app.provider("video", provider)
    await app.migrate()
    await rich(app, amount=100)
    provider.hold = True
    found = await settled(app, await made(app, [{}]))
    assert (found.state, await money(app)) == ("failed", (100, 0, 0))
    [item] = await (await service(app)).items(found.id)
    assert (item.error_code, item.failure_type, item.poll_count) == ("BATCH_MAX_ITEM_SECONDS", "timeout", 0)
    await app.close()


async def test_one_that_was_retried_meanwhile_is_left_alone(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rich(app, amount=100)
    batch = await made(app, [{"polls": 1}])
    provider.hold = True
    await work(app, batch)
    await open_circuit(app)
    store = await app.store()
    apply = store.apply

    async def slow(commit: Commit, **more: Any) -> Any:
        """Between the look and the act, the item begins anew: a limit that it has not reached."""
        late = [
            type(rows)(rows.feature, rows.statement, tuple({**one, "seconds": 3600.0} for one in rows.values))
            for rows in commit.rows
        ]
        return await apply(type(commit)(transitions=commit.transitions, rows=late), **more)

    monkeypatch.setattr(store, "apply", slow)
    await end_overdue(store, 0.0, never)
    assert await counts(app, batch) == {"processing": 1}


async def test_cancelled_batches_end_without_the_provider(app: App, provider: Scripted) -> None:
    await rich(app, amount=100)
    provider.down = ProviderError("gone", status_code=503)
    await open_circuit(app)
    batch = await made(app, [{}] * 5)
    await work(app, batch)
    assert (await counts(app, batch)) == {"pending": 5}
    await (await service(app)).cancel(batch.id, "no longer wanted")
    await cancel_unwanted(await app.store(), never)
    found = await settled(app, batch)
    assert (found.state, await counts(app, batch)) == ("cancelled", {"cancelled": 5})
    assert await money(app) == (100, 0, 0)
    assert not provider.starts


async def test_money_of_batches_that_move_is_not_at_risk(app: App, provider: Scripted) -> None:
    await rich(app, amount=100)
    batch = await made(app, [{"polls": 1}] * 2)
    provider.hold = True
    await work(app, batch)
    settings = app.settings.holding(LedgerSettings(at_risk_hours=1.0))
    store = await app.store()
    await age(app, "ledger_freeze", "moved_at", 7200)
    assert await doctor.at_risk(store, settings) == 20.0
    await tell_ledger(store, settings, never)  # its items were started just now
    assert await doctor.at_risk(store, settings) == 0.0
    await age(app, "ledger_freeze", "moved_at", 7200)
    await age(app, "batches_item", "started_at", 5400)
    await tell_ledger(store, settings, never)
    assert await doctor.at_risk(store, settings) == 20.0  # an hour and a half ago
