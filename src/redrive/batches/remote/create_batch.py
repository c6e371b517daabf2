"""Makes remote batches of items that come one by one: into a draft, in pieces, and then all of them at once are one.

Nothing is there before the last item was right; a process that dies leaves a draft, which nobody sees and retention
removes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from typing import Any

from redrive.batches.batch import BadItem, BatchConflict
from redrive.batches.batch_input import BatchRequest
from redrive.batches.names import DISPATCH, FEATURE
from redrive.batches.remote.commits import step_task
from redrive.batches.remote.model import RemoteBatch, find_remote, remote_of
from redrive.batches.settings import BatchSettings
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


class Draft:
    """A batch that is being filled."""

    def __init__(self, store: Store, wanted: BatchRequest, by: str, bounds: BatchSettings) -> None:
        self.id = new_id()
        self.count = 0
        self._store = store
        self._wanted = wanted
        self._meta = None if wanted.meta is None else encode(wanted.meta, "meta", MAX_META_BYTES)
        self._by = by
        self._bounds = bounds
        self._bytes = 0
        self._hash = hashlib.sha256(self._about.encode())

    @property
    def _about(self) -> str:
        """What two batches of one key have to have in common, besides their items."""
        own = self._wanted
        about = [own.provider, own.account, own.price, own.name, self._meta, own.scope, own.webhook_url]
        return json.dumps(about if own.max_in_flight is None else [*about, own.max_in_flight])

    async def fill(self, payloads: Payloads) -> RemoteBatch:
        """Returns the batch of all these items; one of the same key and content is the same batch. Whatever is wrong,
        nothing is left."""
        names = ("provider", "account", "price", "name", "scope", "webhook_url", "max_in_flight")
        row = {"id": str(self.id), "by": self._by, "meta": self._meta}
        row |= {name: getattr(self._wanted, name) for name in names}
        await self._store.apply(Commit(rows=[Rows(FEATURE, "remote_draft", (row,))]))
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
        price = self._wanted.price or 0
        if (total := price * self.count) >= MOST:
            raise InvalidInput(
                f"{self.count:,} items at {price:,} cost {total:,}, and an amount is below 2^53",
                hint="count in a larger unit, or make several batches",
            )

    async def _end(self) -> RemoteBatch:
        there = await self._same()
        if there is None:
            try:
                await self._store.apply(self._queued())
                return await find_remote(self._store, self.id)
            except RedriveError:  # perhaps it landed all the same, or the same one was made at the same moment
                rows = await self._store.sql.feature_rows(FEATURE, "remote_by_id", str(self.id))
                if rows:
                    return remote_of(rows[0])
                there = await self._same()
                if there is None:
                    raise
        await self._drop()
        return there

    async def _same(self) -> RemoteBatch | None:
        """Returns the batch that has the key already; refused where it is another one."""
        if self._wanted.key is None:
            return None
        rows = await self._store.sql.feature_rows(FEATURE, "remote_by_key", self._wanted.key)
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
        row = {"id": str(self.id), "key": self._wanted.key, "digest": self._digest, "items": self.count}
        row["step_task"] = str(task.id)
        after = {"provider": self._wanted.provider, "items": self.count, "price": self._wanted.price}
        audit = Audit(self._by, "BATCH_CREATED", target=f"batch:{self.id}", scope=self._wanted.scope, after=after)
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
        if self.count > self._bounds.max_items:
            raise BadItem(
                f"a batch has at most {self._bounds.max_items} items", hint="make several, or set BATCH_MAX_ITEMS"
            )
        try:
            text = encode(payload, f"item {self.count}", MAX_PAYLOAD_BYTES)
        except InvalidInput as error:
            raise BadItem(error.message, hint=error.hint) from None
        self._bytes += len(text)
        if self._bytes > self._bounds.max_bytes:
            told = f"the items up to number {self.count} have more than {self._bounds.max_bytes} bytes together"
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
