"""Enqueues new tasks: one, many, or a long list in parts of one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from redrive.errors import RedriveError, StoreError, StoreUnavailable, StoreUnusable
from redrive.kernel.task import Enqueued, NewTask, check_feature, refuse_reserved
from redrive.stores.metered import metered
from redrive.stores.postgres import codec
from redrive.stores.postgres.errors import KeyBlocked, patiently
from redrive.stores.postgres.pool import Connection, Pool
from redrive.stores.sql import statements

# Commits enqueues of callers together that come at the same time: they share one statement and one commit.

MAX_TASKS_PER_STATEMENT = 1000
# Two: while the server is at one statement, the callers of the other prepare their next tasks.
STATEMENTS_AT_ONCE = 2
SendTasks = Callable[[Sequence[NewTask]], Awaitable[list[Enqueued]]]
Waiting = tuple[Sequence[NewTask], asyncio.Future[list[Enqueued]]]


class SharedEnqueue:
    """Sends a lone caller at once, by itself; whoever arrives meanwhile goes out together."""

    def __init__(self, send: SendTasks) -> None:
        self._send = send
        self._waiting: list[Waiting] = []
        self._in_flight = 0
        self._flushers: set[asyncio.Task[None]] = set()

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        if self._in_flight == 0:
            # Nobody else's commit depends on this caller, who may be cancelled: no task of its own is needed.
            self._in_flight += 1
            try:
                return await self._send(tasks)
            finally:
                self._landed()
        future: asyncio.Future[list[Enqueued]] = asyncio.get_running_loop().create_future()
        self._waiting.append((tasks, future))
        if self._in_flight < STATEMENTS_AT_ONCE:
            self._start()
        # Shielded by being a plain future: a caller that is cancelled leaves the others' commit alone.
        return await future

    def _start(self) -> None:
        self._in_flight += 1
        flusher = asyncio.create_task(self._flush(), name="redrive-enqueue")
        self._flushers.add(flusher)
        flusher.add_done_callback(self._flushers.discard)

    def _landed(self) -> None:
        self._in_flight -= 1
        if self._waiting and self._in_flight < STATEMENTS_AT_ONCE:
            self._start()

    async def _flush(self) -> None:
        callers = self._take()
        try:
            if callers:
                await self._deliver(callers)
        except asyncio.CancelledError:  # by somebody who cancels whatever he finds: do not leave them waiting
            for _, future in callers:
                future.cancel()
            raise
        finally:
            self._landed()

    def _take(self) -> list[Waiting]:
        size = count = 0
        for tasks, _ in self._waiting:
            if count and size + len(tasks) > MAX_TASKS_PER_STATEMENT:
                break
            size += len(tasks)
            count += 1
        callers, self._waiting = self._waiting[:count], self._waiting[count:]
        return callers

    async def _deliver(self, callers: list[Waiting]) -> None:
        try:
            answers = await self._send([task for tasks, _ in callers for task in tasks])
        except Exception as error:
            if (
                len(callers) == 1
                or isinstance(error, StoreUnavailable | StoreUnusable | KeyBlocked)
                or not isinstance(error, StoreError | ValueError)
            ):
                for _, future in callers:
                    _reject(future, error)
                return
            # The database refused all for somebody's data: one by one, so that only its owner hears of it.
            for single in callers:
                await self._deliver([single])
            return
        start = 0
        for tasks, future in callers:
            if not future.done():
                future.set_result(answers[start : start + len(tasks)])
            start += len(tasks)


def _reject(future: asyncio.Future[list[Enqueued]], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


SQL = statements("redrive.stores.postgres", "statements.sql")
TASKS_PER_PART = 500
# Larger calls gain nothing from sharing a statement, and would make small ones wait.
SHARE_UP_TO_TASKS = 100
LARGE_ENQUEUES_AT_ONCE = 2
ALONE_AT_ONCE = 2
# How long a statement waits for a key that somebody's open transaction holds. The others in it wait as well, so that it
# is short; who comes alone after that takes a turn at a time, and waits outside of it.
PATIENCE_WITH_KEYS, NO_PATIENCE = "250ms", "5ms"
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
Send = Callable[[Sequence[NewTask], bool], Awaitable[list[Enqueued]]]


class Enqueues:
    """Enqueues new tasks and nothing else, each call in a transaction of its own or in one that small calls share."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.meter = pool.meter
        self._shared = SharedEnqueue(self._small)
        # Apart: a key that an open transaction holds must not keep those waiting who have none.
        self._shared_keyed = SharedEnqueue(self._keyed)
        # Apart as well: somebody's open transaction may hold a join.
        self._shared_members = SharedEnqueue(self._small)
        self._alone = asyncio.Semaphore(ALONE_AT_ONCE)
        self._large = asyncio.Semaphore(LARGE_ENQUEUES_AT_ONCE)

    async def enqueue(self, tasks: Sequence[NewTask], *, again: bool, in_parts: bool) -> list[Enqueued]:
        if in_parts:  # has no keys, and is not looked through: most of it is made while the first part is on its way
            return await self._in_turn(self._in_parts, tasks, again)
        if len(tasks) == 1 and not again and _plain(tasks[0]):
            return await self._shared.enqueue(tasks)
        keyed = any(task.idempotency_key is not None for task in tasks)
        if len(tasks) <= SHARE_UP_TO_TASKS and not again:
            if keyed:
                return await self._small_keyed(tasks)
            joins = any(task.join is not None for task in tasks)
            return await (self._shared_members if joins else self._shared).enqueue(tasks)
        if keyed:
            return await self._large_keyed(tasks, again)
        return await self._in_turn(self._once, tasks, again)

    @metered("apply")
    async def _in_turn(self, send: Send, tasks: Sequence[NewTask], again: bool) -> list[Enqueued]:
        """Sends a large call when it is its turn: heartbeats and settles must find a connection free."""
        async with self._large:
            return await patiently(lambda more: send(tasks, more), again)

    @metered("apply")
    async def _small(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        return await patiently(lambda again: self._once(tasks, again), False)

    @metered("apply")
    async def _large_keyed(self, tasks: Sequence[NewTask], again: bool) -> list[Enqueued]:
        return await _when_free(self._large, lambda: self._keyed(tasks, again))

    @metered("apply")
    async def _small_keyed(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Enqueues with others; if a key of one of them is held, by itself: at once, or when its own key is free."""
        try:
            return await self._shared_keyed.enqueue(tasks)
        except KeyBlocked:
            return await _when_free(self._alone, lambda: self._keyed(tasks, patience=NO_PATIENCE))

    async def _keyed(
        self, tasks: Sequence[NewTask], again: bool = False, patience: str = PATIENCE_WITH_KEYS
    ) -> list[Enqueued]:
        async def attempt(more: bool) -> list[Enqueued]:
            try:
                return await self._once(tasks, more, patience)
            except StoreUnavailable as error:
                if isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                    raise KeyBlocked("an open transaction holds an idempotency key") from error
                raise

        return await patiently(attempt, again)

    async def _once(self, tasks: Sequence[NewTask], again: bool, patience: str | None = None) -> list[Enqueued]:
        def work(connection: Connection) -> Awaitable[list[Enqueued]]:
            return enqueue(connection, tasks, again, patience=patience)

        answers: list[Enqueued] = await self._pool.run(work)
        return answers

    async def _in_parts(self, tasks: Sequence[NewTask], again: bool) -> list[Enqueued]:
        try:
            await self._pool.run(lambda connection: enqueue_in_parts(connection, tasks, again), atomic=True)
        except NotMade as error:
            raise error.cause from None
        return [Enqueued(task.id) for task in tasks]


def _plain(task: NewTask) -> bool:
    """Returns whether a task is nobody's but its producer's: no key, no join, no feature."""
    return task.idempotency_key is None and task.join is None and task.feature is None and not task.own


async def _when_free(turn: asyncio.Semaphore, attempt: Callable[[], Awaitable[list[Enqueued]]]) -> list[Enqueued]:
    """Tries until no open transaction holds one of the keys; who waits for that takes no turn from others meanwhile."""
    pause = SHORTEST_PAUSE_S
    while True:
        async with turn:
            try:
                return await attempt()
            except KeyBlocked:
                pass
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_S)


async def enqueue(
    connection: Connection,
    tasks: Sequence[NewTask],
    again: bool,
    verb: str = "enqueue",
    patience: str | None = None,
) -> list[Enqueued]:
    """Enqueues in the caller's transaction. ``patience``: how long to wait for a key that an open transaction holds;
    None: until that ends."""
    declared = codec.declared(tasks)
    if len(tasks) == 1 and patience is None and not again and _plain(tasks[0]) and not declared:
        await connection.fetchval(SQL["enqueue_one"], *codec.single(tasks[0]))
        return [Enqueued(tasks[0].id)]
    if codec.some_belong(tasks):
        known = await _add_members(connection, tasks, again, patience)
    elif declared and verb == "enqueue":
        values = [*codec.columns(tasks), again, declared]
        if patience is None:
            known = await connection.fetch(SQL["enqueue_declared"], *values)
        else:
            known = await connection.fetch(SQL["enqueue_declared_keyed"], *values, patience)
    elif patience is not None:
        known = await connection.fetch(SQL["enqueue_keyed"], *codec.columns(tasks), again, patience)
    else:
        known = await connection.fetch(SQL[verb], *codec.columns(tasks), again)
    if not known:
        return [Enqueued(task.id) for task in tasks]
    existing = {row["id"]: row for row in known}
    return [
        Enqueued(existing[task.id]["existing"], False, existing[task.id]["conflict"])
        if task.id in existing
        else Enqueued(task.id)
        for task in tasks
    ]


async def _add_members(
    connection: Connection, tasks: Sequence[NewTask], again: bool, patience: str | None
) -> list[Any]:
    """Enqueues tasks of features and joins, which a producer's role may not: they are checked here."""
    for task in tasks:
        refuse_reserved(task.idempotency_key, own=task.own)
        if task.feature is not None:
            check_feature(task)
    values = [*codec.columns(tasks), again, *codec.memberships(tasks)]
    if patience is not None:
        return list(await connection.fetch(SQL["add_members_keyed"], *values, patience))
    return list(await connection.fetch(SQL["add_members"], *values))


class NotMade(RedriveError):
    """Raised when a task could not be made. Its producer's own error passes by the pool, which would take it for the
    database's."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _make(tasks: Sequence[NewTask], start: int, again: bool) -> tuple[str, list[Any]]:
    """Returns the statement that adds a part of a list, and its arguments."""
    try:
        part = tasks[start : start + TASKS_PER_PART]
        values = [*codec.columns(part), again]
    except Exception as error:
        raise NotMade(error) from error
    if codec.some_belong(part):
        return SQL["add_members"], [*values, *codec.memberships(part)]
    declared = codec.declared(part)
    return (SQL["enqueue_declared"], [*values, declared]) if declared else (SQL["enqueue"], values)


async def enqueue_in_parts(connection: Connection, tasks: Sequence[NewTask], again: bool) -> None:
    """Enqueues a long list; the next part is made while the server is at the last one."""
    sent: asyncio.Future[Any] | None = None
    try:
        for start in range(0, len(tasks), TASKS_PER_PART):
            text, values = _make(tasks, start, again)
            if sent is not None:
                await sent
            sent = asyncio.ensure_future(connection.fetch(text, *values))
            await asyncio.sleep(0)  # lets it go out before the next part is made
        if sent is not None:
            await sent
    except BaseException as error:
        if sent is not None:  # also when making the next part failed: a connection does one thing at a time
            if not isinstance(error, Exception):
                sent.cancel()
            await asyncio.gather(sent, return_exceptions=True)
        raise
