"""Makes remote batches of items that come one by one: into a draft, in pieces, and then all of them at once are one.

Nothing is there before the last item was right; a process that dies leaves a draft, which nobody sees and retention
removes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from redrive.batches.batch import BadItem, BatchConflict
from redrive.batches.names import DISPATCH, FEATURE
from redrive.batches.remote.commits import step_task
from redrive.batches.remote.model import RemoteBatch, find_remote, remote_of
from redrive.errors import InvalidInput, RedriveError
from redrive.ids import new_id
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.ledger import MOST
from redrive.kernel.payload import encode
from redrive.kernel.ports.store import Store
from redrive.kernel.reactions import Rows
from redrive.kernel.task import MAX_PAYLOAD_BYTES

PIECE = 1000  # items in a transaction
PIECE_BYTES = 4_194_304
MOST_PRICE = 2**40
MAX_META_BYTES = 16_384
Payloads = Iterable[Any] | AsyncIterable[Any]


@dataclass(slots=True, frozen=True)
class Plan:
    """What a remote batch is to be, besides its items; checked."""

    provider: str
    account: str | None
    price: int
    by: str
    key: str | None = None
    name: str | None = None
    meta: str | None = None
    scope: str | None = None
    webhook_url: str | None = None
    max_in_flight: int | None = None

    def row(self, batch: UUID) -> dict[str, Any]:
        names = ("provider", "account", "price", "by", "name", "meta", "scope", "webhook_url", "max_in_flight")
        return {"id": str(batch), **{name: getattr(self, name) for name in names}}

    @property
    def about(self) -> str:
        """What two batches of one key have to have in common, besides their items."""
        about = [self.provider, self.account, self.price, self.name, self.meta, self.scope, self.webhook_url]
        return json.dumps(about if self.max_in_flight is None else [*about, self.max_in_flight])


@dataclass(slots=True, frozen=True)
class Bounds:
    """How much one batch may hold."""

    items: int = 100_000
    bytes: int = 268_435_456


class Draft:
    """A batch that is being filled."""

    def __init__(self, store: Store, plan: Plan, bounds: Bounds) -> None:
        self.id = new_id()
        self.count = 0
        self._store = store
        self._plan = plan
        self._bounds = bounds
        self._bytes = 0
        self._hash = hashlib.sha256(plan.about.encode())

    async def fill(self, payloads: Payloads) -> tuple[RemoteBatch, bool]:
        """Returns the batch of all these items, and whether it was made now: one of the same key and content is the
        same batch. Whatever is wrong, nothing is left."""
        await self._store.apply(Commit(rows=[Rows(FEATURE, "remote_draft", (self._plan.row(self.id),))]))
        try:
            async for piece in self._pieces(payloads):
                await self._store.apply(Commit(rows=[Rows(FEATURE, "items_added", tuple(piece))]))
            if not self.count:
                raise InvalidInput(
                    "a batch has at least one item", hint="one JSON value a line, or a JSON array of them"
                )
            self._check_price()
            return await self._end()
        except BaseException:
            await self._drop()
            raise

    def _check_price(self) -> None:
        """Refuses a batch whose price is no amount of the books: it could never be dispatched."""
        if (total := self._plan.price * self.count) >= MOST:
            raise InvalidInput(
                f"{self.count:,} items at {self._plan.price:,} cost {total:,}, and an amount is below 2^53",
                hint="count in a larger unit, or make several batches",
            )

    async def _end(self) -> tuple[RemoteBatch, bool]:
        there = await self._same()
        if there is None:
            try:
                await self._store.apply(self._queued())
                return await find_remote(self._store, self.id), True
            except RedriveError:  # perhaps it landed all the same, or the same one was made at the same moment
                if (own := await self._landed()) is not None:
                    return own, True
                there = await self._same()
                if there is None:
                    raise
        await self._drop()
        return there, False

    async def _landed(self) -> RemoteBatch | None:
        """Returns this batch if it is one: the answer to its commit was lost."""
        rows = await self._store.sql.feature_rows(FEATURE, "remote_by_id", str(self.id))
        return remote_of(rows[0]) if rows else None

    async def _same(self) -> RemoteBatch | None:
        """Returns the batch that has the key already; refused where it is another one."""
        rows = (
            ()
            if self._plan.key is None
            else await self._store.sql.feature_rows(FEATURE, "remote_by_key", self._plan.key)
        )
        if not rows:
            return None
        there = remote_of(rows[0])
        if there.digest != self._digest:
            raise BatchConflict(
                f"the key {there.key!r} names a batch of other content (batch {there.id})",
                hint="one key, one batch: use another key, or give the same items in the same order",
            )
        return there

    def _queued(self) -> Commit:
        task = step_task(DISPATCH, str(self.id), 1)
        row = {"id": str(self.id), "key": self._plan.key, "digest": self._digest, "items": self.count}
        row["step_task"] = str(task.id)
        after = {"provider": self._plan.provider, "items": self.count, "price": self._plan.price}
        audit = Audit(self._plan.by, "BATCH_CREATED", target=f"batch:{self.id}", scope=self._plan.scope, after=after)
        return Commit(enqueues=[task], rows=[Rows(FEATURE, "remote_queued", (row,))], audits=[audit])

    async def _drop(self) -> None:
        row = ({"id": str(self.id)},)
        await self._store.apply(
            Commit(rows=[Rows(FEATURE, "items_dropped", row), Rows(FEATURE, "remote_dropped", row)])
        )

    @property
    def _digest(self) -> str:
        return f"{self.count}:{self._hash.hexdigest()}"

    async def _pieces(self, payloads: Payloads) -> AsyncIterator[list[dict[str, Any]]]:
        piece, size = list[dict[str, Any]](), 0
        async for payload in _each(payloads):
            text = self._take(payload)
            piece.append({"batch": str(self.id), "n": self.count, "payload": text})
            size += len(text)
            if len(piece) == PIECE or size >= PIECE_BYTES:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece

    def _take(self, payload: Any) -> str:
        """Returns an item as text, counted; one that cannot be kept is refused by its place."""
        self.count += 1
        if self.count > self._bounds.items:
            raise BadItem(
                f"a batch has at most {self._bounds.items} items", hint="make several, or set BATCH_MAX_ITEMS"
            )
        try:
            text = encode(payload, f"item {self.count}", MAX_PAYLOAD_BYTES)
        except InvalidInput as error:
            raise BadItem(error.message, hint=error.hint) from None
        self._bytes += len(text)
        if self._bytes > self._bounds.bytes:
            told = f"the items up to number {self.count} have more than {self._bounds.bytes} bytes together"
            raise BadItem(told, hint="make several batches, or set BATCH_MAX_BYTES")
        self._hash.update(text.encode() + b"\x1e")
        return text


async def _each(payloads: Payloads) -> AsyncIterator[Any]:
    if isinstance(payloads, AsyncIterable):
        async for one in payloads:
            yield one
        return
    if isinstance(payloads, str | bytes | Mapping) or not isinstance(payloads, Iterable):
        raise InvalidInput(
            f"items are a list of payloads, or what yields them, not {type(payloads).__name__}",
            hint='one item is a list of one: [{"prompt": "a cat"}]',
        )
    for one in payloads:
        yield one
