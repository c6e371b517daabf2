"""The live parts of a remote batch's page: progress, money, failures, and the rows of its items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redrive.batches.batch import ItemState
from redrive.batches.remote.reads import History, Progress
from redrive.batches.remote.service import RemoteBatchService
from redrive.batches.remote.wait_reasons import ORDINARY
from redrive.console.live import Sample
from redrive.errors import InvalidInput
from redrive.feature import Operator
from redrive.feature.console import render
from redrive.ledger.service import Ledger
from redrive.ops.why import Reason

ROWS = 50  # of a page of items
PARTS = {
    "#progress": "batches/remote_progress.html",
    "#money": "batches/remote_money.html",
    "#failures": "batches/remote_failures.html",
}


@dataclass(slots=True, frozen=True)
class Shown:
    """A batch as its page shows it; ``circuit`` is that of its provider while it is open, ``waits_for`` what else keeps
    its items from going on."""

    found: Progress
    history: History | None
    circuit: Any
    waits_for: Sequence[Reason]
    unit: str

    @property
    def seconds_left(self) -> float | None:
        batch, states = self.found.batch, self.found.counts.states
        if self.history is None or batch.settled or self.circuit is not None or self.waits_for:
            return None
        return self.history.seconds_left(states[ItemState.PENDING] + states[ItemState.PROCESSING])


async def shown(operator: Operator, batch: str) -> Shown:
    """Returns what the live parts are made of."""
    own = operator.of(RemoteBatchService)
    found = await own.progress(batch)
    circuits = () if found.batch.settled else await operator.circuits.list()
    down = next((one for one in circuits if one.open and one.name == found.batch.provider), None)
    waits = [one for one in await own.waits_for(batch) if one.code not in ("circuit", *ORDINARY)]
    return Shown(found, await own.history(found.batch), down, waits, operator.of(Ledger).unit)


def sample_remote(batch: str) -> Sample:
    """Samples a batch. One that is settled stays as it is: its items are not counted again until somebody acts."""
    last: Mapping[str, str] = {}
    seen: tuple[int, int] | None = None

    async def sample(operator: Operator) -> Mapping[str, str]:
        nonlocal last, seen
        own = operator.of(RemoteBatchService)
        now = await own.show(batch)
        at = (now.version, await own.unknown(batch)) if now.settled else None
        if at is None or at != seen:
            last = await _regions(operator, batch)
            seen = at
        return last

    return sample


async def _regions(operator: Operator, batch: str) -> Mapping[str, str]:
    made, now = await shown(operator, batch), await operator.health.now()
    one = made.found.batch
    changed = f"{one.state}.{one.round}.{one.cancelled_at is None}"
    return {name: render(part, operator, shown=made, now=now) for name, part in PARTS.items()} | {"changed": changed}


def sample_items(argument: str) -> Sample:
    """Samples a page of items that nobody has filtered: its rows stay in their places, and only say more."""
    batch, _, after = argument.partition(".")
    if not after.isdecimal():
        raise InvalidInput(f"{argument[:60]!r} names no page of items")

    async def sample(operator: Operator) -> Mapping[str, str]:
        items = await operator.of(RemoteBatchService).items(batch, after=int(after), limit=ROWS)
        return {"#items": render("batches/remote_items.html", operator, items=items, now=await operator.health.now())}

    return sample
