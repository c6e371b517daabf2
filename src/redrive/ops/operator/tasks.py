"""Single tasks: enqueue, list, show, retry, cancel, pause, forget."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, Unpack
from uuid import UUID

from redrive.errors import ChangedMeanwhile, IdempotencyConflict, StoreError, TaskNotFound
from redrive.handlers.new_task import as_enqueued, make_task
from redrive.handlers.options import TaskOptions
from redrive.kernel.commit import Commit
from redrive.kernel.operation import Action
from redrive.kernel.payload import JsonText
from redrive.kernel.ports.store import Overview, Query
from redrive.kernel.records import Put
from redrive.kernel.task import State, Task, Timeline
from redrive.ops import actions, inspect, search
from redrive.ops.access import Role
from redrive.ops.actions import Result
from redrive.ops.allowance import PlannedAction
from redrive.ops.belonging import is_batch
from redrive.ops.held import is_gated, with_pauses
from redrive.ops.operator.session import Service
from redrive.ops.search import Match
from redrive.ops.why import Reason, why

AFFECTED = (State.QUEUED, State.DELAYED, State.RUNNING)
WHOLE_DOCUMENT = 2**30  # longer than any document


@dataclass(slots=True, frozen=True)
class Story:
    """What happened to a task, and why it does not run."""

    timeline: Timeline
    why: list[Reason]


class TaskService(Service):
    async def enqueue(self, kind: str, payload: Any = None, **options: Unpack[TaskOptions]) -> Task:
        """Enqueues one task; ``deduplicated`` says that its key was known, and this is the task it names."""
        self._session.may(Role.OPERATOR)
        new = make_task(self._session.registry, kind, payload, **options)
        [answer] = (await self._store.apply(Commit(enqueues=[new]))).enqueued
        found = await self._as_stored(answer.id)
        if answer.conflict and (found is None or not self._session.registry.same_work(new, found)):
            raise IdempotencyConflict(new.idempotency_key or "", answer.id)
        task = found or as_enqueued(new)
        task.id, task.deduplicated = answer.id, not answer.created
        return task

    async def _as_stored(self, task_id: UUID) -> Task | None:
        """Returns the task with the store's times; it may run already. None where it may not be read (a database role
        that only enqueues), or is done and gone."""
        try:
            return (await self._store.get_many([task_id], documents=self._session.documents)).get(task_id)
        except StoreError:
            return None

    def is_only_declared(self, kind: str) -> bool:
        """Returns whether the application knows this kind, and leaves it to the workers of another one."""
        return kind in self._session.registry.declared

    async def list(self, query: Query) -> inspect.Page:
        """Returns one page, newest first; a fingerprint may be given by its beginning."""
        self._session.may(Role.VIEWER)
        if query.fingerprint is not None:
            query = replace(query, fingerprint=await self._session.fingerprint(query.fingerprint))
        query = await self._session.meant(query)
        return await inspect.list_tasks(self._store, replace(query, documents=self._session.documents))

    async def find(self, words: str) -> builtins.list[Match]:
        """Returns what somebody may mean by a few characters: tasks, causes, operations, traces, scopes, names."""
        self._session.may(Role.VIEWER)
        return await search.find(self._store, words)

    async def meant(self, ids: Sequence[str]) -> builtins.list[UUID]:
        """Returns the tasks that are named by their ids, or by the beginnings of them."""
        self._session.may(Role.VIEWER)
        return await inspect.resolve_ids(self._store, ids)

    async def known(self, ids: Sequence[str]) -> builtins.list[str]:
        """Returns those of the ids, or beginnings of ids, that name a task here."""
        self._session.may(Role.VIEWER)
        return await inspect.known(self._store, ids)

    async def get(self, task_id: UUID) -> Task:
        self._session.may(Role.VIEWER)
        task = await actions.require(self._store, task_id, self._session.documents)
        await with_pauses(self._store, [task])
        return task

    async def document(self, task_id: UUID, name: str) -> JsonText | None:
        """Returns the ``payload`` or ``result`` of a task, however long, as text."""
        self._session.may(Role.OPERATOR)
        found: JsonText | None = getattr(await actions.require(self._store, task_id, WHOLE_DOCUMENT), name)
        return found

    async def get_many(self, task_ids: Sequence[UUID]) -> dict[UUID, Task]:
        self._session.may(Role.VIEWER)
        found = dict(await self._store.get_many(task_ids, documents=self._session.documents))
        await with_pauses(self._store, [*found.values()])
        return found

    async def show(self, task_id: UUID) -> Story:
        self._session.may(Role.VIEWER)
        try:
            found = await inspect.show(self._store, task_id, self._session.documents)
        except TaskNotFound as error:
            if await is_batch(self._store, self._session.features, task_id):
                told = f"redrive batch show {task_id}"
                raise TaskNotFound(f"{task_id} is a batch, and no task", hint=self._session.command(told)) from error
            raise
        reasons = await self._why(found.task)
        await with_pauses(self._store, [found.task])
        return Story(found, reasons)

    async def why(self, task: Task) -> builtins.list[Reason]:
        """Returns why it does not run; nothing when it does, or is done."""
        self._session.may(Role.VIEWER)
        return await self._why(task)

    async def _why(self, task: Task) -> builtins.list[Reason]:
        found = await why(self._store, task)
        return [replace(one, fix=self._session.command(one.fix)) for one in found]

    async def surroundings(self, tasks: Sequence[Task]) -> Overview | None:
        """Returns pauses and workers, looked up only where one of these tasks can be held or lost by one."""
        self._session.may(Role.VIEWER)
        affected = any(task.state in AFFECTED or is_gated(task) for task in tasks)
        return await self._store.overview() if affected else None

    async def seen(self, task_id: UUID) -> str:
        """Returns what stands for the state in which a task is; it is another one when somebody has acted since."""
        self._session.may(Role.VIEWER)
        status = (await self._store.statuses([task_id])).get(task_id)
        return "gone" if status is None else f"{status.state.value}:{status.failed_seq or 0}"

    async def check_seen(self, task_id: UUID, seen: str) -> None:
        """Refuses what was decided by looking at another state: a colleague's act is not undone unawares."""
        now = await self.seen(task_id)
        if now != seen:
            before, after = seen.partition(":")[0], now.partition(":")[0]
            told = f"it is {after} now" if before != after else f"it is {after} again, by another failure"
            raise ChangedMeanwhile(f"the task has changed since this page was made: {told}", hint="look at it again")

    async def retry(self, task_id: UUID, reason: str | None = None) -> Task:
        """Makes one failed or cancelled task run again, with fresh attempts."""
        who = self._session.may(Role.OPERATOR)

        async def act(puts: Sequence[Put]) -> Result:
            return await actions.retry(self._store, [task_id], actor=who, reason=reason, puts=puts)

        actions.insist(await self._session.alone(PlannedAction(Action.RETRY, 1), act), "retried")
        return await actions.require(self._store, task_id, self._session.documents)

    async def cancel(self, ids: Sequence[UUID], reason: str | None = None) -> Result:
        """Cancels waiting and failed tasks now, and asks running ones to stop. All of them are given up with it: that
        counts like forgetting or purging them."""
        who = self._session.may(Role.OPERATOR)
        result = await self._session.alone(
            PlannedAction(Action.PURGE, len(set(ids))),
            lambda puts: actions.cancel(self._store, ids, actor=who, reason=reason, puts=puts),
        )
        # A worker that is gone hears nothing: its task is cancelled when the lease ends.
        for task_id, task in (await self._store.get_many(result.requested, documents=0)).items():
            if gone := [one for one in await why(self._store, task) if one.code in ("lost_worker", "lease_over")]:
                result.notes[task_id] = "; ".join([*filter(None, [result.notes.get(task_id)]), gone[0].text])
        return result

    async def pause(self, ids: Sequence[UUID], reason: str | None = None) -> Result:
        who = self._session.may(Role.OPERATOR)
        return await actions.pause_tasks(self._store, ids, actor=who, reason=reason)

    async def resume(self, ids: Sequence[UUID], reason: str | None = None) -> Result:
        who = self._session.may(Role.OPERATOR)
        result = await actions.resume_tasks(self._store, ids, actor=who, reason=reason)
        result.skipped |= await self._gates(list(result.skipped))
        return result

    async def _gates(self, ids: builtins.list[UUID]) -> dict[UUID, str]:
        """Returns what holds back those that are not paused themselves, and how that is resumed."""
        found = await self.get_many(ids) if ids else {}
        held = {id_: (task.paused_by or "").partition(":") for id_, task in found.items() if is_gated(task)}
        return {
            id_: f"its {target} {name} is paused: {self._session.command(f'redrive resume --{target} {quote(name)}')}"
            for id_, (target, _, name) in held.items()
        }
