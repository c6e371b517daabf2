"""Makes batches: one Commit for a small one; for a large one, or one that is filled bit by bit, an open join that is
closed at its end."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from redrive.batches.add_items import KeysTaken, Way, add_items, check_open
from redrive.batches.batch import FEATURE, Batch, BatchCancelled, BatchConflict, of_row
from redrive.batches.cancel_batch import give_up
from redrive.batches.follow_up import following
from redrive.batches.kinds import ended
from redrive.batches.task_input import Digest, Given, Many, as_new, in_pieces, members, with_scope
from redrive.errors import InvalidInput, StoreError
from redrive.feature import CloseJoin, Commit, NewJoin, NewTask, Rows, encode
from redrive.handlers.registry import Registry
from redrive.kernel.payload import decode
from redrive.kernel.task import check_text
from redrive.ops import actions

TELL_EVERY_S = 10.0  # how often a batch that is being filled hears that its maker is there
MAX_META_BYTES = 16_384


@dataclass(slots=True, frozen=True)
class Plan:
    """What a batch is to be, besides its items."""

    on_success: NewTask | None
    on_complete: NewTask | None
    key: str | None
    meta: str | None
    name: str | None
    scope: str | None
    by: str
    parent: UUID | None = None

    def digest(self) -> Digest:
        after = [task and (task.kind, task.payload) for task in (self.on_complete, self.on_success)]
        return Digest(self.name, self.meta, self.scope, after)


def plan(
    registry: Registry,
    *,
    on_success: Given | None,
    on_complete: Given | None,
    key: str | None,
    meta: Any,
    name: str | None,
    scope: str | None,
    parent: UUID | None,
    batch: UUID,
    by: str = "app",
) -> Plan:
    """Returns what was asked for, checked: nothing is written before all of it is right."""
    success = None if on_success is None else following(as_new(registry, on_success, "on_success"), batch)
    complete = None if on_complete is None else following(as_new(registry, on_complete, "on_complete"), batch)
    if parent is not None:
        complete = complete or ended.new(batch=str(batch))
        if complete.join not in (None, parent):
            raise InvalidInput("on_complete is an item of another batch than parent", hint="leave one of them out")
        complete = replace(complete, join=parent)
    about = check_text(scope, "scope")
    return Plan(
        with_scope(success, about),
        with_scope(complete, about),
        check_text(key, "key"),
        None if meta is None else encode(meta, "meta", MAX_META_BYTES),
        check_text(name, "name"),
        about,
        by,
        parent,
    )


class BatchBuilder:
    """Fills one batch."""

    def __init__(self, way: Way, batch: UUID, what: Plan) -> None:
        self.id = batch
        self.existing: Batch | None = None  # that has the key already: then nothing is added, only compared
        self._way = way
        self._plan = what
        self._digest = what.digest()
        self._begun = self._ended = False
        self._told = 0.0
        self._keyed = set[UUID]()

    @property
    def own(self) -> bool:
        """Whether it is made inside a transaction of the caller's."""
        return self._way.own

    async def shown(self) -> Batch:
        """Returns it as it is now. Inside the caller's own transaction nobody sees it yet: then as it was made."""
        if self.existing is not None:
            return self.existing
        if not self._way.own:
            [row] = await (await self._way.store()).sql.feature_rows(FEATURE, "by_id", str(self.id))
            return of_row(row)
        made, now = self._plan, datetime.now(UTC)
        total = self._digest.count
        return Batch(
            self.id, made.name, made.key, decode(made.meta), made.scope, now, made.by, False, total, 0, 0, 0, now
        )

    async def look(self) -> None:
        """Finds the batch that has the key already, and whom an inner one is about."""
        made = self._plan
        if made.parent is not None and made.scope is None and self._way.known and not self._way.own:
            about = await check_open(await self._way.store(), made.parent)
            after = (with_scope(made.on_success, about), with_scope(made.on_complete, about))
            self._plan = replace(made, scope=about, on_success=after[0], on_complete=after[1])
        if made.key is None:
            return
        rows = await (await self._way.store()).sql.feature_rows(FEATURE, "by_key", made.key)
        self.existing = of_row(rows[0]) if rows else None

    async def open(self) -> None:
        """Makes it, without items, so that others may be made that belong to it."""
        if self.existing is None and self._way.known:
            await self._begin([], close=False)

    async def all_of(self, many: Many) -> None:
        """Adds everything and seals it; where it is little, in one transaction."""
        last = list[Given]()
        async for piece in in_pieces(many):
            if last:
                await self.add(last)
            last = piece
        await self.seal(last)

    async def add(self, many: Many | Given) -> int:
        """Adds items; when this returns, they are durable. Returns how many."""
        if self._ended:
            raise BatchConflict(f"batch {self.id} was sealed", hint="a running item adds by app.batch.of(ctx)")
        before = self._digest.count
        async for piece in in_pieces(many):
            tasks = members(self._way.registry, piece, self.id, self._digest, self._plan.scope)
            if self.existing is None:
                await self._write(tasks, close=False)
        return self._digest.count - before

    async def seal(self, rest: list[Given] | None = None) -> None:
        """No more items: from now on it can end."""
        tasks = members(self._way.registry, rest or [], self.id, self._digest, self._plan.scope)
        if self.existing is None:
            await self._write(tasks, close=True)
        if self.existing is not None:
            self._compare(self.existing)
        self._ended = True

    async def give_up(self, why: str) -> None:
        """Cancels it, with what was added."""
        self._ended = True
        if self._begun and self.existing is None and not self._way.own:
            await give_up(await self._way.store(), self.id, self._plan.by, why)

    async def _write(self, tasks: list[NewTask], *, close: bool) -> None:
        if not self._begun:
            await self._begin(tasks, close=close)
            return
        await self._check_open()
        controls = [CloseJoin(self.id)] if close else []
        rows = [Rows(FEATURE, "sealed", ({"id": str(self.id), "digest": self._digest.text()},))] if close else []
        if not close and time.monotonic() - self._told > TELL_EVERY_S:
            rows, self._told = [Rows(FEATURE, "added", ({"id": str(self.id)},))], time.monotonic()
        await self._add(Commit(enqueues=tasks, controls=controls, rows=rows))
        await self._take_back(tasks)

    async def _begin(self, tasks: list[NewTask], *, close: bool) -> None:
        made, what = self._plan, {"id": str(self.id), "digest": self._digest.text() if close else None}
        what |= {"name": made.name, "key": made.key, "meta": made.meta, "scope": made.scope, "by": made.by}
        what |= {"parent": None if made.parent is None else str(made.parent)}
        join = NewJoin(self.id, made.on_complete, made.on_success, open=not close)
        rows = [Rows(FEATURE, "made", (what,))]
        try:
            await self._add(Commit(joins=[join], enqueues=tasks, rows=rows))
        except (StoreError, KeysTaken):
            await self.look()  # somebody else was quicker with the same key
            if self.existing is None or self._way.own:
                raise
        self._begun, self._told = True, time.monotonic()

    async def _add(self, commit: Commit) -> None:
        await add_items(self._way, commit, self.id, self._keyed)

    async def _check_open(self) -> None:
        if not self._way.own:
            await check_open(await self._way.store(), self.id)

    async def _take_back(self, tasks: list[NewTask]) -> None:
        """Cancels what was added while somebody cancelled the batch: their operation may have passed by."""
        try:
            await self._check_open()
        except BatchCancelled:
            await actions.cancel(await self._way.store(), [task.id for task in tasks], actor=self._plan.by)
            raise

    def _compare(self, there: Batch) -> None:
        if there.digest is None:
            state = "was cancelled while it was filled" if there.cancelled_at else "is still being filled"
            raise BatchConflict(
                f"the batch of key {there.key!r} {state} (batch {there.id})",
                hint="let its maker end, or cancel it: redrive batch cancel; then use another key",
            )
        if there.digest != self._digest.text():
            raise BatchConflict(
                f"the key {there.key!r} names a batch of other content (batch {there.id})",
                hint="one key, one batch: use another key, or give the same tasks in the same order",
            )
