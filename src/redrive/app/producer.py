"""Puts what an application enqueues where it belongs: into a store, or into a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redrive.errors import IdempotencyConflict, InvalidInput, SchemaError, StoreError, TooManyNames
from redrive.handlers.new_task import as_enqueued, stamp
from redrive.handlers.registry import Registry
from redrive.kernel.applied import Applied
from redrive.kernel.commit import Commit
from redrive.kernel.ports.tasks import get_task
from redrive.kernel.task import Enqueued, NewTask, Task
from redrive.kernel.trace import split_trace
from redrive.stores.holder import StoreHolder

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature
    from redrive.kernel.ports.store import Store
    from redrive.observe.tracing import Tracing


class Producer:
    """The way of new tasks and of whole Commits out of an application."""

    def __init__(self, registry: Registry, features: Sequence[Feature], tracing: Tracing | None) -> None:
        self._registry = registry
        self._features = features
        self._tracing = tracing

    async def put(
        self,
        new: Sequence[NewTask],
        where: StoreHolder,
        connection: Any,
        *,
        in_parts: bool = False,
        traced: bool = False,
    ) -> list[Enqueued]:
        """Returns what became of each: durable, or part of the caller's transaction."""
        if self._tracing is not None and not traced:
            return await self._put_traced(self._tracing, new, where, connection, in_parts)
        if connection is None:
            store = where.recent() or await where.store()
            keyed = len(new) > 1 and not in_parts and any(task.idempotency_key is not None for task in new)
            commit = Commit(enqueues=new, all_or_none=keyed)
            try:
                return (await store.apply(commit, in_parts=in_parts)).enqueued
            except TooManyNames as error:
                await self._declare(new, store, error)
                return (await store.apply(commit, in_parts=in_parts)).enqueued
        return (await self._apply_on(connection, where, Commit(enqueues=new))).enqueued

    async def _declare(self, new: Sequence[NewTask], store: Store, error: TooManyNames) -> None:
        """Tells the store what this application declares and routes, if that is what was refused: no worker may have
        done so yet. Raises the refusal where it is not, or where this role may not."""
        kinds = {task.kind for task in new}
        names = self._registry.names(kinds)
        if not (kinds <= set(names.kinds) and {task.queue for task in new} <= set(names.queues)):
            raise error
        try:
            await store.apply(Commit(controls=[names]))
        except StoreError:
            raise error from None

    async def _put_traced(
        self, tracing: Tracing, new: Sequence[NewTask], where: StoreHolder, connection: Any, in_parts: bool
    ) -> list[Enqueued]:
        """Enqueues within a span, whose context the tasks keep."""
        given = split_trace(new[0].trace_id)[1] if len(new) == 1 else None
        with tracing.sending(new, given) as trace:
            if trace is not None:
                if given is not None:  # the caller's context: the span is its child, and stands in its place
                    new[0].trace_id = trace
                stamp(new, trace)
            return await self.put(new, where, connection, in_parts=in_parts, traced=True)

    async def known(self, new: NewTask, answer: Enqueued, where: StoreHolder, connection: Any) -> Task:
        """Returns the task that has this one's key already; refused where it is another one."""
        # Inside a caller's transaction the task may be one that only that transaction sees.
        found = None if connection is not None else await _seen(answer.id, where)
        if answer.conflict and (found is None or not self._registry.same_work(new, found)):
            raise IdempotencyConflict(new.idempotency_key or "", answer.id)
        task = found or as_enqueued(new)
        task.id = answer.id
        task.deduplicated = True
        return task

    async def apply(self, commit: Commit, where: StoreHolder, connection: Any) -> Applied:
        """Applies a Commit of a feature, all of it or nothing."""
        self._check_features(commit)
        if self._tracing is not None and (trace := self._tracing.active()) is not None:
            stamp(commit.enqueues, trace)
        if connection is None:
            return await (await where.store()).apply(commit)
        return await self._apply_on(connection, where, commit)

    async def _apply_on(self, connection: Any, where: StoreHolder, commit: Commit) -> Applied:
        from redrive.integrations import OwnCommit, apply_on

        try:
            own = OwnCommit(commit, self._features)
            answers = apply_on(connection, own)
            return Applied(enqueued=await answers if isinstance(answers, Awaitable) else answers, repeated=own.repeated)
        except SchemaError as error:  # tables there would be of no use to workers that look elsewhere
            error.hint = f"{error.hint} (this application's workers look in {where.shown_url})"
            raise

    def _check_features(self, commit: Commit) -> None:
        """Refuses tasks for a feature that this application does not have: no worker of it would run them."""
        named = {task.feature for task in commit.enqueues if task.feature is not None}
        if unknown := named - {feature.name for feature in self._features}:
            raise InvalidInput(
                f"this application has no feature {min(unknown)!r}",
                hint=f"it has: {', '.join(sorted(one.name for one in self._features)) or 'none'}; "
                "name it in App(features=…), or mend feature=",
            )


async def _seen(task_id: UUID, where: StoreHolder) -> Task | None:
    """None also where it may not be looked at: a database role that only enqueues cannot read tasks."""
    try:
        return await get_task(await where.store(), task_id)
    except StoreError:
        return None
