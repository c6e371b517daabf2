"""Remote batches as everybody with a role may look at them: lists, one batch, its progress and its pace, its items."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.batches.batch import BATCH, STRETCHES, Batch, BatchUnknown
from redrive.batches.names import ENDED_ITEMS, FEATURE, ItemState
from redrive.batches.remote.model import (
    NOTHING_TO_RETRY,
    BatchItem,
    Counts,
    RemoteBatch,
    ToRetry,
    batch_of,
    count_items,
    find_remote,
    item_of,
    items_to_retry,
    no_items,
)
from redrive.batches.remote.wait_reasons import remote_waits_for
from redrive.feature import InvalidInput, Role, Service
from redrive.kernel.classify import FailureType
from redrive.kernel.ports.store import Store
from redrive.kernel.task import check_int
from redrive.ops.inspect import parse_id
from redrive.ops.why import Reason
from redrive.webhooks.address_guard import origin

LATELY = 5  # stretches: the last sixth of its time says how fast it is now
SHORTEST_S = 30.0  # of a round: before that there is no pace
MOST_ITEMS = 1001  # a page of 1,000, and one more that says whether it goes on


@dataclass(slots=True, frozen=True)
class History:
    """Items that ended in each of thirty equal stretches of a round; ``failed`` by type."""

    seconds: float  # of all stretches
    completed: list[int]
    failed: Mapping[str, list[int]]

    @property
    def per_second(self) -> float:
        """Returns how many items have ended in a second, lately."""
        ended = [self.completed, *self.failed.values()]
        return sum(sum(one[-LATELY:]) for one in ended) / (self.seconds * LATELY / STRETCHES)

    def seconds_left(self, items: int) -> float | None:
        """Returns how long so many items take at this pace; None where it is too early to say, or nothing ends."""
        pace = self.per_second if self.seconds >= SHORTEST_S else 0.0
        return items / pace if pace else None


async def item_history(store: Store, batch: RemoteBatch, now: datetime) -> History | None:
    """Returns the history of the last round of a batch; None while it has not begun."""
    if batch.dispatched_at is None:
        return None
    since = batch.dispatched_at.timestamp()
    seconds = max((batch.settled_at or now).timestamp() - since, 1.0)
    rows = await store.sql.feature_rows(FEATURE, "remote_ended", str(batch.id), since, seconds / STRETCHES)
    completed, failed = [0] * STRETCHES, dict[str, list[int]]()
    for row in rows:
        counted = failed.setdefault(row["failure_type"] or "unknown", [0] * STRETCHES) if _is_failed(row) else completed
        counted[min(max(int(row["stretch"]), 0), STRETCHES - 1)] += row["n"]
    return History(seconds, completed, failed)


def _is_failed(row: Mapping[str, Any]) -> bool:
    return bool(row["state"] == ItemState.FAILED)


@dataclass(slots=True, frozen=True)
class Progress:
    """A batch, how many of its items are in which state, and why some failed."""

    batch: RemoteBatch
    counts: Counts
    by_type: dict[str, int]
    by_code: dict[str, int]
    unknown: int = 0  # items that ended without the provider's word
    uncharged: int = 0  # items that ended here, and ran all the same
    retry: ToRetry = NOTHING_TO_RETRY  # what a retry of the failed ones is about


async def find_shown(store: Store, batch: UUID) -> Batch:
    """Returns a batch as all batches are seen, with how many of its items have ended."""
    rows = await store.sql.feature_rows(FEATURE, "remote_shown", str(batch))
    if not rows:
        raise BatchUnknown(f"there is no batch {batch}", hint="redrive batch list names the latest")
    return batch_of(rows[0])


class RemoteBatchReads(Service):
    """Looks at remote batches; what may be secret or personal only operators see."""

    async def show(self, batch: UUID | str) -> RemoteBatch:
        self._session.may(Role.VIEWER)
        return self._seen(await find_remote(self._store, parse_id(str(batch), BATCH)))

    def _seen(self, batch: RemoteBatch) -> RemoteBatch:
        """Returns what the caller may see of a batch: its name, key and meta are others' words, and the path of
        its webhook may be a secret."""
        if self._session.caller.role >= Role.OPERATOR:
            return batch
        return replace(
            batch, name=None, key=None, meta=None, webhook_url=batch.webhook_url and origin(batch.webhook_url)
        )

    async def progress(self, batch: UUID | str) -> Progress:
        """Returns a batch with the counts of its items."""
        found = await self.show(batch)
        types, codes = dict[str, int](), dict[str, int]()
        for row in await self._store.sql.feature_rows(FEATURE, "remote_failures", str(found.id)):
            kind, code = row["failure_type"] or "unknown", row["error_code"] or "unknown"
            types[kind] = types.get(kind, 0) + row["n"]
            codes[code] = codes.get(code, 0) + row["n"]
        shown = await find_shown(self._store, found.id)
        counts, part = await count_items(self._store, found), shown.remote
        if found.pruned_at is not None:  # some items are gone: what was counted when it was settled stays
            kept = {state: getattr(shown, state) for state in ENDED_ITEMS}
            counts = replace(counts, states=no_items() | kept)
        unknown, uncharged = (0, 0) if part is None else (part.unknown, part.uncharged)
        return Progress(found, counts, types, codes, unknown, uncharged, await items_to_retry(self._store, found.id))

    async def to_retry(self, batch: UUID) -> ToRetry:
        """Returns what a retry of its failed items is about."""
        self._session.may(Role.VIEWER)
        return await items_to_retry(self._store, batch)

    async def unknown(self, batch: UUID | str) -> int:
        """Returns how many of its items ended without the provider's word."""
        self._session.may(Role.VIEWER)
        [row] = await self._store.sql.feature_rows(FEATURE, "unknown_items", str(batch))
        return int(row["n"])

    async def waits_for(self, batch: UUID | str) -> builtins.list[Reason]:
        """Returns what it waits for, and each of its items that has not ended."""
        words = self._session.caller.role >= Role.OPERATOR
        return await remote_waits_for(self._store, await self.show(batch), words=words)

    async def history(self, batch: RemoteBatch) -> History | None:
        """Returns how the items of its last round ended over time; None while that has not begun."""
        self._session.may(Role.VIEWER)
        return await item_history(self._store, batch, await self._store.now())

    async def item_of_task(self, task: UUID) -> BatchItem | None:
        """Returns the item that a task is for, without what is personal; None where it has another task since."""
        self._session.may(Role.VIEWER)
        rows = await self._store.sql.feature_rows(FEATURE, "item_of_task", str(task))
        return item_of(rows[0]) if rows else None

    async def items(
        self,
        batch: UUID | str,
        *,
        states: Sequence[str] = (),
        failure_type: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> builtins.list[BatchItem]:
        """Returns items in the order in which they were given, those behind ``after``. Payloads and results may be
        personal: operators see them, viewers do not."""
        found = await self.show(batch)
        check_int(limit, "limit", 1, MOST_ITEMS)
        check_int(after, "after", 0, 2**31 - 1)
        _one_of(failure_type, tuple(FailureType), "failure type")
        for state in states:
            _one_of(state, tuple(ItemState), "state of an item")
        wanted = json.dumps(list(states)) if states else None
        rows = await self._store.sql.feature_rows(
            FEATURE, "items_listed", str(found.id), after, wanted, failure_type, limit
        )
        shown = self._session.caller.role >= Role.OPERATOR
        hidden = {} if shown else {"payload": None, "result": None, "error_message": None}
        return [item_of({**row, **hidden}) for row in rows]


def _one_of(given: str | None, known: tuple[str, ...], what: str) -> None:
    if given is not None and given not in known:
        raise InvalidInput(f"{given!r} is no {what}", hint=f"one of: {', '.join(known)}")
