"""Plans: a preview that binds what is done with it to the same tasks, by the same failures."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from redrive.errors import ChangedMeanwhile, PlanUnknown
from redrive.kernel.commit import Commit
from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import facts, failures
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put, Record
from redrive.ops.matches import Matches, matching

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
