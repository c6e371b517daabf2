"""Failed tasks and dead letters: list, count, preview, retry, replay, forget."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.kernel.failure_filter import EVERY_FAILURE, FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.task import DeadLetter, State, Task
from redrive.ops import actions, failures, filters, search
from redrive.ops.access import Role
from redrive.ops.actions import Result
from redrive.ops.allowance import PlannedAction
from redrive.ops.failures import FailureStats, FailureTypesView, failure_types
from redrive.ops.operations import plans, retry
from redrive.ops.operations.plans import Page
from redrive.ops.operations.retry import RetryResult
from redrive.ops.operations.selection import RETRYABLE_STATES, Selection, select, select_named, would_reach
from redrive.ops.operator.declared import OfKind, OfQueue, Period, look
from redrive.ops.operator.session import Service
from redrive.ops.pages import in_pieces

MOST_COUNTED = 10_000


@dataclass(slots=True, frozen=True)
class FailedList:
    """One page; ``total`` is how many there are, not how many are listed. ``more``: there are more than were
    counted."""

    tasks: list[Task]
    total: int
    more: bool = False


class FailureService(Service):
    async def list(
        self,
        which: FailureFilter = EVERY_FAILURE,
        *,
        limit: int = 50,
        offset: int = 0,
        before: int | None = None,
        most: int | None = None,
    ) -> FailedList:
        """Returns tasks that are failed now, the latest first. ``most``: where rows have to be counted, no more."""
        self._session.may(Role.VIEWER)
        which = await self._session.meant(which)
        found = await failures.list_failed(
            self._store, which, limit=limit, offset=offset, before=before, paged=self._session.paged
        )
        total = await self._store.count_failed(which, None if most is None else most + 1)
        more = most is not None and total == most + 1
        return FailedList(found, total - more, more)

    async def known(self, which: FailureFilter) -> FailureFilter:
        """Returns the same filter with its fingerprint in full; refuses a kind, queue, cause or batch that nobody
        knows. Actions call this themselves; a list for people should, a list for machines may be about what is still to
        come."""
        self._session.may(Role.VIEWER)
        return await self._session.known(which)

    async def search(
        self, words: str, which: FailureFilter = EVERY_FAILURE, *, before: int | None = None
    ) -> search.Found:
        """Returns causes and failed tasks in which all the words stand, the latest first, as far as one call looks;
        ``before`` of its answer goes on."""
        self._session.may(Role.VIEWER)
        meant = await self._session.known(which)
        return await search.search(self._store, words, meant, self._session.sight, before)

    async def count(self, which: FailureFilter = EVERY_FAILURE) -> int:
        self._session.may(Role.VIEWER)
        return await self._store.count_failed(await self._session.meant(which))

    async def end(self, which: FailureFilter = EVERY_FAILURE, limit: int = 1) -> tuple[builtins.list[int], int]:
        """Returns the places of the latest failures that match, and how many there are, as far as they are counted.
        Nothing waits for it: what happens at the same time may be in one of them, and in the other the next time."""
        self._session.may(Role.VIEWER)
        which = await self._session.meant(which)
        latest = await self._store.failed(which, limit=limit, newest=True, documents=0)
        return [task.failed_seq or 0 for task in latest], await self._store.count_failed(which, MOST_COUNTED)

    async def statistics(self, which: FailureFilter = EVERY_FAILURE) -> FailureStats:
        self._session.may(Role.VIEWER)
        return await failures.statistics(self._store, await self._session.known(which))

    @look("GET /api/failure-types")
    async def types(self, period: Period = "24h", queue: OfQueue = None, kind: OfKind = None) -> FailureTypesView:
        """What tasks are failed by now, and by what attempts failed over a period: model_error, param_error, timeout,
        network, unknown; of everything, or of a queue or kind. With the application's own rules for that."""
        await self._session.check_names(queue, kind)
        return await failure_types(self._store, self._session.registry.rules, period, queue, kind)

    async def dead_letters(
        self, which: FailureFilter = EVERY_FAILURE, *, limit: int = 50, before: UUID | None = None
    ) -> builtins.list[DeadLetter]:
        """Returns dead letters, newest first; they stay when the task is retried."""
        self._session.may(Role.VIEWER)
        if which.ids is not None:
            raise InvalidInput("dead letters are not filtered by taskIds", hint="/api/tasks/failed is")
        if which.join is not None:
            raise InvalidInput("dead letters are not filtered by batch", hint="failed tasks are: /api/tasks/failed")
        query = filters.query(which, limit=limit, before=before)
        if not self._session.paged:
            return await self._store.dead_letters(query)

        async def fetch(number: int, documents: int, last: DeadLetter | None) -> builtins.list[DeadLetter]:
            after = before if last is None else last.id
            return await self._store.dead_letters(replace(query, limit=number, documents=documents, before=after))

        return await in_pieces(limit, fetch)

    async def preview(
        self,
        which: FailureFilter = EVERY_FAILURE,
        *,
        page: int = 1,
        page_size: int = 50,
        limit: int | None = None,
        plan: str | None = None,
        bind: bool = True,
        most: int | None = None,
    ) -> Page:
        """Returns what a retry with the same filter and limit would reach; changes no task. With ``bind``, whoever may
        retry gets a plan with the first page: by it the retry is about exactly this set. ``most``: where rows have to
        be counted, no more are."""
        who = self._session.may(Role.VIEWER)
        may_retry = self._session.caller.role >= Role.OPERATOR
        bound = who if bind and may_retry and plan is None and page == 1 else None
        meant = await self._session.known(which)
        return await plans.preview(
            self._store,
            meant,
            page=page,
            page_size=page_size,
            limit=limit,
            plan=plan,
            bind=bound,
            paged=self._session.paged,
            most=most,
        )

    async def planned_at(self, plan: str) -> datetime:
        """Returns when a plan was made: what failed later, somebody who has it before them has not seen."""
        self._session.may(Role.VIEWER)
        return await plans.made_at(self._store, plan)

    async def retry_matching(
        self,
        which: FailureFilter = EVERY_FAILURE,
        *,
        reason: str | None = None,
        limit: int | None = None,
        plan: str | None = None,
        dry_run: bool = False,
    ) -> RetryResult:
        """Retries up to ``limit`` tasks that match, those that failed first; or exactly those of a plan. Whether a
        second operator is needed is judged by how many it retries; a dry run says so."""
        who = self._session.may(Role.OPERATOR)
        meant = await self._session.known(which)
        if meant.everything and plan is None and limit is None:
            raise InvalidInput("say which tasks", hint="a filter, taskIds, a planToken, or at least a limit")
        rule = self._session.policy.alone
        return await retry.retry_matching(
            self._store, meant, actor=who, reason=reason, limit=limit, plan=plan, dry_run=dry_run, rule=rule
        )

    async def retry(self, ids: Sequence[UUID], reason: str | None = None) -> Result:
        """Retries tasks by their ids. Several are one bulk action: those that are skipped get their audit row, too."""
        who, rule = self._session.may(Role.OPERATOR), self._session.policy.alone
        if len(ids) == 1:
            return await self._session.alone(
                PlannedAction(Action.RETRY, 1),
                lambda puts: actions.retry(self._store, ids, actor=who, reason=reason, puts=puts),
            )
        which = FailureFilter(ids=tuple(ids))
        done = await retry.retry_matching(self._store, which, actor=who, reason=reason, rule=rule)
        return Result(done.retried, [], done.skipped, operation=done.bulk_id)

    async def forget(self, ids: Sequence[UUID], reason: str | None = None) -> Result:
        """Gives failed tasks up: they go to history, from where they can be retried as long as it is kept."""
        who = self._session.may(Role.OPERATOR)
        return await self._session.alone(
            PlannedAction(Action.FORGET, len(set(ids))),
            lambda puts: actions.forget(self._store, ids, actor=who, reason=reason, puts=puts),
        )

    async def dry_run(self, ids: Sequence[UUID], possible: tuple[State, ...] = RETRYABLE_STATES) -> RetryResult:
        """Returns what would become of each of these, as of now, and whether a second operator would have to agree.
        ``possible``: the states from which it is done, where that is no retry."""
        self._session.may(Role.VIEWER)
        named = await select_named(self._store, EVERY_FAILURE, ids)
        would, skipped = await would_reach(self._store, named, possible)
        action = Action.RETRY if possible == RETRYABLE_STATES else Action.FORGET
        needed = await self._session.needs(PlannedAction(action, len(set(ids))))
        return RetryResult(
            len(ids), left=len(skipped), would_retry=would, skipped=skipped, dry_run=True, needs_approval=needed
        )

    async def select(self, which: FailureFilter, limit: int) -> Selection:
        """Returns what a replay would be about, from now on: what fails later is another matter. It is judged by its
        bound, also where that happens to be all there is."""
        self._session.may(Role.OPERATOR)
        return await select(self._store, await self._session.known(which), limit)

    async def foresee(self, *selections: Selection) -> RetryResult:
        """Returns what a replay would do, and whether a second operator would have to agree."""
        who = self._session.may(Role.OPERATOR)
        return await retry.foresee(self._store, selections, who, self._session.policy.alone)

    async def replay(
        self, *selections: Selection, reason: str | None = None, progress: Callable[[int], None] = lambda _: None
    ) -> RetryResult:
        """Retries here and now, piece by piece, the ones that failed first. All of them are counted with the first
        piece: it is refused as a whole, or not at all."""
        who, rule = self._session.may(Role.OPERATOR), self._session.policy.alone
        return await retry.retry_now(self._store, selections, actor=who, rule=rule, reason=reason, progress=progress)
