"""Puts what an application enqueues where it belongs: into a store, or into a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redrive.errors import IdempotencyConflict, InvalidInput, SchemaError, StoreError, TooManyNames
from redrive.handlers.new_task import as_enqueued, stamp
from redrive.handlers.registry import Registry
from redrive.kernel.applied import Applied
from redrive.kernel.commit import Commit
from redrive.kernel.ports.reads import get_task
from redrive.kernel.task import Enqueued, NewTask, Task
from redrive.kernel.trace import split_trace
from redrive.stores.loops import StoreHolder

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
        if connection is not None:
            self._declare(new)  # a refusal would end the caller's transaction
            answers = list((await self._apply_on(connection, where, Commit(enqueues=new))).enqueued)
            for place, other in self._in_conflict(new, answers):
                [again] = (await self._apply_on(connection, where, Commit(enqueues=[other]))).enqueued
                answers[place] = answers[place] if again.conflict else again
            return answers
        store = where.recent() or await where.store()
        try:
            return await self._store(store, new, in_parts)
        except TooManyNames:
            if not self._declare(new):  # of what it declares, no worker may have said so yet
                raise
            return await self._store(store, new, in_parts)

    async def _store(self, store: Store, new: Sequence[NewTask], in_parts: bool) -> list[Enqueued]:
        if len(new) > 1 and not in_parts and any(task.idempotency_key is not None for task in new):
            return await self._store_keyed(store, new)
        answers = (await store.apply(Commit(enqueues=new), in_parts=in_parts)).enqueued
        for place, other in self._in_conflict(new, answers) if len(new) == 1 else ():
            [again] = (await store.apply(Commit(enqueues=[other]))).enqueued
            answers[place] = answers[place] if again.conflict else again
        return answers

    def _in_conflict(self, new: Sequence[NewTask], answers: Sequence[Enqueued]) -> Iterator[tuple[int, NewTask]]:
        """Yields tasks whose keys name other work, with their payloads written in other ways, until one is known."""
        for place, task in enumerate(new):
            for other in self._registry.spellings(task) if answers[place].conflict else ():
                if answers[place].conflict:
                    yield place, other

    async def _store_keyed(self, store: Store, new: Sequence[NewTask]) -> list[Enqueued]:
        """Enqueues all or none; a key whose task is the same work, though its payload is written otherwise, is no
        conflict."""
        tasks, tried = list(new), dict[str, Iterator[NewTask]]()
        while True:
            try:
                return (await store.apply(Commit(enqueues=tasks, all_or_none=True))).enqueued
            except IdempotencyConflict as conflict:
                [(place, task), *_] = [(n, one) for n, one in enumerate(tasks) if one.idempotency_key == conflict.key]
                other = next(tried.setdefault(conflict.key, self._registry.spellings(task)), None)
                if other is None:
                    raise
                tasks[place] = other

    def _declare(self, new: Sequence[NewTask]) -> bool:
        """Marks tasks whose names this application declares or routes; returns whether there are any."""
        for task in new:
            task.declared = self._registry.declares(task)
        return any(task.declared for task in new)

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
        found = None if connection is not None else await _find_task(answer.id, where)
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


async def _find_task(task_id: UUID, where: StoreHolder) -> Task | None:
    """None also where it may not be looked at: a database role that only enqueues cannot read tasks."""
    try:
        return await get_task(await where.store(), task_id)
    except StoreError:
        return None
