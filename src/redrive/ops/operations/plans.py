"""Plans: a preview that binds what is done with it to the same tasks, by the same failures."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from redrive.errors import ChangedMeanwhile, InvalidInput, PlanUnknown, StoreUnavailable
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import FailedRef, FailureFilter
from redrive.kernel.operation import facts, failures
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put, Record
from redrive.kernel.task import State, Task, check_int
from redrive.ops.failures import failed_in_pieces
from redrive.ops.operations.selection import (
    MOST_RETRIED_AT_ONCE,
    Matches,
    Selection,
    matching,
    select_named,
    withheld,
    would_reach,
)
from redrive.ops.pages import by_ids

COLLECTION = "plan"
PLAN_KEPT_S = 24 * 3600.0
MOST_TASKS_LISTED = 10_000  # so many tasks are listed in the plan itself; of larger ones only the boundary


@dataclass(slots=True, frozen=True)
class Plan:
    """``upto`` is the boundary: what failed later is not part of it. ``listed``: its tasks and the failures meant.
    ``letters``: also ``cancelled`` tasks are meant, by dead letters up to this one; in the list they have their places
    behind all that are failed."""

    token: str
    which: FailureFilter
    upto: int
    count: int
    listed: dict[UUID, int] | None
    letters: int = 0
    cancelled: int = 0
    until: int = 0  # when it was made: what is cancelled later is not part of it
    more: bool = False  # are meant than were counted

    @property
    def matches(self) -> Matches:
        """The set that it is about."""
        failed = self.count - self.cancelled
        return Matches(self.which, self.upto, failed, self.letters, self.cancelled, self.until, self.more)

    def given_up(self, place: int) -> bool:
        """Returns whether this task is meant as a cancelled one."""
        return place > self.upto


async def make(
    store: Store,
    which: FailureFilter,
    actor: str,
    *,
    cancelled: bool = False,
    limit: int | None = None,
    named: Sequence[UUID] | None = None,
    most: int | None = None,
) -> Plan:
    """Makes a plan. Who looks again within the hour, while nothing has changed, gets the same one. ``cancelled``: tasks
    that were given up are part of it. ``limit``: only so many, those that failed first. ``named``: exactly these of the
    filter's ids, also those that were given up without a dead letter. ``most``: where rows have to be counted, no more
    are; who carries it out counts all of them."""
    found = await matching(store, which, cancelled=cancelled, most=most)
    upto, letters, given_up = found.upto, found.letters, found.cancelled
    count = found.total
    asked = limit if named is None else [str(task_id) for task_id in named]
    # Tasks that are failed until then only become fewer, so that their number says whether it is the same set. Those
    # that are cancelled come and go: they have to be looked at.
    listed = await _list(store, found, limit) if given_up else None
    changing = None if not given_up else found.until if listed is None else [str(task_id) for task_id in listed]
    token = _token(which, actor, [upto, found.failed, letters, given_up, asked, changing], await store.now())
    if await store.record(COLLECTION, token) is not None:
        return await load(store, token)
    if listed is None:
        listed = await _list(store, found, limit)
    if listed is not None:
        if limit is not None and found.total > limit:  # its boundaries are those of what is listed
            behind = [place for place in listed.values() if found.given_up(place)]
            letters, given_up = (behind[-1] - upto, len(behind)) if behind else (0, 0)
            upto = upto if behind else max(listed.values(), default=upto)
        count = len(listed)  # some may have left since
    if named is not None:
        known = listed or {}
        listed = {task_id: known.get(task_id, upto + letters + n) for n, task_id in enumerate(named, 1)}
        listed = dict(sorted(listed.items(), key=lambda one: one[1]))
        count = len(listed)
        given_up = sum(found.given_up(place) for place in listed.values())
    body = {
        "which": facts(which),
        "upto": upto,
        "count": count,
        "actor": actor,
        "letters": letters,
        "cancelled": given_up,
        "until": found.until,
        "more": found.more,
        "listed": None if listed is None else [[str(task_id), seq] for task_id, seq in listed.items()],
    }
    try:
        await store.apply(Commit(puts=[Put(COLLECTION, token, body, keep=PLAN_KEPT_S)]))
    except ChangedMeanwhile:
        return await load(store, token)  # the same question, asked twice at once
    return Plan(token, which, upto, count, listed, letters, given_up, found.until, found.more)


async def _list(store: Store, found: Matches, limit: int | None) -> dict[UUID, int] | None:
    """Returns the tasks of a plan and their places; None where they are too many to be listed."""
    if limit is None and (found.total > MOST_TASKS_LISTED or found.more):
        return None
    first = await found.first(store, min(MOST_TASKS_LISTED, limit or MOST_TASKS_LISTED))
    return {one.id: one.failed_seq or 0 for one in first}


def _token(which: FailureFilter, actor: str, found: list[Any], now: datetime) -> str:
    """Returns the name of a plan. It opens nothing by itself: whoever uses it has to be allowed to retry."""
    what = json.dumps([facts(which), actor, found, now.strftime("%Y-%m-%dT%H")], sort_keys=True)
    return base64.urlsafe_b64encode(hashlib.sha256(what.encode()).digest()[:18]).decode()


async def made_at(store: Store, token: str) -> datetime:
    """Returns when a plan was made."""
    return (await _record(store, token)).created_at


async def load(store: Store, token: str) -> Plan:
    """Returns a plan that was made."""
    body = (await _record(store, token)).body
    listed = body["listed"]
    return Plan(
        token,
        failures(body["which"]),
        body["upto"],
        body["count"],
        None if listed is None else {UUID(task_id): seq for task_id, seq in listed},
        body["letters"],
        body["cancelled"],
        body["until"],
        body.get("more", False),
    )


async def _record(store: Store, token: str) -> Record:
    record = await store.record(COLLECTION, token)
    if record is None or record.created_at + timedelta(seconds=PLAN_KEPT_S) <= await store.now():
        raise PlanUnknown("there is no such plan", hint="a plan is kept for a day; make a new preview")
    return record


async def select_planned(store: Store, token: str) -> Selection:
    """Selects the tasks of a plan, one by one; refuses one that is too large for one transaction."""
    plan = await load(store, token)
    if plan.listed is None or len(plan.listed) > MOST_RETRIED_AT_ONCE:
        raise InvalidInput(
            f"the plan's {plan.count} tasks are more than the {MOST_RETRIED_AT_ONCE} of one call",
            hint="retry them as a bulk operation with the same plan",
        )
    tasks = [FailedRef(task_id, place, None) for task_id, place in plan.listed.items()]
    return Selection(plan.matches, len(tasks), tasks, plan=token, everything=plan.which.everything)


# -- previews, page by page --------------------------------------------------------------------------------------------


DEFAULT_PAGE = 50
LARGEST_PAGE = 500


@dataclass(slots=True)
class Page:
    """One page of a preview, the first failures first; ``total`` is exact, unless there are ``more`` than were
    counted."""

    tasks: list[Task]
    total: int
    page: int
    page_size: int
    plan: str | None = None
    planned: list[UUID] | None = None
    skipped: dict[UUID, str] = field(default_factory=dict)  # named, or on this page, and not retried: why
    more: bool = False

    @property
    def ids(self) -> list[UUID]:
        """The ids of its tasks; of a plan also those that have been dealt with since."""
        return [task.id for task in self.tasks] if self.planned is None else self.planned

    @property
    def pages(self) -> int:
        return -(-self.total // self.page_size)


async def preview(
    store: Store,
    which: FailureFilter,
    *,
    page: int = 1,
    page_size: int = DEFAULT_PAGE,
    limit: int | None = None,
    plan: str | None = None,
    bind: str | None = None,
    paged: bool = False,
    most: int | None = None,
) -> Page:
    """Returns what a retry with the same filter, and the same ``limit`` if there is one, would reach; changes nothing.
    ``bind`` (who asks) makes a plan of it; with ``plan`` the pages are those of that plan, whatever failed since.
    ``most``: where rows have to be counted, no more are."""
    check_int(page, "page", 1, 1_000_000)
    check_int(page_size, "page size", 1, LARGEST_PAGE)
    if limit is not None:
        check_int(limit, "limit", 1, MOST_RETRIED_AT_ONCE)
        if which.ids is not None:  # of those that are named the first ones, in whatever state they are
            which, limit = replace(which, ids=tuple(dict.fromkeys(which.ids))[:limit]), None
    found = await _preview(store, which, page, page_size, limit, plan, bind, paged, most)
    kept = await withheld(store, found.tasks)
    return replace(found, skipped={**found.skipped, **kept}) if kept else found


async def _preview(
    store: Store,
    which: FailureFilter,
    page: int,
    page_size: int,
    limit: int | None,
    plan: str | None,
    bind: str | None,
    paged: bool,
    most: int | None,
) -> Page:
    offset = (page - 1) * page_size
    if plan is not None:
        return await _page_of(store, await load(store, plan), page, page_size, paged)
    if which.ids is not None:
        return await _preview_named(store, which, which.ids, page, page_size, bind, paged)
    if bind is not None:
        try:
            made = await make(store, which, bind, cancelled=True, limit=limit, most=most)
            return await _page_of(store, made, page, page_size, paged)
        except StoreUnavailable:
            pass  # too busy for an exact moment: a preview is still worth having
    matches = await matching(store, which, endless=True, most=most)
    failed, letters = matches.failed, matches.letters
    total = matches.total if limit is None else min(matches.total, limit)
    size = max(min(page_size, total - offset), 0)
    found = await _tasks(store, which, size, offset, None, paged) if failed > offset and size else []
    found += await _cancelled_refs(store, which, size - len(found), max(offset - failed, 0), letters, paged)
    return Page(found, total, page, page_size, more=matches.more and limit is None)


async def _preview_named(
    store: Store, which: FailureFilter, ids: Sequence[UUID], page: int, page_size: int, bind: str | None, paged: bool
) -> Page:
    """Returns those of the named tasks that a retry would reach, and why it would not reach the others."""
    meant, skipped = await would_reach(store, await select_named(store, which, list(dict.fromkeys(ids))))
    if bind is not None:
        with suppress(StoreUnavailable):
            made = await make(store, which, bind, cancelled=True, named=meant)
            return replace(await _page_of(store, made, page, page_size, paged), skipped=skipped)
    on_page = meant[(page - 1) * page_size : page * page_size]
    found = await by_ids(store.get_many, on_page, paged)
    return Page(found, len(meant), page, page_size, planned=on_page, skipped=skipped)


async def _cancelled_refs(
    store: Store, which: FailureFilter, limit: int, offset: int, letters: int, paged: bool
) -> list[Task]:
    """Returns cancelled tasks whose last dead letter matches; they come behind all that are failed."""
    if not letters or limit <= 0:
        return []
    ids = [one.id for one in await store.failed_ids(which, limit=limit, offset=offset, upto=letters, cancelled=True)]
    return await by_ids(store.get_many, ids, paged)


async def _page_of(store: Store, plan: Plan, page: int, page_size: int, paged: bool) -> Page:
    offset = (page - 1) * page_size
    if plan.listed is None:
        found = await _tasks(store, plan.which, page_size, offset, plan.upto, paged)
        behind = max(offset - (plan.count - plan.cancelled), 0)
        found += await _cancelled_refs(store, plan.which, page_size - len(found), behind, plan.letters, paged)
        return Page(found, plan.count, page, page_size, plan.token, more=plan.more)
    ids = list(plan.listed)[offset : offset + page_size]
    failed = tuple(task_id for task_id in ids if not plan.given_up(plan.listed[task_id]))
    found = await _tasks(store, FailureFilter(ids=failed), page_size, 0, plan.upto, paged) if failed else []
    others = await by_ids(store.get_many, [task_id for task_id in ids if task_id not in failed], paged)
    found += [task for task in others if task.state is State.CANCELLED]
    return Page(found, plan.count, page, page_size, plan.token, ids)


async def _tasks(
    store: Store, which: FailureFilter, limit: int, offset: int, upto: int | None, paged: bool
) -> list[Task]:
    if paged:
        return await failed_in_pieces(store, which, limit, offset, upto)
    return await store.failed(which, limit=limit, offset=offset, upto=upto)
