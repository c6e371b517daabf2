"""What customers pay for, after a busy day: accounts, remote batches in every state, webhooks, a circuit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from redrive import App, Context
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.remote.model import RemoteBatch
from redrive.batches.settings import BatchSettings
from redrive.feature import Settings
from redrive.kernel.circuit import Circuit
from redrive.ledger.application import AppLedger
from redrive.observe.logs import TaskLog
from redrive.ops.access import Caller, Role
from redrive.ops.operator import circuits
from redrive.remote import ProviderError, RemoteItem, Status
from redrive.settings import Options
from redrive.webhooks.application import Webhooks
from redrive.webhooks.settings import WebhookSettings
from tests.batches_remote.conftest import Scripted
from tests.webhooks.receiver import Receiver, Reply, receiving

FAILURES = (
    {"fail": "no answer within 600 s", "status": 504},
    {"fail": "the model ran out of memory", "status": 500},
    {"fail": "frames has to be a number", "status": 422},
    {"fail": "too many requests", "status": 429},
)
# The first looks follow at once, the later ones not before somebody has looked at the page.
SPACING = {"poll_first": 0.0, "poll_next": 0.0, "poll_later": 3600.0}
PRICE = 5
QUEUES = ("batches", "batches-dispatch", "batches-settle", "webhooks", "cuts")


class Spare:
    """A provider that takes a few jobs, and then is away."""

    max_poll = 25

    def __init__(self, room: int) -> None:
        self._room = room

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        self._room -= 1
        if self._room < 0:
            raise ProviderError("the spare farm is being moved", status_code=503)
        return idempotency_key

    async def poll(self, ids: Sequence[str]) -> dict[str, Status]:
        return {one: Status.running(40.0) for one in ids}


def with_farm(settings: Settings) -> Settings:
    """Returns settings for an application that has the farm."""
    return settings.holding(BatchSettings(**SPACING)).holding(WebhookSettings(allow_networks=["127.0.0.0/8"]))


def add_farm(made: App) -> None:
    made.provider("farm", Scripted())
    made.provider("spare", Spare(13))


async def furnish_farm(
    made: App, size: int = 2, name: str = "Trailer of episode 7", label: str = "Studio Nord"
) -> None:
    """Fills a store with what remote batches leave; ``name`` and ``label`` are what somebody called things."""
    ledger = made.of(AppLedger)
    for account, amount in (("studio", 4000), ("newcomer", 20), ("idle", 0)):
        await ledger.open(account, label=label if account == "studio" else None)
        if amount:
            await ledger.credit(account, amount, f"invoice-{account}", reason="invoice 4711, paid by transfer")
    with receiving() as receiver:
        await _endpoints(made, receiver, label)
        await order(made, "studio", name, shots(16 * size, broken=True), meta={"episode": 7})
        await work(made)
        receiver.answers = [Reply(500, body=b"<h1>out of order</h1>")]
        await order(made, "newcomer", "More than it can pay", shots(10))
        await order(made, "studio", "Poster", shots(3), price=0, account=None)
        called_off = await order(made, "studio", "Called off", shots(20, slow=True))
        await work(made)
        await made.of(RemoteBatches).cancel(called_off.id, "the scene was cut")
        # Not tried again before somebody has looked at the page, however long it takes to be furnished: that it is away
        # is for the tests to say, and a probe would find it there.
        with patch.object(circuits, "OPENED_BY_HAND", Circuit(delay=3600.0, max_delay=3600.0)):
            ann = await made.operator(Caller("ann", Role.ADMIN))
            await ann.circuits.open("spare", "the spare farm is being moved")
        await order(made, "studio", "Teaser at the spare farm", shots(40), provider="spare")
        await order(made, "studio", "The whole film", [*shots(12 * size, broken=True), *shots(8 * size, slow=True)])
        await work(made)
    await _batches(made)


def shots(count: int, *, broken: bool = False, slow: bool = False) -> list[dict[str, Any]]:
    """Returns items; of broken ones every third fails, and slow ones do not end."""
    made = [{"shot": f"s-{n:03}", "frames": 24 * (1 + n % 5)} for n in range(1, count + 1)]
    for n, one in enumerate(made):
        if broken and n % 3 == 2:
            one |= FAILURES[n // 3 % len(FAILURES)] | {"once": True}
        if slow:
            one |= {"polls": 1000, "progress": 20.0 + n % 60}
    return made


async def order(made: App, payer: str, name: str, items: list[dict[str, Any]], **more: Any) -> RemoteBatch:
    given = {"provider": "farm", "account": payer, "price": PRICE, "name": name, "key": f"order:{name}", **more}
    return await made.of(RemoteBatches).create(items, **given)


async def work(made: App) -> None:
    """Runs what is ready of batches and webhooks, and nothing else."""
    options = Options(concurrency=50, stop_when_empty=True, queues=QUEUES)
    await made.worker(await made.store(), options, log=TaskLog(style="off")).run()


async def _endpoints(made: App, receiver: Receiver, label: str) -> None:
    hooks = made.of(Webhooks)
    await hooks.add(receiver.url(), account="studio", description=f"what {label} is told")
    await hooks.add(receiver.url("/newcomer"), account="newcomer", events=["batch.failed"])


async def _batches(made: App) -> None:
    """Batches of tasks: one that is done with, and one that waits."""

    @made.task("CUT_JOIN", queue="cuts", max_attempts=1)
    async def join(ctx: Context, name: str) -> str:
        return name

    cuts: list[dict[str, Any]] = [{"kind": "CUT_JOIN", "payload": {"name": f"c-{n}"}} for n in range(6)]
    await made.batch(cuts, name="Cut of episode 7")
    await work(made)
    await made.batch([{**one, "delay": 3600} for one in cuts[:4]], name="Cut of episode 8")
