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
    ENDLESS,
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
    """A set that was previewed. ``listed``: its tasks and their places (see ``Matches``); None where they are too many,
    and the set is known by its boundaries."""

    token: str
    matches: Matches
    listed: dict[UUID, int] | None

    @property
    def which(self) -> FailureFilter:
        return self.matches.which

    @property
    def count(self) -> int:
        return self.matches.total


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
    asked = limit if named is None else [str(task_id) for task_id in named]
    # Tasks that are failed until then only become fewer, so that their number says whether it is the same set. Those
    # that are cancelled come and go: they have to be looked at.
    listed = await _list(store, found, limit) if found.cancelled else None
    changing = None
    if found.cancelled:
        changing = found.until if listed is None else [str(task_id) for task_id in listed]
    known = [found.upto, found.failed, found.letters, found.cancelled, asked, changing]
    token = _token(which, actor, known, await store.now())
    if await store.record(COLLECTION, token) is not None:
        return await load(store, token)
    if listed is None:
        listed = await _list(store, found, limit)
    if named is not None:
        places = listed or {}
        listed = {task_id: places.get(task_id, found.upto + found.letters + n) for n, task_id in enumerate(named, 1)}
        listed = dict(sorted(listed.items(), key=lambda one: one[1]))
    if listed is not None:
        found = _narrowed(found, list(listed.values()), cut=limit is not None and found.total > limit)
    body = {
        "which": facts(which),
        "upto": found.upto,
        "count": found.total,
        "actor": actor,
        "letters": found.letters,
        "cancelled": found.cancelled,
        "until": found.until,
        "more": found.more,
        "listed": None if listed is None else [[str(task_id), seq] for task_id, seq in listed.items()],
    }
    try:
        await store.apply(Commit(puts=[Put(COLLECTION, token, body, keep=PLAN_KEPT_S)]))
    except ChangedMeanwhile:
        return await load(store, token)  # the same question, asked twice at once
    return Plan(token, found, listed)


def _narrowed(found: Matches, places: Sequence[int], cut: bool) -> Matches:
    """Returns the set of what is listed: some may have left since. Where the list was ``cut``, it ends with that."""
    behind = [place for place in places if found.given_up(place)]
    upto, letters = found.upto, found.letters
    if cut:
        letters = behind[-1] - upto if behind else 0
        upto = upto if behind else max(places, default=upto)
    return replace(found, upto=upto, failed=len(places) - len(behind), letters=letters, cancelled=len(behind))


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
    failed = body["count"] - body["cancelled"]
    return Plan(
        token,
        Matches(
            failures(body["which"]),
            body["upto"],
            failed,
            body["letters"],
            body["cancelled"],
            body["until"],
            body.get("more", False),
        ),
        None if listed is None else {UUID(task_id): seq for task_id, seq in listed},
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
    part = _Part(page, page_size, paged)
    if plan is not None:
        found = await _page_of(store, await load(store, plan), part)
    elif which.ids is not None:
        found = await _preview_named(store, which, which.ids, part, bind)
    else:
        found = await _preview_matching(store, which, part, limit, bind, most)
    kept = await withheld(store, found.tasks)
    return replace(found, skipped={**found.skipped, **kept}) if kept else found


@dataclass(slots=True, frozen=True)
class _Part:
    """Which page is wanted; ``paged``: with documents as text, as far as the budget of a page goes."""

    page: int
    size: int
    paged: bool

    @property
    def offset(self) -> int:
        return (self.page - 1) * self.size


async def _preview_named(
    store: Store, which: FailureFilter, ids: Sequence[UUID], part: _Part, bind: str | None
) -> Page:
    """Returns those of the named tasks that a retry would reach, and why it would not reach the others."""
    meant, skipped = await would_reach(store, await select_named(store, which, list(dict.fromkeys(ids))))
    if bind is not None:
        with suppress(StoreUnavailable):
            made = await make(store, which, bind, cancelled=True, named=meant)
            return replace(await _page_of(store, made, part), skipped=skipped)
    on_page = meant[part.offset : part.offset + part.size]
    found = await by_ids(store.get_many, on_page, part.paged)
    return Page(found, len(meant), part.page, part.size, planned=on_page, skipped=skipped)


async def _preview_matching(
    store: Store, which: FailureFilter, part: _Part, limit: int | None, bind: str | None, most: int | None
) -> Page:
    if bind is not None:
        with suppress(StoreUnavailable):  # too busy for an exact moment: a preview is still worth having
            return await _page_of(store, await make(store, which, bind, cancelled=True, limit=limit, most=most), part)
    matches = await matching(store, which, endless=True, most=most)
    total = matches.total if limit is None else min(matches.total, limit)
    found = await _stretch(store, matches, part.offset, min(part.size, total - part.offset), part.paged)
    return Page(found, total, part.page, part.size, more=matches.more and limit is None)


async def _page_of(store: Store, plan: Plan, part: _Part) -> Page:
    if plan.listed is None:
        found = await _stretch(store, plan.matches, part.offset, part.size, part.paged)
        return Page(found, plan.count, part.page, part.size, plan.token, more=plan.matches.more)
    ids = list(plan.listed)[part.offset : part.offset + part.size]
    failed = [task_id for task_id in ids if not plan.matches.given_up(plan.listed[task_id])]
    listed = replace(plan.matches, which=FailureFilter(ids=tuple(failed)), letters=0)
    found = await _stretch(store, listed, 0, len(failed), part.paged)
    others = await by_ids(store.get_many, [task_id for task_id in ids if task_id not in failed], part.paged)
    found += [task for task in others if task.state is State.CANCELLED]
    return Page(found, plan.count, part.page, part.size, plan.token, ids)


async def _stretch(store: Store, matches: Matches, offset: int, size: int, paged: bool) -> list[Task]:
    """Returns some tasks of a set, from a place on: those that are failed, and behind them those that are cancelled
    now and whose last dead letter matches."""
    upto = None if matches.upto == ENDLESS else matches.upto
    found = list[Task]()
    if size > 0 and matches.failed > offset:
        if paged:
            found = await failed_in_pieces(store, matches.which, size, offset, upto)
        else:
            found = await store.failed(matches.which, limit=size, offset=offset, upto=upto)
    left, behind = size - len(found), max(offset - matches.failed, 0)
    if not matches.letters or left <= 0:
        return found
    refs = await store.failed_ids(matches.which, limit=left, offset=behind, upto=matches.letters, cancelled=True)
    return found + await by_ids(store.get_many, [one.id for one in refs], paged)
