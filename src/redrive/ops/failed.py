"""Failed tasks: list, count, preview, and retry some of them or all that match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

from redrive.errors import InvalidInput, StoreUnavailable
from redrive.ids import new_id
from redrive.kernel.audit import BulkAction, skip_reason
from redrive.kernel.commit import Commit
from redrive.kernel.failed import FailedCount, FailedRef, FailureFilter
from redrive.kernel.failure import FailureType
from redrive.kernel.machine import DeadReason, Event, Transition
from redrive.kernel.operation import Action, Operation, Status, facts
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put
from redrive.kernel.task import State, Task, check_int, check_text
from redrive.kernel.trace import trace_id_of
from redrive.ops import approvals, inspect, plans
from redrive.ops.actions import check_actor, check_reason
from redrive.ops.allowance import PlannedAction, Rule, alone, judge
from redrive.ops.matches import Matches, matching
from redrive.ops.moments import parse_span
from redrive.ops.pages import by_ids, in_pieces
from redrive.ops.retry_log import log_retried
from redrive.ops.withheld import withheld, withheld_of

MOST_RETRIED_AT_ONCE = 500
DEFAULT_RETRY_LIMIT = 50
LARGEST_PAGE = 500
MOST_CAUSES = 100
MOST_LISTED = 1000
EVERY_FAILURE = FailureFilter()
RETRYABLE_STATES = (State.FAILED, State.CANCELLED)
_COUNTED_BY = {
    "kind": "kind",
    "group": "group",
    "code": "error_code",
    "type": "failure_type",
    "reason": "dead_reason",
    "cause": "fingerprint",
}


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


@dataclass(slots=True)
class BulkResult:
    """What a retry of many did, or with ``dry_run`` would do; a dry run has no id and retried none, nor has what found
    nothing to do."""

    bulk_id: str | None
    matched: int
    retried: list[UUID] = field(default_factory=list)
    would_retry: list[UUID] = field(default_factory=list)
    skipped: dict[UUID, str] = field(default_factory=dict)
    dry_run: bool = False
    needs_approval: str | None = None  # why a second operator would have to agree


@dataclass(slots=True)
class Selection:
    """The tasks that a request is about, each with the failure that is meant (its ``failed_seq``; None: any), and those
    that were named but do not match the other filters. ``cancelled``: those of them that are meant as given up.
    ``which``, ``plan``: what they were chosen by; ``everything``: it is about all there is."""

    meant: Mapping[UUID, int | None]
    cancelled: frozenset[UUID] = frozenset()
    excluded: Mapping[UUID, str] = field(default_factory=dict)
    which: FailureFilter = EVERY_FAILURE
    plan: str | None = None
    everything: bool = False


@dataclass(slots=True)
class FailureStats:
    """How many tasks are failed now, by what they have in common: the largest 1,000 of each, of causes the largest
    100."""

    total: int
    by_kind: dict[str, int]
    by_group: dict[str, int]
    by_code: dict[str, int]
    by_type: dict[str, int]
    by_reason: dict[str, int]
    by_fingerprint: dict[str, int]


def together(found: Iterable[FailureStats]) -> FailureStats:
    """Returns the counts of several stores added up, the largest first."""
    listed = list(found)
    sums: dict[str, Counter[str]] = {name: Counter() for name in FailureStats.__dataclass_fields__ if name != "total"}
    for one in listed:
        for name, counts in sums.items():
            counts.update(getattr(one, name))
    return FailureStats(sum(one.total for one in listed), **{n: dict(c.most_common()) for n, c in sums.items()})


async def list_failed(
    store: Store,
    which: FailureFilter = EVERY_FAILURE,
    *,
    limit: int = DEFAULT_RETRY_LIMIT,
    offset: int = 0,
    before: int | None = None,
    paged: bool = False,
) -> list[Task]:
    """Returns failed tasks newest first; ``before`` is the ``failed_seq`` of the last one seen, and stays stable while
    more fail. ``paged``: with documents as text, as far as the budget of a page goes."""
    check_int(limit, "limit", 1, 1000)
    check_int(offset, "offset", 0, 10_000_000)
    # Where totals say that there are none, no index has to be walked to find out.
    if await store.count_failed(which, offset + 1) <= offset:
        return []
    upto = None if before is None else before - 1
    if paged:
        return await _paged(store, which, limit, offset, upto, newest=True)
    return await store.failed(which, limit=limit, offset=offset, upto=upto, newest=True)


async def _paged(
    store: Store, which: FailureFilter, limit: int, offset: int = 0, upto: int | None = None, *, newest: bool = False
) -> list[Task]:
    async def fetch(number: int, documents: int, last: Task | None) -> list[Task]:
        seq = None if last is None else last.failed_seq or 0
        below, above = (upto if seq is None else seq - 1, 0) if newest else (upto, seq or 0)
        return await store.failed(
            which,
            limit=number,
            offset=offset if last is None else 0,
            after=above,
            upto=below,
            newest=newest,
            documents=documents,
        )

    return await in_pieces(limit, fetch)


async def preview(
    store: Store,
    which: FailureFilter,
    *,
    page: int = 1,
    page_size: int = DEFAULT_RETRY_LIMIT,
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
        return await _page_of(store, await plans.load(store, plan), page, page_size, paged)
    if which.ids is not None:
        return await _preview_named(store, which, which.ids, page, page_size, bind, paged)
    if bind is not None:
        try:
            made = await plans.make(store, which, bind, cancelled=True, limit=limit, most=most)
            return await _page_of(store, made, page, page_size, paged)
        except StoreUnavailable:
            pass  # too busy for an exact moment: a preview is still worth having
    matches = await matching(store, which, endless=True, most=most)
    failed, letters = matches.failed, matches.letters
    total = matches.total if limit is None else min(matches.total, limit)
    size = max(min(page_size, total - offset), 0)
    found = await _tasks(store, which, size, offset, None, paged) if failed > offset and size else []
    found += await _given_up(store, which, size - len(found), max(offset - failed, 0), letters, paged)
    return Page(found, total, page, page_size, more=matches.more and limit is None)


async def _preview_named(
    store: Store, which: FailureFilter, ids: Sequence[UUID], page: int, page_size: int, bind: str | None, paged: bool
) -> Page:
    """Returns those of the named tasks that a retry would reach, and why it would not reach the others."""
    told = await dry_run_by_id(store, await _named(store, which, list(dict.fromkeys(ids))))
    meant = told.would_retry
    if bind is not None:
        with suppress(StoreUnavailable):
            made = await plans.make(store, which, bind, cancelled=True, named=meant)
            return replace(await _page_of(store, made, page, page_size, paged), skipped=told.skipped)
    shown = meant[(page - 1) * page_size : page * page_size]
    found = await by_ids(store.get_many, shown, paged)
    return Page(found, len(meant), page, page_size, planned=shown, skipped=told.skipped)


async def _given_up(
    store: Store, which: FailureFilter, limit: int, offset: int, letters: int, paged: bool
) -> list[Task]:
    """Returns cancelled tasks whose last dead letter matches; they come behind all that are failed."""
    if not letters or limit <= 0:
        return []
    ids = [one.id for one in await store.failed_ids(which, limit=limit, offset=offset, upto=letters, cancelled=True)]
    return await by_ids(store.get_many, ids, paged)


async def _page_of(store: Store, plan: plans.Plan, page: int, page_size: int, paged: bool) -> Page:
    offset = (page - 1) * page_size
    if plan.listed is None:
        found = await _tasks(store, plan.which, page_size, offset, plan.upto, paged)
        behind = max(offset - (plan.count - plan.cancelled), 0)
        found += await _given_up(store, plan.which, page_size - len(found), behind, plan.letters, paged)
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
        return await _paged(store, which, limit, offset, upto)
    return await store.failed(which, limit=limit, offset=offset, upto=upto)


async def retry_matching(
    store: Store,
    which: FailureFilter = EVERY_FAILURE,
    *,
    actor: str,
    rule: Rule,
    reason: str | None = None,
    limit: int | None = None,
    plan: str | None = None,
    dry_run: bool = False,
) -> BulkResult:
    """Retries up to ``limit`` tasks that match, the ones that failed first; or exactly those of a plan. Tasks that are
    named, by id or by the plan, and in no state to be retried are returned, and audited, as skipped. What a second
    operator has to agree to is refused: it is judged by how many it retries, with what the same person did lately."""
    who, why = check_actor(actor), check_reason(reason)
    chosen = await _chosen(store, which, limit) if plan is None else await _planned(store, plan, which, limit)
    everything = approvals.EVERYTHING_RETRIED if chosen.everything and chosen.meant else None
    planned = PlannedAction(Action.RETRY, len(chosen.meant), everything)
    if dry_run:
        told = await dry_run_by_id(store, chosen)
        told.needs_approval = (await judge(store, rule, who, planned)).why
        return told
    return await alone(
        store, rule, who, planned, lambda puts: retry_tasks(store, chosen, retry_here(chosen, who, why), puts)
    )


def retry_here(chosen: Selection, actor: str, reason: str | None) -> Operation:
    """Returns the operation of a retry that its caller carries out: it is over as far as it has come, so that no worker
    goes on with it, and says what became of its tasks as others do."""
    return Operation(
        str(new_id()), Action.RETRY, chosen.which, actor, reason, 0, status=Status.COMPLETED, plan=chosen.plan
    )


async def retry_tasks(store: Store, chosen: Selection, operation: Operation, puts: Sequence[Put] = ()) -> BulkResult:
    """Retries these tasks, each only if it is still failed by the failure that is meant, as a piece of an operation
    that its caller carries out. ``puts`` land with them."""
    bulk_id, name, actor, reason = operation.id, operation.audited, operation.actor, operation.reason
    if not chosen.meant and not chosen.excluded:
        return BulkResult(None, 0)
    result = BulkResult(bulk_id, len(chosen.meant), skipped=dict(chosen.excluded))
    moves = [
        Transition(
            task_id,
            Event.REDRIVE,
            State.QUEUED,
            actor=actor,
            reason=reason,
            action=f"{name}_ITEM",
            bulk_id=bulk_id,
            seen=seen,
            sources=(State.CANCELLED,) if task_id in chosen.cancelled else None,
        )
        for task_id, seen in chosen.meant.items()
    ]
    told_of = facts(chosen.which) if chosen.plan is None else {"plan": chosen.plan}
    bulk = BulkAction(bulk_id, actor, name, reason, told_of, excluded=chosen.excluded)
    mine = operation.carried_out(chosen.meant, len(chosen.excluded))
    applied = await store.apply(Commit(transitions=moves, bulk=bulk, puts=[mine, *puts]))
    result.retried = [task_id for task_id in chosen.meant if task_id not in applied.skipped]
    result.skipped |= {task_id: skip_reason(state) for task_id, state in applied.skipped.items()}
    await log_retried(store, result.retried, actor=actor, reason=reason, bulk_id=bulk_id)
    return result


@dataclass(slots=True)
class Replayed:
    """What a replay did, or with ``dry_run`` would do. ``cancelled``: how many of the matched were cancelled.
    ``bulk_ids``: the operations that say what becomes of them."""

    matched: int = 0
    cancelled: int = 0
    retried: int = 0
    skipped: int = 0
    dry_run: bool = False
    needs_approval: str | None = None
    bulk_ids: list[str] = field(default_factory=list)


async def replay(
    store: Store,
    matches: Matches,
    *,
    actor: str,
    reason: str | None,
    limit: int,
    progress: Callable[[int], None] = lambda _: None,
    puts: Sequence[Put] = (),
) -> Replayed:
    """Retries here and now, piece by piece, the ones that failed first. ``puts`` land with the first piece."""
    sums, after = Replayed(), 0
    operation = retry_here(Selection({}, which=matches.which), check_actor(actor), check_reason(reason))
    while sums.matched < limit:
        piece = min(MOST_RETRIED_AT_ONCE, limit - sums.matched)
        found = await matches.next(store, piece, after)
        if not found:
            break
        after = found[-1].failed_seq or after
        meant = _selected(matches, found)
        result = await retry_tasks(store, meant, operation, puts)
        puts = ()
        operation = operation.after_piece(len(result.retried), len(result.skipped))
        sums.matched += result.matched
        sums.cancelled += len(meant.cancelled)
        sums.retried += len(result.retried)
        sums.skipped += len(result.skipped)
        sums.bulk_ids = [operation.id]
        progress(result.matched)
    return sums


async def statistics(store: Store, which: FailureFilter = EVERY_FAILURE) -> FailureStats:
    """Returns totals by what failures have in common. They are kept, so nothing is counted; not by scope, trace or
    id."""
    if which == EVERY_FAILURE:
        sums = await store.failed_sums(MOST_LISTED)
    else:
        sums = _sums(await _counted(store, which))

    def by(name: str, most: int = MOST_LISTED) -> dict[str, int]:
        return dict(list(sums.get(name, {}).items())[:most])

    return FailureStats(
        sums.get("total", {}).get("", 0),
        by("kind"),
        by("group"),
        by("code"),
        by("type"),
        by("reason"),
        by("cause", MOST_CAUSES),
    )


async def _counted(store: Store, which: FailureFilter) -> list[FailedCount]:
    if which.unsummed:
        named = " and ".join(name.replace("_", " ") for name in which.unsummed)
        raise InvalidInput(f"totals are not kept by {named}", hint="leave that filter out; redrive failed lists by it")
    found = await store.failed_counts(None if which.fingerprint is None else [which.fingerprint])
    return [one for one in found if which.sums(one)]


def _sums(counts: Sequence[FailedCount]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {name: Counter() for name in ("total", *_COUNTED_BY)}
    for count in counts:
        found["total"][""] += count.n
        for name, column in _COUNTED_BY.items():
            found[name][getattr(count, column) or ""] += count.n
    return {name: dict(sums.most_common()) for name, sums in found.items()}


async def _chosen(store: Store, which: FailureFilter, limit: int | None) -> Selection:
    most = _limited(which, limit)
    if which.ids is not None:
        return await _named(store, which, list(dict.fromkeys(which.ids))[:most])
    matches = await matching(store, which, endless=True, most=most)
    found = await matches.first(store, most)
    return _selected(matches, found)


def _selected(matches: Matches, found: Sequence[FailedRef]) -> Selection:
    cancelled = frozenset(one.id for one in found if matches.given_up(one.failed_seq or 0))
    meant = {one.id: None if one.id in cancelled else one.failed_seq for one in found}
    return Selection(meant, cancelled, which=matches.which)


async def _named(store: Store, which: FailureFilter, ids: list[UUID]) -> Selection:
    """Selects tasks by their ids: what cannot be retried is returned as skipped. Other filters narrow the list, and
    what they leave out is returned as skipped, too."""
    if which == FailureFilter(ids=which.ids):
        return Selection(dict.fromkeys(ids), which=which)
    found = await store.get_many(ids)
    excluded = {task_id: why for task_id in ids if (why := _unfit(found.get(task_id), which)) is not None}
    meant = {
        task_id: found[task_id].failed_seq if found[task_id].state is State.FAILED else None
        for task_id in ids
        if task_id not in excluded
    }
    return Selection(meant, excluded=excluded, which=which)


def _unfit(task: Task | None, which: FailureFilter) -> str | None:
    if task is None or task.state not in RETRYABLE_STATES:
        return skip_reason(None if task is None else task.state.value)
    return which.unlike(task)


async def _planned(store: Store, token: str, which: FailureFilter, limit: int | None) -> Selection:
    if which != EVERY_FAILURE or limit is not None:
        raise InvalidInput("a plan says what is retried", hint="leave the filters and the limit out")
    plan = await plans.load(store, token)
    if plan.listed is None or len(plan.listed) > MOST_RETRIED_AT_ONCE:
        raise InvalidInput(
            f"the plan's {plan.count} tasks are more than the {MOST_RETRIED_AT_ONCE} of one call",
            hint="retry them as a bulk operation with the same plan",
        )
    cancelled = frozenset(task_id for task_id, place in plan.listed.items() if plan.given_up(place))
    meant = {task_id: None if task_id in cancelled else place for task_id, place in plan.listed.items()}
    return Selection(meant, cancelled, {}, plan.which, token, everything=plan.which.everything)


def _limited(which: FailureFilter, limit: int | None) -> int:
    if limit is not None:
        return check_int(limit, "limit", 1, MOST_RETRIED_AT_ONCE)
    wanted = DEFAULT_RETRY_LIMIT if which.ids is None else len(set(which.ids))
    if wanted > MOST_RETRIED_AT_ONCE:
        raise InvalidInput(
            f"{wanted} tasks are more than the {MOST_RETRIED_AT_ONCE} of one call",
            hint="retry them in several calls, or as a bulk operation",
        )
    return wanted


async def dry_run_by_id(store: Store, chosen: Selection, possible: tuple[State, ...] = RETRYABLE_STATES) -> BulkResult:
    """Returns what would become of each task, as of now."""
    result = BulkResult(None, len(chosen.meant), skipped=dict(chosen.excluded), dry_run=True)
    found = await store.statuses(chosen.meant)
    for task_id, seen in chosen.meant.items():
        task = found.get(task_id)
        wanted = (State.CANCELLED,) if task_id in chosen.cancelled else possible
        if task is not None and task.state in wanted and seen in (None, task.failed_seq):
            result.would_retry.append(task_id)
        else:
            means = " or ".join(possible)
            result.skipped[task_id] = skip_reason(None if task is None else task.state.value, means)
    return await _without_withheld(store, result) if possible == RETRYABLE_STATES else result


async def _without_withheld(store: Store, result: BulkResult) -> BulkResult:
    kept = await withheld_of(store, result.would_retry)
    result.would_retry = [task_id for task_id in result.would_retry if task_id not in kept]
    result.skipped |= kept
    return result


def failures(**texts: str | None) -> FailureFilter:
    """Makes a filter of what people give, checked. Codes are the applications' own; types and dead reasons are
    known."""
    known: dict[str, type[StrEnum]] = {"failure_type": FailureType, "dead_reason": DeadReason}
    for name, values in known.items():
        given = texts.get(name)
        if given is not None and given not in list(values):
            raise InvalidInput(f"{given!r} is no {name.replace('_', ' ')}", hint=f"one of: {', '.join(values)}")
    checked: dict[str, Any] = {name: check_text(value, name) for name, value in texts.items()}
    checked["trace_id"] = trace_id_of(checked.get("trace_id"))
    if checked.get("join") is not None:
        checked["join"] = str(inspect.parse_id(checked["join"]))
    checked["since"], checked["until"] = parse_span(checked.get("since"), checked.get("until"))
    return FailureFilter(**checked)


def parse_ids(values: Sequence[str]) -> tuple[UUID, ...]:
    return tuple(inspect.parse_id(value) for value in values)
