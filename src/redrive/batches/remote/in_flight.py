"""How many jobs may run at once: of each provider (``BATCH_MAX_IN_FLIGHT``), and of a batch that says so.

An item takes its place before it is started, in a transaction that counts what is there, one at a time for each
provider: so the bound holds over all workers. It has the place until it has ended, or its provider has said that the
start did not come about: one that is retried takes another, also where an earlier start of it may have gone out. Those
that find none wait, and a duty makes as many due as places are free. Where nothing is bounded the place is noted all
the same, with the key of the start: a worker that dies leaves behind that it may have gone out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from redrive.batches.names import FEATURE, PLACES, WAITED
from redrive.errors import ChangedMeanwhile
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Event, Transition
from redrive.kernel.ports.store import Store
from redrive.kernel.reactions import Rows
from redrive.kernel.records import Put
from redrive.kernel.task import State

PAGE = 200


class Start(NamedTuple):
    """An item that is about to be started, and the key by which its provider knows that."""

    batch: str
    n: int
    round: int
    key: str


async def take_places(
    store: Store, provider: str, most: int | None, starts: Sequence[Start], *, bounded: bool
) -> set[tuple[str, int]]:
    """Notes that these items are about to be started; returns those that may be, each by its batch and place in it, by
    the bounds of their provider and of their batches. Where none is ``bounded``, that is all of them."""
    wanted = tuple({**one._asdict(), "place": at, "provider": provider, "most": most} for at, one in enumerate(starts))
    if not bounded:
        await store.apply(Commit(rows=[Rows(FEATURE, "items_unbounded", wanted)]))
        return {(one.batch, one.n) for one in starts}
    locked = Rows(FEATURE, "flight_locked", ({"provider": provider, "most": most},))
    await store.apply(Commit(rows=[locked, Rows(FEATURE, "items_begun", wanted)]))
    rows = await store.sql.feature_rows(FEATURE, "items_with_place", json.dumps(wanted))
    taken = {(str(row["batch"]), row["n"]) for row in rows}
    if len(taken) < len(starts) and await store.record(PLACES, WAITED) is None:
        with suppress(ChangedMeanwhile):  # another worker has
            await store.apply(Commit(puts=[Put(PLACES, WAITED, {}, state=WAITED)]))
    return taken


async def fill_places(store: Store, most: int | None, stopping: Callable[[], bool]) -> None:
    """Makes items due that wait for a place, as many as there are places, the longest first: a provider or a batch that
    has none holds up no other."""
    waiting = [] if stopping() else await store.sql.feature_rows(FEATURE, "flight_waiting", most, PAGE)
    if waiting:
        due = [Transition(UUID(str(row["task"])), Event.DUE, State.QUEUED) for row in waiting]
        await store.apply(Commit(transitions=due))


class Flights(NamedTuple):
    """How many jobs a provider has, or may have, and how many of them a batch; and how many its workers let it have."""

    of_provider: int
    of_batch: int
    most: int | None


async def in_flight(store: Store, batch: UUID) -> Flights:
    """Returns what is in flight at the provider of a batch that runs."""
    [row] = await store.sql.feature_rows(FEATURE, "flights", str(batch))
    return Flights(row["flying"] or 0, row["own"] or 0, row["most"])
