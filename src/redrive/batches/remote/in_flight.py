"""How many jobs may run at once: of each provider (``BATCH_MAX_IN_FLIGHT``), and of a batch that says so.

An item takes its place before it is started, in a transaction that counts what is there, one at a time for each
provider: so the bound holds over all workers. It has the place until it has ended, or its provider has said that the
start did not come about. Those that find none wait, and a duty makes as many due as places are free. Where nothing is
bounded the place is noted all the same: a worker that dies leaves behind that a start may have gone out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import UUID

from redrive.batches.batch import FEATURE
from redrive.errors import ChangedMeanwhile
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Event, Transition
from redrive.kernel.ports.store import Store
from redrive.kernel.reactions import Rows
from redrive.kernel.records import Put
from redrive.kernel.task import State

PAGE = 200
# A document that is there once an item has waited for a place: before, nobody has to look for such items.
COLLECTION, WAITED = "batch_places", "waited"
Place = tuple[str, int]  # a batch, and the place of an item in it


async def take_places(
    store: Store, provider: str, most: int | None, items: Sequence[Place], *, bounded: bool
) -> set[Place]:
    """Notes that these items are about to be started; returns those that may be, by the bounds of their provider and of
    their batches. Where none is ``bounded``, that is all of them."""
    wanted = tuple(
        {"batch": batch, "n": n, "place": at, "provider": provider, "most": most} for at, (batch, n) in enumerate(items)
    )
    if not bounded:
        await store.apply(Commit(rows=[Rows(FEATURE, "items_unbounded", wanted)]))
        return set(items)
    locked = Rows(FEATURE, "flight_locked", ({"provider": provider},))
    await store.apply(Commit(rows=[locked, Rows(FEATURE, "items_begun", wanted)]))
    rows = await store.feature_rows(FEATURE, "items_with_place", json.dumps(wanted))
    taken = {(str(row["batch"]), row["n"]) for row in rows}
    if len(taken) < len(items) and await store.record(COLLECTION, WAITED) is None:
        with suppress(ChangedMeanwhile):  # another worker has
            await store.apply(Commit(puts=[Put(COLLECTION, WAITED, {}, state=WAITED)]))
    return taken


async def fill_places(store: Store, most: int | None, stopping: Callable[[], bool]) -> None:
    """Makes items due that wait for a place, as many as there are places, the longest first."""
    waiting = await store.feature_rows(FEATURE, "flight_waiting", PAGE)
    if not waiting or stopping():
        return
    free = await _free(store, most)
    due = []
    for row in waiting:
        names = [name for name in (row["provider"], str(row["batch"])) if name in free]
        if all(free[name] > 0 for name in names):
            due.append(Transition(UUID(str(row["task"])), Event.DUE, State.QUEUED))
            free.subtract(names)
    if due:
        await store.apply(Commit(transitions=due))


async def in_flight(store: Store, provider: str) -> tuple[int, dict[str, int]]:
    """Returns how many jobs a provider has, or may have, and how many of them each batch."""
    rows = await store.feature_rows(FEATURE, "flights", provider)
    return sum(row["flying"] for row in rows), {str(row["id"]): row["flying"] for row in rows}


async def _free(store: Store, most: int | None) -> Counter[str]:
    """Returns the places that are free, of providers and of batches that are bounded."""
    free = Counter[str]()
    for row in await store.feature_rows(FEATURE, "flights", None):
        if row["max_in_flight"] is not None:
            free[str(row["id"])] = row["max_in_flight"] - row["flying"]
        if most is not None:
            free.setdefault(row["provider"], most)
            free[row["provider"]] -= row["flying"]
    return free
