"""Makes batches of tasks: one Commit for a small one; for a large one, or one that is filled bit by bit, an open join
that is closed at its end. Adds items to those that run, and cancels what is given up."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any
from uuid import UUID

from redrive.batches.batch import Batch, BatchCancelled, BatchConflict, of_row
from redrive.batches.batch_input import Digest, Given, Many, as_new, in_pieces, members, with_scope
from redrive.batches.kinds import ended
from redrive.batches.names import FEATURE, BatchState
from redrive.errors import ChangedMeanwhile, InvalidInput, StoreError
from redrive.feature import App, Applied, Audit, CloseJoin, Commit, NewJoin, NewTask, Rows, Store, encode
from redrive.handlers.registry import Registry
from redrive.kernel.erase import ERASED
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import COLLECTION, Action, Status
from redrive.kernel.payload import decode
from redrive.kernel.task import check_text
from redrive.ops import actions
from redrive.ops.allowance import UNRESTRICTED
from redrive.ops.operations import lifecycle
from redrive.ops.operations.drive import step

Keys = Mapping[UUID, str]  # of tasks that were there before: the keys by which they were found
DRIVEN_FOR_S = 10.0  # by whoever gives a batch up; workers go on with the rest
TELL_EVERY_S = 10.0  # how often a batch that is being filled hears that its maker is there
MAX_META_BYTES = 16_384
logger = logging.getLogger("redrive.batches")


@dataclass(slots=True, frozen=True)
class Way:
    """How what a batch consists of gets into the store. ``own``: inside a transaction of the caller's. ``known``: it is
    clear where that is; else the first items say it, by their routes."""

    registry: Registry
    apply: Callable[[Commit], Awaitable[Applied]]
    store: Callable[[], Awaitable[Store]]
    own: bool = False
    known: bool = True


def way_of(app: App, connection: Any, on: str | None) -> Way:
    """Returns the way out of an application."""
    return Way(
        app.registry,
        lambda commit: app.apply(commit, connection=connection, on=on),
        lambda: app.at(on).store(),
        connection is not None,
        on is not None or len(app.connections) == 1,
    )


class KeysTaken(BatchConflict):
    """Keys of items name tasks that were there before; some of these may be items of the same batch."""

    def __init__(self, found: Keys) -> None:
        task, key = next(iter(found.items()))
        super().__init__(
            f"the idempotency_key {key!r} of an item names task {task}, which is no item of this batch: it would not be"
            " waited for, nor counted",
            hint="leave the key out, or use another one; a key of the whole batch is key=",
        )
        self.found = found


async def add_items(way: Way, commit: Commit, batch: UUID, before: set[UUID]) -> None:
    """Applies a Commit whose new tasks are items of a batch; nothing of it if a key names a task that is none. A key
    that names an item of the same batch adds nothing: so a handler that runs again adds what it added before.
    ``before``: those with keys that were added in the caller's transaction."""
    commit = replace(commit, all_or_none=any(task.idempotency_key is not None for task in commit.enqueues))
    if not commit.all_or_none:
        await way.apply(commit)
    elif way.own:
        # In the caller's transaction nothing can be read or undone here: it is rolled back by who gets the error.
        _refuse(commit, await way.apply(commit), before)
        before.update(task.id for task in commit.enqueues if task.idempotency_key is not None)
    else:
        await _add_keyed(way, commit, batch)


async def _add_keyed(way: Way, commit: Commit, batch: UUID) -> None:
    items = set[UUID]()

    def conclude(done: Applied) -> list[Audit]:
        _refuse(commit, done, items)
        return []

    while True:
        try:
            await way.apply(replace(commit, conclusion=conclude))
        except KeysTaken as taken:  # and nothing has landed
            tasks = await (await way.store()).get_many(taken.found)
            own = {task.id for task in tasks.values() if task.join_id == batch}
            if elsewhere := {task: key for task, key in taken.found.items() if task not in own}:
                raise KeysTaken(elsewhere) from None
            items |= own
        else:
            return


def _refuse(commit: Commit, done: Applied, items: set[UUID]) -> None:
    """Refuses what landed if keys name tasks that are none of these, nor new."""
    known = items | {task.id for task in commit.enqueues}
    pairs = zip(commit.enqueues, done.enqueued, strict=True)
    if found := {now.id: str(task.idempotency_key) for task, now in pairs if now.id not in known}:
        raise KeysTaken(found)


async def check_open(store: Store, batch: UUID) -> str | None:
    """Returns whom a batch is about; refuses items of one that was cancelled."""
    rows = await store.sql.feature_rows(FEATURE, "by_id", str(batch))
    if rows and rows[0]["cancelled_at"] is not None:
        by = rows[0]["cancelled_by"]
        raise BatchCancelled(f"batch {batch} was cancelled{f' by {by}' if by else ''}: it takes no more items")
    scope: str | None = rows[0]["scope"] if rows else None
    return None if scope is None or scope.startswith(f"{ERASED}:") else scope


def marking(
    batch: UUID, by: str, why: str | None, *, scope: str | None = None, given_up: bool = False
) -> Callable[[str], Commit]:
    """Returns what lands with the operation that cancels a batch: it is marked, and takes no more items. ``given_up``:
    by its maker, who may make it anew under the same key."""

    def beside(operation: str) -> Commit:
        row = {"id": str(batch), "operation": operation, "by": by, "reason": why, "given_up": given_up}
        said = Audit(by, "BATCH_CANCEL", why, bulk_id=operation, target=f"batch:{batch}", scope=scope)
        return Commit(rows=[Rows(FEATURE, "cancelled", (row,))], controls=[CloseJoin(batch)], audits=[said])

    return beside


async def give_up(store: Store, batch: UUID, by: str, why: str) -> None:
    """Cancels a batch that was not sealed, with everything that was added: at once, as far as there is time for it."""
    operation, _ = await lifecycle.begin(
        store,
        Action.CANCEL,
        FailureFilter(join=str(batch)),
        actor=by,
        rule=UNRESTRICTED,
        reason=why,
        beside=marking(batch, by, why, given_up=True),
    )
    ends = time.monotonic() + DRIVEN_FOR_S
    try:
        while time.monotonic() < ends and await step(store, operation.id, f"maker:{batch}") is not None:
            pass
    except ChangedMeanwhile:
        pass  # a worker is at it


def following(task: NewTask, batch: UUID) -> NewTask:
    """Returns a task that follows a batch, with the id of it in its row. Facts of another feature stay as they are."""
    if task.feature is not None or task.facts is not None:
        return task
    return replace(task, facts=encode({"batch": str(batch)}, "facts"))


async def followed_by(store: Store, task_id: UUID) -> UUID:
    """Returns the batch whose end a task follows."""
    task = (await store.get_many([task_id], documents=0)).get(task_id)
    batch = task.facts.get("batch") if task is not None and task.feature is None and task.facts else None
    if not isinstance(batch, str):
        raise InvalidInput(
            f"task {task_id} is an item of no batch, and follows the end of none",
            hint="items of app.batch(tasks) have one, and what its on_complete= and on_success= name",
        )
    return UUID(batch)


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


class NewBatch:
    """A batch that is being made: to be awaited, or entered."""

    def __init__(self, way: Way, batch: UUID, what: Plan, given: Many | None) -> None:
        self.id = batch
        self.given = given
        self._existing: Batch | None = None  # that has the key already: then nothing is added, only compared
        self._existing_digest: str | None = None
        self._way = way
        self._plan = what
        self._digest = what.digest()
        self._begun = self._ended = False
        self._told = 0.0
        self._keyed = set[UUID]()

    def __await__(self) -> Generator[Any, None, Batch]:
        return self.made().__await__()

    async def made(self) -> Batch:
        """Adds all its tasks and seals it, where it is little in one transaction; what goes wrong on the way cancels
        it."""
        await self._look()
        last = list[Given]()
        try:
            async for piece in in_pieces(() if self.given is None else self.given):
                if last:
                    await self.add(last)
                last = piece
            await self._seal(last)
        except BaseException as error:
            await self._give_up(error)
            raise
        return await self._shown()

    async def add(self, tasks: Many | Given) -> int:
        """Adds one task or many; when this returns, they are durable, and workers may have begun. Returns how many."""
        if self._ended:
            raise BatchConflict(f"batch {self.id} was sealed", hint="a running item adds by app.batch.of(ctx)")
        before = self._digest.count
        async for piece in in_pieces(tasks):
            found = members(self._way.registry, piece, self.id, self._digest, self._plan.scope)
            if self._existing is None:
                await self._write(found, close=False)
        return self._digest.count - before

    async def __aenter__(self) -> NewBatch:
        try:
            await self._look()
            if self._existing is None and self._way.known:
                await self._begin([], close=False)  # without items, so that others may be made that belong to it
            self.id = self.id if self._existing is None else self._existing.id
            if self.given is not None:
                await self.add(self.given)
        except BaseException as error:
            await self._give_up(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._give_up(error)
            return
        try:
            await self._seal([])
        except BaseException as refused:
            await self._give_up(refused)
            raise

    async def _shown(self) -> Batch:
        """Returns it as it is now. Inside the caller's own transaction nobody sees it yet: then as it was made."""
        if self._existing is not None:
            return self._existing
        if not self._way.own:
            [row] = await (await self._way.store()).sql.feature_rows(FEATURE, "by_id", str(self.id))
            return of_row(row)
        made, now, total = self._plan, datetime.now(UTC), self._digest.count
        return Batch(
            self.id,
            made.name,
            made.key,
            decode(made.meta),
            made.scope,
            BatchState.PROCESSING if total else BatchState.COMPLETED,
            False,
            total,
            total,
            0,
            0,
            0,
            now,
            made.by,
            now,
        )

    async def _look(self) -> None:
        """Finds the batch that has the key already, and whom an inner one is about."""
        made = self._plan
        if made.parent is not None and made.scope is None and self._way.known and not self._way.own:
            about = await check_open(await self._way.store(), made.parent)
            after = (with_scope(made.on_success, about), with_scope(made.on_complete, about))
            self._plan = replace(made, scope=about, on_success=after[0], on_complete=after[1])
        if made.key is None:
            return
        rows = await (await self._way.store()).sql.feature_rows(FEATURE, "by_key", made.key)
        if rows:
            self._existing, self._existing_digest = of_row(rows[0]), rows[0]["digest"]

    async def _seal(self, rest: list[Given]) -> None:
        """No more items: from now on it can end."""
        tasks = members(self._way.registry, rest, self.id, self._digest, self._plan.scope)
        if self._existing is None:
            await self._write(tasks, close=True)
        if self._existing is not None:
            self._compare(self._existing)
        self._ended = True

    async def _give_up(self, error: BaseException) -> None:
        """Cancels it, with what was added."""
        if isinstance(error, BatchCancelled):
            return  # by somebody else, who has seen to the rest
        self._ended = True
        if not self._begun or self._existing is not None or self._way.own:
            return  # what is the caller's goes with his transaction
        why = f"its maker gave up: {type(error).__name__}"

        async def cancel() -> None:
            await give_up(await self._way.store(), self.id, self._plan.by, why)

        # Where the task that fills it was cancelled, nothing may be waited for in it.
        await asyncio.shield(asyncio.ensure_future(cancel()))

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
            await self._look()  # somebody else was quicker with the same key
            if self._existing is None or self._way.own:
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
        if self._existing_digest is None:
            state = "was cancelled while it was filled" if there.cancelled_at else "is still being filled"
            raise BatchConflict(
                f"the batch of key {there.key!r} {state} (batch {there.id})",
                hint="let its maker end, or cancel it: redrive batch cancel; then use another key",
            )
        if self._existing_digest != self._digest.text():
            raise BatchConflict(
                f"the key {there.key!r} names a batch of other content (batch {there.id})",
                hint="one key, one batch: use another key, or give the same tasks in the same order",
            )


async def forgotten(store: Store, hours: float) -> list[Batch]:
    """Returns open batches that nobody has added to for so long."""
    return [of_row(row) for row in await store.sql.feature_rows(FEATURE, "forgotten", hours)]


async def cancel_forgotten(store: Store, hours: float, stopping: Callable[[], bool]) -> None:
    """Cancels batches that were left open for so long: nobody will seal them."""
    for batch in await forgotten(store, hours):
        if stopping():
            return
        await give_up(store, batch.id, "redrive", f"it was left open for more than {hours:g} h")
        extra = {"event": "batch.forgotten", "batch_id": str(batch.id)}
        logger.warning("batch %s was left open, and is cancelled", batch.id, extra=extra)


async def mark_agreed(store: Store) -> None:
    """Closes batches whose operation was agreed to, and lets go of those whose was not."""
    asked = await store.sql.feature_rows(FEATURE, "asked_ones")
    if not asked:
        return
    named = {row["cancel_operation"]: UUID(str(row["id"])) for row in asked}
    for record in await store.records(COLLECTION, ids=list(named)):
        if record.state in (Status.RUNNING, Status.COMPLETED, Status.PAUSED):
            await store.apply(marking(named[record.id], record.body["actor"], record.body["reason"])(record.id))
